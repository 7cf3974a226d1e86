//! Timers of arbitrary duration for the slots of a table, earliest first.
//! Promises: at most one time for each slot, so that the queue is as long as the table and no longer; setting and
//! clearing cost a walk from a leaf to the root at most, and one step when times are set in ascending order.
//! No allocation after `new`.
//! Source: a binary heap that knows where each of its members is. `deadlines.rs` is cheaper, for fixed durations.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Timer {
    at_ns: u64,
    slot: u32,
}

/// The queue.
#[derive(Debug)]
pub struct TimerHeap {
    heap: Vec<Timer>,
    session_slots: Vec<u32>,
    capacity: usize,
}

impl TimerHeap {
    /// A queue for the slots below `capacity`.
    pub fn new(capacity: usize) -> Self {
        Self { heap: Vec::with_capacity(capacity), session_slots: Vec::with_capacity(capacity), capacity }
    }

    /// Sets or replaces a slot's time.
    pub fn set(&mut self, slot: u32, at_ns: u64) {
        assert!((slot as usize) < self.capacity, "alarms are set for slots of their table");
        self.clear(slot);
        if self.session_slots.len() <= slot as usize {
            self.session_slots.resize(slot as usize + 1, NONE);
        }
        self.heap.push(Timer { at_ns, slot });
        self.up(self.heap.len() - 1);
    }

    /// Takes a slot's time away.
    pub fn clear(&mut self, slot: u32) {
        let Some(position) = self.session_slots.get_mut(slot as usize) else { return };
        let at = std::mem::replace(position, NONE) as usize;
        if at == NONE as usize {
            return;
        }
        let last = self.heap.pop().expect("a slot with a place is in the heap");
        if at < self.heap.len() {
            self.heap[at] = last;
            let at = self.up(at);
            self.down(at);
        }
    }

    /// The earliest time.
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.first().map(|alarm| alarm.at_ns)
    }

    /// A slot whose deadline has passed; it stays due until it is set again or cleared.
    pub fn expired(&self, now_ns: u64) -> Option<u32> {
        self.heap.first().filter(|alarm| alarm.at_ns <= now_ns).map(|alarm| alarm.slot)
    }

    fn up(&mut self, from: usize) -> usize {
        let (mut at, alarm) = (from, self.heap[from]);
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent].at_ns <= alarm.at_ns {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, alarm);
        at
    }

    fn down(&mut self, from: usize) {
        let (mut at, alarm) = (from, self.heap[from]);
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.heap.len() {
                break;
            }
            let is_right = right < self.heap.len() && self.heap[right].at_ns < self.heap[left].at_ns;
            let child = if is_right { right } else { left };
            if self.heap[child].at_ns >= alarm.at_ns {
                break;
            }
            self.put(at, self.heap[child]);
            at = child;
        }
        self.put(at, alarm);
    }

    fn put(&mut self, at: usize, alarm: Timer) {
        self.heap[at] = alarm;
        self.session_slots[alarm.slot as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::TimerHeap;

    /// Random operations on the queue and on a map by slot: the earliest time is always the same.
    fn check(seed: u64) {
        const SLOTS: u64 = 24;
        let mut random = seed | 1;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let (mut alarms, mut model) = (TimerHeap::new(SLOTS as usize), BTreeMap::new());
        for _ in 0..400 {
            let slot = (next() % SLOTS) as u32;
            if next() % 3 == 0 {
                alarms.clear(slot);
                model.remove(&slot);
            } else {
                let at_ns = next() % 100;
                alarms.set(slot, at_ns);
                model.insert(slot, at_ns);
            }
            assert_eq!(alarms.next_ns(), model.values().min().copied(), "seed {seed}");
            match alarms.expired(50) {
                Some(slot) => assert_eq!(model.get(&slot), model.values().min(), "seed {seed}"),
                None => assert!(model.values().all(|at_ns| *at_ns > 50), "seed {seed}"),
            }
        }
    }

    #[test]
    fn the_earliest_time_comes_first_whatever_is_set_and_cleared() {
        (0..200).for_each(|seed| check(seed * 0x9e37_79b9 + 7));
    }
}
