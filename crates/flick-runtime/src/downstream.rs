//! Clients: their connections, the messages that arrive on them, and their deadlines.

mod blocked;
pub(crate) mod body;
pub(crate) mod client;
pub(crate) mod deadlines;
pub(crate) mod holders;
pub(crate) mod inbox;
pub(crate) mod quantum;
pub(crate) mod stream;
pub(crate) mod window;

use self::blocked::BlockedQueue;
use self::client::ClientConn;
use self::deadlines::{DeadlineKind, Deadlines};
use self::holders::Holders;
use self::stream::{Stream, Wait};
use crate::slab::{Key, Slab};

/// Component of the worker. Client connections, their deadlines, and which of them wait for capacity.
pub(crate) struct Downstream {
    clients: Slab<ClientConn>,
    deadlines: Deadlines,
    /// Clients that wait for capacity that several share, first come first served.
    blocked: BlockedQueue,
    /// Clients with replies in their batch buffer, which is released at the end of the iteration.
    filled: Vec<Key>,
    /// Clients with a truncated reply: they are reset once its received part is sent.
    to_reset: Vec<Key>,
    /// Memory for a list of who holds most; absent while it is used.
    holders: Holders,
    /// When the worker may look again who holds most of the buffers.
    relief_ns: u64,
}

impl Downstream {
    /// Slots for `clients_max` clients, of whom `holders_max` may hold something scarce at one time.
    pub(crate) fn new(clients_max: usize, holders_max: usize) -> Self {
        Self {
            clients: Slab::new(clients_max),
            deadlines: Deadlines::new(clients_max),
            blocked: BlockedQueue::new(clients_max),
            filled: Vec::with_capacity(clients_max),
            to_reset: Vec::with_capacity(clients_max),
            holders: Holders::new(clients_max.max(holders_max)),
            relief_ns: 0,
        }
    }

    /// Adds a client; `None` when the table is full.
    pub(crate) fn insert(&mut self, client: ClientConn) -> Option<Key> {
        self.clients.insert(client)
    }

    /// Removes a client and its deadline.
    pub(crate) fn remove(&mut self, key: Key) -> Option<ClientConn> {
        let client = self.clients.remove(key)?;
        self.deadlines.clear(key.index);
        Some(client)
    }

    /// Returns the number of connected clients.
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// One more than the highest slot that was ever used.
    pub(crate) fn slots_used(&self) -> usize {
        self.clients.slots_used()
    }

    /// The client in a slot.
    pub(crate) fn key_at(&self, slot: usize) -> Option<Key> {
        self.clients.key_at(slot)
    }

    /// All clients.
    pub(crate) fn clients(&self) -> impl Iterator<Item = &ClientConn> {
        let keys = (0..self.slots_used()).filter_map(|slot| self.key_at(slot));
        keys.filter_map(|key| self.client(key))
    }

    /// The client, if it is still connected.
    #[inline]
    pub(crate) fn client(&self, key: Key) -> Option<&ClientConn> {
        self.clients.get(key)
    }

    /// The client, if it is still connected.
    #[inline]
    pub(crate) fn client_mut(&mut self, key: Key) -> Option<&mut ClientConn> {
        self.clients.get_mut(key)
    }

    /// The client's stream, if it is still connected.
    #[inline]
    pub(crate) fn stream(&self, key: Key) -> Option<&Stream> {
        self.clients.get(key).map(ClientConn::stream)
    }

    /// The client's stream, if it is still connected.
    #[inline]
    pub(crate) fn stream_mut(&mut self, key: Key) -> Option<&mut Stream> {
        self.clients.get_mut(key).map(ClientConn::stream_mut)
    }

    /// The client, to which replies are written now: its batch buffer is released at the end of the iteration.
    #[inline]
    pub(crate) fn client_to_fill(&mut self, key: Key) -> Option<&mut ClientConn> {
        let client = self.clients.get_mut(key)?;
        if self.filled.len() < self.filled.capacity() && client.begin_fill() {
            self.filled.push(key);
        }
        Some(client)
    }

    /// Releases the batch buffers of all clients that replies were written to.
    pub(crate) fn release_fills(&mut self) {
        for key in self.filled.drain(..) {
            if let Some(client) = self.clients.get_mut(key) {
                client.end_fill();
            }
        }
    }

    /// Whether the worker may look now who holds most of the buffers.
    pub(crate) fn may_relieve(&self, now_ns: u64) -> bool {
        now_ns >= self.relief_ns
    }

    /// Sets when the worker may look again who holds most of the buffers.
    pub(crate) fn relieve_again_at(&mut self, at_ns: u64) {
        self.relief_ns = at_ns;
    }

    /// Takes the memory for a list of holders, until [`Self::return_holders`].
    pub(crate) fn take_holders(&mut self) -> Holders {
        std::mem::take(&mut self.holders)
    }

    /// Takes back what [`Self::take_holders`] gave.
    pub(crate) fn return_holders(&mut self, mut holders: Holders) {
        holders.clear();
        self.holders = holders;
    }

    /// Queues a client until there is capacity, at that backend if there is one; `false` if it is not connected.
    pub(crate) fn block(&mut self, key: Key, backend: Option<u32>) -> bool {
        let Some(client) = self.clients.get_mut(key) else { return false };
        client.stream_mut().wait_for(Wait::Capacity { backend });
        self.blocked.push(key.index);
        true
    }

    /// Returns the number of clients in the queue for capacity; some of them may have stopped waiting.
    pub(crate) fn blocked_len(&self) -> usize {
        self.blocked.len()
    }

    /// Whether a client is queued until there is capacity.
    #[inline]
    pub(crate) fn has_blocked(&self) -> bool {
        self.blocked.len() > 0
    }

    /// Takes the first client that still waits out of the queue for capacity. Returns it and the backend at which it is
    /// pending; its stream still waits.
    pub(crate) fn pop_blocked(&mut self) -> Option<(Key, Option<u32>)> {
        while let Some(slot) = self.blocked.pop() {
            if let Some(key) = self.clients.key_at(slot as usize)
                && let Some(Wait::Capacity { backend }) = self.stream(key).map(Stream::wait)
            {
                return Some((key, backend));
            }
        }
        None
    }

    /// Queues a client again that `pop_blocked` has returned, and for which there is no capacity.
    pub(crate) fn block_again(&mut self, key: Key) {
        self.blocked.push(key.index);
    }

    /// A client waits no more. Returns the backend at which it was pending.
    pub(crate) fn unblock(&mut self, key: Key) -> Option<u32> {
        self.stream_mut(key)?.resume()
    }

    /// Whether one more client can be noted for a reset.
    pub(crate) fn can_reset(&self) -> bool {
        self.to_reset.len() < self.to_reset.capacity()
    }

    /// Notes a client for a reset in the next iteration, when its output has been handed to the kernel.
    pub(crate) fn reset_when_sent(&mut self, key: Key) {
        if let Some(client) = self.clients.get_mut(key) {
            client.reset_when_sent();
            self.to_reset.push(key);
        }
    }

    /// Takes a client that was noted for a reset.
    pub(crate) fn pop_reset(&mut self) -> Option<Key> {
        self.to_reset.pop()
    }

    /// Whether a client is noted for a reset.
    #[inline]
    pub(crate) fn has_resets(&self) -> bool {
        !self.to_reset.is_empty()
    }

    /// Sets or replaces a client's deadline.
    #[inline]
    pub(crate) fn set_deadline(&mut self, key: Key, kind: DeadlineKind, at_ns: u64) {
        self.deadlines.set(key.index, kind, at_ns);
    }

    /// Returns the kind of the client's deadline, if it has one.
    #[inline]
    pub(crate) fn deadline(&self, key: Key) -> Option<DeadlineKind> {
        self.deadlines.kind(key.index)
    }

    /// Takes the client's deadline away.
    #[inline]
    pub(crate) fn clear_deadline(&mut self, key: Key) {
        self.deadlines.clear(key.index);
    }

    /// The earliest deadline of all.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        self.deadlines.next_ns()
    }

    /// Removes a deadline that has passed. Returns its client and its kind.
    pub(crate) fn take_expired(&mut self, now_ns: u64) -> Option<(Key, DeadlineKind)> {
        while let Some((slot, kind)) = self.deadlines.expired(now_ns) {
            self.deadlines.clear(slot);
            if let Some(key) = self.clients.key_at(slot as usize) {
                return Some((key, kind));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use flick_net::Handle;

    use super::Downstream;
    use super::client::ClientConn;
    use super::stream::Stream;
    use crate::rules::locals::Locals;
    use crate::slab::Key;

    const CLIENTS_MAX: usize = 2;

    fn accept(downstream: &mut Downstream) -> Key {
        let stream = Stream::new(Locals::new(0, 0).take(), false);
        let client = ClientConn::new(Handle { index: 0, generation: 0 }, stream, 0);
        downstream.insert(client).expect("a slot is free")
    }

    #[test]
    fn a_client_that_blocks_again_before_it_is_looked_at_is_queued_once() {
        let mut downstream = Downstream::new(CLIENTS_MAX, 0);
        let (a, b) = (accept(&mut downstream), accept(&mut downstream));
        for _ in 0..10 * CLIENTS_MAX {
            for key in [a, b] {
                // The end of its input lets it run, and there is still no capacity.
                assert!(downstream.block(key, None));
                downstream.client_mut(key).expect("it is connected").begin_run();
            }
        }
        assert_eq!(downstream.blocked_len(), CLIENTS_MAX);
        assert!(downstream.block(b, Some(3)));
        assert_eq!(downstream.pop_blocked(), Some((b, Some(3))), "the other one waits no more");
        assert!(!downstream.has_blocked());
    }

    #[test]
    fn clients_that_leave_while_blocked_do_not_fill_the_queue() {
        let mut downstream = Downstream::new(CLIENTS_MAX, 0);
        for _ in 0..10 * CLIENTS_MAX {
            let key = accept(&mut downstream);
            assert!(downstream.block(key, None));
            assert!(downstream.remove(key).is_some());
        }
        assert_eq!(downstream.blocked_len(), 1);
        let key = accept(&mut downstream);
        assert_eq!(downstream.pop_blocked(), None, "its slot's client does not wait");
        assert!(downstream.block(key, None));
        assert_eq!(downstream.pop_blocked(), Some((key, None)));
    }
}
