//! One input of a merge task: records of a ring become elements, one at a time.
//! Promises: a record may be cut anywhere; an element is parsed once; memory does not grow.

use flick_abi::limits::HEAD_BYTES_MAX;
use flick_abi::{Frame, Message, ParseStep};
use flick_ring::Consumer;

use super::code::MergeCode;
use super::fault::MergeFault;
use super::tree::TaskId;
use crate::limits::{MERGE_CHUNK_BYTES_MAX, MERGE_MESSAGE_BYTES_MAX};

/// Front of an input, as a look at it finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementLook {
    /// An element.
    Front,
    /// Nothing yet.
    Starved,
    /// Nothing any more.
    Ended,
}

/// Order of an input's front element relative to the element that its node keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versus {
    /// Not compared yet.
    Unknown,
    /// Equal in order.
    Equal,
    /// Behind it.
    Above,
}

/// One input.
#[derive(Debug)]
pub struct NodeInput {
    /// Ring that the elements come from; `None`: the input has no stream.
    pub ring: Option<Consumer>,
    /// Task that pushes into the ring.
    pub from: TaskId,
    /// Order of the front element relative to the element that the node keeps.
    pub versus: Versus,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    frame: Box<Frame>,
    /// Length of the front element, once it is whole.
    whole: Option<usize>,
    /// Bytes of the present element that must be there before it is parsed again.
    need: usize,
    /// Its length, as soon as the parser knows it.
    total: Option<usize>,
    ended: bool,
    /// Bytes of the stream before the front element.
    offset: u64,
}

impl NodeInput {
    /// An input from a ring that `from` pushes into, or one that has no stream.
    pub fn new(ring: Option<Consumer>, from: TaskId) -> Self {
        let capacity = if ring.is_some() { MERGE_MESSAGE_BYTES_MAX + MERGE_CHUNK_BYTES_MAX } else { 0 };
        Self {
            ended: ring.is_none(),
            ring,
            from,
            versus: Versus::Unknown,
            bytes: vec![0; capacity].into_boxed_slice(),
            start: 0,
            end: 0,
            frame: Box::default(),
            whole: None,
            need: 1,
            total: None,
            offset: 0,
        }
    }

    /// Makes it ready for the next job.
    pub fn restart(&mut self) {
        self.ended = self.ring.is_none();
        self.versus = Versus::Unknown;
        (self.start, self.end, self.offset) = (0, 0, 0);
        self.next_element();
    }

    /// Bytes of the stream before the front element.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Looks at the front; `freed` is called when the task that pushes sleeps and must be called.
    pub fn look(
        &mut self,
        code: &mut MergeCode<'_>,
        freed: &mut impl FnMut(TaskId),
    ) -> Result<ElementLook, MergeFault> {
        loop {
            if self.whole.is_some() {
                return Ok(ElementLook::Front);
            }
            if self.end - self.start >= self.need {
                self.parse(code)?;
                continue;
            }
            if self.ended {
                return if self.start == self.end {
                    Ok(ElementLook::Ended)
                } else {
                    Err(MergeFault::Truncated)
                };
            }
            if !self.fill(freed) {
                return Ok(ElementLook::Starved);
            }
        }
    }

    /// The front element. Only behind [`ElementLook::Front`].
    pub fn front(&self) -> Message<'_> {
        let len = self.whole.expect("an element is taken only when it is whole");
        Message { frame: &self.frame, bytes: &self.bytes[self.start..self.start + len] }
    }

    /// Gives the front's fields away for those of a dead element, and goes on behind it.
    pub fn take(&mut self, frame: &mut Box<Frame>) {
        std::mem::swap(&mut self.frame, frame);
        self.drop_front();
    }

    /// Goes on behind the front element.
    pub fn drop_front(&mut self) {
        let len = self.whole.expect("an element is dropped only when it is whole");
        self.start += len;
        self.offset += len as u64;
        self.versus = Versus::Unknown;
        self.next_element();
    }

    fn next_element(&mut self) {
        (self.whole, self.need, self.total) = (None, 1, None);
        self.frame.restart();
    }

    /// Parses what is there, which is as much as the parser asked for.
    fn parse(&mut self, code: &mut MergeCode<'_>) -> Result<(), MergeFault> {
        let have = self.end - self.start;
        if let Some(total) = self.total {
            self.whole = Some(total);
            return Ok(());
        }
        let data = &self.bytes[self.start..self.end];
        match code.engine.parse(code.parser, &mut self.frame, data) {
            ParseStep::Done => {
                let total = self.frame.total_bytes();
                if total > MERGE_MESSAGE_BYTES_MAX as u64 {
                    return Err(MergeFault::TooLong { bytes: total });
                }
                assert!(total > 0, "an element has bytes");
                (self.total, self.need) = (Some(total as usize), total as usize);
                if have as u64 >= total {
                    self.whole = Some(total as usize);
                }
                Ok(())
            }
            ParseStep::NeedMore(bytes) if bytes > HEAD_BYTES_MAX as u64 => Err(MergeFault::TooLong { bytes }),
            ParseStep::NeedMore(bytes) => {
                assert!(bytes > have as u64, "a parser that wants more wants more than it has");
                self.need = bytes as usize;
                Ok(())
            }
            ParseStep::Fault { field, cause } => Err(MergeFault::Malformed { field, cause }),
        }
    }

    /// Takes the next record; `false`: there is none.
    fn fill(&mut self, freed: &mut impl FnMut(TaskId)) -> bool {
        let Some(ring) = self.ring.as_mut() else { return false };
        if ring.front_bytes().is_none() {
            return false;
        }
        if self.bytes.len() - self.end < MERGE_CHUNK_BYTES_MAX {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let taken = ring.pop(&mut self.bytes[self.end..]);
        match taken {
            Some(0) => self.ended = true,
            taken => self.end += taken.unwrap_or(0),
        }
        if ring.release() {
            freed(self.from);
        }
        true
    }

    /// Drops all that a failed job has left in the ring. Only while no task pushes.
    pub fn drain(&mut self) {
        if let Some(ring) = &mut self.ring {
            drain(ring, &mut self.bytes);
        }
    }
}

/// Drops all records of a ring into `bytes`, which has room for one.
pub fn drain(ring: &mut Consumer, bytes: &mut [u8]) {
    while ring.pop(bytes).is_some() {}
    // The task that pushes learns of the next job in another way.
    let _ = ring.release();
}
