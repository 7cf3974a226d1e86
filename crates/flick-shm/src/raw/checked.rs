//! Views of ordinary memory under loom: every byte of a ring is a cell whose accesses loom checks for races.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;

use loom::cell::UnsafeCell;

use crate::sync::AtomicU64;

/// Control words.
#[derive(Debug)]
pub(crate) struct CheckedWords<T>(pub Arc<T>);

impl<T> Clone for CheckedWords<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for CheckedWords<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A list of words.
#[derive(Debug)]
pub(crate) struct CheckedWordList<T = AtomicU64>(pub Arc<[T]>);

impl<T> Clone for CheckedWordList<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for CheckedWordList<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

/// The bytes of one ring.
#[derive(Debug)]
pub(crate) struct CheckedArea(Arc<[UnsafeCell<u8>]>);

impl CheckedArea {
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn cell(&self, at: u64) -> &UnsafeCell<u8> {
        &self.0[(at & (self.len() - 1)) as usize]
    }

    pub fn copy_in(&self, at: u64, from: &[u8]) {
        for (at, byte) in (at..).zip(from) {
            // SAFETY: the pointer is that of a live cell; loom fails the model if another thread uses it meanwhile.
            self.cell(at).with_mut(|cell| unsafe { *cell = *byte });
        }
    }

    pub fn copy_out(&self, at: u64, out: &mut [u8]) {
        for (at, byte) in (at..).zip(out) {
            // SAFETY: as in `copy_in`.
            *byte = self.cell(at).with(|cell| unsafe { *cell });
        }
    }

    pub fn clear(&self) {
        self.copy_in(0, &alloc::vec![0; self.0.len()]);
    }
}

/// The rings of one sender; the location of a ring is its number.
#[derive(Clone, Debug)]
pub(crate) struct CheckedWindow(Arc<[Arc<[UnsafeCell<u8>]>]>);

// SAFETY: loom runs one thread at a time and fails a model whose threads use a cell at once.
unsafe impl Send for CheckedWindow {}
// SAFETY: as above.
unsafe impl Send for CheckedArea {}

impl CheckedWindow {
    /// Creates rings of the given sizes.
    pub fn new(sizes: &[usize]) -> Self {
        let ring = |bytes: &usize| (0..*bytes).map(|_| UnsafeCell::new(0)).collect::<Box<[_]>>().into();
        Self(sizes.iter().map(ring).collect::<Vec<_>>().into())
    }

    pub fn area(&self, location: u64) -> Option<CheckedArea> {
        self.0.get(location as usize).map(|ring| CheckedArea(Arc::clone(ring)))
    }
}
