//! A table of fixed capacity whose entries are named by keys that stay unique.
//! Promises: no allocation after `new`; memory is touched only when an entry is first used; a key kept past its
//! entry's removal finds nothing.

/// Names one entry of one slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Slot.
    pub index: u32,
    /// Use of the slot.
    pub generation: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The table.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    capacity: usize,
}

impl<T> Slab<T> {
    /// A table for at most `capacity` entries.
    pub fn new(capacity: usize) -> Self {
        Self { slots: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity), capacity }
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds an entry; `None` when the table is full.
    pub fn insert(&mut self, value: T) -> Option<Key> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Some(Key { index, generation: slot.generation });
        }
        if self.slots.len() == self.capacity {
            return None;
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Some(Key { index, generation: 0 })
    }

    /// The entry, if it still exists.
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    /// The entry, if it still exists.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    /// Takes the entry out.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    /// The key of the `index`th slot, if it is in use: for walking over all entries.
    pub fn key_at(&self, index: usize) -> Option<Key> {
        let slot = self.slots.get(index)?;
        slot.value.as_ref()?;
        Some(Key { index: index as u32, generation: slot.generation })
    }

    /// One more than the highest slot ever used.
    pub fn slots_used(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Slab;

    #[test]
    fn a_key_kept_too_long_finds_nothing() {
        let mut slab = Slab::new(1);
        let first = slab.insert('a').expect("room for one");
        assert!(slab.insert('b').is_none());
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('c').expect("room again");
        assert_eq!(second.index, first.index);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&'c'));
        assert_eq!(slab.len(), 1);
    }
}
