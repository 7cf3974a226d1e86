//! The processes that a set of clients is paired with: one pair for each name, which all connections to it share.
//! Promises: a handshake does not block; a pair that ends or refuses is replaced by the next connect to its name.
//! Not here: bytes and waits (`client.rs`).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::{ClientConfig, News};
use crate::conn::RingConn;
use crate::limits::CLIENT_PAIRS_MAX;
use crate::pair::{Pair, Signals};
use crate::pairing::{Handshake, Offer, PairError, PeerProcess};

/// Number of a slot without a connection.
const NONE: u32 = u32::MAX;

/// All pairs of a set.
#[derive(Debug)]
pub(super) struct ClientPairs {
    entries: Vec<Option<PairEntry>>,
    config: ClientConfig,
}

#[derive(Debug)]
struct PairEntry {
    name: Arc<str>,
    state: PairState,
    /// Connections, waiting ones among them.
    conns: u32,
    /// New connections to the name use this pair.
    is_current: bool,
}

#[derive(Debug)]
enum PairState {
    Offered(Box<Offer>),
    Open(Box<OpenPair>),
    Gone,
}

/// A pair that is open.
#[derive(Debug)]
struct OpenPair {
    peer: PeerProcess,
    pair: Pair,
    /// By slot: token of the connection.
    tokens: Box<[u32]>,
    /// The other process is gone; what it published can still be read.
    is_gone: bool,
    is_asleep: bool,
}

/// Result of news from the socket of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Nothing,
    /// The pair is there: waiting connections can be opened.
    Opened,
    /// The other process is gone, or did not become a partner.
    Ended,
}

impl ClientPairs {
    pub fn new(config: &ClientConfig) -> Self {
        Self { entries: Vec::with_capacity(CLIENT_PAIRS_MAX), config: *config }
    }

    /// Returns whether there is any pair.
    pub fn is_used(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Returns the pair with the process that listens at a name, and counts a connection of it. Begins a handshake if
    /// there is none.
    ///
    /// Errors: those of [`Offer::begin`]; `System` with `ENFILE` if there are too many pairs.
    pub fn connect(&mut self, name: &str, epoll: &OwnedFd) -> Result<u32, PairError> {
        let is_it = |entry: &PairEntry| entry.is_current && *entry.name == *name;
        if let Some(at) = self.entries.iter().position(|entry| entry.as_ref().is_some_and(is_it)) {
            self.entries[at].as_mut().expect("it was found").conns += 1;
            return Ok(at as u32);
        }
        let free = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        if free == CLIENT_PAIRS_MAX {
            return Err(PairError::System(rustix::io::Errno::NFILE));
        }
        let offer = Offer::begin(name, &self.config.segment(), self.config.policy)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(epoll, offer.socket(), News::Socket(free as u32).pack(), flags)?;
        if free == self.entries.len() {
            self.entries.push(None);
        }
        let state = PairState::Offered(Box::new(offer));
        self.entries[free] = Some(PairEntry { name: name.into(), state, conns: 1, is_current: true });
        Ok(free as u32)
    }

    fn entry(&mut self, number: u32) -> Option<&mut PairEntry> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    fn open_pairs(&mut self) -> impl Iterator<Item = &mut OpenPair> {
        self.entries.iter_mut().flatten().filter_map(|entry| match &mut entry.state {
            PairState::Open(open) if !open.is_gone => Some(&mut **open),
            PairState::Open(_) | PairState::Offered(_) | PairState::Gone => None,
        })
    }

    /// Returns the pair, also of a process that is gone, if it was ever open.
    pub fn pair(&mut self, number: u32) -> Option<&mut Pair> {
        match &mut self.entry(number)?.state {
            PairState::Open(open) => Some(&mut open.pair),
            PairState::Offered(_) | PairState::Gone => None,
        }
    }

    /// Returns whether the process of a pair is gone, or never became a partner.
    pub fn is_gone(&self, number: u32) -> bool {
        let entry = self.entries.get(number as usize).and_then(Option::as_ref);
        entry.is_none_or(|entry| match &entry.state {
            PairState::Open(open) => open.is_gone,
            PairState::Offered(_) => false,
            PairState::Gone => true,
        })
    }

    /// Returns whether connections can be opened.
    pub fn is_open(&self, number: u32) -> bool {
        let entry = self.entries.get(number as usize).and_then(Option::as_ref);
        entry.is_some_and(|entry| matches!(&entry.state, PairState::Open(open) if !open.is_gone))
    }

    /// Opens a connection.
    pub fn open(&mut self, number: u32, token: u32) -> Option<RingConn> {
        let ring_bytes = self.config.ring_bytes;
        let PairState::Open(open) = &mut self.entry(number)?.state else { return None };
        open.pair.reclaim();
        let ring = open.pair.open(ring_bytes).ok()?;
        open.tokens[ring.slot() as usize] = token;
        Some(ring)
    }

    /// Ends a connection, which may have no ring yet.
    pub fn close(&mut self, number: u32, ring: Option<RingConn>) {
        let Some(entry) = self.entry(number) else { return };
        if let (Some(ring), PairState::Open(open)) = (ring, &mut entry.state) {
            open.tokens[ring.slot() as usize] = NONE;
            open.pair.close(ring);
            open.pair.reclaim();
        }
        entry.conns -= 1;
        let is_over = match &entry.state {
            PairState::Open(open) => open.is_gone || !entry.is_current,
            PairState::Offered(_) => false,
            PairState::Gone => true,
        };
        if entry.conns == 0 && is_over {
            self.entries[number as usize] = None;
        }
    }

    /// Returns the pair for a connection that `refused` has not accepted, and counts the connection: the one with the
    /// process that listens at the same name now.
    ///
    /// Errors: those of [`connect`](Self::connect).
    pub fn connect_instead(&mut self, refused: u32, epoll: &OwnedFd) -> Result<u32, PairError> {
        let name = self.entry(refused).map(|entry| Arc::clone(&entry.name)).ok_or(PairError::Name)?;
        self.connect(&name, epoll)
    }

    /// Makes the next connect to the name of a pair begin another one.
    pub fn replace(&mut self, number: u32) {
        if let Some(entry) = self.entry(number) {
            entry.is_current = false;
        }
    }

    /// Handles news of a pair's socket. `is_over`: its end was reported.
    pub fn advance(&mut self, number: u32, is_over: bool, epoll: &OwnedFd) -> Progress {
        let Some(entry) = self.entry(number) else { return Progress::Nothing };
        match core::mem::replace(&mut entry.state, PairState::Gone) {
            PairState::Offered(offer) => match offer.advance() {
                Ok(Handshake::Pending(offer)) => {
                    entry.state = PairState::Offered(Box::new(offer));
                    return Progress::Nothing;
                }
                Ok(Handshake::Done(peer, Ok(pair))) if watch_signals(epoll, number, &peer) => {
                    let tokens = vec![NONE; pair.slots() as usize].into();
                    let open = OpenPair { peer, pair, tokens, is_gone: false, is_asleep: false };
                    entry.state = PairState::Open(Box::new(open));
                    return Progress::Opened;
                }
                Ok(Handshake::Done(..)) | Err(_) => {}
            },
            PairState::Open(mut open) => {
                let is_over = is_over && open.peer.is_gone();
                if !open.is_gone && !is_over && open.pair.note_signal() != Signals::Over {
                    open.pair.wake();
                    open.is_asleep = false;
                    entry.state = PairState::Open(open);
                    return Progress::Nothing;
                }
                // It would be reported again and again.
                let _ = epoll::delete(epoll, open.peer.socket());
                open.is_gone = true;
                entry.state = PairState::Open(open);
            }
            PairState::Gone => {}
        }
        entry.is_current = false;
        if entry.conns == 0 {
            self.entries[number as usize] = None;
        }
        Progress::Ended
    }

    /// Returns whether a pair is awake, so that looks at its ready bits make sense.
    pub fn is_any_awake(&mut self) -> bool {
        self.open_pairs().any(|open| !open.is_asleep)
    }

    /// Takes the ready bits of all pairs that are awake, and calls `ready` with the token of each connection.
    pub fn take_ready(&mut self, mut ready: impl FnMut(u32)) {
        for open in self.open_pairs().filter(|open| !open.is_asleep) {
            if !open.pair.is_any_ready() {
                continue;
            }
            let OpenPair { pair, tokens, .. } = open;
            // Slots without a connection are reclaimed by the next open or close.
            pair.take_ready(|slot| match tokens.get(slot as usize) {
                Some(token) if *token != NONE => ready(*token),
                Some(_) | None => {}
            });
        }
    }

    /// Announces that all pairs that are awake are about to sleep. The caller executes a fence and calls
    /// [`confirm_sleep`](Self::confirm_sleep).
    pub fn announce_sleep(&mut self) {
        self.open_pairs().filter(|open| !open.is_asleep).for_each(|open| open.pair.announce_sleep());
    }

    /// Ends an announcement. `may_sleep`: the caller will sleep, if no ready bit is set. Returns whether it can.
    pub fn confirm_sleep(&mut self, may_sleep: bool) -> bool {
        let mut is_quiet = may_sleep;
        for open in self.open_pairs().filter(|open| !open.is_asleep) {
            open.is_asleep = may_sleep && !open.pair.is_any_ready();
            if !open.is_asleep {
                open.pair.wake();
                is_quiet = false;
            }
        }
        is_quiet
    }
}

/// Has each signal of an open pair reported once, so that it need not be read. Returns whether the kernel does so.
fn watch_signals(epoll: &OwnedFd, number: u32, peer: &PeerProcess) -> bool {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    epoll::modify(epoll, peer.socket(), News::Socket(number).pack(), flags).is_ok()
}
