//! The interpreter: what compiled code must agree with on every input, to the bit.
//! Promises: no unsafe code, every access checked, every step counted, every bound of the certificate asserted. An
//! access that the verifier should have excluded panics and names the broken invariant; bytes from a peer alone can
//! never cause that.
//! Refuses: speed. It allocates registers on each call.
//! Source: one reference for several engines, as Cranelift's `clif-util run` and rbpf's interpreter are.

mod activation;
mod effects;
mod host;
mod scan;

use std::sync::{Arc, OnceLock};

use flick_abi::{AskList, Engine, Frame, FuncId, NoHost, ParseStep, RuleCall, RuleOutcome, SendList};

use crate::bounds::{FunctionBounds, bounds};
use crate::cfg::Cfg;
use crate::data::{BlockId, FuncKind, Function, Module};
pub use activation::Visitor;
use activation::{Activation, Ending, Through};

/// Runs a module by walking its instructions.
#[derive(Clone, Debug)]
pub struct Interpreter {
    module: Arc<Module>,
    loops: Arc<[FunctionLoops]>,
    /// The bounds of an activation, by function; computed at the first call.
    certificate: Arc<OnceLock<Vec<FunctionBounds>>>,
}

/// The back edges of a function.
#[derive(Clone, Debug, Default)]
struct FunctionLoops {
    /// Blocks that jump back to each block; empty in a function without loops.
    latches: Vec<Vec<BlockId>>,
}

impl FunctionLoops {
    fn new(function: &Function) -> Self {
        let mut latches = Vec::new();
        if function.blocks.iter().any(|block| block.trips_max.is_some()) {
            latches = vec![Vec::new(); function.blocks.len()];
            for found in Cfg::new(function).loops() {
                latches[found.head.0 as usize] = found.latches;
            }
        }
        Self { latches }
    }
}

/// The observer of a running call.
#[derive(Default)]
struct Hooks<'a, 'c> {
    through: Through<'a, 'c>,
    visitor: Option<Visitor<'a>>,
}

/// The resources that one call has used.
#[derive(Clone, Copy, Debug)]
struct Used {
    steps: u64,
    sends: usize,
    asks: usize,
    out_bytes: usize,
}

impl Interpreter {
    /// Makes an engine of a module. The module must pass [`crate::verify::verify`]; what it would have refused
    /// panics here when it is reached.
    pub fn new(module: impl Into<Arc<Module>>) -> Self {
        let module = module.into();
        let loops = module.functions.iter().map(FunctionLoops::new).collect();
        Self { module, loops, certificate: Arc::default() }
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Returns the bounds of a call, by function.
    pub fn certificate(&self) -> &[FunctionBounds] {
        self.certificate.get_or_init(|| bounds(&self.module))
    }

    /// As [`Engine::parse`], and the steps used.
    pub fn parse_counted(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> (ParseStep, u64) {
        self.parse_with(parser, frame, data, None)
    }

    /// As [`Engine::parse`]; `visitor` is called for each block that it enters. For tests that measure what they reach.
    pub fn parse_visited(
        &self,
        parser: FuncId,
        frame: &mut Frame,
        data: &[u8],
        visitor: Visitor<'_>,
    ) -> ParseStep {
        self.parse_with(parser, frame, data, Some(visitor)).0
    }

    fn parse_with(
        &self,
        parser: FuncId,
        frame: &mut Frame,
        data: &[u8],
        visitor: Option<Visitor<'_>>,
    ) -> (ParseStep, u64) {
        let before = frame.clone();
        let ending = with_call(&before, data, &mut [], |call| {
            let args = [0, data.len() as u64];
            let visitor: Option<Visitor<'_>> =
                if let Some(visitor) = visitor { Some(&mut *visitor) } else { None };
            let hooks = Hooks { through: None, visitor };
            let (ending, after, steps) = self.enter(parser, FuncKind::Parser, call, &args, hooks);
            *frame = after;
            (ending, steps)
        });
        match ending {
            (Ending::Step(step), steps) => (step, steps),
            _ => panic!("a parser ends in a step"),
        }
    }

    /// As [`Engine::run`], and the steps used.
    pub fn run_counted(&self, rule: FuncId, call: &mut RuleCall<'_>) -> (RuleOutcome, u64) {
        self.run_with(rule, call, Hooks::default())
    }

    /// As [`Engine::run`]; `visitor` is called for each block that it enters.
    pub fn run_visited(&self, rule: FuncId, call: &mut RuleCall<'_>, visitor: Visitor<'_>) -> RuleOutcome {
        self.run_with(rule, call, Hooks { through: None, visitor: Some(&mut *visitor) }).0
    }

    fn run_with<'c>(
        &self,
        rule: FuncId,
        call: &mut RuleCall<'c>,
        hooks: Hooks<'_, 'c>,
    ) -> (RuleOutcome, u64) {
        let args = [0, call.source_element];
        match self.enter(rule, FuncKind::Rule, call, &args, hooks) {
            (Ending::Suspended(state), _, steps) => (RuleOutcome::Suspended(state), steps),
            (Ending::Returned(_), _, steps) => {
                assert!(call.asks.as_slice().is_empty(), "a rule waits for what it has asked");
                (RuleOutcome::Finished, steps)
            }
            (Ending::Step(_), ..) => panic!("a rule returns or waits"),
        }
    }

    /// Runs a rule in one go, whether or not the spill pass has seen it: at each suspension `answer` takes what was
    /// asked and puts the answers in its place, and the rule goes on with all it knows. What suspensions are compared
    /// with.
    #[cfg(any(test, feature = "random"))]
    pub fn run_through<'c>(
        &self,
        rule: FuncId,
        call: &mut RuleCall<'c>,
        answer: &mut dyn FnMut(&mut RuleCall<'c>),
    ) {
        let args = [0, call.source_element];
        self.enter(rule, FuncKind::Rule, call, &args, Hooks { through: Some(answer), visitor: None });
    }

    /// As [`Engine::order`], and the steps used.
    pub fn order_counted(&self, order: FuncId, call: &mut RuleCall<'_>) -> (i64, u64) {
        match self.enter(order, FuncKind::Order, call, &[0], Hooks::default()) {
            (Ending::Returned(Some(word)), _, steps) => (word as i64, steps),
            _ => panic!("an order returns a number"),
        }
    }

    /// As [`Engine::build`], and the steps used.
    pub fn build_counted(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> (usize, u64) {
        with_call(frame, &[], out, |call| {
            let (_, _, steps) = self.enter(builder, FuncKind::Builder, call, &[0], Hooks::default());
            (call.out_len, steps)
        })
    }

    /// Runs a function from its entry.
    fn enter<'c>(
        &self,
        id: FuncId,
        kind: FuncKind,
        call: &mut RuleCall<'c>,
        args: &[u64],
        hooks: Hooks<'_, 'c>,
    ) -> (Ending, Frame, u64) {
        let index = id.0 as usize;
        let function = self.module.functions.get(index);
        let function = function.expect("the platform calls only functions of the program");
        assert!(function.kind == kind, "`{}` was called as a {kind:?}", function.name);
        let before = Used {
            steps: 0,
            sends: call.sends.as_slice().len(),
            asks: call.asks.as_slice().len(),
            out_bytes: call.out_len,
        };
        let frame = call.frame.clone();
        let (module, loops) = (&*self.module, &*self.loops);
        let Hooks { through, visitor } = hooks;
        let through: Through<'_, 'c> = if let Some(answer) = through { Some(&mut *answer) } else { None };
        let visitor: Option<Visitor<'_>> =
            if let Some(visitor) = visitor { Some(&mut *visitor) } else { None };
        let mut activation =
            Activation { module, loops, frame, call: &mut *call, through, visitor, steps: 0 };
        let ending = activation.run(index, args);
        let (frame, steps) = (activation.frame, activation.steps);
        let used = Used {
            steps,
            sends: call.sends.as_slice().len() - before.sends,
            asks: call.asks.as_slice().len() - before.asks,
            out_bytes: call.out_len - before.out_bytes,
        };
        self.check_certificate(index, used);
        (ending, frame, steps)
    }

    fn check_certificate(&self, index: usize, used: Used) {
        let (bound, name) = (&self.certificate()[index], &self.module.functions[index].name);
        let steps = bound.all_steps();
        assert!(used.steps <= steps, "`{name}` takes {} steps, certified {steps}", used.steps);
        assert!(used.sends as u64 <= bound.sends, "`{name}` sends more than certified: {}", used.sends);
        assert!(used.asks as u64 <= bound.asks_total, "`{name}` asks more than certified: {}", used.asks);
        let out_bytes = used.out_bytes as u64;
        assert!(
            out_bytes <= bound.all_out_bytes(),
            "`{name}` builds {out_bytes} bytes, certified {}",
            bound.all_out_bytes()
        );
    }
}

/// Calls `run` with what a parser or builder sees: a frame, perhaps a message, perhaps output, and nothing else.
fn with_call<T>(
    frame: &Frame,
    message: &[u8],
    out: &mut [u8],
    run: impl FnOnce(&mut RuleCall<'_>) -> T,
) -> T {
    run(&mut RuleCall {
        frame,
        message,
        others: &[],
        source_element: 0,
        channel_lens: &[],
        counters: &[],
        out,
        out_len: 0,
        sends: &mut SendList::new(),
        asks: &mut AskList::new(),
        answers: &[],
        spills: &mut [],
        resume: 0,
        state: &mut [],
        failure: None,
        host: &mut NoHost,
    })
}

impl Engine for Interpreter {
    fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        self.parse_counted(parser, frame, data).0
    }

    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome {
        self.run_counted(rule, call).0
    }

    fn order(&self, order: FuncId, call: &mut RuleCall<'_>) -> i64 {
        self.order_counted(order, call).0
    }

    fn build(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> usize {
        self.build_counted(builder, frame, out).0
    }
}
