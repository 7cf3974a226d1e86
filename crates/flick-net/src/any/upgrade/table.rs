//! Connections of the kernel as the upgrade sees them: counts of bytes, the claim of each, and who owns a claim.
//! Promises: a look-up costs one access by index, or by the peer's port; nothing is allocated after `new`.
//! Not here: what is done with them (`upgrade.rs`).

#[cfg(test)]
mod tests;

use rustix::process::Uid;

use super::discovery::ListenerKey;
use crate::address::PeerAddr;
use crate::driver::{Handle, ListenerId, PlainReason, ShmStats};
use crate::fault::ConnFault;
use crate::limits::{
    LISTENERS_MAX, UPGRADE_ATTEMPTS_MAX, UPGRADE_EXCHANGES_MIN, UPGRADE_NAMES_MAX, UPGRADE_NAMES_NS,
    UPGRADE_PORTS_MAX, UPGRADE_RETRY_NS,
};
use crate::slot_queue::SlotQueue;
use crate::socket::SocketOwners;

/// Number that no connection has.
pub(super) const NONE: u32 = u32::MAX;

/// Transport that has the next byte that this side sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendPath {
    Kernel,
    Ring,
}

/// Transport that has the next byte that this side receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceivePath {
    Kernel,
    /// The kernel; the other side has not said until which offset.
    UntilUnknown,
    /// The kernel, until as many bytes are received.
    Until(u64),
    Ring,
}

/// The workers that an attempt has met: none of them has moved the connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Met {
    /// One was asked.
    asked: bool,
    /// One belongs to another user.
    other_user: bool,
    /// One had no memory or no slot, or this side had none.
    limit: bool,
}

/// A connection of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub generation: u32,
    /// Claim, or [`NONE`].
    pub claim: u32,
    /// Bytes that the platform has sent through the kernel, and that it was given.
    pub sent: u64,
    pub received: u64,
    pub send: SendPath,
    pub receive: ReceivePath,
    /// Requests that were answered, or replies that were followed by a request.
    pub exchanges: u32,
    /// Time before which no attempt to find the other side is made.
    pub retry_ns: u64,
    /// Attempts that are left.
    pub attempts_left: u8,
    /// Number of the next name to ask.
    pub name: u8,
    /// The workers of the present attempt.
    pub met: Met,
    pub peer_port: u16,
    /// It was accepted from a Unix socket.
    pub is_unix: bool,
    /// The bytes were counted from the first one on.
    pub is_counted: bool,
    /// The platform receives.
    pub is_receiving: bool,
    /// The platform has sent since it last received.
    pub has_sent: bool,
    /// The platform has ended the write side.
    pub is_shut: bool,
    /// The kernel has reported the end of the stream, which follows what is in the ring.
    pub has_end: bool,
    /// The reason for which it stays in the kernel, if that was found out.
    pub plain: Option<PlainReason>,
    /// Time at which the return to the kernel began; 0 if it did not.
    pub downgrade_ns: u64,
}

impl Entry {
    /// Returns whether it has carried bytes, and would have asked after more exchanges.
    fn is_short_lived(&self) -> bool {
        let may_ask = self.attempts_left > 0 && self.exchanges < UPGRADE_EXCHANGES_MIN;
        may_ask && self.sent + self.received > 0
    }

    /// Returns why it uses no rings.
    pub fn plain_reason(&self) -> PlainReason {
        self.plain.unwrap_or({
            if self.attempts_left == 0 {
                PlainReason::NotAsked
            } else if self.exchanges < UPGRADE_EXCHANGES_MIN {
                PlainReason::FewExchanges
            } else {
                PlainReason::Asking
            }
        })
    }
}

const NO_ENTRY: Entry = Entry {
    generation: NONE,
    claim: NONE,
    sent: 0,
    received: 0,
    send: SendPath::Kernel,
    receive: ReceivePath::Kernel,
    exchanges: 0,
    retry_ns: 0,
    attempts_left: 0,
    name: 0,
    met: Met { asked: false, other_user: false, limit: false },
    peer_port: 0,
    is_unix: false,
    is_counted: false,
    is_receiving: false,
    has_sent: false,
    is_shut: false,
    has_end: false,
    plain: None,
    downgrade_ns: 0,
};

/// State of a connection through shared memory that belongs to one of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It is the platform's own.
    None,
    /// This side has asked, or will once the other side has accepted.
    Asking(Handle),
    /// This side has asked, and closed the connection after as many bytes.
    AskingClosed(u64),
    /// The other side is about to ask.
    Asked,
    /// The rings carry the connection, or will. The other side has passed the kernel's bytes when it has consumed as
    /// many bytes of the ring as the second value says.
    Linked(Handle, u64),
}

/// Names of a listener at which no process of this user listens, as of some time.
#[derive(Clone, Copy)]
struct AbsentNames {
    key: ListenerKey,
    names: u64,
    /// Of these, the names at which a process of another user listens.
    names_of_others: u64,
    since_ns: u64,
}

/// All connections of a driver.
pub(crate) struct UpgradeTable {
    /// As many as the first connections needed. A slot that was never used takes no memory.
    entries: Vec<Entry>,
    claims: Vec<Claim>,
    /// By port of the peer: the last accepted connection.
    by_port: Box<[u32]>,
    absent: [AbsentNames; UPGRADE_PORTS_MAX],
    absent_next: usize,
    /// Slot at which the search for a connection of a Unix socket stands.
    unix_next: u32,
    /// Outgoing connections that may ask.
    pub(super) candidates: SlotQueue,
    /// Connections that may have received the kernel's last byte before the ring.
    pub(super) due: SlotQueue,
    /// Listeners of the kernel, and those for the claims of their connections.
    pub(super) listeners: Vec<(ListenerId, ListenerId)>,
    /// User that the other sides of claims see at these listeners.
    pub(super) listening_as: Uid,
    /// Begin of the names at which claims are made.
    pub(super) prefix: Box<str>,
    /// Shows which user has the other end of a connection of TCP; `None`: the kernel does not tell.
    pub(super) owners: Option<SocketOwners>,
    pub(super) stats: ShmStats,
    pub(super) looked_ns: u64,
    /// Absent names that the present look may still try.
    pub(super) names_left: u32,
}

impl UpgradeTable {
    pub(super) fn new(conns_max: u32, claims_max: u32, prefix: Box<str>) -> UpgradeTable {
        UpgradeTable {
            entries: Vec::with_capacity(conns_max as usize),
            claims: Vec::with_capacity(claims_max as usize),
            by_port: vec![0; 1 << 16].into(),
            absent: [AbsentNames { key: 0, names: 0, names_of_others: 0, since_ns: 0 }; UPGRADE_PORTS_MAX],
            absent_next: 0,
            unix_next: 0,
            candidates: SlotQueue::new(conns_max),
            due: SlotQueue::new(conns_max),
            listeners: Vec::with_capacity(LISTENERS_MAX),
            listening_as: rustix::process::geteuid(),
            prefix,
            owners: None,
            stats: ShmStats::default(),
            looked_ns: 0,
            names_left: 0,
        }
    }

    /// Returns the entry of a connection that is new.
    fn slot(&mut self, conn: Handle) -> &mut Entry {
        let at = conn.index as usize;
        if at >= self.entries.len() {
            self.entries.resize(at + 1, NO_ENTRY);
        }
        &mut self.entries[at]
    }

    /// Begins with an accepted connection, whose bytes are counted from the first one on.
    pub(super) fn accepted(&mut self, conn: Handle, peer: &PeerAddr) {
        let peer_port = if let PeerAddr::Tcp(address) = peer { address.port() } else { 0 };
        *self.slot(conn) = Entry {
            generation: conn.generation,
            peer_port,
            is_unix: matches!(peer, PeerAddr::Unix),
            is_counted: true,
            ..NO_ENTRY
        };
        self.by_port[usize::from(peer_port)] = conn.index + 1;
    }

    /// Begins with an outgoing connection.
    pub(super) fn connecting(&mut self, conn: Handle, attempts_left: u8) {
        *self.slot(conn) = Entry { generation: conn.generation, attempts_left, is_counted: true, ..NO_ENTRY };
        if attempts_left > 0 {
            self.candidates.push(conn.index);
        }
    }

    /// Begins with an accepted connection of another driver, whose bytes so far the kernel has counted.
    pub(super) fn adopted(&mut self, conn: Handle, peer: &PeerAddr, offsets: Option<(u64, u64)>) {
        self.accepted(conn, peer);
        let entry = self.slot(conn);
        match offsets {
            Some((sent, received)) => (entry.sent, entry.received) = (sent, received),
            None => entry.is_counted = false,
        }
    }

    pub(in crate::any) fn forget(&mut self, conn: Handle) {
        let Some(entry) = self.entry(conn) else { return };
        let is_short_lived = entry.is_short_lived();
        *entry = NO_ENTRY;
        self.stats.plain_short_lived += u64::from(is_short_lived);
    }

    /// Notes and counts why a connection stays in the kernel, for now or for good.
    pub(super) fn keep_plain(&mut self, conn: Handle, reason: PlainReason) {
        if let Some(entry) = self.entry(conn) {
            entry.plain = Some(reason);
        }
        match reason {
            PlainReason::Remote => self.stats.plain_remote += 1,
            PlainReason::NoPeer => self.stats.plain_no_peer += 1,
            PlainReason::Refused => self.stats.plain_refused += 1,
            PlainReason::OtherUser => self.stats.plain_other_user += 1,
            PlainReason::Limit => self.stats.plain_limit += 1,
            // Others are not found out, or counted elsewhere.
            PlainReason::Off | PlainReason::FewExchanges | PlainReason::Asking | PlainReason::NotAsked => {}
        }
    }

    #[inline]
    pub(super) fn entry(&mut self, conn: Handle) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(conn.index as usize)?;
        (entry.generation == conn.generation).then_some(entry)
    }

    #[inline]
    pub(super) fn look(&self, conn: Handle) -> Option<&Entry> {
        let entry = self.entries.get(conn.index as usize)?;
        (entry.generation == conn.generation).then_some(entry)
    }

    /// Returns the connection in a slot, if it is known.
    pub(super) fn conn_at(&self, index: u32) -> Option<Handle> {
        let generation = self.entries.get(index as usize)?.generation;
        (generation != NONE).then_some(Handle { index, generation })
    }

    /// Returns the accepted connection of which the peer has a port, if it can be upgraded.
    pub(super) fn accepted_from(&self, port: u16) -> Option<Handle> {
        let conn = self.conn_at(self.by_port[usize::from(port)].checked_sub(1)?)?;
        let entry = self.look(conn)?;
        let is_free = entry.is_counted && entry.claim == NONE && !entry.is_shut;
        (port != 0 && entry.peer_port == port && is_free).then_some(conn)
    }

    /// Returns the next accepted connection of a Unix socket that can be upgraded, after the one that was returned
    /// last: connections are asked for in about the order in which they were accepted.
    pub(super) fn next_unix(&mut self) -> Option<Handle> {
        for _ in 0..self.entries.len() {
            self.unix_next = (self.unix_next + 1) % self.entries.len() as u32;
            let entry = &self.entries[self.unix_next as usize];
            if entry.is_unix && entry.is_counted && entry.claim == NONE && !entry.is_shut {
                return self.conn_at(self.unix_next);
            }
        }
        None
    }

    /// Counts a message of the peer.
    #[inline]
    pub(super) fn count_received(&mut self, conn: Handle, bytes: u32) {
        let Some(entry) = self.entry(conn) else { return };
        entry.received += u64::from(bytes);
        entry.exchanges += u32::from(std::mem::take(&mut entry.has_sent));
        if let ReceivePath::Until(offset) = entry.receive
            && entry.received >= offset
        {
            self.due.push(conn.index);
        }
    }

    /// Holds an end of the stream that the ring's bytes precede; returns whether it does.
    pub(super) fn hold_end(&mut self, conn: Handle) -> bool {
        let Some(entry) = self.entry(conn) else { return false };
        entry.has_end = entry.receive != ReceivePath::Kernel;
        let has_end = entry.has_end;
        if has_end {
            self.due.push(conn.index);
        }
        has_end
    }

    #[inline]
    pub(super) fn claim(&self, index: u32) -> Claim {
        self.claims.get(index as usize).copied().unwrap_or(Claim::None)
    }

    pub(super) fn set_claim(&mut self, index: u32, claim: Claim) {
        let at = index as usize;
        if at >= self.claims.len() {
            self.claims.resize(at + 1, Claim::None);
        }
        self.claims[at] = claim;
    }

    /// Returns the claim of a connection, with its index.
    pub(super) fn claim_of(&self, conn: Handle) -> Option<(u32, Claim)> {
        let claim = self.look(conn)?.claim;
        (claim != NONE).then(|| (claim, self.claim(claim)))
    }

    pub(super) fn is_own_listener(&self, listener: ListenerId) -> bool {
        self.listeners.iter().any(|(_, own)| *own == listener)
    }

    /// Returns why no process could be asked at a name lately.
    pub(super) fn absence(&self, key: ListenerKey, name: u8, now_ns: u64) -> Option<ConnFault> {
        let is_it = |absent: &&AbsentNames| absent.key == key && absent.since_ns + UPGRADE_NAMES_NS > now_ns;
        let absent = self.absent.iter().find(is_it).filter(|absent| absent.names & 1 << name != 0)?;
        let is_of_other = absent.names_of_others & 1 << name != 0;
        Some(if is_of_other { ConnFault::OtherUser } else { ConnFault::Refused })
    }

    /// Notes that no process can be asked at a name. `why`: as of [`UpgradeTable::note_met`].
    pub(super) fn note_absent(&mut self, key: ListenerKey, name: u8, why: ConnFault, now_ns: u64) {
        let at = self.absent.iter().position(|absent| absent.key == key).unwrap_or_else(|| {
            self.absent_next = (self.absent_next + 1) % UPGRADE_PORTS_MAX;
            self.absent_next
        });
        let absent = &mut self.absent[at];
        if absent.key != key || absent.since_ns + UPGRADE_NAMES_NS <= now_ns {
            *absent = AbsentNames { key, names: 0, names_of_others: 0, since_ns: now_ns };
        }
        absent.names |= 1 << name;
        absent.names_of_others |= u64::from(why == ConnFault::OtherUser) << name;
    }

    /// Notes why a connection could not ask at a name: `Refused` if no process listens there.
    pub(super) fn note_met(&mut self, conn: Handle, why: ConnFault) {
        let Some(entry) = self.entry(conn) else { return };
        match why {
            ConnFault::Refused | ConnFault::Reset => {}
            ConnFault::OtherUser => entry.met.other_user = true,
            ConnFault::Exhausted | ConnFault::PairMemory | ConnFault::System(_) => entry.met.limit = true,
        }
    }

    /// Ends the claim of a connection that was not moved. `why`: `Refused` or `Reset` if its worker was asked;
    /// otherwise as of [`UpgradeTable::note_met`].
    pub(super) fn ask_next(&mut self, conn: Handle, why: ConnFault) {
        self.note_met(conn, why);
        let Some(entry) = self.entry(conn) else { return };
        entry.met.asked |= matches!(why, ConnFault::Refused | ConnFault::Reset);
        (entry.claim, entry.name) = (NONE, entry.name + 1);
        self.candidates.push(conn.index);
    }

    /// Ends an attempt that has met all workers, and notes what keeps the connection in the kernel. It tries again
    /// later, but for a service of another user.
    pub(super) fn end_attempt(&mut self, conn: Handle, now_ns: u64) {
        let Some(entry) = self.entry(conn) else { return };
        let met = std::mem::take(&mut entry.met);
        let is_of_other = met.other_user && !met.asked && !met.limit;
        entry.name = 0;
        entry.attempts_left = if is_of_other { 0 } else { entry.attempts_left - 1 };
        let failed = UPGRADE_ATTEMPTS_MAX.saturating_sub(entry.attempts_left);
        entry.retry_ns = now_ns + UPGRADE_RETRY_NS * u64::from(failed) * u64::from(failed);
        let is_over = entry.attempts_left == 0;
        let reason = match met {
            Met { limit: true, .. } => PlainReason::Limit,
            _ if is_of_other => PlainReason::OtherUser,
            _ if !is_over => return self.candidates.push(conn.index),
            Met { asked: true, .. } => PlainReason::Refused,
            Met { .. } => PlainReason::NoPeer,
        };
        if !is_over {
            self.candidates.push(conn.index);
        }
        self.keep_plain(conn, reason);
    }
}

const _: () = assert!(UPGRADE_NAMES_MAX <= 64, "names of a listener fit a word");
