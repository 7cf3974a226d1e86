//! The program's code as a merge calls it: compare two elements, combine two, finish one.
//! Promises: no call allocates; what comes back is whole messages.

use flick_abi::limits::OUT_BYTES_MAX;
use flick_abi::{
    AskList, Engine, Frame, FuncId, Host, Message, ParseStep, RuleAction, RuleCall, RuleOutcome, SendBody,
    SendList,
};
use flick_buffers::Pages;

use super::MergeSetup;
use super::fault::MergeFault;

/// An element that is kept: its message and its fields.
#[derive(Debug)]
pub struct Element {
    /// All of the message.
    pub bytes: Vec<u8>,
    /// Its fields. Boxed, as elements change places for each message.
    pub frame: Box<Frame>,
}

impl Element {
    /// Room for messages of `bytes_max`.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes_max), frame: Box::default() }
    }

    /// The element as calls take it.
    pub fn message(&self) -> Message<'_> {
        Message { frame: &self.frame, bytes: &self.bytes }
    }
}

/// Memory that calls work in; one of it for each worker, as calls never nest.
#[derive(Debug)]
pub struct MergeScratch {
    out: Pages,
    sends: SendList,
    asks: AskList,
    state: Vec<u64>,
    /// Messages of the result.
    finished: u64,
}

impl MergeScratch {
    /// For a program with `state_words` words of state.
    pub fn new(state_words: u32) -> Self {
        Self {
            out: Pages::zeroed(OUT_BYTES_MAX),
            sends: SendList::new(),
            asks: AskList::new(),
            state: vec![0; state_words as usize],
            finished: 0,
        }
    }

    /// Messages of the result since this was asked last.
    pub fn finished(&mut self) -> u64 {
        std::mem::take(&mut self.finished)
    }
}

/// Context for calls of the program's merge code.
pub struct MergeCode<'a> {
    /// Runs the code.
    pub engine: &'a dyn Engine,
    /// The functions.
    pub setup: &'a MergeSetup,
    /// Parses an element.
    pub parser: FuncId,
    /// By channel: number of elements.
    pub channel_lens: &'a [u64],
    /// Memory to work in.
    pub scratch: &'a mut MergeScratch,
    /// The platform, as rules see it.
    pub host: &'a mut dyn Host,
}

impl MergeCode<'_> {
    /// Calls `run` with `first` as message 0 and `others` behind it, nothing built and nothing sent.
    fn call<R>(
        &mut self,
        first: Message<'_>,
        others: &[Message<'_>],
        run: impl FnOnce(&dyn Engine, &mut RuleCall<'_>) -> R,
    ) -> R {
        let scratch = &mut *self.scratch;
        scratch.sends.clear();
        let mut call = RuleCall {
            frame: first.frame,
            message: first.bytes,
            others,
            source_element: 0,
            channel_lens: self.channel_lens,
            counters: &[],
            out: &mut scratch.out,
            out_len: 0,
            sends: &mut scratch.sends,
            asks: &mut scratch.asks,
            answers: &[],
            spills: &mut [],
            resume: 0,
            state: &mut scratch.state,
            failure: None,
            host: &mut *self.host,
        };
        run(self.engine, &mut call)
    }

    /// Compares two elements: below, at or above 0.
    pub fn order(&mut self, first: Message<'_>, second: Message<'_>) -> i64 {
        let order = self.setup.merge.order;
        self.call(first, &[second], |engine, call| engine.order(order, call))
    }

    /// Runs a rule; whether it has run to its end without saying that it failed.
    fn run(&mut self, rule: FuncId, first: Message<'_>, others: &[Message<'_>]) -> bool {
        self.call(first, others, |engine, call| {
            let outcome = engine.run(rule, call);
            assert!(outcome == RuleOutcome::Finished, "the code of a merge never asks");
            call.failure.is_none()
        })
    }

    /// Writes into `into` the element that `first` and `second`, equal in order, become together.
    pub fn combine(
        &mut self,
        first: Message<'_>,
        second: Message<'_>,
        into: &mut Element,
    ) -> Result<(), MergeFault> {
        let combine = self.setup.merge.combine;
        let source = self.setup.merge.source as u32;
        if !self.run(combine, first, &[second]) {
            return Err(MergeFault::Combine);
        }
        into.bytes.clear();
        let [send] = self.scratch.sends.as_slice() else { return Err(MergeFault::Combine) };
        assert!(send.channel == source, "a combination is an element of the array it merges");
        write_body(&self.scratch.out, send.body, [first.bytes, second.bytes], &mut into.bytes);
        into.frame.restart();
        let step = self.engine.parse(self.parser, &mut into.frame, &into.bytes);
        if step == ParseStep::Done && into.frame.total_bytes() == into.bytes.len() as u64 {
            return Ok(());
        }
        Err(MergeFault::Combine)
    }

    /// Appends to `out` what becomes of an element of the result.
    pub fn finish(&mut self, element: Message<'_>, out: &mut Vec<u8>) -> Result<(), MergeFault> {
        let RuleAction::Run { rule } = self.setup.merge.finish else {
            out.extend_from_slice(element.bytes);
            self.scratch.finished += 1;
            return Ok(());
        };
        if !self.run(rule, element, &[]) {
            return Err(MergeFault::Finish);
        }
        for send in self.scratch.sends.as_slice() {
            if send.channel as usize == self.setup.sink_channel {
                write_body(&self.scratch.out, send.body, [element.bytes, &[]], out);
                self.scratch.finished += 1;
            }
        }
        Ok(())
    }
}

/// Appends what a send carries to `to`.
fn write_body(out: &[u8], body: SendBody, messages: [&[u8]; 2], to: &mut Vec<u8>) {
    match body {
        SendBody::Original => to.extend_from_slice(messages[0]),
        SendBody::Message(number) => to.extend_from_slice(messages[usize::from(number)]),
        SendBody::Rebuilt { offset, len, tail_from, tail_of } => {
            to.extend_from_slice(&out[offset as usize..(offset + len) as usize]);
            let rest = messages[usize::from(tail_of)].get(tail_from as usize..);
            to.extend_from_slice(rest.unwrap_or_default());
        }
    }
}
