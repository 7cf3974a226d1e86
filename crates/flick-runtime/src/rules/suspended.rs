//! Table of suspended rules: they wait for the replies to what they asked, or for a slot in the run queue.
//! Promises: one table of fixed size, with capacity for everything that a rule keeps (frames, replies, words, bytes it
//! has built), allocated once and touched as it is used; a stale key finds nothing.
//! Refuses: knowing what an ask is sent on. The table says which entry of the in-flight table an ask waits for, and the
//! entry says which ask it is for; the worker ends both together.

use flick_abi::{FailureReason, Frame, FuncId, Message, MessageFlags};
use flick_buffers::Slice;

use crate::inflight::RequestId;
use crate::limits::{FIRST_SHARE, INFLIGHT_SHARE};
use crate::observe::edge_counters::StartId;
use crate::rules::locals::StateId;
use crate::rules::timer_heap::TimerHeap;
use crate::slab::{Key, Slab};

/// An activation that waits.
#[derive(Debug)]
pub struct SuspendedRule {
    /// The rule.
    pub rule: FuncId,
    /// Number of the event or timer that started it.
    pub start: StartId,
    /// State to go on in.
    pub resume: u32,
    /// The channel whose rules it is one of, and which of them is next.
    pub next: Option<(usize, usize)>,
    /// Element of the array that it is about.
    pub element: u64,
    /// Session that it belongs to, if any.
    pub session: Option<Key>,
    /// The request that it still has to answer, booked in its session's queue.
    pub request: Option<RequestId>,
    /// Its own state, if it is not its session's.
    pub state: Option<StateId>,
    /// A send to a backend sends the request on, so that the backend's reply answers it.
    pub forwards: bool,
    /// The request has been answered or sent on.
    pub is_answered: bool,
    /// The error response of the platform if the program does not answer; `None`: none.
    pub reason: Option<FailureReason>,
    /// The message that started it.
    pub message: Option<Slice>,
    /// The timer that started it.
    pub timer: Option<usize>,
    /// Progress of its asks.
    pub progress: Progress,
}

/// Progress of an activation's asks; kept by the table.
#[derive(Debug)]
pub struct Progress {
    /// Bytes it has built.
    out_len: usize,
    /// Replies that have been kept.
    replies: usize,
    /// Asks since it began.
    asked: usize,
    /// Asks of its last suspension.
    asks: usize,
    /// Those without an answer.
    open: usize,
    /// Time at which its asks are next checked for timeouts; `u64::MAX`: never.
    alarm_ns: u64,
}

impl SuspendedRule {
    /// An activation of `rule`, started by `start`, that has not run.
    pub fn new(rule: FuncId, start: StartId) -> Self {
        Self {
            rule,
            start,
            resume: 0,
            next: None,
            element: 0,
            session: None,
            request: None,
            state: None,
            forwards: false,
            is_answered: false,
            reason: None,
            message: None,
            timer: None,
            progress: Progress { out_len: 0, replies: 0, asked: 0, asks: 0, open: 0, alarm_ns: u64::MAX },
        }
    }

    /// Replies that it has.
    pub fn replies(&self) -> usize {
        self.progress.replies
    }
}

/// Capacity that the table needs for each activation of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleFootprint {
    /// Asks from its start to its end.
    pub asks: usize,
    /// Asks of one suspension.
    pub asks_at_once: usize,
    /// Words kept across suspensions.
    pub spill_words: usize,
    /// Bytes that it builds.
    pub out_bytes: usize,
}

impl RuleFootprint {
    /// Memory of one activation, in bytes; the buffers that its messages lie in are the pool's.
    pub fn bytes(&self) -> u64 {
        let frames = (self.asks + 1) * size_of::<Frame>();
        let replies = self.asks * size_of::<Option<Slice>>();
        let asks = self.asks_at_once * (size_of::<Open>() + size_of::<i64>());
        let fixed = size_of::<SuspendedRule>() + 3 * size_of::<u64>();
        (fixed + frames + replies + asks + self.spill_words * 8 + self.out_bytes) as u64
    }
}

/// An ask without an answer.
#[derive(Clone, Copy, Debug)]
struct Open {
    request: Option<RequestId>,
    deadline_ns: u64,
}

const ANSWERED: Open = Open { request: None, deadline_ns: u64::MAX };
/// Answer of an ask that has none yet; never seen by a rule.
const UNANSWERED: i64 = i64::MIN;

/// The table.
#[derive(Debug)]
pub struct SuspendedRules {
    slab: Slab<SuspendedRule>,
    shape: RuleFootprint,
    frames: Vec<Frame>,
    replies: Vec<Option<Slice>>,
    opens: Vec<Open>,
    answers: Vec<i64>,
    spills: Vec<u64>,
    out: Vec<u8>,
    alarms: TimerHeap,
    capacity: usize,
}

impl SuspendedRules {
    /// A table for at most `capacity` activations.
    pub fn new(capacity: usize, shape: RuleFootprint) -> Self {
        Self {
            slab: Slab::new(capacity),
            shape,
            frames: Vec::with_capacity(capacity * (shape.asks + 1)),
            replies: Vec::with_capacity(capacity * shape.asks),
            opens: Vec::with_capacity(capacity * shape.asks_at_once),
            answers: vec![0; capacity * shape.asks_at_once],
            spills: vec![0; capacity * shape.spill_words],
            out: vec![0; capacity * shape.out_bytes],
            alarms: TimerHeap::new(capacity),
            capacity,
        }
    }

    /// Rules that wait.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether any of them belongs to a session. Looks at all of them: for a worker that is replaced.
    pub fn has_any_of(&self, session: Key) -> bool {
        let slots = (0..self.slab.slots_used()).filter_map(|index| self.slab.get(self.slab.key_at(index)?));
        self.slab.len() > 0 && { slots }.any(|suspended| suspended.session == Some(session))
    }

    /// Whether there is no capacity for another.
    pub fn is_full(&self) -> bool {
        self.slab.len() >= self.capacity
    }

    /// Activations that one client may have: the fewer, the more others have, as with requests in flight.
    pub fn client_share(&self) -> u32 {
        let free = self.capacity.saturating_sub(self.slab.len());
        let share = free.saturating_sub(self.capacity / FIRST_SHARE as usize) / INFLIGHT_SHARE;
        u32::try_from(share).unwrap_or(u32::MAX).max(1)
    }

    /// Adds an activation with the frame of its message; `None` when the table is full.
    pub fn insert(&mut self, suspended: SuspendedRule, frame: &Frame) -> Option<Key> {
        let key = self.slab.insert(suspended)?;
        let slot = key.index as usize;
        if self.frames.len() <= slot * (self.shape.asks + 1) {
            self.frames.resize((slot + 1) * (self.shape.asks + 1), Frame::new());
            self.replies.resize((slot + 1) * self.shape.asks, None);
            self.opens.resize((slot + 1) * self.shape.asks_at_once, ANSWERED);
        }
        self.frames[slot * (self.shape.asks + 1)].copy_from(frame);
        Some(key)
    }

    /// The activation.
    pub fn get(&self, key: Key) -> Option<&SuspendedRule> {
        self.slab.get(key)
    }

    /// The activation.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut SuspendedRule> {
        self.slab.get_mut(key)
    }

    /// Removes a suspended rule. No entry of the in-flight table may name it any more.
    pub fn remove(&mut self, key: Key) -> Option<SuspendedRule> {
        assert!(self.open_ask(key, None).is_none(), "an activation ends after its asks");
        let suspended = self.slab.remove(key)?;
        self.alarms.clear(key.index);
        let first = key.index as usize * self.shape.asks;
        self.replies[first..first + suspended.progress.replies].fill(None);
        Some(suspended)
    }

    /// Forgets the replies to what it has asked, and what it has built: its next rule starts without.
    pub fn reset_progress(&mut self, key: Key) {
        let Some(suspended) = self.slab.get_mut(key) else { return };
        let first = key.index as usize * self.shape.asks;
        self.replies[first..first + suspended.progress.replies].fill(None);
        suspended.progress.replies = 0;
        suspended.progress.asks = 0;
        suspended.progress.asked = 0;
    }

    /// Keeps what an activation leaves behind when it suspends itself, and opens `asks` asks.
    pub fn suspend(&mut self, key: Key, out: &[u8], spills: &[u64], asks: usize) {
        let Some(suspended) = self.slab.get_mut(key) else { return };
        let (slot, shape) = (key.index as usize, &self.shape);
        assert!(out.len() <= shape.out_bytes, "an activation builds no more than its certificate says");
        assert!(asks <= shape.asks_at_once, "an activation asks no more at once than its certificate says");
        assert!(
            suspended.progress.asked + asks <= shape.asks,
            "an activation asks no more than its certificate says"
        );
        suspended.progress.out_len = out.len();
        suspended.progress.asks = asks;
        suspended.progress.asked += asks;
        suspended.progress.open = asks;
        self.out[slot * shape.out_bytes..][..out.len()].copy_from_slice(out);
        let kept = &mut self.spills[slot * shape.spill_words..][..shape.spill_words];
        kept.copy_from_slice(&spills[..shape.spill_words]);
        self.opens[slot * shape.asks_at_once..][..asks].fill(ANSWERED);
        self.answers[slot * shape.asks_at_once..][..asks].fill(UNANSWERED);
    }

    /// The frame of the message of an activation.
    pub fn frame(&self, key: Key) -> &Frame {
        &self.frames[key.index as usize * (self.shape.asks + 1)]
    }

    /// Puts back what `suspend` kept; gives how much of `out` is in use.
    pub fn restore(&self, key: Key, out: &mut [u8], spills: &mut [u64]) -> usize {
        let Some(suspended) = self.slab.get(key) else { return 0 };
        let (slot, shape, out_len) = (key.index as usize, &self.shape, suspended.progress.out_len);
        out[..out_len].copy_from_slice(&self.out[slot * shape.out_bytes..][..out_len]);
        let kept = &self.spills[slot * shape.spill_words..][..shape.spill_words];
        spills[..shape.spill_words].copy_from_slice(kept);
        out_len
    }

    /// Notes that an `ask` waits for an entry of the in-flight table, until then at most.
    pub fn wait_for(&mut self, key: Key, ask: u8, request: RequestId, deadline_ns: u64) {
        let Some(suspended) = self.slab.get_mut(key) else { return };
        self.opens[key.index as usize * self.shape.asks_at_once + usize::from(ask)] =
            Open { request: Some(request), deadline_ns };
        if deadline_ns < suspended.progress.alarm_ns {
            suspended.progress.alarm_ns = deadline_ns;
            self.alarms.set(key.index, deadline_ns);
        }
    }

    /// Closes an ask with a reply. Whether it was the last that was open.
    pub fn answer(&mut self, key: Key, ask: u8, frame: &Frame, reply: Slice) -> bool {
        let Some(suspended) = self.slab.get_mut(key) else { return false };
        let slot = key.index as usize;
        let at = suspended.progress.replies;
        suspended.progress.replies += 1;
        self.frames[slot * (self.shape.asks + 1) + 1 + at].copy_from(frame);
        self.replies[slot * self.shape.asks + at] = Some(reply);
        self.close(key, ask, at as i64 + 1)
    }

    /// Closes an ask without a reply. Whether it was the last that was open.
    pub fn fail(&mut self, key: Key, ask: u8, reason: FailureReason) -> bool {
        self.close(key, ask, -1 - reason as i64)
    }

    fn close(&mut self, key: Key, ask: u8, answer: i64) -> bool {
        let Some(suspended) = self.slab.get_mut(key) else { return false };
        let at = key.index as usize * self.shape.asks_at_once + usize::from(ask);
        assert!(self.answers[at] == UNANSWERED, "an ask has one answer");
        self.answers[at] = answer;
        self.opens[at] = ANSWERED;
        suspended.progress.open -= 1;
        if suspended.progress.open == 0 && suspended.progress.alarm_ns != u64::MAX {
            suspended.progress.alarm_ns = u64::MAX;
            self.alarms.clear(key.index);
        }
        suspended.progress.open == 0
    }

    /// An open ask and the entry that it waits for, to be closed: any, or one whose time is over by `now_ns`.
    pub fn open_ask(&self, key: Key, now_ns: Option<u64>) -> Option<(u8, RequestId)> {
        let suspended = self.slab.get(key)?;
        let opens = &self.opens[key.index as usize * self.shape.asks_at_once..][..suspended.progress.asks];
        opens.iter().enumerate().find_map(|(ask, open)| {
            let is_due = now_ns.is_none_or(|now_ns| open.deadline_ns <= now_ns);
            open.request.filter(|_| is_due).map(|request| (ask as u8, request))
        })
    }

    /// Sets when an activation is looked at next: the earliest timeout of its open asks.
    pub fn set_alarm(&mut self, key: Key) {
        let Some(suspended) = self.slab.get_mut(key) else { return };
        let opens = &self.opens[key.index as usize * self.shape.asks_at_once..][..suspended.progress.asks];
        suspended.progress.alarm_ns = opens.iter().map(|open| open.deadline_ns).min().unwrap_or(u64::MAX);
        if suspended.progress.alarm_ns == u64::MAX {
            self.alarms.clear(key.index);
        } else {
            self.alarms.set(key.index, suspended.progress.alarm_ns);
        }
    }

    /// Returns the time of the next check for asks that have timed out; `None`: no ask has a timeout.
    pub fn next_ns(&self) -> Option<u64> {
        self.alarms.next_ns()
    }

    /// An activation with an ask that is late.
    pub fn expired(&self, now_ns: u64) -> Option<Key> {
        self.alarms.expired(now_ns).and_then(|slot| self.slab.key_at(slot as usize))
    }

    /// Answers to the asks of the last suspension, as rules see them.
    pub fn answers(&self, key: Key) -> &[i64] {
        let asks = self.slab.get(key).map_or(0, |suspended| suspended.progress.asks);
        &self.answers[key.index as usize * self.shape.asks_at_once..][..asks]
    }

    /// The reply that is message number `message` of an activation.
    pub fn reply(&self, key: Key, message: usize) -> Option<&Slice> {
        let suspended = self.slab.get(key)?;
        assert!((1..=suspended.progress.replies).contains(&message), "a rule names messages that it has");
        self.replies[key.index as usize * self.shape.asks + message - 1].as_ref()
    }

    /// The frame of the reply that is message number `message` of an activation.
    pub fn reply_frame(&self, key: Key, message: usize) -> &Frame {
        &self.frames[key.index as usize * (self.shape.asks + 1) + message]
    }

    /// Returns the grammar's flags of the reply that is message number `message` of an activation.
    pub fn reply_flags(&self, key: Key, message: usize) -> MessageFlags {
        self.frames[key.index as usize * (self.shape.asks + 1) + message].flags()
    }

    /// Writes the replies so far, as rules see them, to the front of `messages`, and says how many there are.
    pub fn messages<'a>(&'a self, key: Key, messages: &mut [Message<'a>]) -> usize {
        let replies = self.slab.get(key).map_or(0, |suspended| suspended.progress.replies);
        let slot = key.index as usize;
        let frames = &self.frames[slot * (self.shape.asks + 1) + 1..][..replies];
        let slices = &self.replies[slot * self.shape.asks..][..replies];
        for ((message, frame), slice) in messages.iter_mut().zip(frames).zip(slices) {
            let bytes = slice.as_ref().map_or(&[][..], Slice::bytes);
            *message = Message { frame, bytes };
        }
        replies
    }
}
