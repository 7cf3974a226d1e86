//! Queues of slices, one per connection, whose nodes are in one slab: output to send, or input to deliver.
//! Promises: order is kept; adjacent pieces of one buffer become one; `push` allocates nothing, and memory of the slab
//! is first touched when it is used.
//! Refuses: growing. When the slab is full, `push` returns false.

use flick_buffers::Slice;

/// The nodes of all queues of one kind.
pub(crate) struct SliceSlab {
    nodes: Vec<Node>,
    free: u32,
    capacity: usize,
}

struct Node {
    slice: Option<Slice>,
    next: u32,
}

/// The queue of one connection.
#[derive(Debug)]
pub(crate) struct SliceQueue {
    head: u32,
    tail: u32,
    bytes: usize,
}

const NONE: u32 = u32::MAX;

impl Default for SliceQueue {
    fn default() -> SliceQueue {
        SliceQueue { head: NONE, tail: NONE, bytes: 0 }
    }
}

impl SliceQueue {
    /// Returns the queued bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl SliceSlab {
    pub(crate) fn new(slices_max: u32) -> SliceSlab {
        let capacity = slices_max as usize;
        SliceSlab { nodes: Vec::with_capacity(capacity), free: NONE, capacity }
    }

    /// Appends a piece; false when no node is left. Drops an empty piece.
    pub(crate) fn push(&mut self, queue: &mut SliceQueue, slice: Slice) -> bool {
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

    /// Removes the first `bytes` bytes, which the kernel has taken.
    pub(crate) fn consume(&mut self, queue: &mut SliceQueue, bytes: usize) {
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

    /// Removes and returns the first piece.
    pub(crate) fn take_first(&mut self, queue: &mut SliceQueue) -> Option<Slice> {
        let slice = self.nodes.get_mut(queue.head as usize)?.slice.take()?;
        queue.bytes -= slice.len() as usize;
        self.pop(queue);
        Some(slice)
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self, queue: &mut SliceQueue) {
        while queue.head != NONE {
            self.pop(queue);
        }
        queue.bytes = 0;
    }

    /// Returns the first pieces that together have at least `bytes` bytes, or all.
    pub(crate) fn first(&self, queue: &SliceQueue, bytes: usize) -> impl Iterator<Item = &Slice> {
        let mut left = bytes.max(1);
        self.iter(queue).map_while(move |slice| {
            let is_wanted = left > 0;
            left = left.saturating_sub(slice.bytes().len());
            is_wanted.then_some(slice)
        })
    }

    /// Returns the pieces in order.
    pub(crate) fn iter(&self, queue: &SliceQueue) -> impl Iterator<Item = &Slice> {
        let mut at = queue.head;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.next;
            node.slice.as_ref()
        })
    }

    fn pop(&mut self, queue: &mut SliceQueue) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use flick_buffers::{BufClass, Pool, PoolConfig};

    fn text(slab: &SliceSlab, queue: &SliceQueue) -> Vec<String> {
        slab.iter(queue).map(|slice| String::from_utf8_lossy(slice.bytes()).into_owned()).collect()
    }

    #[test]
    fn pieces_merge_and_are_consumed_in_order_and_nodes_are_reused() {
        let pool = Pool::new(PoolConfig { small_count: 1, large_count: 0, huge_count: 0 });
        let buf = pool.alloc(BufClass::Small).expect("the pool is fresh");
        buf.append(b"abcdefgh");
        let mut slab = SliceSlab::new(2);
        let mut queue = SliceQueue::default();
        assert!(slab.push(&mut queue, buf.slice(0..2)));
        assert!(slab.push(&mut queue, buf.slice(2..4)), "follows the first in its buffer: no node needed");
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
