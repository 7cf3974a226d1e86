//! One connection of a load: its unanswered requests, and the check of each reply.
//!
//! Promises: a reply is `Good` only if it answers a request of this connection that is still unanswered, with a value
//! of the key that was asked for; buffers are bounded by the depth and the value length.
//! Refuses: deciding when to ask and what (`driver.rs`).

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::time::Duration;

use flick_shm::client::{ClientAddress, ClientSet};
use flick_shm::conn::RingRead;

use crate::binary::Status;
use crate::limits::{KEY_BYTES_MAX, LOAD_RECV_BYTES, RECONNECT_PAUSE_MAX, RECONNECT_PAUSE_MIN, SLOT_BITS};
use crate::random::mix;

use super::stamp::{self, Stamps};
use super::value::is_value_of;
use super::wire::{Ask, Body, WireParse, WireReply};
use super::{LoadConfig, LoadProtocol};
use crate::http::{HttpReader, HttpStep};

/// Bytes the send buffer starts with, unless all unanswered requests need less.
const SEND_BYTES: usize = 64 << 10;

/// The state of a connection.
#[derive(Debug)]
pub(super) enum State {
    /// Not open; connects for its next request.
    Idle,
    /// Not open; reconnects at this time.
    Waiting { retry_ns: u64 },
    /// Not answered yet.
    Connecting,
    /// Ready for requests.
    Open,
    /// Waits for the server to close it, as its last reply has announced, until this time.
    Closing { until_ns: u64 },
    /// Closed; never reconnects.
    Dead,
}

/// A request that waits for its reply.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Zero when the slot is free; otherwise the opaque that was sent, which is never zero.
    opaque: u32,
    is_get: bool,
    key: u64,
    key_bytes: u8,
    due_ns: u64,
    /// Time at which it was written to the socket, by the clock of the timestamps; kept only where replies are
    /// timestamped.
    sent_ns: u64,
}

const FREE: Slot = Slot { opaque: 0, is_get: false, key: 0, key_bytes: 0, due_ns: 0, sent_ns: 0 };

/// The verdict on the next reply in the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The right reply; its latency counts from `due_ns`. `served_ns`: the service's time, where replies are
    /// timestamped.
    Good { due_ns: u64, served_ns: Option<u64> },
    /// A legal miss.
    Miss { due_ns: u64, served_ns: Option<u64> },
    /// An error reply to one of our requests; [`Client::error_text`] has its text.
    Error { status: Status, due_ns: u64 },
    /// A whole reply of HTTP to one of our requests. `closes`: the server closes the connection behind it.
    Page { status: u16, closes: bool, due_ns: u64, served_ns: Option<u64> },
    /// A reply to one of our requests, but a wrong one.
    WrongAnswer { key: u64, why: &'static str },
    /// A reply that answers no request of this connection.
    Unasked,
    /// The stream has left the protocol, for this reason.
    Broken(&'static str),
    /// No whole reply is there.
    NeedMore,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Client {
    /// Number among all connections of the load.
    pub(super) number: u32,
    token: u32,
    pub(super) state: State,
    pause: Duration,
    /// Grows up to `reply_max` when a reply needs it.
    recv: Vec<u8>,
    reply_max: usize,
    /// Length of the shortest value that the load writes.
    value_bytes_min: usize,
    recv_start: usize,
    recv_end: usize,
    /// Position of the text of the last error reply in `recv`.
    error_text: Range<usize>,
    /// The newest timestamp, and the buffer for the kernel's control messages; `None`: replies are not timestamped.
    stamps: Option<Stamps>,
    out: Vec<u8>,
    out_start: usize,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// Slots in the order of requests, for a protocol without opaques.
    order: VecDeque<u16>,
    protocol: LoadProtocol,
    /// With HTTP: the request, and the reader of its replies.
    http: Option<(Vec<u8>, HttpReader)>,
    /// Requests asked since the start.
    asked: u64,
    /// Open loop: whether it is in the queue of those that can take a request.
    pub(super) is_queued: bool,
}

impl Client {
    pub(super) fn new(config: &LoadConfig, number: u32, token: u32) -> Client {
        let request_max = config.protocol.request_bytes_max(config.key_size.max(), config.value.max());
        let reply_max = config.protocol.reply_bytes_max(config.value.max());
        let is_http = config.protocol == LoadProtocol::Http;
        let depth = u16::try_from(config.depth).expect("DEPTH_MAX fits u16");
        Client {
            number,
            token,
            state: State::Idle,
            pause: RECONNECT_PAUSE_MIN,
            recv: vec![0; (reply_max * config.depth).min(LOAD_RECV_BYTES)],
            reply_max,
            value_bytes_min: config.value.min(),
            recv_start: 0,
            recv_end: 0,
            error_text: 0..0,
            stamps: config.stamped.then(Stamps::new),
            out: Vec::with_capacity((request_max * config.depth).min(SEND_BYTES)),
            out_start: 0,
            slots: vec![FREE; config.depth].into_boxed_slice(),
            free: (0..depth).rev().collect(),
            order: VecDeque::with_capacity(config.depth),
            protocol: config.protocol,
            http: is_http.then(|| {
                let request = config.http.bytes(config.connection_per_request);
                (request, HttpReader::new(config.http.version))
            }),
            asked: 0,
            is_queued: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub(super) fn has_free_slot(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn has_unanswered(&self) -> bool {
        self.free.len() < self.slots.len()
    }

    /// Returns the text of the error reply that was judged last.
    pub(super) fn error_text(&self) -> &[u8] {
        &self.recv[self.error_text.clone()]
    }

    /// Starts to connect without blocking; an event reports the result.
    pub(super) fn connect(&mut self, set: &mut ClientSet, addr: &ClientAddress) -> io::Result<()> {
        set.connect(self.token, addr).map_err(io::Error::other)?;
        self.state = State::Connecting;
        if let (Some(_), Some(socket)) = (&self.stamps, set.socket(self.token)) {
            stamp::ask_for(socket)?;
        }
        Ok(())
    }

    /// Opens the connection for requests, after the event that it is connected.
    pub(super) fn finish_connect(&mut self) {
        self.pause = RECONNECT_PAUSE_MIN;
        self.state = State::Open;
    }

    /// Closes the connection, clears its buffers and returns how many requests stay unanswered.
    ///
    /// It reconnects after a backoff that doubles with each consecutive failure; `None` for `now_ns`: never.
    pub(super) fn close(&mut self, set: &mut ClientSet, now_ns: Option<u64>) -> u64 {
        set.close(self.token);
        self.state = match now_ns {
            Some(now_ns) => State::Waiting { retry_ns: now_ns + self.pause.as_nanos() as u64 },
            None => State::Dead,
        };
        self.pause = (self.pause * 2).min(RECONNECT_PAUSE_MAX);
        self.clear_buffers();
        self.order.clear();
        let lost = self.slots.len() - self.free.len();
        self.free.clear();
        for (at, slot) in self.slots.iter_mut().enumerate().rev() {
            slot.opaque = 0;
            self.free.push(at as u16);
        }
        lost as u64
    }

    /// Closes the connection after a reply that ended it. Requests behind that reply, which the server has ignored,
    /// are sent again after [`Client::connect`]; only HTTP has some, and they are all the same.
    pub(super) fn hang_up(&mut self, set: &mut ClientSet) {
        set.close(self.token);
        self.clear_buffers();
        self.state = State::Idle;
        if let Some((request, _)) = &self.http {
            for _ in 0..self.order.len() {
                self.out.extend_from_slice(request);
            }
        }
    }

    fn clear_buffers(&mut self) {
        self.out.clear();
        (self.out_start, self.recv_start, self.recv_end) = (0, 0, 0);
        if let Some((_, reader)) = &mut self.http {
            reader.restart();
        }
    }

    /// Puts a request into the send buffer. The caller has checked [`Client::has_free_slot`].
    pub(super) fn ask(&mut self, key: u64, key_bytes: usize, set_len: Option<usize>, due_ns: u64) {
        let at = self.free.pop().expect("the caller has checked for a free slot");
        // The bits above the slot differ between generations of a slot and between connections, so that a misdirected
        // reply is detected; the lowest of them keeps the opaque from being zero.
        let spread = mix((u64::from(self.number) << 40) ^ self.asked) as u32;
        let opaque = (spread << SLOT_BITS) | (1 << SLOT_BITS) | u32::from(at);
        let sent_ns = if self.stamps.is_some() { stamp::now_ns() } else { 0 };
        let is_get = set_len.is_none();
        let name_bytes = u8::try_from(key_bytes).expect("KEY_BYTES_MAX fits u8");
        self.slots[usize::from(at)] = Slot { opaque, is_get, key, key_bytes: name_bytes, due_ns, sent_ns };
        if self.protocol != LoadProtocol::Binary {
            self.order.push_back(at);
        }
        let writer = (u64::from(self.number) << 32) | (self.asked & u64::from(u32::MAX));
        let set = set_len.map(|len| (writer, len));
        if self.out_start > 0 && self.out.len() >= self.out.capacity() / 2 {
            self.out.drain(..self.out_start);
            self.out_start = 0;
        }
        match &self.http {
            Some((request, _)) => self.out.extend_from_slice(request),
            None => self.protocol.encode(&Ask { opaque, key, key_bytes, set }, &mut self.out),
        }
        self.asked += 1;
    }

    /// Sends from the buffer what the connection takes, at most `piece_bytes`; asks for an event if there is more.
    /// Returns how many bytes it took.
    pub(super) fn send(&mut self, set: &mut ClientSet, piece_bytes: Option<usize>) -> io::Result<usize> {
        let unsent = &self.out[self.out_start..];
        if !self.is_open() || unsent.is_empty() {
            return Ok(0);
        }
        let piece = &unsent[..piece_bytes.unwrap_or(usize::MAX).min(unsent.len())];
        let sent = set.send(self.token, piece).map_err(io::Error::other)?;
        self.out_start += sent;
        if self.out_start < self.out.len() {
            set.request_writable(self.token)?;
        } else {
            self.out.clear();
            self.out_start = 0;
        }
        Ok(sent)
    }

    /// Reads once into the receive buffer, and returns how many bytes.
    ///
    /// Errors: `UnexpectedEof` when the peer has closed; another kind when the connection was cut, such as by a reset.
    pub(super) fn receive(&mut self, set: &mut ClientSet) -> io::Result<usize> {
        match self.state {
            State::Open => {}
            // Bytes behind the last reply are dropped.
            State::Closing { .. } => (self.recv_start, self.recv_end) = (0, 0),
            _ => return Ok(0),
        }
        if self.recv_start > 0 {
            self.recv.copy_within(self.recv_start..self.recv_end, 0);
            (self.recv_start, self.recv_end) = (0, self.recv_end - self.recv_start);
        }
        let spare = &mut self.recv[self.recv_end..];
        let read = match (&mut self.stamps, set.socket(self.token)) {
            (Some(stamps), Some(socket)) => match stamps.read(socket, spare) {
                Ok(0) => RingRead::Finished,
                Ok(len) => RingRead::Bytes(len),
                Err(error) if is_transient(&error) => RingRead::Empty,
                Err(error) => return Err(error),
            },
            _ => set.receive(self.token, spare).map_err(io::Error::other)?,
        };
        match read {
            RingRead::Bytes(len) => {
                self.recv_end += len;
                Ok(len)
            }
            RingRead::Empty => Ok(0),
            RingRead::Finished => Err(io::ErrorKind::UnexpectedEof.into()),
            RingRead::Reset => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// Takes the next reply out of the receive buffer and checks it.
    pub(super) fn judge(&mut self) -> Verdict {
        let received = &self.recv[self.recv_start..self.recv_end];
        if let Some((_, reader)) = &mut self.http {
            let (len, step) = reader.advance(received);
            self.recv_start += len;
            return self.judge_page(step);
        }
        let (reply, len) = match self.protocol.parse(received) {
            WireParse::Whole(reply, len) => (reply, len),
            WireParse::NeedMore if received.len() < self.recv.len() => return Verdict::NeedMore,
            // A reply that does not fit into the whole buffer is longer than any legal one.
            WireParse::NeedMore if self.recv.len() >= self.reply_max => {
                return Verdict::Broken("a reply longer than any value");
            }
            WireParse::NeedMore => {
                let len = (2 * self.recv.len()).min(self.reply_max);
                self.recv.resize(len, 0);
                return Verdict::NeedMore;
            }
            WireParse::Broken => return Verdict::Broken("bytes that are no reply"),
        };
        if let Body::Error(_, text) = reply.body {
            // The text is the end of the message, but for the end of a line.
            let message = received[..len].trim_ascii_end().len();
            let end = self.recv_start + message;
            self.error_text = end - text.len().min(message)..end;
        }
        self.recv_start += len;
        let at = match reply.opaque {
            None => self.order.pop_front(),
            Some(opaque) => {
                let at = opaque & ((1 << SLOT_BITS) - 1);
                let asked = self.slots.get(at as usize).is_some_and(|slot| slot.opaque == opaque);
                asked.then_some(at as u16)
            }
        };
        let Some(at) = at else { return Verdict::Unasked };
        let slot = std::mem::replace(&mut self.slots[usize::from(at)], FREE);
        self.free.push(at);
        let served_ns = self.stamps.as_ref().map(|stamps| stamps.last_ns().saturating_sub(slot.sent_ns));
        compare(&slot, &reply, self.value_bytes_min, served_ns)
    }

    /// Ends a reply of HTTP that lasts until the connection ends; `None` if there is none.
    pub(super) fn finish_page(&mut self) -> Option<Verdict> {
        let step = self.http.as_mut()?.1.finish()?;
        Some(self.judge_page(step))
    }

    fn judge_page(&mut self, step: HttpStep) -> Verdict {
        match step {
            HttpStep::NeedMore => Verdict::NeedMore,
            HttpStep::Broken(why) => Verdict::Broken(why),
            HttpStep::Whole { status, closes } => {
                let Some(at) = self.order.pop_front() else { return Verdict::Unasked };
                let slot = std::mem::replace(&mut self.slots[usize::from(at)], FREE);
                self.free.push(at);
                let served_ns =
                    self.stamps.as_ref().map(|stamps| stamps.last_ns().saturating_sub(slot.sent_ns));
                Verdict::Page { status, closes, due_ns: slot.due_ns, served_ns }
            }
        }
    }
}

/// Compares a reply with the request it answers.
fn compare(slot: &Slot, reply: &WireReply<'_>, value_bytes_min: usize, served_ns: Option<u64>) -> Verdict {
    let (key, due_ns) = (slot.key, slot.due_ns);
    match reply.body {
        Body::Value(named, _) if slot.is_get && named.is_some_and(|named| !is_key(slot, named)) => {
            Verdict::WrongAnswer { key, why: "the reply names another key" }
        }
        // An empty value would fit every key.
        Body::Value(_, value) if slot.is_get && value.len() < value_bytes_min => {
            Verdict::WrongAnswer { key, why: "the value is shorter than any that is written" }
        }
        Body::Value(_, value) if slot.is_get && !is_value_of(key, value) => {
            Verdict::WrongAnswer { key, why: "the value is not one that was written under the key" }
        }
        Body::Value(..) if slot.is_get => Verdict::Good { due_ns, served_ns },
        Body::Miss if slot.is_get => Verdict::Miss { due_ns, served_ns },
        Body::Stored if !slot.is_get => Verdict::Good { due_ns, served_ns },
        Body::Error(status, _) => Verdict::Error { status, due_ns },
        _ => Verdict::WrongAnswer { key, why: "the reply does not fit the request" },
    }
}

fn is_key(slot: &Slot, named: &[u8]) -> bool {
    let mut expected = [0; KEY_BYTES_MAX];
    let expected = &mut expected[..usize::from(slot.key_bytes)];
    super::value::write_key(slot.key, expected);
    expected == named
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
