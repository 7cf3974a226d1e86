//! The parsers of `stdlib/http.flick` as the platform calls them: part by part, as far as bytes are there.

use flick_abi::frame::{MessageFlags, SLOT_ASKED};
use flick_abi::{Engine, FaultCause, Frame, FuncId, ParseStep};
use flick_codegen::{Compiled, Options, compile};
use flick_compiler::Input;
use flick_ir::Interpreter;
use flick_testkit::http::Asked;
use flick_testkit::http::strict::BodyEnd;

/// Passes everything on, so that bodies stream and nothing but framing is decoded.
const PROGRAM: &str = "use http

proc Pass: (request/response client, response/request backend)
  | client => backend
  | backend => client
";
/// Parts of one message: more than any test has.
const PARTS_MAX: usize = 100_000;

/// Result of parsing the front of some bytes, as the platform sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A message, where the next one begins, and what streamed of it.
    Whole {
        /// Offset of the next message.
        next: usize,
        /// Streamed bytes: the body without its chunks.
        body: Vec<u8>,
        /// Use of the connection after the message.
        end: BodyEnd,
    },
    /// None, with the status that it is answered with.
    Refused(u16),
    /// More bytes are needed.
    Short,
}

/// Both engines with the grammar.
pub struct Subject {
    interpreter: Interpreter,
    compiled: Compiled,
    parse_request: FuncId,
    parse_reply: FuncId,
    reply_flags: Option<FuncId>,
}

impl Subject {
    /// Compiles the grammar with a program that passes everything on.
    pub fn new() -> Self {
        let module = flick_compiler::module(&Input::text("pass.flick", PROGRAM));
        let module = module.unwrap_or_else(|failure| panic!("{failure}"));
        let compiled = compile(&module, &Options::default()).expect("a verified module compiles");
        let interpreter = Interpreter::new(module);
        let channels = &interpreter.module().program.channels;
        let [client, backend] =
            [0, 1].map(|channel: usize| channels[channel].view.clone().expect("it receives"));
        Self {
            parse_request: client.parse_request,
            parse_reply: backend.parse_reply,
            reply_flags: backend.reply_flags,
            interpreter,
            compiled,
        }
    }

    /// Reads the message at the front, a request or the reply to what was asked; the bytes arrive in pieces.
    pub fn read(&self, asked: Option<Asked>, bytes: &[u8], cuts: &[usize]) -> Seen {
        let interpreted = self.read_by(&self.interpreter, asked, bytes, cuts);
        let compiled = self.read_by(&self.compiled, asked, bytes, cuts);
        assert_eq!(interpreted, compiled, "cut at {cuts:?}: {}", bytes.escape_ascii());
        interpreted
    }

    fn read_by(&self, engine: &dyn Engine, asked: Option<Asked>, bytes: &[u8], cuts: &[usize]) -> Seen {
        let parser = if asked.is_some() { self.parse_reply } else { self.parse_request };
        let mut frame = Frame::new();
        frame.restart();
        frame.slots[SLOT_ASKED] = asked.map_or(0, kept);
        let (mut at, mut body) = (0, Vec::new());
        for part in 0..PARTS_MAX {
            match self.part(engine, parser, &mut frame, &bytes[at..], at, cuts) {
                ParseStep::NeedMore(_) => return Seen::Short,
                ParseStep::Fault { cause, .. } => return Seen::Refused(status(cause)),
                ParseStep::Done => {}
            }
            let (head, total) = (frame.head_bytes() as usize, frame.total_bytes());
            let flags = frame.flags();
            if flags.has(MessageFlags::UNTIL_CLOSE) {
                assert_eq!(total, u64::MAX, "what has no end has no length");
                body.extend(&bytes[at + head..]);
                return Seen::Whole { next: bytes.len(), body, end: BodyEnd::Close };
            }
            if total > (bytes.len() - at) as u64 {
                return Seen::Short;
            }
            let outcome = if part == 0 && asked.is_some() {
                self.outcome(engine, &frame, &bytes[at..at + head])
            } else {
                flags
            };
            body.extend(&bytes[at + head..at + total as usize]);
            at += total as usize;
            if !flags.has(MessageFlags::PARTS) {
                return Seen::Whole { next: at, body, end: end(flags, outcome) };
            }
            frame.next_part();
        }
        panic!("a message of more than {PARTS_MAX} parts");
    }

    /// Parses one part of which `bytes` are there in the end.
    fn part(
        &self,
        engine: &dyn Engine,
        parser: FuncId,
        frame: &mut Frame,
        bytes: &[u8],
        from: usize,
        cuts: &[usize],
    ) -> ParseStep {
        let mut wanted = 0;
        let ends = cuts.iter().filter(|cut| **cut > from).map(|cut| cut - from).chain([bytes.len()]);
        for len in ends {
            if len as u64 >= wanted {
                match engine.parse(parser, frame, &bytes[..len]) {
                    ParseStep::NeedMore(bytes) => {
                        assert!(bytes > len as u64, "a parser asks for bytes that it has");
                        wanted = bytes;
                    }
                    step => return step,
                }
            }
        }
        ParseStep::NeedMore(wanted)
    }

    /// Returns the flags of a reply as its facts set them; those of a request are the parser's own flags.
    fn outcome(&self, engine: &dyn Engine, frame: &Frame, head: &[u8]) -> MessageFlags {
        let Some(reply_flags) = self.reply_flags else { return frame.flags() };
        let mut frame = frame.clone();
        assert_eq!(engine.parse(reply_flags, &mut frame, head), ParseStep::Done, "facts are always told");
        frame.flags()
    }
}

/// The status that a fault is answered with.
fn status(cause: FaultCause) -> u16 {
    match cause {
        FaultCause::TooLong => 431,
        FaultCause::Unsupported => 501,
        FaultCause::NameTooLong => 414,
        FaultCause::Malformed | FaultCause::Arithmetic => 400,
    }
}

/// Returns the value of `%keep` of such a request.
fn kept(asked: Asked) -> u64 {
    match asked {
        Asked::Get => 0,
        Asked::Head => 1,
        Asked::Connect => 2,
        Asked::Upgrade => 4,
        Asked::Get10 => 8,
    }
}

fn end(flags: MessageFlags, outcome: MessageFlags) -> BodyEnd {
    match () {
        () if flags.has(MessageFlags::TUNNEL) => BodyEnd::Tunnel,
        () if outcome.has(MessageFlags::MORE) => BodyEnd::More,
        () if flags.has(MessageFlags::LAST) => BodyEnd::Last,
        () => BodyEnd::Next,
    }
}
