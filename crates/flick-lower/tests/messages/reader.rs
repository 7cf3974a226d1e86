//! A grammar as a program reads it, and as it writes it again, on both engines, beside the walk of its tree.
//! Promises: nothing is left from one message to the next but what is counted.

use std::collections::BTreeMap;

use flick_abi::limits::{HEAD_BYTES_MAX, OUT_BYTES_MAX, STATE_WORDS_MAX};
use flick_abi::{
    AskList, Engine, Frame, FuncId, NoHost, ParseStep, RuleAction, RuleCall, RuleOutcome, SendBody, SendList,
};
use flick_check::hir::{Expr, FieldId, Item, Program, Unit};
use flick_ir::data::Module;
use flick_testkit::feed::{FeedOutcome, feed};
use flick_testkit::generate::Rng;

use crate::decode::{Verdict, decode};
use crate::engines::{Engines, bytes_of};
use crate::env::V;
use crate::source;

/// Messages up to this length are cut at every byte.
const EVERY_CUT_BYTES_MAX: usize = 64;
/// Cuts in two of longer ones.
const CUTS_OF_LONG: u32 = 8;
/// Ways to cut into several pieces.
const CUTS_IN_MANY: u32 = 3;
/// Bytes at fixed places that a grammar has behind each other, at most.
const FIXED_BYTES_MAX: usize = 96;

/// A program whose messages are read.
pub struct Spoken {
    program: Program,
    engines: Engines,
    is_wired: bool,
    is_built: bool,
}

impl Spoken {
    /// Checks and compiles it.
    pub fn new(text: &str, files: &[(&str, &str)]) -> Self {
        let (program, module) =
            source::try_lower_with(text, files).unwrap_or_else(|| panic!("refused:\n{text}"));
        Self::of(program, module, text)
    }

    /// As `new`; `None` where it is refused, or needs more than a message may.
    pub fn try_new(text: &str, files: &[(&str, &str)]) -> Option<Self> {
        let (program, module) = source::try_lower_with(text, files)?;
        Some(Self::of(program, module, text))
    }

    fn of(mut program: Program, module: Module, text: &str) -> Self {
        let engines = Engines::new(module);
        for unit in program.units.iter_mut().filter(|unit| unit.body.is_none()) {
            unit.body = Some((0..unit.fields.len()).map(|at| Item::Field(FieldId(at as u32))).collect());
        }
        Self {
            program,
            engines,
            is_wired: text.contains("wire("),
            is_built: text.contains("{") && !text.contains("wire("),
        }
    }

    /// Returns the number of channels of the program.
    pub fn channels(&self) -> usize {
        self.engines.module.program.channels.len()
    }

    /// Returns a reader of the messages that arrive on a channel; `None` if the program receives none there.
    pub fn reader(&self, index: usize) -> Option<Reader<'_>> {
        let program = &self.engines.module.program;
        let process = self.program.process.as_ref().expect("the text has a process");
        let view = program.channels[index].view.as_ref()?;
        let unit = &self.program.units[process.channels[index].receives?.0 as usize];
        let is_request = index == 0;
        let mut parsers =
            if is_request { vec![view.parse_request] } else { vec![view.parse_reply, view.parse_asked] };
        parsers.dedup();
        let rule =
            program.rules.iter().find(|rule| rule.source == index).and_then(|rule| match rule.action {
                RuleAction::Run { rule } => Some(rule),
                RuleAction::Pass { .. } => None,
            });
        let wanted = if is_request { &unit.facts.request } else { &unit.facts.reply };
        Some(Reader {
            channel: process.channels[index].name.clone(),
            program: &self.program,
            unit,
            engines: &self.engines,
            parsers,
            rule,
            is_request,
            is_wired: self.is_wired,
            is_built: self.is_built,
            wanted: wanted.as_ref(),
            output: Output::new(),
            visited: BTreeMap::new(),
            parses: 0,
        })
    }
}

/// One grammar of a program, how it is read and written.
pub struct Reader<'p> {
    /// The channel's name.
    pub channel: String,
    /// The program.
    pub program: &'p Program,
    /// The grammar, as a tree.
    pub unit: &'p Unit,
    /// The program's code, on both engines.
    pub engines: &'p Engines,
    /// Reads a message part by part, and whole.
    pub parsers: Vec<FuncId>,
    /// Rule that runs for a message; `None` if messages are passed on unchanged.
    rule: Option<FuncId>,
    /// Whether its messages are requests.
    is_request: bool,
    /// Whether the rule writes all bytes of the message that it has read, with `wire`.
    is_wired: bool,
    /// Whether the rule builds a message from all fields of the one that it has read.
    is_built: bool,
    /// Condition that the messages of this channel must fulfil.
    wanted: Option<&'p Expr>,
    output: Output,
    /// Number of times that the interpreter has entered each block, by function and block.
    pub visited: BTreeMap<(u32, u32), u64>,
    /// Messages read, in one piece or in several.
    pub parses: u64,
}

impl Reader<'_> {
    /// Everybody must say the same of `data`; whether a message stands at its front.
    pub fn check(&mut self, data: &[u8], asked: u64, rng: &mut Rng, what: &dyn Fn() -> String) -> bool {
        let said = decode(self.program, self.unit, data, asked);
        let (mut verdict, env) = said.unwrap_or_else(|unknown| panic!("{}: {unknown:?}", what()));
        if matches!(verdict, Verdict::Done(_))
            && let Some(wanted) = self.wanted
            && env.eval(wanted) != Ok(V::Bool(true))
        {
            verdict = Verdict::Fault(0);
        }
        for index in 0..self.parsers.len() {
            let parser = self.parsers[index];
            let context = || format!("{}, parser {index}, of \"{}\"", what(), data.escape_ascii());
            let whole = self.both(parser, data, asked, &[data.len()]);
            assert!(
                agree(&verdict, &whole.0, data),
                "the tree says {verdict:?}, the parser {:?}; {}",
                whole.0,
                context()
            );
            let message = match whole.0 {
                FeedOutcome::Done(total) => &data[..total as usize],
                _ => data,
            };
            let first = self.first_part(parser, message, asked);
            let sent =
                first.as_ref().and_then(|frame| self.written(frame, message, (parser, asked), &context));
            for (nth, ends) in cuts(data.len(), rng).into_iter().enumerate() {
                let cut = if nth == 0 {
                    self.both(parser, data, asked, &ends)
                } else {
                    self.compiled(parser, data, asked, &ends)
                };
                let is_same = cut.0 == whole.0 || self.is_late(parser, data, asked, &ends, &whole.0, &cut.0);
                assert!(is_same, "{:?}, cut at {ends:?} {:?}; {}", whole.0, cut.0, context());
                // Where the last of several parts begins depends on the cuts.
                if whole.0 == FeedOutcome::Done(whole.1.total_bytes()) {
                    assert_eq!(
                        seen(&cut.1, message),
                        seen(&whole.1, message),
                        "cut at {ends:?}; {}",
                        context()
                    );
                    let again = self
                        .rule
                        .and_then(|rule| self.output.run(self.engines.compiled(), rule, &cut.1, message));
                    assert_eq!(again, sent, "what is written of it, cut at {ends:?}; {}", context());
                }
            }
        }
        matches!(verdict, Verdict::Done(_) | Verdict::UntilClose)
    }

    /// Feeds both engines.
    fn both(&mut self, parser: FuncId, data: &[u8], asked: u64, ends: &[usize]) -> (FeedOutcome, Frame) {
        self.parses += 1;
        let (engines, visited) = (self.engines, &mut self.visited);
        let parse = |frame: &mut Frame, have: &[u8]| {
            engines.parse_visited(parser, frame, have, &mut |function, _, block| {
                *visited.entry((function.0, block.0)).or_default() += 1;
            })
        };
        feed(parse, data, asked, ends)
    }

    /// Feeds the compiled parser.
    fn compiled(&mut self, parser: FuncId, data: &[u8], asked: u64, ends: &[usize]) -> (FeedOutcome, Frame) {
        self.parses += 1;
        let engine = self.engines.compiled();
        feed(|frame: &mut Frame, have: &[u8]| engine.parse(parser, frame, have), data, asked, ends)
    }

    /// Whether a fault that is known when all is there is known a little later in pieces: a parser that waits for
    /// what the shortest message still has is not called for less.
    fn is_late(
        &mut self,
        parser: FuncId,
        data: &[u8],
        asked: u64,
        ends: &[usize],
        whole: &FeedOutcome,
        cut: &FeedOutcome,
    ) -> bool {
        if !matches!((whole, cut), (FeedOutcome::Fault(..), FeedOutcome::Starved)) {
            return false;
        }
        let more = [data, &[0; FIXED_BYTES_MAX]].concat();
        let ends = [ends, &[more.len()]].concat();
        matches!(self.compiled(parser, &more, asked, &ends).0, FeedOutcome::Fault(..))
    }

    /// The frame of a message's first part, when all of that is there.
    fn first_part(&self, parser: FuncId, data: &[u8], asked: u64) -> Option<Frame> {
        let mut frame = Frame::new();
        frame.slots[flick_abi::frame::SLOT_ASKED] = asked;
        let step = self.engines.compiled().parse(parser, &mut frame, data);
        let is_there = frame.total_bytes() <= data.len() as u64 || frame.total_bytes() == u64::MAX;
        (step == ParseStep::Done && is_there).then_some(frame)
    }

    /// Runs the rule on both engines and returns the message that it sends: the same bytes, except for those that are
    /// never passed on, or a message built from the same fields.
    fn written(
        &mut self,
        frame: &Frame,
        data: &[u8],
        (parser, asked): (FuncId, u64),
        context: &dyn Fn() -> String,
    ) -> Option<Vec<u8>> {
        let rule = self.rule?;
        let sent = self.output.run(self.engines.compiled(), rule, frame, data);
        let interpreted = self.output.run(self.engines.interpreter(), rule, frame, data);
        assert_eq!(interpreted, sent, "the engines write different bytes; {}", context());
        // `wire(m)` has no bytes of a message that is not all in its head.
        if !self.is_wired || frame.head_bytes() == frame.total_bytes() {
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            let expected = kept(frame, data);
            if self.is_built {
                self.reads_as(sent.as_deref().unwrap_or_default(), data, context);
            } else {
                // A reply that a rule has changed is read again, and forwarded as its grammar says.
                let changed = sent.as_deref().filter(|sent| !self.is_request && *sent != expected);
                let again = changed.and_then(|sent| Some(kept(&self.first_part(parser, sent, asked)?, sent)));
                let sent = again.as_ref().or(sent.as_ref()).map(|sent| text(sent));
                assert_eq!(sent, Some(text(&expected)), "fields replaced by themselves; {}", context());
            }
        }
        sent
    }
}

impl Reader<'_> {
    /// A message that was built of all fields of another reads as that.
    fn reads_as(&self, built: &[u8], data: &[u8], context: &dyn Fn() -> String) {
        let read = |bytes: &[u8]| {
            let (verdict, env) = decode(self.program, self.unit, bytes, 0).expect("the walk knew all before");
            assert_eq!(
                verdict,
                Verdict::Done(bytes.len() as u64),
                "built \"{}\"; {}",
                bytes.escape_ascii(),
                context()
            );
            let named = |field: &FieldId| self.unit.fields[field.0 as usize].name.is_some();
            env.values.into_iter().filter(|(field, _)| named(field)).collect::<Vec<_>>()
        };
        assert_eq!(read(built), read(data), "a message built of all fields; {}", context());
    }
}

/// Contents of a frame that its readers see.
#[derive(Debug, PartialEq)]
struct Seen {
    total: u64,
    head: u64,
    flags: u64,
    items: Vec<u64>,
    forwarded: Vec<u8>,
}

fn seen(frame: &Frame, data: &[u8]) -> Seen {
    Seen {
        total: frame.total_bytes(),
        head: frame.head_bytes(),
        flags: frame.flags().0,
        items: frame.items().to_vec(),
        forwarded: kept(frame, data),
    }
}

/// Returns the bytes of a message that are passed on.
fn kept(frame: &Frame, data: &[u8]) -> Vec<u8> {
    frame.forwarded(0, data.len() as u64).flat_map(|piece| piece.bytes(data)).copied().collect()
}

/// Whether a parser says what the walk of the tree says, or what it may say instead.
fn agree(verdict: &Verdict, outcome: &FeedOutcome, data: &[u8]) -> bool {
    match (verdict, outcome) {
        (Verdict::Done(total), FeedOutcome::Done(outcome)) => total == outcome,
        (Verdict::UntilClose, FeedOutcome::UntilClose) | (Verdict::Fault(_), FeedOutcome::Fault(..)) => true,
        // What is wrong may be known before all of it is there, and what comes in parts is not looked ahead for.
        (Verdict::Incomplete, FeedOutcome::Starved | FeedOutcome::Fault(..)) => true,
        // Bytes at fixed places behind each other are waited for together.
        (Verdict::Fault(at), FeedOutcome::Starved) => data.len() - *at < FIXED_BYTES_MAX,
        // A head may be too long although each of its fields is not.
        (Verdict::Done(_), FeedOutcome::Fault(..)) => data.len() > HEAD_BYTES_MAX,
        _ => false,
    }
}

/// Lists of cuts: at every byte once if that is not too often, byte by byte, and at random. The first is one of the
/// last kind.
fn cuts(len: usize, rng: &mut Rng) -> Vec<Vec<usize>> {
    let mut all_ends: Vec<Vec<usize>> = Vec::new();
    for _ in 0..CUTS_IN_MANY {
        let mut ends: Vec<usize> = (0..rng.below(6)).map(|_| rng.below(len as u32 + 1) as usize).collect();
        ends.sort_unstable();
        ends.push(len);
        all_ends.push(ends);
    }
    if len <= EVERY_CUT_BYTES_MAX {
        all_ends.extend((0..len).map(|at| vec![at, len]));
        all_ends.push((0..=len).collect());
    } else {
        all_ends.extend((0..CUTS_OF_LONG).map(|_| vec![rng.below(len as u32) as usize, len]));
    }
    all_ends
}

/// Output buffers of rules, used for every run.
struct Output {
    out: Vec<u8>,
    state: Vec<u64>,
    sends: SendList,
    asks: AskList,
}

impl Output {
    fn new() -> Self {
        Self {
            out: vec![0; OUT_BYTES_MAX],
            state: vec![0; STATE_WORDS_MAX],
            sends: SendList::new(),
            asks: AskList::new(),
        }
    }

    /// Runs a rule on a message and returns what it sends.
    fn run(&mut self, engine: &dyn Engine, rule: FuncId, frame: &Frame, message: &[u8]) -> Option<Vec<u8>> {
        self.sends.clear();
        self.asks.clear();
        let mut call = RuleCall {
            frame,
            // A rule sees the head only; the rest of the message may not have arrived.
            message: &message[..frame.head_bytes() as usize],
            others: &[],
            source_element: 0,
            channel_lens: &[1, 1],
            counters: &[],
            out: &mut self.out,
            out_len: 0,
            sends: &mut self.sends,
            asks: &mut self.asks,
            answers: &[],
            spills: &mut [],
            resume: 0,
            state: &mut self.state,
            failure: None,
            host: &mut NoHost,
        };
        assert_eq!(engine.run(rule, &mut call), RuleOutcome::Finished);
        let sends = self.sends.as_slice();
        match sends {
            [] => None,
            [send] if send.body == SendBody::Original => Some(kept(frame, message)),
            [send] => Some(bytes_of(send.body, &[message], &self.out)),
            _ => panic!("one message leaves"),
        }
    }
}
