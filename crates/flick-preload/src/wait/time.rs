//! The time for which a wait lasts, in the form in which its call has it.

use super::{Waited, nr, sys};
use crate::calls::Call;
use crate::sys::{ProgramMemory, now_ns};

const SECOND_NS: u64 = 1_000_000_000;

/// Forms of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Milliseconds; less than 0: without an end.
    Milliseconds,
    /// The address of seconds and nanoseconds.
    Nanoseconds,
    /// The address of seconds and microseconds.
    Microseconds,
}

/// The time of a call that waits.
#[derive(Debug, Clone, Copy)]
pub struct WaitTime {
    number: u32,
    form: Form,
    /// The argument, and which one it is.
    argument: u64,
    index: usize,
    /// The whole time. `None`: without an end.
    ns: Option<u64>,
    /// When it is over, once that was asked.
    until: Option<u64>,
}

impl WaitTime {
    /// The time of a call. `None`: the kernel is to judge it.
    pub fn of(call: &Call, memory: ProgramMemory) -> Option<Self> {
        let number = call.number();
        let (form, index) = match number {
            nr::POLL => (Form::Milliseconds, 2),
            nr::PPOLL => (Form::Nanoseconds, 2),
            nr::SELECT => (Form::Microseconds, 4),
            nr::PSELECT6 => (Form::Nanoseconds, 4),
            nr::EPOLL_PWAIT2 => (Form::Nanoseconds, 3),
            _ => (Form::Milliseconds, 3),
        };
        let argument = call.arguments()[index];
        let ns = match form {
            Form::Milliseconds => u64::try_from(argument as i32).ok().map(|ms| ms * 1_000_000),
            _ if argument == 0 => None,
            _ => {
                let (seconds, part) = (memory.word(argument), memory.word(argument + 8));
                let is_valid = seconds as i64 >= 0 && part as i64 >= 0;
                let (part_max, unit) =
                    if form == Form::Microseconds { (u64::MAX, 1000) } else { (SECOND_NS, 1) };
                if !is_valid || part >= part_max {
                    return None;
                }
                Some(seconds.saturating_mul(SECOND_NS).saturating_add(part.saturating_mul(unit)))
            }
        };
        Some(Self { number, form, argument, index, ns, until: None })
    }

    /// Whether the call waits at all.
    pub fn waits(&self) -> bool {
        self.ns != Some(0)
    }

    /// Nanoseconds that are left of it. `None`: it has no end.
    pub fn rest_ns(&mut self) -> Option<u64> {
        let whole = self.ns?;
        let now = now_ns();
        let until = *self.until.get_or_insert(now.saturating_add(whole));
        Some(until.saturating_sub(now))
    }

    /// Whether some of it is left.
    pub fn is_left(&mut self) -> bool {
        self.waits() && self.rest_ns() != Some(0)
    }

    /// Whether a part of it is over, so that the program's argument says too much.
    pub fn has_begun(&self) -> bool {
        self.until.is_some()
    }

    fn words_of(&self, rest: u64) -> [u64; 2] {
        let unit = if self.form == Form::Microseconds { 1000 } else { 1 };
        [rest / SECOND_NS, rest % SECOND_NS / unit]
    }

    /// Makes the call with what is left of its time, unless all of it is left.
    pub fn wait_in_kernel(&mut self, call: &mut Call, memory: ProgramMemory) -> Waited {
        if !self.has_begun() {
            return Waited::ByKernel;
        }
        let rest = self.rest_ns().unwrap_or_default();
        let mut words = self.words_of(rest);
        let mut arguments = call.arguments();
        let time = match self.form {
            Form::Milliseconds => rest.div_ceil(1_000_000),
            _ => words.as_mut_ptr() as u64,
        };
        if let Some(argument) = arguments.get_mut(self.index) {
            *argument = time;
        }
        call.result = sys::repeat(self.number, arguments);
        self.note_rest(memory);
        Waited::Done
    }

    /// Tells the program what is left, where the kernel does so.
    pub fn note_rest(&mut self, memory: ProgramMemory) {
        if self.has_begun() && matches!(self.number, nr::PPOLL | nr::SELECT | nr::PSELECT6) {
            let rest = self.rest_ns().unwrap_or_default();
            let [seconds, part] = self.words_of(rest);
            memory.set_word(self.argument, seconds);
            memory.set_word(self.argument + 8, part);
        }
    }
}
