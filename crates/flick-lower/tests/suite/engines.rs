//! Runs a module on both engines at once and insists that they agree.

use flick_abi::frame::{SLOT_CURSOR, SLOT_SCAN, SLOT_STATE};
use flick_abi::limits::{FAILURE_BYTES_MAX, OUT_BYTES_MAX, SPILL_WORDS_MAX};
use flick_abi::{
    AskList, Engine, Frame, FuncId, NoHost, ParseStep, RuleCall, RuleOutcome, SendBody, SendList,
};
use flick_codegen::{Compiled, Options, compile};
use flick_ir::data::Module;
use flick_ir::{Interpreter, Visitor, bounds};

/// A module, interpreted and compiled.
pub struct Engines {
    /// The module.
    pub module: Module,
    interpreter: Interpreter,
    compiled: Compiled,
    /// Bytes that each function builds at most.
    built_max: Vec<u64>,
    /// Longest head of any channel, in bytes.
    head_bytes_max: u64,
}

/// A message as it leaves: channel, element, bytes.
pub type Sent = (u32, u64, Vec<u8>);

impl Engines {
    /// Prepares both engines.
    pub fn new(module: Module) -> Self {
        let compiled = compile(&module, &Options::default()).expect("a verified module compiles");
        let built_max =
            bounds::bounds(&module).iter().map(flick_ir::bounds::FunctionBounds::all_out_bytes).collect();
        let head_bytes_max = module.program.bounds.head_bytes_max;
        let interpreter = Interpreter::new(module.clone());
        Self { interpreter, compiled, module, built_max, head_bytes_max }
    }

    /// The interpreter.
    pub fn interpreter(&self) -> &dyn Engine {
        &self.interpreter
    }

    /// The compiled code.
    pub fn compiled(&self) -> &dyn Engine {
        &self.compiled
    }

    /// The number of a function.
    pub fn find(&self, name: &str) -> FuncId {
        let index = self.module.functions.iter().position(|function| function.name == name);
        FuncId(index.unwrap_or_else(|| panic!("the module has `{name}`")) as u32)
    }

    /// Bytes that a function builds at most.
    pub fn built_max(&self, function: FuncId) -> u64 {
        self.built_max[function.0 as usize]
    }

    /// Calls a parser once. The interpreter sees to its certificate.
    pub fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        self.parse_visited(parser, frame, data, &mut |_, _, _| {})
    }

    /// As `parse`; `visitor` is called for each block that the interpreter enters.
    pub fn parse_visited(
        &self,
        parser: FuncId,
        frame: &mut Frame,
        data: &[u8],
        visitor: Visitor<'_>,
    ) -> ParseStep {
        let mut other = frame.clone();
        let step = self.interpreter.parse_visited(parser, frame, data, visitor);
        match step {
            ParseStep::NeedMore(bytes) => assert!(bytes <= self.head_bytes_max, "asks for {bytes} bytes"),
            ParseStep::Done => {
                assert!(frame.head_bytes() <= self.head_bytes_max, "a head of {}", frame.head_bytes())
            }
            ParseStep::Fault { .. } => {}
        }
        assert_eq!(step, self.compiled.parse(parser, &mut other, data), "steps on {data:?}");
        assert_eq!(frame.slots, other.slots, "slots on {data:?}");
        step
    }

    /// Parses a message that is all there.
    pub fn parse_whole(&self, parser: FuncId, data: &[u8]) -> (ParseStep, Frame) {
        let mut frame = Frame::new();
        let step = self.parse(parser, &mut frame, data);
        (step, frame)
    }

    /// Parses `data` cut once at every byte, and once byte by byte; always with the outcome of `parse_whole`.
    pub fn parse_at_every_cut(&self, parser: FuncId, data: &[u8]) -> (ParseStep, Frame) {
        let whole = self.parse_whole(parser, data);
        for cut in 0..data.len() {
            self.parse_parts(parser, data, [cut, data.len()].into_iter(), &whole);
        }
        self.parse_parts(parser, data, 0..=data.len(), &whole);
        whole
    }

    fn parse_parts(
        &self,
        parser: FuncId,
        data: &[u8],
        lens: impl Iterator<Item = usize>,
        whole: &(ParseStep, Frame),
    ) {
        let mut frame = Frame::new();
        let mut wanted = 0;
        let mut last = None;
        for len in lens.filter(|len| *len <= data.len()) {
            if (len as u64) < wanted {
                continue;
            }
            match self.parse(parser, &mut frame, &data[..len]) {
                ParseStep::NeedMore(bytes) => {
                    assert!(bytes > len as u64, "a parser asks for bytes that it has: {bytes} of {len}");
                    wanted = bytes;
                    last = Some(ParseStep::NeedMore(bytes));
                }
                step => {
                    last = Some(step);
                    break;
                }
            }
        }
        // A message cut for good may leave the two at different places of the same wait.
        if let (ParseStep::NeedMore(_), Some(ParseStep::NeedMore(_)) | None) = (whole.0, last) {
            return;
        }
        assert_eq!(last, Some(whole.0), "a cut changes the outcome on {data:?}");
        let values = |frame: &Frame| {
            let mut slots = frame.slots;
            // How a parser goes on is its own.
            (slots[SLOT_STATE], slots[SLOT_CURSOR], slots[SLOT_SCAN]) = (0, 0, 0);
            slots
        };
        assert_eq!(values(&frame), values(&whole.1), "a cut changes values on {data:?}");
    }

    /// Runs a rule and returns what leaves.
    pub fn run(&self, rule: FuncId, frame: &Frame, message: &[u8], channel_lens: &[u64]) -> Vec<Sent> {
        let interpreted = run(&self.interpreter, rule, frame, message, channel_lens);
        assert_eq!(
            interpreted,
            run(&self.compiled, rule, frame, message, channel_lens),
            "sends on {message:?}"
        );
        interpreted
    }

    /// Builds one of the platform's own replies.
    pub fn build(&self, builder: FuncId, frame: &Frame) -> Vec<u8> {
        let [interpreted, compiled] = [&self.interpreter as &dyn Engine, &self.compiled].map(|engine| {
            let mut out = vec![0xee; FAILURE_BYTES_MAX];
            let len = engine.build(builder, frame, &mut out);
            out.truncate(len);
            out
        });
        assert_eq!(interpreted, compiled);
        interpreted
    }
}

fn run(engine: &dyn Engine, rule: FuncId, frame: &Frame, message: &[u8], channel_lens: &[u64]) -> Vec<Sent> {
    let mut out = vec![0; OUT_BYTES_MAX];
    let (mut sends, mut asks) = (SendList::new(), AskList::new());
    // A rule sees the head only; the rest of the message may not have arrived.
    let head = &message[..frame.head_bytes() as usize];
    let mut call = RuleCall {
        frame,
        message: head,
        others: &[],
        source_element: 0,
        channel_lens,
        counters: &[],
        out: &mut out,
        out_len: 0,
        sends: &mut sends,
        asks: &mut asks,
        answers: &[],
        spills: &mut [0; SPILL_WORDS_MAX],
        resume: 0,
        state: &mut vec![0; flick_abi::limits::STATE_WORDS_MAX],
        failure: None,
        host: &mut NoHost,
    };
    assert_eq!(engine.run(rule, &mut call), RuleOutcome::Finished);
    sends
        .as_slice()
        .iter()
        .map(|send| (send.channel, send.element, bytes_of(send.body, &[message], &out)))
        .collect()
}

/// Returns the bytes that a send carries, given the messages and the output buffer of its activation.
pub fn bytes_of(body: SendBody, messages: &[&[u8]], out: &[u8]) -> Vec<u8> {
    match body {
        SendBody::Original => messages[0].to_vec(),
        SendBody::Message(number) => messages[usize::from(number)].to_vec(),
        SendBody::Rebuilt { offset, len, tail_from, tail_of } => {
            let mut bytes = out[offset as usize..(offset + len) as usize].to_vec();
            if tail_from != u32::MAX {
                bytes.extend(&messages[usize::from(tail_of)][tail_from as usize..]);
            }
            bytes
        }
    }
}
