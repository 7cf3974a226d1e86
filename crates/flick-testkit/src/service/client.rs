//! A client that pipelines its requests and checks every reply: in order, its own opaque, its own tag, its own value.
//! Promises: detects a reply for another client, whichever of its fields the proxy has rewritten.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use flick_net::sim::{Actor, PeerIo, SimRng};

use super::conduct::Conduct;
use super::memcached::{Cmd, REPLY, opcode, status, value_of};

/// Behaviour of a client apart from its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Writes everything at once, reads, and leaves when it has all replies.
    Plain,
    /// Writes a little at a time.
    Trickle {
        /// So much at a time.
        bytes: usize,
        /// So often.
        every_ns: u64,
    },
    /// Stops reading whenever it has read so much.
    SlowReader {
        /// So much.
        every_bytes: usize,
        /// For so long.
        pause_ns: u64,
    },
    /// Closes its side as soon as it has written everything; it still wants its replies.
    HalfCloses,
    /// Resets its connection after so long.
    Vanishes {
        /// So long.
        after_ns: u64,
    },
    /// Writes all but this many bytes, then closes its side.
    Truncates {
        /// The count.
        bytes: usize,
    },
    /// Writes bytes behind its requests that are not of the protocol.
    Nonsense {
        /// Those.
        bytes: Vec<u8>,
    },
}

impl Habit {
    /// Any of them, the plain one most often.
    pub fn random(rng: &mut SimRng) -> Self {
        Self::random_with(rng, nonsense)
    }

    /// As `random`, with what is nonsense in another protocol.
    pub fn random_with(rng: &mut SimRng, nonsense: impl Fn(&mut SimRng) -> Vec<u8>) -> Self {
        match rng.between(0, 13) {
            0 => {
                Habit::Trickle { bytes: rng.between(16, 400) as usize, every_ns: rng.between(1, 50) * 10_000 }
            }
            1 => Habit::SlowReader {
                every_bytes: rng.between(1, 20_000) as usize,
                pause_ns: rng.between(1, 250) * 1_000_000,
            },
            2 | 3 => Habit::HalfCloses,
            4 => Habit::Vanishes { after_ns: rng.between(0, 40_000_000) },
            5 => Habit::Truncates { bytes: rng.between(1, 40) as usize },
            6 => Habit::Nonsense { bytes: nonsense(rng) },
            _ => Habit::Plain,
        }
    }

    /// Whether it may expect every one of its requests to be answered.
    pub fn is_owed_everything(&self) -> bool {
        matches!(self, Habit::Plain | Habit::Trickle { .. } | Habit::HalfCloses)
    }
}

/// Bytes of which no request can be made.
fn nonsense(rng: &mut SimRng) -> Vec<u8> {
    let with_lengths = |key: u16, extras: u8, total: u32| {
        let mut bytes = Cmd::request(opcode::GET, 0xbad, b"", b"").bytes();
        bytes[2..4].copy_from_slice(&key.to_be_bytes());
        bytes[4] = extras;
        bytes[8..12].copy_from_slice(&total.to_be_bytes());
        bytes
    };
    match rng.between(0, 4) {
        0 => b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        1 => Cmd { magic: REPLY, ..Cmd::request(opcode::GET, 0xbad, b"k", b"") }.bytes(),
        2 => with_lengths(5, 255, 4),
        3 => with_lengths(251, 0, 251),
        _ => (0..rng.between(1, 200)).map(|at| if at == 0 { 0x7f } else { rng.next_u64() as u8 }).collect(),
    }
}

/// Result of one client.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Replies that servers gave.
    pub answered: u32,
    /// Replies that the platform gave in their place.
    pub failed: u32,
    /// Requests that still wait for a reply.
    pub waiting: usize,
    /// Every request has its reply.
    pub finished: bool,
    /// Time at which it finished.
    pub finished_ns: u64,
    /// The service has ended the connection.
    pub closed: bool,
    /// Time at which the service ended the connection.
    pub closed_ns: u64,
    /// It has ended the connection itself.
    pub left: bool,
    /// The first request that the platform failed, and how.
    pub first_failed: Option<String>,
    /// The first reply that should not have come.
    pub wrong: Option<String>,
}

impl Verdict {
    /// Whether nothing more will happen to it.
    pub fn is_over(&self) -> bool {
        self.closed || self.left || self.wrong.is_some()
    }
}

/// The client.
pub struct MemcachedClient {
    conduct: Conduct,
    waiting: VecDeque<Cmd>,
    input: Vec<u8>,
    verdict: Rc<RefCell<Verdict>>,
    is_malformed: bool,
}

impl MemcachedClient {
    /// A client with these requests.
    pub fn new(requests: &[Cmd], habit: Habit, verdict: Rc<RefCell<Verdict>>) -> Self {
        let waiting: VecDeque<Cmd> = requests.iter().cloned().collect();
        let is_malformed = matches!(habit, Habit::Nonsense { .. });
        verdict.borrow_mut().waiting = waiting.len();
        let unsent = requests.iter().flat_map(Cmd::bytes).collect();
        let conduct = Conduct::new(unsent, habit, Rc::clone(&verdict));
        Self { conduct, waiting, input: Vec::new(), verdict, is_malformed }
    }

    /// Drops requests from the front that may stay without a reply, up to the one that `reply` answers.
    fn skip_silent(&mut self, reply: &Cmd) -> Result<(), String> {
        loop {
            let Some(expected) = self.waiting.front() else {
                return Err(format!("an unsolicited reply: {}", shown(reply)));
            };
            if (reply.opaque, reply.opcode, reply.magic) == (expected.opaque, expected.opcode, REPLY) {
                return Ok(());
            }
            if !expected.is_quiet() {
                return Err(format!("expected the reply to {}, got {}", shown(expected), shown(reply)));
            }
            self.waiting.pop_front();
        }
    }

    fn check(&mut self, reply: &Cmd) -> Result<(), String> {
        if self.is_malformed && reply.status == status::INVALID && self.waiting.iter().all(Cmd::is_quiet) {
            self.is_malformed = false;
            self.waiting.clear();
            return Ok(());
        }
        self.skip_silent(reply)?;
        let expected = self.waiting.front().expect("looked at just now");
        let mut verdict = self.verdict.borrow_mut();
        if matches!(reply.status, status::BUSY | status::UNAVAILABLE) {
            verdict.failed += 1;
            self.waiting.pop_front();
            return Ok(());
        }
        if expected.opcode != opcode::QUIT && reply.cas != expected.cas {
            return Err(format!("the reply to {} carries another's tag: {}", shown(expected), shown(reply)));
        }
        judge(expected, reply)?;
        let more = expected.opcode == opcode::STAT && !reply.key.is_empty();
        if !more {
            verdict.answered += 1;
            self.waiting.pop_front();
        }
        Ok(())
    }

    fn note(&mut self, io: &mut PeerIo<'_>) {
        let mut verdict = self.verdict.borrow_mut();
        let is_quit = self.waiting.front().is_some_and(|cmd| cmd.opcode == opcode::QUITQ);
        verdict.waiting = if is_quit { 0 } else { self.waiting.len() };
        if self.waiting.is_empty() && !verdict.finished && !self.is_malformed {
            drop(verdict);
            self.conduct.finish(io);
        }
    }
}

/// Whether a server may have said this.
fn judge(expected: &Cmd, reply: &Cmd) -> Result<(), String> {
    let is_miss = expected.key.starts_with(b"miss");
    let is_early = reply.status == status::TOO_LARGE && expected.value.len() > 15_000;
    let is_right = match expected.opcode {
        opcode::GET | opcode::GETQ if is_miss => {
            reply.status == status::MISS && expected.opcode == opcode::GET
        }
        opcode::GET | opcode::GETQ => {
            reply.status == status::OK
                && reply.value == value_of(&expected.key)
                && reply.extras == [1, 2, 3, 4]
        }
        opcode::DELETE | opcode::DELETEQ if is_miss => reply.status == status::MISS,
        opcode::SETQ | opcode::DELETEQ => is_early,
        opcode::QUITQ => false,
        _ => reply.status == status::OK || is_early,
    };
    if is_right { Ok(()) } else { Err(format!("{} answered by {}", shown(expected), shown(reply))) }
}

/// A message for an error text: a long value by its length.
fn shown(cmd: &Cmd) -> String {
    let key = String::from_utf8_lossy(&cmd.key);
    let value = String::from_utf8_lossy(&cmd.value[..cmd.value.len().min(40)]).into_owned();
    format!(
        "[opcode {:#04x} status {:#x} opaque {:#x} tag {:#x} key `{key}` value {} bytes `{value}`]",
        cmd.opcode,
        cmd.status,
        cmd.opaque,
        cmd.cas,
        cmd.value.len()
    )
}

impl Actor for MemcachedClient {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.conduct.begin(io);
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        while let Some(reply) = Cmd::take(&mut self.input) {
            if let Err(wrong) = self.check(&reply) {
                self.verdict.borrow_mut().wrong.get_or_insert(wrong);
                io.reset();
                return;
            }
        }
        self.note(io);
        self.conduct.has_read(io, data.len());
    }

    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        let mut verdict = self.verdict.borrow_mut();
        if !self.input.is_empty() {
            verdict
                .wrong
                .get_or_insert(format!("a clean end inside a reply, after {} bytes", self.input.len()));
        }
        verdict.closed = true;
        // A quiet request at the end may have had nothing to say.
        if self.waiting.iter().all(|cmd| cmd.is_quiet() || cmd.opcode == opcode::QUITQ) {
            verdict.finished = true;
            verdict.waiting = 0;
        }
        drop(verdict);
        io.close();
    }

    fn on_reset(&mut self, _io: &mut PeerIo<'_>) {
        self.verdict.borrow_mut().closed = true;
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) {
        self.conduct.on_timer(io, id);
    }
}

/// A tag that no other request has: client, number of the request, chance.
pub fn tag(rng: &mut SimRng, client: u64, number: u64) -> u64 {
    (client + 1) << 48 | (number + 1) << 32 | rng.next_u64() >> 32
}

/// Random requests of one client, the last of which is non-quiet. `huge_per_mille` of the keys have values too long to
/// buffer.
pub fn random_requests(rng: &mut SimRng, client: u64, count: u64, huge_per_mille: u32) -> Vec<Cmd> {
    let tagged = |rng: &mut SimRng, at: u64, cmd: Cmd| Cmd { cas: tag(rng, client, at), ..cmd };
    let mut requests: Vec<Cmd> = (0..count)
        .map(|at| {
            let opaque = rng.next_u64() as u32;
            let is_huge = rng.chance(huge_per_mille);
            let key = match rng.between(0, 9) {
                _ if is_huge => format!("huge-{client}-{at}#{}", rng.between(17_000, 60_000)),
                0 => format!("miss-{client}-{at}"),
                1 => format!("long-{client}-{at}#{}", rng.between(3_000, 12_000)),
                _ => format!("key-{client}-{at}"),
            };
            let value = value_of(key.as_bytes());
            let cmd = match rng.between(0, 10) {
                0 => Cmd::request(opcode::STAT, opaque, b"", b""),
                1 => Cmd::request(opcode::NOOP, opaque, b"", b""),
                2 | 3 => Cmd::request(opcode::SET, opaque, key.as_bytes(), &value),
                4 => Cmd::request(opcode::SETQ, opaque, key.as_bytes(), &value),
                5 | 6 => Cmd::request(opcode::GETQ, opaque, key.as_bytes(), b""),
                7 => Cmd::request(opcode::DELETEQ, opaque, key.as_bytes(), b""),
                _ => Cmd::request(opcode::GET, opaque, key.as_bytes(), b""),
            };
            tagged(rng, at, cmd)
        })
        .collect();
    let last = match rng.between(0, 9) {
        0 => opcode::QUIT,
        1 => opcode::QUITQ,
        _ => opcode::NOOP,
    };
    requests.push(tagged(rng, count, Cmd::request(last, 0xffff_0000 | client as u32, b"", b"")));
    requests
}
