//! Views of shared memory: the bytes of a ring, and control words.
//! Promises: every access is inside the mapping; no reference to bytes that the other process can write exists, only
//! pointers and atomics; a view keeps its mapping alive.
//! Not here: which bytes belong to which side. The protocol in `ring.rs` separates them for honest peers. A dishonest
//! one can change bytes while they are copied: the copy then holds arbitrary bytes, which a peer may send anyway.
//!
//! Under loom the views are of ordinary memory whose accesses loom checks for races (`raw/checked.rs`).

#[cfg(loom)]
mod checked;
#[cfg(loom)]
pub(crate) use checked::{
    CheckedArea as Area, CheckedWindow as Window, CheckedWordList as WordList, CheckedWords as Words,
};

#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
pub(crate) use shared::{Area, Window, WordList, Words};
