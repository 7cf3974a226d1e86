//! The state that each session has for itself: the `local`s of its process, as words.
//! Promises: one table, allocated once and touched as it is used; a state's first values are set before a rule reads
//! it.

/// A state in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateId(u32);

/// All states of a worker.
#[derive(Debug)]
pub struct Locals {
    words: Vec<u64>,
    is_fresh: Vec<bool>,
    free: Vec<u32>,
    stride: usize,
    capacity: usize,
}

impl Locals {
    /// A table of at most `capacity` states of `stride` words; with `stride` 0, of nothing.
    pub fn new(capacity: usize, stride: usize) -> Self {
        let capacity = if stride == 0 { 0 } else { capacity };
        Self {
            words: vec![0; capacity * stride],
            is_fresh: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            stride,
            capacity,
        }
    }

    /// States in use.
    pub fn len(&self) -> usize {
        self.is_fresh.len() - self.free.len()
    }

    /// Takes a state whose words are all zero. Panics when the table is full: it has room for every session and
    /// activation.
    pub fn take(&mut self) -> StateId {
        if self.stride == 0 {
            return StateId(0);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            assert!(self.is_fresh.len() < self.capacity, "there is a state for every session and activation");
            self.is_fresh.push(true);
            (self.is_fresh.len() - 1) as u32
        });
        self.is_fresh[index as usize] = true;
        self.words_mut(StateId(index)).fill(0);
        StateId(index)
    }

    /// Gives a state back.
    pub fn give(&mut self, state: StateId) {
        if self.stride > 0 {
            self.free.push(state.0);
        }
    }

    /// Whether this is the first time that this is asked of the state: then its first values are due.
    pub fn is_first_use(&mut self, state: StateId) -> bool {
        self.stride > 0 && std::mem::replace(&mut self.is_fresh[state.0 as usize], false)
    }

    /// Whether no rule has used the state yet, or states have no words.
    pub fn is_untouched(&self, state: StateId) -> bool {
        self.stride == 0 || self.is_fresh[state.0 as usize]
    }

    /// The words of a state.
    pub fn words_mut(&mut self, state: StateId) -> &mut [u64] {
        let start = state.0 as usize * self.stride;
        &mut self.words[start..start + self.stride]
    }
}

#[cfg(test)]
mod tests {
    use super::Locals;

    #[test]
    fn a_state_used_again_knows_nothing_of_its_last_owner() {
        let mut locals = Locals::new(2, 3);
        let (first, second) = (locals.take(), locals.take());
        assert!(locals.is_first_use(first));
        assert!(!locals.is_first_use(first));
        locals.words_mut(first).fill(7);
        assert_eq!(locals.words_mut(second), [0; 3]);
        locals.give(first);
        assert_eq!(locals.len(), 1);
        let third = locals.take();
        assert_eq!(third, first);
        assert!(locals.is_first_use(third));
        assert_eq!(locals.words_mut(third), [0; 3]);
    }

    #[test]
    fn without_words_there_is_no_table() {
        let mut locals = Locals::new(1_000, 0);
        let state = locals.take();
        assert!(!locals.is_first_use(state));
        assert!(locals.words_mut(state).is_empty());
        assert_eq!(locals.len(), 0);
    }
}
