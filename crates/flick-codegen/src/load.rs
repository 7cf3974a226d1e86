//! Generated code in memory, and the calls into it.
//! Promises: writable and executable never at once (cranelift-jit maps it writable, then makes it executable); the
//! memory lives as long as [`Code`], whose methods are the only way in; a function is called only in its own role; a
//! panic in what generated code calls leaves these methods as a panic.
//! Refuses: code the verifier has not passed. Its checks are what makes the calls sound; see each `SAFETY`.

use std::sync::{Mutex, PoisonError};

use cranelift_jit::JITModule;
use cranelift_module::FuncId as JitId;
use flick_abi::{Frame, FuncId, MessageDone, MessageRun, RuleCall, SendList};
use flick_ir::data::{FuncKind, LineForm};

use crate::raw::RawCall;
use crate::symbols;
use crate::symbols::lines::LineTable;
use crate::symbols::scan::ClassTable;
use crate::unwind::FrameRegistration;

/// Lines that parsers pass over.
type Lines = Box<[(LineForm, LineTable)]>;

type ParserFn = unsafe extern "C-unwind" fn(*mut Frame, *const u8, u64) -> u64;
type RuleFn = unsafe extern "C-unwind" fn(*mut RawCall<'_>, u64) -> u64;
type OrderFn = unsafe extern "C-unwind" fn(*mut RawCall<'_>) -> i64;
type BuilderFn = unsafe extern "C-unwind" fn(*mut RawCall<'_>);

/// Requirements of generated code on every call, as the verifier has found them in the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Channels whose lengths it may look up.
    pub(crate) channels: usize,
    /// Words of session state it may touch.
    pub(crate) state_words: usize,
    /// Words it may keep across suspensions.
    pub(crate) spill_words: usize,
}

/// The machine code of one program.
pub(crate) struct Code {
    /// By `FuncId`; what is no parser has [`not_a_parser`] here, which spares the path of each message a branch.
    parsers: Box<[ParserFn]>,
    rules: Box<[Option<RuleFn>]>,
    builders: Box<[Option<BuilderFn>]>,
    orders: Box<[Option<OrderFn>]>,
    consts: Box<[u8]>,
    /// Classes of bytes whose addresses generated code contains.
    _classes: Box<[ClassTable]>,
    _lines: Lines,
    needs: Needs,
    /// Taken out only by `drop`.
    owned: Mutex<Option<Owned>>,
}

/// Memory of the code and the registration of its frames.
struct Owned {
    /// Describes the memory's frames, so it goes first.
    frames: FrameRegistration,
    /// Owns the memory.
    module: JITModule,
}

impl Code {
    /// Takes over finished code. `ids[i]` is the finalised function of kind `kinds[i]`, made by `translate` from a
    /// module that passed the verifier; `consts` and `classes` are the very boxes whose addresses that code
    /// contains.
    pub(crate) fn new(
        (module, frames): (JITModule, FrameRegistration),
        ids: &[JitId],
        kinds: &[FuncKind],
        (consts, classes, lines): (Box<[u8]>, Box<[ClassTable]>, Lines),
        needs: Needs,
    ) -> Self {
        assert!(ids.len() == kinds.len(), "every function is compiled");
        let function = |index: usize, wanted: FuncKind| {
            (kinds[index] == wanted).then(|| module.get_finalized_function(ids[index]))
        };
        let all = 0..ids.len();
        let parser = |index| match function(index, FuncKind::Parser) {
            // SAFETY: `translate::signature` gave functions of this kind exactly this signature, in the platform's
            // C convention, and the address is that of finished code.
            Some(address) => unsafe { std::mem::transmute::<*const u8, ParserFn>(address) },
            None => not_a_parser,
        };
        let rule = |index| {
            // SAFETY: as above.
            function(index, FuncKind::Rule)
                .map(|code| unsafe { std::mem::transmute::<*const u8, RuleFn>(code) })
        };
        let builder = |index| {
            // SAFETY: as above.
            function(index, FuncKind::Builder)
                .map(|code| unsafe { std::mem::transmute::<*const u8, BuilderFn>(code) })
        };
        let order = |index| {
            // SAFETY: as above.
            function(index, FuncKind::Order)
                .map(|code| unsafe { std::mem::transmute::<*const u8, OrderFn>(code) })
        };
        let parsers = all.clone().map(parser).collect();
        let rules = all.clone().map(rule).collect();
        let builders = all.clone().map(builder).collect();
        let orders = all.map(order).collect();
        Self {
            parsers,
            rules,
            builders,
            orders,
            consts,
            _classes: classes,
            _lines: lines,
            needs,
            owned: Mutex::new(Some(Owned { frames, module })),
        }
    }

    /// Runs a parser; the result is the word of a step.
    #[inline]
    pub(crate) fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> u64 {
        let function = self.parsers[parser.0 as usize];
        // SAFETY: the code stores only to slots below `FRAME_SLOTS_MAX` and to items below `ITEMS_MAX`, and loads
        // from `data` only behind a comparison with its length; `flick_ir::verify` has checked both, and both borrows
        // last for the call.
        unsafe { function(frame, data.as_ptr(), data.len() as u64) }
    }

    /// Runs a rule. Returns 0 or the state it is suspended in.
    pub(crate) fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> u64 {
        let function = self.rules[rule.0 as usize].expect("the platform runs only rules");
        self.check_needs(call, self.needs.spill_words);
        let source_element = call.source_element;
        let mut raw = RawCall::of_rule(call, &self.consts);
        // SAFETY: `raw` points into what `call` borrows, for the whole call; the code stores to the output only
        // after comparing with `out_max`, to state and kept words at places below those compared in `check_needs`, and
        // leaves everything else to `symbols`.
        let state = unsafe { function(&raw mut raw, source_element) };
        let out_len = raw.out_len();
        call.out_len = out_len;
        state
    }

    /// Runs a rule on one message after the other. The raw call is made once for all of them, which takes as long as a
    /// short rule.
    pub(crate) fn run_each(
        &self,
        run: MessageRun<'_>,
        call: &mut RuleCall<'_>,
        done: &mut dyn FnMut(MessageDone<'_>) -> Option<usize>,
    ) -> usize {
        let MessageRun { parser, rule, frame, ahead, bytes, whole_bytes_max, leaves } = run;
        let function = self.rules[rule.0 as usize].expect("the platform runs only rules");
        self.check_needs(call, self.needs.spill_words);
        let (source_element, mut out_from) = (call.source_element, call.out_len);
        let mut raw = RawCall::of_run(call, frame, &self.consts);
        raw.move_output(0, out_from);
        let (mut at, mut ahead) = (0, ahead.iter_mut());
        loop {
            let rest = &bytes[at..];
            let next = if at > 0 { ahead.next() } else { None };
            let is_parsed = next.is_some();
            if let Some(next) = next {
                raw.set_frame(next);
            }
            let frame = raw.frame_mut();
            if !is_parsed {
                frame.restart();
            }
            // A step other than the last one, or a broken invariant, is for who parses the message again.
            let is_done = is_parsed || self.parse(parser, frame, rest) == 0;
            let is_whole = is_done && frame.is_whole(rest.len() as u64, whole_bytes_max);
            if !is_whole || frame.flags().has_any(leaves) {
                return at;
            }
            let range = at..at + frame.total_bytes() as usize;
            raw.begin(&bytes[range.clone()]);
            // SAFETY: as in `run`; `of_run` and `begin` took the frame and the message from borrows that last.
            let state = unsafe { function(&raw mut raw, source_element) };
            assert!(state == 0, "the rule of a run never suspends itself");
            at = range.end;
            let Some(next_from) = done(raw.done(range, out_from)) else { return at };
            raw.move_output(out_from, next_from);
            out_from = next_from;
        }
    }

    /// Runs an order.
    pub(crate) fn order(&self, order: FuncId, call: &mut RuleCall<'_>) -> i64 {
        let function = self.orders[order.0 as usize].expect("the platform orders only with orders");
        // An order keeps nothing across suspensions; it has none.
        self.check_needs(call, 0);
        let mut raw = RawCall::of_rule(call, &self.consts);
        // SAFETY: as in `run`.
        let result = unsafe { function(&raw mut raw) };
        let out_len = raw.out_len();
        call.out_len = out_len;
        result
    }

    /// Generated code indexes these with constants that the verifier has compared with these numbers.
    fn check_needs(&self, call: &RuleCall<'_>, spill_words: usize) {
        assert!(call.channel_lens.len() >= self.needs.channels, "every channel of the program has a length");
        assert!(call.state.len() >= self.needs.state_words, "a session has all of the program's state");
        assert!(call.spills.len() >= spill_words, "there is room for all that is kept");
    }

    /// Runs a builder. Returns the bytes written.
    pub(crate) fn build(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> usize {
        let function = self.builders[builder.0 as usize].expect("the platform builds only with builders");
        let mut sends = SendList::new();
        let mut raw = RawCall::of_builder(frame, out, &mut sends, &self.consts);
        // SAFETY: as in `run`.
        unsafe { function(&raw mut raw) };
        raw.out_len()
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        let owned = self.owned.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Owned { frames, module } = owned.expect("code is dropped once");
        drop(frames);
        // SAFETY: `&mut self` proves that no call is in progress (calls borrow `self`), and the function pointers in
        // the tables are private to this value, which is going away.
        unsafe { module.free_memory() };
    }
}

/// Stands where a function is no parser.
extern "C-unwind" fn not_a_parser(_frame: *mut Frame, _data: *const u8, _len: u64) -> u64 {
    (symbols::BUG_WORD | (symbols::BUG_NO_PARSER << 2)) as u64
}
