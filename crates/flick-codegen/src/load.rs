//! Generated code in memory, and the calls into it.
//! Promises: writable and executable never at once (cranelift-jit maps it writable, then makes it executable); the
//! memory lives as long as [`Code`], whose methods are the only way in; a function is called only in its own role.
//! Refuses: code the verifier has not passed. Its checks are what makes the calls sound; see each `SAFETY`.

use std::sync::{Mutex, PoisonError};

use cranelift_jit::JITModule;
use cranelift_module::FuncId as JitId;
use flick_abi::{Frame, FuncId, RuleCall, SendList};
use flick_ir::data::FuncKind;

use crate::raw::RawCall;
use crate::symbols;

type ParserFn = unsafe extern "C" fn(*mut u64, *const u8, u64) -> u64;
type RuleFn = unsafe extern "C" fn(*mut RawCall<'_>, u64);
type BuilderFn = unsafe extern "C" fn(*mut RawCall<'_>);

/// The machine code of one program.
pub(crate) struct Code {
    /// By `FuncId`; what is no parser has [`not_a_parser`] here, which spares the path of each message a branch.
    parsers: Box<[ParserFn]>,
    rules: Box<[Option<RuleFn>]>,
    builders: Box<[Option<BuilderFn>]>,
    consts: Box<[u8]>,
    channels: usize,
    /// Owns the memory; taken out only by `drop`.
    module: Mutex<Option<JITModule>>,
}

impl Code {
    /// Takes over finished code. `ids[i]` is the finalised function of kind `kinds[i]`, made by `translate` from a
    /// module that passed the verifier; `consts` is the very box whose address that code contains.
    pub(crate) fn new(
        module: JITModule,
        ids: &[JitId],
        kinds: &[FuncKind],
        consts: Box<[u8]>,
        channels: usize,
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
        let parsers = all.clone().map(parser).collect();
        let rules = all.clone().map(rule).collect();
        let builders = all.map(builder).collect();
        Self { parsers, rules, builders, consts, channels, module: Mutex::new(Some(module)) }
    }

    /// Runs a parser; the result is the word of a step.
    #[inline]
    pub(crate) fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> u64 {
        let function = self.parsers[parser.0 as usize];
        // SAFETY: the code stores only to slots below `FRAME_SLOTS_MAX` and loads from `data` only behind a
        // comparison with its length; `flick_ir::verify` has checked both, and both borrows last for the call.
        unsafe { function(frame.slots.as_mut_ptr(), data.as_ptr(), data.len() as u64) }
    }

    /// Runs a rule.
    pub(crate) fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) {
        let function = self.rules[rule.0 as usize].expect("the platform runs only rules");
        // Generated code indexes the lengths with channels of the program, as many as the verifier has counted.
        assert!(call.channel_lens.len() >= self.channels, "every channel of the program has a length");
        let source_element = call.source_element;
        let mut raw = RawCall::of_rule(call, &self.consts);
        // SAFETY: `raw` points into what `call` borrows, for the whole call; the code stores to the output only
        // after comparing with `out_max`, and leaves everything else to `symbols`.
        unsafe { function(&raw mut raw, source_element) };
        let out_len = raw.out_len();
        call.out_len = out_len;
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
        let module = self.module.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let module = module.expect("code is dropped once");
        // SAFETY: `&mut self` proves that no call is under way (calls borrow `self`), and the function pointers in
        // the tables are private to this value, which is going away.
        unsafe { module.free_memory() };
    }
}

/// Stands where a function is no parser.
extern "C" fn not_a_parser(_frame: *mut u64, _data: *const u8, _len: u64) -> u64 {
    (symbols::BUG_WORD | (symbols::BUG_NO_PARSER << 2)) as u64
}
