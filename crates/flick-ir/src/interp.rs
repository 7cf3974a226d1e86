//! The interpreter: what compiled code must agree with on every input, to the bit.
//! Promises: no unsafe code, every access checked, every step counted. An access that the verifier should have
//! excluded panics and names the broken invariant; bytes from a peer alone can never cause that.
//! Refuses: speed. It allocates registers on each call.
//! Source: one reference for several engines, as Cranelift's `clif-util run` and rbpf's interpreter are.

mod activation;

use std::sync::Arc;

use flick_abi::{Engine, Frame, FuncId, RuleCall, SendList, Step};

use crate::data::{FuncKind, Function, Module};
use activation::{Activation, Outcome};

/// Runs a module by walking its instructions.
#[derive(Clone, Debug)]
pub struct Interpreter {
    module: Arc<Module>,
}

impl Interpreter {
    /// Makes an engine of a module. The module must pass [`crate::verify::verify`]; what it would have refused
    /// panics here when it is reached.
    pub fn new(module: impl Into<Arc<Module>>) -> Self {
        Self { module: module.into() }
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// As [`Engine::parse`], and the steps used.
    pub fn parse_counted(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> (Step, u64) {
        let function = self.function(parser, FuncKind::Parser);
        let mut sends = SendList::new();
        let mut activation = Activation {
            module: &self.module,
            slots: frame.slots,
            message: data,
            out: &mut [],
            out_len: 0,
            sends: &mut sends,
            channel_lens: &[],
            steps: 0,
        };
        let outcome = activation.call(function, &[0, data.len() as u64]);
        frame.slots = activation.slots;
        match outcome {
            Outcome::Step(step) => (step, activation.steps),
            Outcome::Returned(_) => panic!("parser `{}` returned instead of ending in a step", function.name),
        }
    }

    /// As [`Engine::run`], and the steps used.
    pub fn run_counted(&self, rule: FuncId, call: &mut RuleCall<'_>) -> u64 {
        let function = self.function(rule, FuncKind::Rule);
        let mut activation = Activation {
            module: &self.module,
            slots: call.frame.slots,
            message: call.message,
            out: call.out,
            out_len: call.out_len,
            sends: call.sends,
            channel_lens: call.channel_lens,
            steps: 0,
        };
        activation.call(function, &[0, call.source_element]);
        call.out_len = activation.out_len;
        activation.steps
    }

    /// As [`Engine::build`], and the steps used.
    pub fn build_counted(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> (usize, u64) {
        let function = self.function(builder, FuncKind::Builder);
        let mut sends = SendList::new();
        let mut activation = Activation {
            module: &self.module,
            slots: frame.slots,
            message: &[],
            out,
            out_len: 0,
            sends: &mut sends,
            channel_lens: &[],
            steps: 0,
        };
        activation.call(function, &[0]);
        (activation.out_len, activation.steps)
    }

    fn function(&self, id: FuncId, kind: FuncKind) -> &Function {
        let function = self.module.functions.get(id.0 as usize);
        let function = function.expect("the platform calls only functions of the program");
        assert!(function.kind == kind, "`{}` was called as a {kind:?}", function.name);
        function
    }
}

impl Engine for Interpreter {
    fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> Step {
        self.parse_counted(parser, frame, data).0
    }

    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> flick_abi::Outcome {
        self.run_counted(rule, call);
        flick_abi::Outcome::Finished
    }

    fn order(&self, _order: FuncId, _call: &mut RuleCall<'_>) -> i64 {
        panic!("an order is not interpreted")
    }

    fn build(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> usize {
        self.build_counted(builder, frame, out).0
    }
}
