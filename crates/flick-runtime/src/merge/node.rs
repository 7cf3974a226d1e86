//! A merge task: two sorted streams of elements become one.
//! Promises: the output is sorted and has one element for each key; equal elements are combined in the order of their
//! streams and, within one, of their arrival; the same input gives the same output however it is cut and whichever
//! stream is late. It sleeps when an input has no element or its output is full, and holds no more memory then.
//! Refuses: knowing connections, workers or how many others there are.
//!
//! A node keeps one element (`kept`) that is not out yet, as an equal one may follow. Every new front is compared with
//! it once: that finds runs of equal elements, and streams that are out of order.

use flick_ring::Producer;

use super::code::{Element, MergeCode};
use super::fault::MergeFault;
use super::input::{ElementLook, NodeInput, Versus};
use super::tree::TaskId;
use crate::limits::MERGE_MESSAGE_BYTES_MAX;

/// Reason for the end of a node's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It has had its share of time.
    Tired,
    /// It waits until it is called.
    Waiting,
}

/// One merge task.
#[derive(Debug)]
pub struct Node {
    inputs: [NodeInput; 2],
    kept: Element,
    has_kept: bool,
    spare: Element,
    /// Its elements go through the program's last rule.
    finishes: bool,
    /// Output bytes that are ready for the ring.
    out: Vec<u8>,
    ring: Producer,
    to: TaskId,
    chunk_bytes: usize,
    /// Elements taken in, by input.
    taken: [u64; 2],
}

impl Node {
    /// A node between its inputs and `ring`, which `to` pops from. `finishes`: it is the last one of its tree.
    pub fn new(
        inputs: [NodeInput; 2],
        ring: Producer,
        to: TaskId,
        finishes: bool,
        chunk_bytes: usize,
    ) -> Self {
        Self {
            inputs,
            kept: Element::new(MERGE_MESSAGE_BYTES_MAX),
            has_kept: false,
            spare: Element::new(MERGE_MESSAGE_BYTES_MAX),
            finishes,
            out: Vec::with_capacity(chunk_bytes + MERGE_MESSAGE_BYTES_MAX),
            ring,
            to,
            chunk_bytes,
            taken: [0; 2],
        }
    }

    /// Elements taken in since the last time it was asked, by input.
    pub fn taken(&mut self) -> [u64; 2] {
        std::mem::take(&mut self.taken)
    }

    /// Returns the task that feeds input `side`, on which a fault was found, and the offset of the front element in its
    /// stream.
    pub fn position(&self, side: usize) -> (TaskId, u64) {
        (self.inputs[side].from, self.inputs[side].offset())
    }

    /// Drops everything of a failed job. Only while no task runs.
    pub fn clear(&mut self) {
        for input in &mut self.inputs {
            input.drain();
        }
        self.restart();
    }

    fn restart(&mut self) {
        self.has_kept = false;
        self.out.clear();
        self.inputs.iter_mut().for_each(NodeInput::restart);
    }

    /// Takes at most `elements` in.
    ///
    /// Errors: a fault, and the input it was found on. The node must be cleared before it runs again.
    pub fn run(
        &mut self,
        code: &mut MergeCode<'_>,
        calls: &mut impl FnMut(TaskId),
        elements: u32,
    ) -> Result<NodeState, (MergeFault, usize)> {
        for _ in 0..elements {
            let is_full = |node: &Self| node.out.len() >= node.chunk_bytes;
            if is_full(self) && !self.flush(calls) && is_full(self) && self.ring.prepare_wait() {
                return Ok(NodeState::Waiting);
            }
            let mut reads_clock = [ElementLook::Ended; 2];
            for (side, look) in reads_clock.iter_mut().enumerate() {
                *look = self.inputs[side].look(code, calls).map_err(|fault| (fault, side))?;
                if *look == ElementLook::Starved {
                    if self.idle_for(side, calls) {
                        return Ok(NodeState::Waiting);
                    }
                    break;
                }
            }
            match reads_clock {
                [ElementLook::Starved, _] | [_, ElementLook::Starved] => {}
                [ElementLook::Ended, ElementLook::Ended] => {
                    if self.end(code, calls)? {
                        return Ok(NodeState::Waiting);
                    }
                }
                reads_clock => self.step(code, reads_clock)?,
            }
        }
        Ok(NodeState::Tired)
    }

    /// Takes one element in; both sides have one or have ended.
    fn step(
        &mut self,
        code: &mut MergeCode<'_>,
        reads_clock: [ElementLook; 2],
    ) -> Result<(), (MergeFault, usize)> {
        if self.has_kept {
            for (side, look) in reads_clock.iter().enumerate() {
                if *look == ElementLook::Front && self.versus(code, side)? == Versus::Equal {
                    return self.combine(code, side).map_err(|fault| (fault, side));
                }
            }
        }
        let side = match reads_clock {
            [ElementLook::Front, ElementLook::Front] => {
                let order = code.order(self.inputs[0].front(), self.inputs[1].front());
                let side = usize::from(order > 0);
                self.inputs[1 - side].versus = if order == 0 { Versus::Equal } else { Versus::Above };
                side
            }
            [ElementLook::Front, _] => 0,
            _ => 1,
        };
        if self.has_kept {
            self.emit(code).map_err(|fault| (fault, side))?;
        }
        let input = &mut self.inputs[side];
        self.kept.bytes.clear();
        self.kept.bytes.extend_from_slice(input.front().bytes);
        input.take(&mut self.kept.frame);
        self.has_kept = true;
        self.taken[side] += 1;
        Ok(())
    }

    /// Compares the front element of input `side` with the kept one, once. Errors: the stream is out of order.
    fn versus(&mut self, code: &mut MergeCode<'_>, side: usize) -> Result<Versus, (MergeFault, usize)> {
        let input = &mut self.inputs[side];
        if input.versus == Versus::Unknown {
            input.versus = match code.order(self.kept.message(), input.front()) {
                ..0 => Versus::Above,
                0 => Versus::Equal,
                1.. => return Err((MergeFault::Disorder, side)),
            };
        }
        Ok(input.versus)
    }

    /// Makes one element of what is kept and an equal front.
    fn combine(&mut self, code: &mut MergeCode<'_>, side: usize) -> Result<(), MergeFault> {
        code.combine(self.kept.message(), self.inputs[side].front(), &mut self.spare)?;
        std::mem::swap(&mut self.kept, &mut self.spare);
        self.inputs[side].drop_front();
        self.taken[side] += 1;
        Ok(())
    }

    fn emit(&mut self, code: &mut MergeCode<'_>) -> Result<(), MergeFault> {
        if self.finishes {
            code.finish(self.kept.message(), &mut self.out)
        } else {
            self.out.extend_from_slice(&self.kept.bytes);
            Ok(())
        }
    }

    /// Both streams have ended: pushes what is left, then the end. `true`: it sleeps, whether or not the job is over.
    fn end(
        &mut self,
        code: &mut MergeCode<'_>,
        calls: &mut impl FnMut(TaskId),
    ) -> Result<bool, (MergeFault, usize)> {
        if self.has_kept {
            self.emit(code).map_err(|fault| (fault, 0))?;
            self.has_kept = false;
        }
        if self.flush(calls) && self.ring.push(&[]) {
            if self.ring.publish() {
                calls(self.to);
            }
            self.restart();
            // The streams of the next job are waited for like any others.
            return Ok(false);
        }
        Ok(self.ring.prepare_wait())
    }

    /// Goes to rest until input `side` has something, or, if something is left to pass on, there is room for that.
    /// `false`: there is something to do already.
    fn idle_for(&mut self, side: usize, calls: &mut impl FnMut(TaskId)) -> bool {
        if !self.flush(calls) && !self.ring.prepare_wait() {
            return false;
        }
        self.inputs[side].ring.as_mut().is_none_or(flick_ring::Consumer::prepare_wait)
    }

    /// Passes on what is ready; whether all of it is out.
    fn flush(&mut self, calls: &mut impl FnMut(TaskId)) -> bool {
        let mut sent = 0;
        for chunk in self.out.chunks(self.chunk_bytes) {
            if !self.ring.push(chunk) {
                break;
            }
            sent += chunk.len();
        }
        self.out.drain(..sent);
        if self.ring.publish() {
            calls(self.to);
        }
        self.out.is_empty()
    }
}
