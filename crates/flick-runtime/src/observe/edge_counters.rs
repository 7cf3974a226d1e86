//! Counters of the messages along each edge of the task graph, kept by the worker that runs the rules.
//! Promises: a message costs an add for the rules that it starts and one for each message that they send; nothing is
//! allocated after start; programs that follow each other are added up by the names of their edges.
//! Refuses: to know what happens to a message after its edge. A message to a backend that is down is counted, too.

use std::fmt::Write;
use std::sync::Arc;

use flick_abi::{Event, Program, Send, Start};

use crate::observe::counter::Counter;

/// Counters in one line of a cache, and the next: what is fetched together.
const LINE: usize = 16;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([Counter; LINE]);

/// The edges of one worker.
#[derive(Debug)]
pub struct EdgeCounters {
    lines: Vec<Line>,
    channels: usize,
}

/// Number of the [`Start`] that started rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartId(u32);

impl StartId {
    /// Of a program.
    pub fn of(program: &Program, start: Start) -> Self {
        Self(program.start_number(start) as u32)
    }

    /// A message of that channel.
    pub(crate) fn channel(channel: usize) -> Self {
        Self(channel as u32)
    }
}

impl EdgeCounters {
    /// Of a program, nothing counted.
    pub fn of(program: &Program) -> Self {
        let channels = program.channels.len();
        let count = program.starts_count() * row(channels);
        Self { lines: (0..count.div_ceil(LINE)).map(|_| Line::default()).collect(), channels }
    }

    fn add(&self, start: StartId, column: usize, amount: u64) {
        let at = start.0 as usize * row(self.channels) + column;
        self.lines[at / LINE].0[at % LINE].add(amount);
    }

    /// Counts messages, or events, that have started rules.
    pub(crate) fn started(&self, start: StartId, amount: u64) {
        self.add(start, 0, amount);
    }

    /// Counts messages that rules have sent to a channel.
    pub(crate) fn sent(&self, start: StartId, channel: u32, amount: u64) {
        self.add(start, 1 + channel as usize, amount);
    }

    /// Rules have asked on a channel.
    pub(crate) fn asked(&self, start: StartId, channel: u32) {
        self.add(start, 1 + self.channels + channel as usize, 1);
    }

    /// A message has started rules, which have sent these.
    pub(crate) fn ran(&self, start: StartId, sends: &[Send]) {
        self.started(start, 1);
        self.carried(start, sends);
    }

    /// Rules that were started earlier have sent these.
    pub(crate) fn carried(&self, start: StartId, sends: &[Send]) {
        for send in sends {
            self.sent(start, send.channel, 1);
        }
    }

    fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.lines.iter().flat_map(|line| &line.0)
    }
}

/// Counters of one start: what started, then by channel what was sent, then by channel what was asked.
fn row(channels: usize) -> usize {
    1 + 2 * channels
}

/// Edges over all workers.
#[derive(Clone, Debug)]
pub struct EdgeTotals {
    /// By edge: a name that it has in every program in which it is there.
    names: Arc<[String]>,
    counts: Vec<u64>,
    channels: usize,
}

impl EdgeTotals {
    /// Nothing counted yet. `names` are those of [`names`] for the program.
    pub(crate) fn new(names: Arc<[String]>, program: &Program) -> Self {
        Self { counts: vec![0; names.len()], names, channels: program.channels.len() }
    }

    /// Adds one worker's.
    pub(crate) fn absorb(&mut self, edge_counters: &EdgeCounters) {
        for (total, counter) in self.counts.iter_mut().zip(edge_counters.counters()) {
            *total += counter.get();
        }
    }

    /// Adds what another program, or the same one, has counted before.
    pub(crate) fn merge(&mut self, earlier: &EdgeTotals) {
        for (name, total) in self.names.iter().zip(&mut self.counts) {
            if let Some(at) = earlier.names.iter().position(|other| other == name) {
                *total += earlier.counts[at];
            }
        }
    }

    fn get(&self, program: &Program, start: Start, column: usize) -> u64 {
        self.counts[program.start_number(start) * row(self.channels) + column]
    }

    /// Returns the number of times that `start` has started rules.
    pub fn started(&self, program: &Program, start: Start) -> u64 {
        self.get(program, start, 0)
    }

    /// Returns the number of messages that those rules have sent to a channel.
    pub fn sent(&self, program: &Program, start: Start, channel: usize) -> u64 {
        self.get(program, start, 1 + channel)
    }

    /// Returns the number of messages with which those rules have asked on a channel.
    pub fn asked(&self, program: &Program, start: Start, channel: usize) -> u64 {
        self.get(program, start, 1 + self.channels + channel)
    }
}

/// Names of all edges of a program, in the order of their counters.
pub(crate) fn names(program: &Program) -> Arc<[String]> {
    let channel = |index: usize| program.channels[index].name.as_str();
    let channels = (0..program.channels.len()).map(|index| channel(index).to_owned());
    let handlers = program.handlers.iter().map(|handler| {
        let event = match handler.event {
            Event::Closed => "closed",
            Event::Broken => "broken",
            Event::Refused => "refused",
            Event::TimedOut => "timed_out",
            Event::Malformed => "malformed",
        };
        format!("except {event} {}", channel(handler.channel))
    });
    // Of two timers with one interval, the first is the first.
    let timers = program.timers.iter().enumerate().map(|(at, timer)| {
        let before = &program.timers[..at];
        let same = before.iter().filter(|other| other.interval_ns == timer.interval_ns).count();
        format!("every {} ns #{same}", timer.interval_ns)
    });
    let mut names = Vec::new();
    for start in channels.chain(handlers).chain(timers) {
        names.push(start.clone());
        for kind in ["sends", "asks"] {
            for index in 0..program.channels.len() {
                let mut name = start.clone();
                // A text is written to without errors.
                let _ = write!(name, " {kind} {}", channel(index));
                names.push(name);
            }
        }
    }
    names.into()
}
