//! Output waiting to be sent: one queue per connection, all nodes in one slab made at the start.
//! Promises: order is kept; pieces that lie side by side in one buffer become one; nothing is allocated, and nothing of
//! the slab is touched before it is used.
//! Refuses: growing. When the slab is used up, `push` says so.

use flick_buffers::Slice;

/// The nodes of all queues of one driver.
pub(crate) struct OutputSlab {
    nodes: Vec<Node>,
    free: u32,
    capacity: usize,
}

struct Node {
    slice: Option<Slice>,
    next: u32,
}

/// What one connection has still to send.
#[derive(Debug)]
pub(crate) struct OutputQueue {
    head: u32,
    tail: u32,
    bytes: usize,
}

const NONE: u32 = u32::MAX;

impl Default for OutputQueue {
    fn default() -> OutputQueue {
        OutputQueue { head: NONE, tail: NONE, bytes: 0 }
    }
}

impl OutputQueue {
    /// Bytes waiting.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl OutputSlab {
    pub(crate) fn new(slices_max: u32) -> OutputSlab {
        let capacity = slices_max as usize;
        OutputSlab { nodes: Vec::with_capacity(capacity), free: NONE, capacity }
    }

    /// Appends a piece; false when no node is left. An empty piece is dropped.
    pub(crate) fn push(&mut self, queue: &mut OutputQueue, slice: Slice) -> bool {
        let bytes = slice.len() as usize;
        if bytes == 0 {
            return true;
        }
        if queue.tail != NONE
            && let Some(tail) = self.nodes[queue.tail as usize].slice.as_mut()
            && tail.try_extend(&slice)
        {
            queue.bytes += bytes;
            return true;
        }
        let at = if self.free != NONE {
            let at = self.free;
            let node = &mut self.nodes[at as usize];
            self.free = node.next;
            *node = Node { slice: Some(slice), next: NONE };
            at
        } else if self.nodes.len() < self.capacity {
            self.nodes.push(Node { slice: Some(slice), next: NONE });
            (self.nodes.len() - 1) as u32
        } else {
            return false;
        };
        if queue.tail == NONE {
            queue.head = at;
        } else {
            self.nodes[queue.tail as usize].next = at;
        }
        queue.tail = at;
        queue.bytes += bytes;
        true
    }

    /// Drops the first `bytes` bytes, which the kernel has taken.
    pub(crate) fn consume(&mut self, queue: &mut OutputQueue, bytes: usize) {
        assert!(bytes <= queue.bytes, "the kernel takes no more than it was offered");
        queue.bytes -= bytes;
        let mut left = bytes;
        while left > 0 {
            let node = &mut self.nodes[queue.head as usize];
            let slice = node.slice.as_mut().expect("a queued node holds a slice");
            let len = slice.len() as usize;
            if left < len {
                slice.advance(left as u32);
                return;
            }
            left -= len;
            self.pop(queue);
        }
    }

    /// Takes the first piece out.
    pub(crate) fn take_first(&mut self, queue: &mut OutputQueue) -> Option<Slice> {
        let slice = self.nodes.get_mut(queue.head as usize)?.slice.take()?;
        queue.bytes -= slice.len() as usize;
        self.pop(queue);
        Some(slice)
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self, queue: &mut OutputQueue) {
        while queue.head != NONE {
            self.pop(queue);
        }
        queue.bytes = 0;
    }

    /// The first pieces, until they have so many bytes or more.
    pub(crate) fn first(&self, queue: &OutputQueue, bytes: usize) -> impl Iterator<Item = &Slice> {
        let mut left = bytes.max(1);
        self.iter(queue).map_while(move |slice| {
            let is_wanted = left > 0;
            left = left.saturating_sub(slice.bytes().len());
            is_wanted.then_some(slice)
        })
    }

    /// The pieces in order.
    pub(crate) fn iter(&self, queue: &OutputQueue) -> impl Iterator<Item = &Slice> {
        let mut at = queue.head;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.next;
            node.slice.as_ref()
        })
    }

    fn pop(&mut self, queue: &mut OutputQueue) {
        let at = queue.head;
        let node = &mut self.nodes[at as usize];
        node.slice = None;
        queue.head = node.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        node.next = self.free;
        self.free = at;
    }
}

/// How many bytes one poll may send: what it has left is sent by the next. It may be exceeded by one piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    each_bytes: usize,
    left_bytes: usize,
}

impl Allowance {
    pub(crate) fn unlimited() -> Allowance {
        Allowance { each_bytes: usize::MAX, left_bytes: usize::MAX }
    }

    /// So many for each poll from the next one on.
    pub(crate) fn set(&mut self, each_bytes: usize) {
        self.each_bytes = each_bytes;
    }

    /// A poll begins.
    pub(crate) fn renew(&mut self) {
        self.left_bytes = self.each_bytes;
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.left_bytes == 0
    }

    pub(crate) fn left_bytes(&self) -> usize {
        self.left_bytes
    }

    pub(crate) fn take(&mut self, bytes: usize) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }
}

/// When to say that output has drained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    pub(crate) high_bytes: usize,
    pub(crate) low_bytes: usize,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks { high_bytes: 256 * 1024, low_bytes: 64 * 1024 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flick_buffers::{Class, Pool, PoolConfig};

    fn text(slab: &OutputSlab, queue: &OutputQueue) -> Vec<String> {
        slab.iter(queue).map(|slice| String::from_utf8_lossy(slice.bytes()).into_owned()).collect()
    }

    #[test]
    fn pieces_merge_are_consumed_in_order_and_give_their_nodes_back() {
        let pool = Pool::new(PoolConfig { small_count: 1, large_count: 0, huge_count: 0 });
        let buf = pool.alloc(Class::Small).expect("the pool is fresh");
        buf.append(b"abcdefgh");
        let mut slab = OutputSlab::new(2);
        let mut queue = OutputQueue::default();
        assert!(slab.push(&mut queue, buf.slice(0..2)));
        assert!(slab.push(&mut queue, buf.slice(2..4)), "lies behind the first: no node needed");
        assert!(slab.push(&mut queue, buf.slice(5..8)));
        assert!(slab.push(&mut queue, buf.slice(5..5)), "an empty piece needs no node");
        assert!(!slab.push(&mut queue, buf.slice(0..1)), "two nodes are all there are");
        assert_eq!((text(&slab, &queue), queue.bytes()), (vec!["abcd".into(), "fgh".into()], 7));
        slab.consume(&mut queue, 5);
        assert_eq!(text(&slab, &queue), ["gh"]);
        assert!(slab.push(&mut queue, buf.slice(0..1)));
        slab.clear(&mut queue);
        assert!(queue.is_empty() && text(&slab, &queue).is_empty() && slab.push(&mut queue, buf.slice(0..8)));
    }
}
