//! The upgrade of a connection within this host from the kernel's socket to two rings, and the way back.
//! Promises: bytes arrive once and in order; a connection that is not upgraded costs a look at its counts; a peer that
//! is no flick process, or refuses, never sees a difference; a connection ends as one of the kernel does.
//! Refuses: other hosts.
//!
//! The side that connected asks the workers that listen at the address whether one has the connection, through a
//! connection of shared memory: the **claim**. The one that has it answers. Each side then writes to its ring how many
//! bytes it has sent through the kernel, and sends everything behind them through the ring. The receiver reads from the
//! kernel up to that offset, then consumes the **gate**, one byte of the ring, which shows the sender that it has. A
//! side returns to the kernel by ending its ring; the other side reads the ring to its end, then the kernel, and ends
//! its own. Bytes that follow a ring through the kernel are sent only when the gate is consumed, so they never meet a
//! receiver that still counts those before it.

mod discovery;
mod table;

use flick_buffers::Slice;

use super::{AnyDriver, KernelDriver};
use crate::address::Endpoint;
use crate::driver::{Detached, Driver, DriverEvent, Handle, ListenerId, PlainReason, ShmStats};
use crate::fault::ConnFault;
use crate::limits::{
    DOWNGRADE_NS_MAX, UPGRADE_ATTEMPTS_MAX, UPGRADE_EXCHANGES_MIN, UPGRADE_LOOK_NS, UPGRADE_LOOKS_MAX,
    UPGRADE_NAMES_MAX, UPGRADE_NAMES_PER_LOOK_MAX, UPGRADE_RETRY_NS, UPGRADE_UNIX_LOOKS_MAX,
};
use crate::listen::ListenSocket;
use crate::shm::{ClaimPeek, ClaimRead};
use crate::socket::{self, SocketOwners};
pub(super) use discovery::NamedBy;
use discovery::{QUESTION_BYTES, Question};
pub(super) use table::UpgradeTable;
use table::{Claim, Entry, Met, NONE, ReceivePath, SendPath};

/// The listener of connections that are adopted.
const NO_LISTENER: ListenerId = ListenerId(u32::MAX);
/// Bytes of an offset.
const OFFSET_BYTES: usize = 8;
/// Bytes of an offset and the gate.
const OPENING_BYTES: usize = OFFSET_BYTES + 1;

/// Receiver of an event of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Translated {
    /// A connection of the platform through shared memory.
    Own,
    /// A connection of the kernel that uses a ring; the event has its handle.
    Kernel,
    /// The platform does not get it.
    Hidden,
}

/// Set-up.
impl AnyDriver {
    /// Makes connections within this host use rings where the other side is a flick process that does so too. Called
    /// before the first listener.
    pub fn enable_upgrades(&mut self) {
        let claims_max = self.shm.conns_max();
        if claims_max == 0 {
            return;
        }
        let mut upgrades = UpgradeTable::new(self.shm_from, claims_max, self.kernel.claims_prefix());
        match SocketOwners::open() {
            Ok(owners) => upgrades.owners = Some(owners),
            Err(error) => {
                tracing::info!(%error, "the kernel does not tell who owns sockets; connections of TCP stay in it");
            }
        }
        self.upgrades = Some(Box::new(upgrades));
    }

    /// Listens for claims of the connections that a listener of the kernel accepts. Without a free name they stay in
    /// the kernel.
    pub(super) fn listen_for_claims(&mut self, listener: ListenerId, at: &Endpoint) {
        let (Some(upgrades), Some(key)) = (&mut self.upgrades, discovery::key_of(at)) else { return };
        let mut space = [0; discovery::NAME_BYTES_MAX];
        for number in 0..UPGRADE_NAMES_MAX {
            let name = discovery::name_of(&upgrades.prefix, key, number, &mut space);
            let Ok(socket) = ListenSocket::open(&Endpoint::Shm(name.to_owned())) else { continue };
            if let Ok(own) = self.shm.listen_for_claims(socket) {
                upgrades.listeners.push((listener, own));
            }
            return;
        }
    }

    /// Offers rings to connections that this driver adopts from a listener of the kernel at `at`, which is not its own.
    pub fn offer_rings_at(&mut self, at: &Endpoint) {
        self.listen_for_claims(NO_LISTENER, at);
    }

    /// Shows the present user of this process to those that claim connections, if it has changed since the listeners
    /// were opened. The thread that changes it wakes the driver.
    fn renew_user(&mut self) {
        let Some(upgrades) = &mut self.upgrades else { return };
        let user = rustix::process::geteuid();
        if std::mem::replace(&mut upgrades.listening_as, user) == user {
            return;
        }
        for (_, own) in &upgrades.listeners {
            if let Err(error) = self.shm.renew_user(*own) {
                tracing::warn!(%error, "processes of the same user cannot move connections to shared memory");
            }
        }
    }

    /// Adds the use of upgrades to that of shared memory.
    pub(super) fn with_upgrades(&self, stats: ShmStats) -> ShmStats {
        let Some(upgrades) = &self.upgrades else {
            return ShmStats { plain_off: self.plain_off, ..stats };
        };
        ShmStats {
            conns: stats.conns,
            pairs: stats.pairs,
            ring_bytes: stats.ring_bytes,
            received_bytes: stats.received_bytes,
            sent_bytes: stats.sent_bytes,
            wake_ups: stats.wake_ups,
            refused: stats.refused,
            plain_limit: stats.plain_limit + upgrades.stats.plain_limit,
            ..upgrades.stats
        }
    }

    /// Returns why a connection of the kernel uses no rings.
    pub(super) fn plain_reason(&self, conn: Handle) -> PlainReason {
        let Some(upgrades) = &self.upgrades else { return PlainReason::Off };
        upgrades.look(conn).map_or(PlainReason::Off, Entry::plain_reason)
    }

    pub(super) fn close_claims(&mut self, listener: ListenerId) {
        let Some(upgrades) = &mut self.upgrades else { return };
        if let Some(at) = upgrades.listeners.iter().position(|(of, _)| *of == listener) {
            self.shm.close_listener(upgrades.listeners.swap_remove(at).1);
        }
    }
}

/// The platform's calls.
impl AnyDriver {
    /// Begins with an outgoing connection.
    pub(super) fn note_connect(&mut self, conn: Handle, to: &Endpoint) {
        match &mut self.upgrades {
            Some(upgrades) => {
                let is_simulated = matches!(self.kernel, KernelDriver::Simulated(_));
                let is_shown = is_simulated || upgrades.owners.is_some() || !matches!(to, Endpoint::Tcp(_));
                let may_ask = is_shown && discovery::key_of(to).is_some();
                upgrades.connecting(conn, if may_ask { UPGRADE_ATTEMPTS_MAX } else { 0 });
                if !is_shown && discovery::is_surely_local(to) {
                    upgrades.keep_plain(conn, PlainReason::OtherUser);
                }
            }
            None => self.plain_off += u64::from(discovery::is_surely_local(to)),
        }
    }

    pub(super) fn note_adopt(&mut self, conn: Handle) {
        let Some(upgrades) = &mut self.upgrades else { return };
        let Some(peer) = self.kernel.peer_of(conn) else { return };
        upgrades.adopted(conn, &peer, self.kernel.stream_offsets(conn));
    }

    /// Sends through the ring if the connection does; otherwise counts the bytes and returns them.
    #[inline]
    pub(super) fn send_ring(&mut self, conn: Handle, data: Slice) -> Option<Slice> {
        let Some(entry) = self.upgrades.as_mut().and_then(|upgrades| upgrades.entry(conn)) else {
            return Some(data);
        };
        if entry.send == SendPath::Kernel {
            entry.sent += u64::from(data.len());
            entry.has_sent = true;
            return Some(data);
        }
        let (claim, receive) = (entry.claim, entry.receive);
        if receive == ReceivePath::Kernel && self.end_ring(conn) {
            return self.send_ring_after_end(conn, data);
        }
        let claim = self.shm.handle_at(claim);
        self.shm.send(claim, data);
        None
    }

    fn send_ring_after_end(&mut self, conn: Handle, data: Slice) -> Option<Slice> {
        self.unlink_if_over(conn);
        let entry = self.upgrades.as_mut().and_then(|upgrades| upgrades.entry(conn))?;
        entry.sent += u64::from(data.len());
        Some(data)
    }

    /// Returns the ring to receive from; `None`: the kernel.
    pub(super) fn set_receiving(&mut self, conn: Handle, on: bool) -> Option<Handle> {
        let entry = self.upgrades.as_mut()?.entry(conn)?;
        entry.is_receiving = on;
        (entry.receive == ReceivePath::Ring).then(|| self.shm.handle_at(entry.claim))
    }

    /// Returns the ring that output may be in.
    #[inline]
    pub(super) fn ring_of(&self, conn: Handle) -> Option<Handle> {
        let upgrades = self.upgrades.as_ref().filter(|upgrades| upgrades.stats.upgraded > 0)?;
        match upgrades.claim_of(conn)? {
            (claim, Claim::Linked(..)) => Some(self.shm.handle_at(claim)),
            _ => None,
        }
    }

    /// Ends the ring's write side before the kernel's.
    pub(super) fn shut_down_ring(&mut self, conn: Handle) {
        let Some(entry) = self.upgrades.as_mut().and_then(|upgrades| upgrades.entry(conn)) else { return };
        entry.is_shut = true;
        if std::mem::replace(&mut entry.send, SendPath::Kernel) == SendPath::Ring {
            let claim = self.shm.handle_at(entry.claim);
            self.shm.shutdown(claim);
            self.unlink_if_over(conn);
        }
    }

    /// Whether a connection of the kernel has rings, or asks for them.
    pub(super) fn has_rings(&self, conn: Handle) -> bool {
        self.upgrades.as_ref().is_some_and(|upgrades| upgrades.claim_of(conn).is_some())
    }

    /// Ends the rings of a connection that is closed or reset.
    pub(super) fn close_rings(&mut self, conn: Handle, is_reset: bool) {
        let Some(upgrades) = &mut self.upgrades else { return };
        if let Some((index, claim)) = upgrades.claim_of(conn) {
            let sent = upgrades.look(conn).map_or(0, |entry| entry.sent);
            let handle = self.shm.handle_at(index);
            upgrades.set_claim(index, Claim::None);
            match claim {
                Claim::Asking(_) if !is_reset => upgrades.set_claim(index, Claim::AskingClosed(sent)),
                _ if is_reset => self.shm.abort(handle),
                _ => self.shm.close(handle),
            }
            upgrades.stats.upgraded -= u64::from(matches!(claim, Claim::Linked(..)));
            either!(self, driver => driver.hold_fault(conn, false));
        }
        upgrades.forget(conn);
    }

    pub(super) fn is_downgradable(&self, conn: Handle) -> bool {
        let Some(upgrades) = &self.upgrades else { return true };
        upgrades.look(conn).is_none_or(|entry| {
            entry.claim == NONE
                || entry.downgrade_ns == 0
                || self.now_ns().saturating_sub(entry.downgrade_ns) < DOWNGRADE_NS_MAX
        })
    }

    /// Returns a connection to the kernel, so that it can be detached; `None` once it is there.
    pub(super) fn downgrade(&mut self, conn: Handle) -> Option<Detached> {
        let now_ns = self.now_ns();
        let upgrades = self.upgrades.as_mut()?;
        let (claim, stage) = upgrades.claim_of(conn)?;
        let entry = upgrades.entry(conn)?;
        if entry.downgrade_ns == 0 {
            entry.downgrade_ns = now_ns.max(1);
        }
        let (send, receive) = (entry.send, entry.receive);
        // The other side ends its ring only if this one has passed the gate.
        if let ReceivePath::Until(_) = receive {
            return Some(Detached::HasInput);
        }
        if receive == ReceivePath::UntilUnknown
            || !matches!(stage, Claim::Linked(..))
            || send == SendPath::Ring && !self.end_ring(conn)
        {
            return Some(Detached::Busy);
        }
        match (receive, self.shm.peek(claim)) {
            (ReceivePath::Ring, ClaimPeek::Finished) => {
                self.leave_ring(conn);
            }
            (ReceivePath::Ring, ClaimPeek::Input) => return Some(Detached::HasInput),
            _ => self.unlink_if_over(conn),
        }
        self.upgrades.as_ref()?.claim_of(conn).map(|_| Detached::Busy)
    }
}

/// One poll.
impl AnyDriver {
    /// Counts what the kernel's driver has reported, and takes out what the platform must not see yet.
    pub(super) fn note_kernel_events(&mut self, events: &mut Vec<DriverEvent>, before: usize) {
        if self.upgrades.is_none() {
            return;
        }
        if events[before..].iter().any(|event| matches!(event, DriverEvent::Woken)) {
            self.renew_user();
        }
        let mut kept = before;
        for at in before..events.len() {
            if let DriverEvent::Eof { conn } = events[at] {
                self.read_answer(conn);
            }
            let Some(upgrades) = &mut self.upgrades else { return };
            let is_kept = match &events[at] {
                DriverEvent::Data { conn, data } => {
                    upgrades.count_received(*conn, data.len());
                    true
                }
                DriverEvent::Accepted { conn, peer, .. } => {
                    upgrades.accepted(*conn, peer);
                    true
                }
                DriverEvent::Eof { conn } => !upgrades.hold_end(*conn),
                DriverEvent::Failed { conn, .. } => {
                    // Only one that asks is left: others hold their fault until the rings are over.
                    if let Some((claim, _)) = upgrades.claim_of(*conn) {
                        upgrades.set_claim(claim, Claim::None);
                        self.shm.abort(self.shm.handle_at(claim));
                    }
                    upgrades.forget(*conn);
                    true
                }
                _ => true,
            };
            if is_kept {
                if kept < at {
                    events.swap(kept, at);
                }
                kept += 1;
            }
        }
        events.truncate(kept);
        self.enter_due();
        while let Some((conn, fault)) = either!(self, driver => driver.take_held_fault()) {
            let Some(ring) = self.ring_of(conn) else { continue };
            // What the other side has published in the ring is delivered first.
            if let Some(upgrades) = &self.upgrades
                && upgrades.look(conn).is_some_and(|entry| entry.receive == ReceivePath::UntilUnknown)
            {
                self.read_offset(ring.index, upgrades.claim(ring.index));
                self.enter_due();
            }
            self.shm.fail_conn(ring.index, fault);
        }
    }

    /// Handles an event of shared memory.
    pub(super) fn translate(&mut self, event: &mut DriverEvent) -> Translated {
        let Some(upgrades) = &self.upgrades else { return Translated::Own };
        match event {
            DriverEvent::Accepted { listener, conn, .. } if upgrades.is_own_listener(*listener) => {
                let index = conn.index;
                self.set_claim(index, Claim::Asked);
                self.shm.set_claim(index, true);
                Translated::Hidden
            }
            DriverEvent::AcceptFailed { listener, .. } if upgrades.is_own_listener(*listener) => {
                Translated::Hidden
            }
            DriverEvent::Connected { conn }
            | DriverEvent::Data { conn, .. }
            | DriverEvent::Eof { conn }
            | DriverEvent::Failed { conn, .. }
            | DriverEvent::Drained { conn } => match upgrades.claim(conn.index) {
                Claim::None => Translated::Own,
                claim if self.translate_of_claim(claim, event) => Translated::Kernel,
                _ => Translated::Hidden,
            },
            DriverEvent::Accepted { .. } | DriverEvent::AcceptFailed { .. } | DriverEvent::Woken => {
                Translated::Own
            }
        }
    }

    /// Handles an event of a claim; returns whether it is one of the kernel's connection.
    fn translate_of_claim(&mut self, claim: Claim, event: &mut DriverEvent) -> bool {
        match (claim, event) {
            (Claim::Asking(owner), DriverEvent::Connected { conn }) => {
                self.ask(owner, conn.index);
                false
            }
            // The connection closed before the question was sent.
            (Claim::AskingClosed(_), DriverEvent::Connected { conn }) => {
                self.set_claim(conn.index, Claim::None);
                self.shm.abort(self.shm.handle_at(conn.index));
                false
            }
            (Claim::Linked(owner, _), DriverEvent::Data { conn, .. } | DriverEvent::Drained { conn }) => {
                *conn = owner;
                true
            }
            (Claim::Linked(owner, _), DriverEvent::Eof { conn }) => {
                *conn = owner;
                self.leave_ring(owner)
            }
            (_, DriverEvent::Failed { conn, fault }) => {
                self.claim_failed(conn.index, claim, *fault);
                false
            }
            _ => false,
        }
    }

    fn set_claim(&mut self, index: u32, claim: Claim) {
        if let Some(upgrades) = &mut self.upgrades {
            upgrades.set_claim(index, claim);
        }
    }

    fn claim_failed(&mut self, index: u32, claim: Claim, fault: ConnFault) {
        self.set_claim(index, Claim::None);
        match claim {
            Claim::None | Claim::Asked | Claim::AskingClosed(_) => {}
            Claim::Asking(owner) => {
                if let Some(upgrades) = &mut self.upgrades {
                    upgrades.ask_next(owner, fault);
                }
            }
            Claim::Linked(owner, _) => {
                let Some(upgrades) = &mut self.upgrades else { return };
                upgrades.stats.upgraded -= 1;
                upgrades.forget(owner);
                let is_live = self.kernel.is_live(owner);
                either!(self, driver => {
                    driver.hold_fault(owner, false);
                    if is_live {
                        driver.fail(owner.index, fault);
                    }
                });
            }
        }
    }

    /// Reads what the other sides of claims have written.
    pub(super) fn advance_claims(&mut self) {
        while let Some(index) = self.shm.next_claim() {
            let claim = self.upgrades.as_ref().map_or(Claim::None, |upgrades| upgrades.claim(index));
            match claim {
                Claim::None => {}
                Claim::Asked => self.answer(index),
                Claim::Linked(owner, _) => self.advance_linked(index, owner),
                Claim::Asking(_) | Claim::AskingClosed(_) => self.read_offset(index, claim),
            }
        }
        while let Some(index) = self.shm.take_late_claim() {
            // The question may have come while this thread was late.
            self.answer(index);
            if self.upgrades.as_ref().is_some_and(|upgrades| upgrades.claim(index) == Claim::Asked) {
                self.set_claim(index, Claim::None);
                self.shm.abort(self.shm.handle_at(index));
            }
        }
        self.enter_due();
    }

    /// Reads the offset of the other side, or ends the claim now that its last output is in the ring.
    fn advance_linked(&mut self, index: u32, owner: Handle) {
        let Some(upgrades) = &self.upgrades else { return };
        match upgrades.look(owner).map(|entry| entry.receive) {
            Some(ReceivePath::UntilUnknown) => self.read_offset(index, upgrades.claim(index)),
            Some(ReceivePath::Kernel) => self.unlink_if_over(owner),
            Some(ReceivePath::Until(_) | ReceivePath::Ring) | None => {}
        }
    }

    /// Looks for the answer to a claim when its connection ends: the other side may send through the ring already.
    fn read_answer(&mut self, conn: Handle) {
        let claim = self.upgrades.as_ref().and_then(|upgrades| upgrades.claim_of(conn));
        if let Some((index, Claim::Asking(owner))) = claim {
            self.read_offset(index, Claim::Asking(owner));
        }
    }

    fn read_offset(&mut self, index: u32, claim: Claim) {
        let mut offset = [0; OFFSET_BYTES];
        match self.shm.read_claim(index, &mut offset) {
            ClaimRead::Nothing => {}
            ClaimRead::Over => self.refused(index, claim),
            ClaimRead::All => self.opened(index, claim, u64::from_le_bytes(offset)),
        }
    }

    /// The other side has ended a claim before it has said its offset.
    fn refused(&mut self, index: u32, claim: Claim) {
        if let Claim::Linked(owner, _) = claim {
            let entry = self.upgrades.as_ref().and_then(|upgrades| upgrades.look(owner));
            // A process that died before it has said it had sent everything through the kernel, whose end follows.
            if !self.shm.is_gone(index) || entry.is_none_or(|entry| entry.has_end) {
                self.shm.fail_conn(index, ConnFault::Reset);
            }
            return;
        }
        self.shm.abort(self.shm.handle_at(index));
        self.claim_failed(index, claim, ConnFault::Refused);
    }

    /// The other side has said its offset.
    fn opened(&mut self, index: u32, claim: Claim, offset: u64) {
        match claim {
            Claim::Asking(owner) => {
                self.begin_rings(owner, index, ReceivePath::Until(offset), QUESTION_BYTES);
            }
            Claim::AskingClosed(sent) => {
                self.write_opening(index, sent);
                self.set_claim(index, Claim::None);
                self.shm.set_claim(index, false);
                self.shm.close(self.shm.handle_at(index));
            }
            Claim::Linked(owner, _) => {
                self.shm.set_claim(index, false);
                let Some(upgrades) = &mut self.upgrades else { return };
                if let Some(entry) = upgrades.entry(owner) {
                    entry.receive = ReceivePath::Until(offset);
                }
                upgrades.due.push(owner.index);
            }
            Claim::None | Claim::Asked => {}
        }
    }
}

/// Asking and answering.
impl AnyDriver {
    /// Looks for outgoing connections that have exchanged enough to be worth an upgrade, now and then.
    pub(super) fn look_for_upgrades(&mut self) {
        let now_ns = self.now_ns();
        let Some(upgrades) = &mut self.upgrades else { return };
        if upgrades.candidates.is_empty() || now_ns < upgrades.looked_ns + UPGRADE_LOOK_NS {
            return;
        }
        (upgrades.looked_ns, upgrades.names_left) = (now_ns, UPGRADE_NAMES_PER_LOOK_MAX);
        for _ in 0..upgrades.candidates.len().min(UPGRADE_LOOKS_MAX) {
            let Some(upgrades) = &mut self.upgrades else { return };
            let Some(index) = upgrades.candidates.pop() else { return };
            let Some(conn) = upgrades.conn_at(index) else { continue };
            let Some(entry) = upgrades.entry(conn) else { continue };
            if entry.claim != NONE || entry.is_shut || entry.attempts_left == 0 {
                continue;
            }
            if entry.exchanges < UPGRADE_EXCHANGES_MIN || now_ns < entry.retry_ns {
                upgrades.candidates.push(index);
            } else {
                self.claim_next(conn, now_ns);
            }
        }
    }

    /// Opens a claim to the next worker that listens at the connection's address.
    fn claim_next(&mut self, conn: Handle, now_ns: u64) {
        let Some(key) = self.kernel.named_by(conn).and_then(|names| names.remote_key()) else {
            if let Some(upgrades) = &mut self.upgrades {
                upgrades.keep_plain(conn, PlainReason::Remote);
            }
            return;
        };
        let Some(upgrades) = &mut self.upgrades else { return };
        let first = upgrades.look(conn).map_or(0, |entry| entry.name);
        let mut space = [0; discovery::NAME_BYTES_MAX];
        for number in first..UPGRADE_NAMES_MAX {
            if let Some(why) = upgrades.absence(key, number, now_ns) {
                upgrades.note_met(conn, why);
                continue;
            }
            if upgrades.names_left == 0 {
                let Some(entry) = upgrades.entry(conn) else { return };
                entry.name = number;
                return upgrades.candidates.push(conn.index);
            }
            match self.shm.claim(discovery::name_of(&upgrades.prefix, key, number, &mut space)) {
                Ok(claim) => {
                    upgrades.set_claim(claim.index, Claim::Asking(conn));
                    if let Some(entry) = upgrades.entry(conn) {
                        (entry.claim, entry.name) = (claim.index, number);
                    }
                    return;
                }
                Err(why @ (ConnFault::Refused | ConnFault::OtherUser)) => {
                    upgrades.names_left -= 1;
                    upgrades.note_absent(key, number, why, now_ns);
                    upgrades.note_met(conn, why);
                }
                Err(why) => {
                    upgrades.note_met(conn, why);
                    break;
                }
            }
        }
        upgrades.end_attempt(conn, now_ns);
    }

    /// Asks for a connection, unless its other end belongs to another user than the process that is asked.
    fn ask(&mut self, owner: Handle, claim: u32) {
        if !self.is_of_one_user(owner, claim) {
            if let Some(entry) = self.upgrades.as_mut().and_then(|upgrades| upgrades.entry(owner)) {
                entry.attempts_left = 0;
            }
            return self.refused(claim, Claim::Asking(owner));
        }
        let question = self.kernel.named_by(owner).and_then(|names| names.question());
        if !question.is_some_and(|question| self.shm.write_claim(claim, &question)) {
            self.refused(claim, Claim::Asking(owner));
        }
    }

    /// Answers a question, once it has arrived.
    fn answer(&mut self, index: u32) {
        let mut question = [0; QUESTION_BYTES];
        match self.shm.read_claim(index, &mut question) {
            ClaimRead::Nothing => return,
            ClaimRead::Over => {}
            ClaimRead::All => {
                if let Some(conn) = self.asked_conn(index, &question) {
                    return self.begin_rings(conn, index, ReceivePath::UntilUnknown, 0);
                }
            }
        }
        self.set_claim(index, Claim::None);
        self.shm.abort(self.shm.handle_at(index));
    }

    /// Returns the accepted connection that a question is about.
    fn asked_conn(&mut self, index: u32, question: &Question) -> Option<Handle> {
        let is_it = |any: &AnyDriver, conn: Handle| {
            any.kernel.named_by(conn).and_then(|names| names.expected_question()) == Some(*question)
        };
        match discovery::asking_port(question) {
            0 => {
                for _ in 0..UPGRADE_UNIX_LOOKS_MAX {
                    let conn = self.upgrades.as_mut()?.next_unix()?;
                    if is_it(self, conn) {
                        // Sockets of other network namespaces may have the same name.
                        let pid = match self.kernel.named_by(conn)? {
                            NamedBy::Socket(socket) => socket::peer_pid(socket),
                            NamedBy::Addresses(..) => None,
                        };
                        return (pid == self.shm.pid_of(index)).then_some(conn);
                    }
                }
                None
            }
            port => {
                let conn = self.upgrades.as_ref()?.accepted_from(port).filter(|conn| is_it(self, *conn))?;
                self.is_of_one_user(conn, index).then_some(conn)
            }
        }
    }

    /// Returns whether the other end of a connection belongs to the user of the process at a claim's other end. Any
    /// process can know the addresses of a connection.
    fn is_of_one_user(&mut self, conn: Handle, claim: u32) -> bool {
        let (Some(upgrades), Some(uid)) = (&mut self.upgrades, self.shm.uid_of(claim)) else { return false };
        let is_of_one = self.kernel.is_peer_of(conn, uid, upgrades.owners.as_mut());
        if !is_of_one {
            upgrades.keep_plain(conn, PlainReason::OtherUser);
        }
        is_of_one
    }

    /// Writes this side's offset and the gate.
    fn write_opening(&mut self, index: u32, sent: u64) {
        let mut opening = [0; OPENING_BYTES];
        opening[..OFFSET_BYTES].copy_from_slice(&sent.to_le_bytes());
        if !self.shm.write_claim(index, &opening) {
            self.shm.fail_conn(index, ConnFault::Reset);
        }
    }

    /// Sends through the ring from now on. `before`: bytes of the ring before the offset.
    fn begin_rings(&mut self, conn: Handle, index: u32, receive: ReceivePath, before: usize) {
        either!(self, driver => driver.hold_fault(conn, true));
        let Some(upgrades) = &mut self.upgrades else { return };
        upgrades.set_claim(index, Claim::Linked(conn, (before + OPENING_BYTES) as u64));
        upgrades.stats.upgrades += 1;
        upgrades.stats.upgraded += 1;
        let Some(entry) = upgrades.entry(conn) else { return };
        (entry.claim, entry.receive) = (index, receive);
        (entry.name, entry.met, entry.plain) = (0, Met::default(), None);
        let (sent, is_shut) = (entry.sent, entry.is_shut);
        entry.send = if is_shut { SendPath::Kernel } else { SendPath::Ring };
        upgrades.due.push(conn.index);
        self.write_opening(index, sent);
        self.shm.set_claim(index, receive == ReceivePath::UntilUnknown);
        // The kernel may still have bytes of before, and the ring those behind them.
        self.shm.hold_fault(index, true);
        if is_shut {
            self.shm.shutdown(self.shm.handle_at(index));
        }
    }
}

/// Changes of the transport.
impl AnyDriver {
    /// Makes connections receive from the ring that have received the kernel's last byte before it.
    fn enter_due(&mut self) {
        while let Some(index) = self.upgrades.as_mut().and_then(|upgrades| upgrades.due.pop()) {
            let Some(conn) = self.upgrades.as_ref().and_then(|upgrades| upgrades.conn_at(index)) else {
                continue;
            };
            let entry = self.upgrades.as_ref().and_then(|upgrades| upgrades.look(conn).copied());
            if let Some(Entry { receive: ReceivePath::Until(offset), received, .. }) = entry {
                self.enter_ring(conn, received.cmp(&offset));
            } else if let Some(Entry { receive: ReceivePath::UntilUnknown, claim, has_end: true, .. }) = entry
                && self.shm.is_gone(claim)
            {
                self.read_offset(claim, self.upgrades.as_ref().map_or(Claim::None, |of| of.claim(claim)));
            }
        }
    }

    fn enter_ring(&mut self, conn: Handle, received: std::cmp::Ordering) {
        let Some(entry) = self.upgrades.as_mut().and_then(|upgrades| upgrades.entry(conn)) else { return };
        let (claim, is_receiving) = (entry.claim, entry.is_receiving);
        if received.is_lt() {
            // The other side died with output that the kernel had not taken.
            if entry.has_end {
                self.shm.fail_conn(claim, ConnFault::Reset);
            }
            return;
        }
        // An honest side publishes the gate with its offset, and sends no more through the kernel.
        if received.is_gt() || self.shm.read_claim(claim, &mut [0]) != ClaimRead::All {
            return self.shm.fail_conn(claim, ConnFault::Reset);
        }
        entry.receive = ReceivePath::Ring;
        self.shm.hold_fault(claim, false);
        either!(self, driver => driver.receive(conn, false));
        let claim = self.shm.handle_at(claim);
        self.shm.receive(claim, is_receiving);
    }

    /// The other side has ended its ring: what follows is in the kernel. Returns whether the end of the stream is due.
    fn leave_ring(&mut self, conn: Handle) -> bool {
        let Some(entry) = self.upgrades.as_mut().and_then(|upgrades| upgrades.entry(conn)) else {
            return false;
        };
        entry.receive = ReceivePath::Kernel;
        let (is_receiving, send) = (entry.is_receiving, entry.send);
        let is_end_due = std::mem::take(&mut entry.has_end);
        if !is_end_due {
            either!(self, driver => driver.receive(conn, is_receiving));
        }
        if send == SendPath::Ring {
            self.end_ring(conn);
        }
        self.unlink_if_over(conn);
        is_end_due
    }

    /// Ends the ring that this side sends through, if the other side has passed the gate. Returns whether it did.
    fn end_ring(&mut self, conn: Handle) -> bool {
        let Some(upgrades) = &mut self.upgrades else { return false };
        let Some((index, Claim::Linked(_, gate))) = upgrades.claim_of(conn) else { return false };
        if self.shm.consumed_bytes(index) < gate {
            return false;
        }
        if let Some(entry) = upgrades.entry(conn) {
            entry.send = SendPath::Kernel;
        }
        self.shm.shutdown(self.shm.handle_at(index));
        true
    }

    /// Ends a claim of which neither direction uses the ring. The connection may be upgraded again. While output is
    /// left the claim stays: the time of a closed one to send it is bounded.
    fn unlink_if_over(&mut self, conn: Handle) {
        let now_ns = self.now_ns();
        let Some(upgrades) = &mut self.upgrades else { return };
        let Some((index, Claim::Linked(..))) = upgrades.claim_of(conn) else { return };
        let Some(entry) = upgrades.entry(conn) else { return };
        let has_output = self.shm.backlog_bytes(self.shm.handle_at(index)) > 0;
        if entry.send == SendPath::Ring || entry.receive != ReceivePath::Kernel || has_output {
            return;
        }
        (entry.claim, entry.downgrade_ns) = (NONE, 0);
        if entry.attempts_left > 0 {
            // Another worker, or another process, may have the connection soon.
            (entry.attempts_left, entry.retry_ns) = (UPGRADE_ATTEMPTS_MAX, now_ns + UPGRADE_RETRY_NS);
            upgrades.candidates.push(conn.index);
        }
        upgrades.set_claim(index, Claim::None);
        upgrades.stats.upgraded -= 1;
        upgrades.stats.downgrades += 1;
        self.shm.close(self.shm.handle_at(index));
        either!(self, driver => driver.hold_fault(conn, false));
    }
}
