//! A driver's table of connections: a fixed number of slots, and a generation per use of a slot.
//! Promises: the handle of an ended connection finds nothing; no allocation after `new`; a slot's memory is first
//! touched when it is used.
//! Refuses: growing. A full table returns `None`.

use crate::driver::Handle;

/// At most `capacity` values, identified by [`Handle`].
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    capacity: u32,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Generations stay below this, so that a driver can use it to mark tokens that name no connection.
pub(crate) const GENERATION_END: u32 = u32::MAX;

impl<T> Table<T> {
    pub(crate) fn new(capacity: u32) -> Table<T> {
        let slots = Vec::with_capacity(capacity as usize);
        Table { slots, free: Vec::with_capacity(capacity as usize), capacity }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == self.capacity as usize
    }

    /// Puts `value` into a free slot.
    pub(crate) fn insert(&mut self, value: T) -> Option<Handle> {
        if self.is_full() {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        assert!(slot.value.is_none(), "a slot on the free list is empty");
        slot.value = Some(value);
        Some(Handle { index, generation: slot.generation })
    }

    /// Returns the value of a handle, unless the handle is dead.
    #[inline]
    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        let slot = self.slots.get(handle.index as usize)?;
        if slot.generation == handle.generation { slot.value.as_ref() } else { None }
    }

    /// As [`Table::get`].
    #[inline]
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        if slot.generation == handle.generation { slot.value.as_mut() } else { None }
    }

    /// Returns the value in a slot, whatever its generation.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots[index as usize].value.as_mut()
    }

    /// Returns the value in a slot, whatever its generation.
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.slots[index as usize].value.as_ref()
    }

    /// Returns all values, in the order of their slots.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// Returns the number of slots that were ever used: the first ones.
    pub(crate) fn used(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the handle of the value now in a slot.
    #[inline]
    pub(crate) fn handle(&self, index: u32) -> Handle {
        Handle { index, generation: self.slots[index as usize].generation }
    }

    /// Empties a slot; its handle is dead from here on.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let slot = &mut self.slots[index as usize];
        let value = slot.value.take()?;
        slot.generation = if slot.generation + 1 == GENERATION_END { 0 } else { slot.generation + 1 };
        self.free.push(index);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_handle_finds_nothing() {
        let mut table = Table::new(2);
        let old = table.insert('a').expect("the table is empty");
        assert_eq!(table.remove(old.index), Some('a'));
        let new = table.insert('b').expect("a slot is free");
        assert_eq!((new.index, new.generation), (old.index, old.generation + 1));
        assert_eq!((table.get(old), table.get(new)), (None, Some(&'b')));
        assert!(table.insert('c').is_some() && table.is_full() && table.insert('d').is_none());
        assert_eq!(table.get(Handle { index: 7, generation: 0 }), None);
    }
}
