//! The limits of this crate.

/// Smallest ring in bytes: one record of a word fits into half of it.
pub const RING_BYTES_MIN: usize = 32;
/// Largest ring in bytes.
pub const RING_BYTES_MAX: usize = 1 << 30;
