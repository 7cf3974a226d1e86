//! A request that will be in the access log: its entry while it is in flight, and its outcome.

use flick_abi::FailureReason;
use flick_net::PeerAddr;

use crate::limits::{ACCESS_REPLY_BYTES_MAX, ACCESS_REQUEST_BYTES_MAX};

/// A request in flight that will be logged.
#[derive(Debug)]
pub(crate) struct AccessEntry {
    pub(crate) taken_ns: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) outcome: AnsweredBy,
    pub(crate) client: PeerAddr,
    /// Slot of the backend that it went to last.
    pub(crate) backend: Option<u32>,
    /// Time at which it was sent there.
    sent_ns: u64,
    /// Time from then to the first bytes of a reply.
    upstream_ns: Option<u64>,
    request: Prefix<ACCESS_REQUEST_BYTES_MAX>,
    reply: Prefix<ACCESS_REPLY_BYTES_MAX>,
}

/// The first bytes of something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix<const N: usize> {
    bytes: [u8; N],
    len: u8,
}

impl<const N: usize> Prefix<N> {
    pub(super) const NOTHING: Self = Self { bytes: [0; N], len: 0 };

    pub(super) fn set(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(N);
        self.bytes[..len].copy_from_slice(&bytes[..len]);
        self.len = len as u8;
    }

    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl AccessEntry {
    pub(super) fn new(client: PeerAddr, taken_ns: u64, request: &[u8], bytes_in: u64) -> Self {
        let mut entry = Self {
            taken_ns,
            bytes_in,
            bytes_out: 0,
            outcome: AnsweredBy::Program,
            client,
            backend: None,
            sent_ns: 0,
            upstream_ns: None,
            request: Prefix::NOTHING,
            reply: Prefix::NOTHING,
        };
        entry.request.set(request);
        entry
    }

    pub(super) fn request(&self) -> &[u8] {
        self.request.get()
    }

    pub(super) fn reply(&self) -> &[u8] {
        self.reply.get()
    }

    /// Time from sending it to its backend to the first bytes of a reply.
    pub(super) fn upstream_ns(&self) -> Option<u64> {
        self.upstream_ns
    }

    /// It is sent to a backend.
    pub(crate) fn note_sent(&mut self, backend: u32, now_ns: u64) {
        (self.backend, self.sent_ns) = (Some(backend), now_ns);
    }

    /// Keeps how its first reply begins.
    pub(crate) fn note_reply(&mut self, front: &[u8], now_ns: u64) {
        if self.reply.len == 0 {
            self.reply.set(front);
            self.upstream_ns = self.backend.map(|_| now_ns.saturating_sub(self.sent_ns));
        }
    }
}

/// Outcome of a request: the party that answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The program itself.
    Program,
    /// A backend.
    Backend,
    /// The platform, for that reason.
    Platform(FailureReason),
    /// It was not answered: its client had closed its connection.
    Gone,
}

/// By number: the outcomes.
pub(super) const OUTCOMES: [AnsweredBy; 12] = [
    AnsweredBy::Program,
    AnsweredBy::Backend,
    AnsweredBy::Gone,
    AnsweredBy::Platform(FailureReason::Unavailable),
    AnsweredBy::Platform(FailureReason::Timeout),
    AnsweredBy::Platform(FailureReason::Overload),
    AnsweredBy::Platform(FailureReason::Malformed),
    AnsweredBy::Platform(FailureReason::TooLong),
    AnsweredBy::Platform(FailureReason::Unsupported),
    AnsweredBy::Platform(FailureReason::NameTooLong),
    AnsweredBy::Platform(FailureReason::Farewell),
    AnsweredBy::Platform(FailureReason::TooSlow),
];

impl AnsweredBy {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            AnsweredBy::Program => "program",
            AnsweredBy::Backend => "backend",
            AnsweredBy::Gone => "client gone",
            AnsweredBy::Platform(FailureReason::Unavailable) => "unavailable",
            AnsweredBy::Platform(FailureReason::Timeout) => "timeout",
            AnsweredBy::Platform(FailureReason::Overload) => "overload",
            AnsweredBy::Platform(FailureReason::Malformed) => "malformed",
            AnsweredBy::Platform(FailureReason::TooLong) => "too long",
            AnsweredBy::Platform(FailureReason::Unsupported) => "unsupported",
            AnsweredBy::Platform(FailureReason::NameTooLong) => "name too long",
            AnsweredBy::Platform(FailureReason::Farewell) => "farewell",
            AnsweredBy::Platform(FailureReason::TooSlow) => "too slow",
        }
    }

    pub(super) fn number(self) -> u8 {
        OUTCOMES.iter().position(|known| *known == self).expect("every outcome has a number") as u8
    }
}
