//! Deadlines of sessions: a few queues, each with one fixed duration, so that each queue is sorted by itself.
//! Promises: every operation is a few loads and stores; no allocation after `new`.
//! Refuses: arbitrary durations; that would need a heap or a wheel.

const NONE: u32 = u32::MAX;

/// Kind of a session's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum DeadlineKind {
    /// A request has begun and is not complete.
    Message = 0,
    /// We have closed our side and wait for the client to close its.
    Linger = 1,
    /// Nothing has happened for long.
    Idle = 2,
    /// The client has closed its side, and its last replies are on their way out.
    Flush = 3,
    /// Nothing has moved in a tunnel for long.
    Tunnel = 4,
    /// One side of a tunnel has ended, and nothing has come from the other for long.
    HalfTunnel = 5,
    /// A request is queued for capacity that others have.
    Queue = 6,
}

impl DeadlineKind {
    /// Whether it ends a tunnel, or a session of a relay, in which nothing moves.
    pub fn is_of_tunnel(self) -> bool {
        matches!(self, DeadlineKind::Tunnel | DeadlineKind::HalfTunnel)
    }
}

/// Number of kinds.
const KINDS: usize = 7;

#[derive(Clone, Copy, Debug)]
struct Node {
    prev: u32,
    next: u32,
    deadline_ns: u64,
    kind: Option<DeadlineKind>,
}

/// The queues; entries are slots of the session table.
#[derive(Debug)]
pub struct Deadlines {
    nodes: Vec<Node>,
    heads: [u32; KINDS],
    tails: [u32; KINDS],
}

impl Deadlines {
    /// Queues over at most `capacity` slots.
    pub fn new(capacity: usize) -> Self {
        Self { nodes: Vec::with_capacity(capacity), heads: [NONE; KINDS], tails: [NONE; KINDS] }
    }

    /// Sets or replaces the slot's deadline. Within one kind deadlines must be set in ascending order.
    pub fn set(&mut self, slot: u32, kind: DeadlineKind, deadline_ns: u64) {
        while self.nodes.len() <= slot as usize {
            self.nodes.push(Node { prev: NONE, next: NONE, deadline_ns: 0, kind: None });
        }
        self.clear(slot);
        let tail = self.tails[kind as usize];
        self.nodes[slot as usize] = Node { prev: tail, next: NONE, deadline_ns, kind: Some(kind) };
        if tail == NONE {
            self.heads[kind as usize] = slot;
        } else {
            self.nodes[tail as usize].next = slot;
        }
        self.tails[kind as usize] = slot;
    }

    /// Returns the kind of the slot's deadline, if it has one.
    pub fn kind(&self, slot: u32) -> Option<DeadlineKind> {
        self.nodes.get(slot as usize).and_then(|node| node.kind)
    }

    /// Takes the slot's deadline away.
    pub fn clear(&mut self, slot: u32) {
        let Some(node) = self.nodes.get_mut(slot as usize) else { return };
        let Some(kind) = node.kind.take() else { return };
        let (prev, next) = (node.prev, node.next);
        if prev == NONE {
            self.heads[kind as usize] = next;
        } else {
            self.nodes[prev as usize].next = next;
        }
        if next == NONE {
            self.tails[kind as usize] = prev;
        } else {
            self.nodes[next as usize].prev = prev;
        }
    }

    /// The earliest deadline of all.
    pub fn next_ns(&self) -> Option<u64> {
        self.heads
            .iter()
            .filter(|head| **head != NONE)
            .map(|head| self.nodes[*head as usize].deadline_ns)
            .min()
    }

    /// A slot whose deadline has passed; it keeps it until it is set again or cleared.
    pub fn expired(&self, now_ns: u64) -> Option<(u32, DeadlineKind)> {
        self.heads.iter().filter(|head| **head != NONE).find_map(|head| {
            let node = &self.nodes[*head as usize];
            let kind = node.kind.expect("a queued node has a kind");
            (node.deadline_ns <= now_ns).then_some((*head, kind))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{DeadlineKind, Deadlines};

    #[test]
    fn earliest_of_all_kinds_comes_first_and_replacing_moves_it() {
        let mut deadlines = Deadlines::new(8);
        deadlines.set(1, DeadlineKind::Message, 10);
        deadlines.set(2, DeadlineKind::Message, 20);
        deadlines.set(3, DeadlineKind::Linger, 5);
        assert_eq!(deadlines.next_ns(), Some(5));
        deadlines.set(3, DeadlineKind::Message, 30);
        assert_eq!(deadlines.next_ns(), Some(10));
        assert_eq!(deadlines.expired(25), Some((1, DeadlineKind::Message)));
        deadlines.clear(1);
        assert_eq!(deadlines.expired(25), Some((2, DeadlineKind::Message)));
        deadlines.clear(2);
        assert_eq!(deadlines.expired(25), None);
        assert_eq!(deadlines.next_ns(), Some(30));
        deadlines.clear(3);
        assert_eq!(deadlines.next_ns(), None);
    }
}
