//! Conduct of a checking client on its connection, whatever its protocol: it writes at its pace, stops reading,
//! vanishes, leaves.
//! Promises: no habit keeps a client for ever; every end that is its own is noted.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use flick_net::sim::PeerIo;

use super::client::{Habit, Verdict};

/// Maximum number of times that a client stops reading, so that every client comes to an end.
const PAUSES_MAX: u32 = 50;

/// Time that a client with all its replies stays, to see whether another one comes.
const STAYS_NS: u64 = 4_000_000;

const WRITE_ON: u64 = 1;
const READ_AGAIN: u64 = 2;
const LEAVE: u64 = 3;
const VANISH: u64 = 4;

/// A client's habit, and how far it is with it.
pub(super) struct Conduct {
    habit: Habit,
    verdict: Rc<RefCell<Verdict>>,
    unsent: VecDeque<u8>,
    unpaused_bytes: usize,
    pauses_left: u32,
}

impl Conduct {
    /// A client that is to send these bytes, but for what its habit does to them.
    pub(super) fn new(mut unsent: VecDeque<u8>, habit: Habit, verdict: Rc<RefCell<Verdict>>) -> Self {
        match &habit {
            Habit::Truncates { bytes } => unsent.truncate(unsent.len().saturating_sub(*bytes)),
            Habit::Nonsense { bytes } => unsent.extend(bytes),
            _ => {}
        }
        Self { habit, verdict, unsent, unpaused_bytes: 0, pauses_left: PAUSES_MAX }
    }

    /// Whether it has written everything.
    pub(super) fn has_sent_all(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Its connection is open.
    pub(super) fn begin(&mut self, io: &mut PeerIo<'_>) {
        if let Habit::Vanishes { after_ns } = self.habit {
            io.timer(after_ns, VANISH);
        }
        self.write_some(io);
    }

    fn write_some(&mut self, io: &mut PeerIo<'_>) {
        let most = if let Habit::Trickle { bytes, .. } = self.habit { bytes } else { usize::MAX };
        let part: Vec<u8> = self.unsent.drain(..most.min(self.unsent.len())).collect();
        io.write(&part);
        if !self.unsent.is_empty()
            && let Habit::Trickle { every_ns, .. } = self.habit
        {
            io.timer(every_ns, WRITE_ON);
        }
        if matches!(self.habit, Habit::HalfCloses | Habit::Truncates { .. }) {
            io.shutdown_write();
        }
    }

    /// It has read so much, and may want a pause.
    pub(super) fn has_read(&mut self, io: &mut PeerIo<'_>, bytes: usize) {
        self.unpaused_bytes += bytes;
        if let Habit::SlowReader { every_bytes, pause_ns } = self.habit
            && self.unpaused_bytes >= every_bytes
            && self.pauses_left > 0
        {
            self.pauses_left -= 1;
            self.unpaused_bytes = 0;
            io.pause_reading(true);
            io.timer(pause_ns, READ_AGAIN);
        }
    }

    /// It has all that it wanted: notes when, and leaves soon.
    pub(super) fn finish(&mut self, io: &mut PeerIo<'_>) {
        let mut verdict = self.verdict.borrow_mut();
        verdict.finished = true;
        verdict.finished_ns = io.now_ns();
        io.timer(STAYS_NS, LEAVE);
    }

    /// One of its timers; says whether it has written.
    pub(super) fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) -> bool {
        match id {
            WRITE_ON => {
                self.write_some(io);
                return true;
            }
            READ_AGAIN => io.pause_reading(false),
            VANISH => {
                self.verdict.borrow_mut().left = true;
                io.reset();
            }
            _ => {
                self.verdict.borrow_mut().left = true;
                io.close();
            }
        }
        false
    }
}
