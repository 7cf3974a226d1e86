//! The limits of this crate and their relations.

/// Bytes of a small buffer: one request or reply of a key-value service.
pub const SMALL_BYTES: u32 = 2048;

/// Bytes of a large buffer: one receive.
pub const LARGE_BYTES: u32 = 16384;

/// Bytes of a huge buffer: a message of which a rule reads 1 MiB.
pub const HUGE_BYTES: u32 = (1 << 20) + 64 * 1024;

/// Buffers of one class in one pool, at most: a buffer's index and class fit 32 bits.
pub const BUFS_MAX: u32 = 1 << 24;

/// Handles on one buffer, at most; far above what the limits of drivers and platform allow.
pub const HANDLES_MAX: u32 = u32::MAX - 1;

/// Debug builds overwrite a freed buffer with this byte, so that a stale view shows at once.
pub const POISON: u8 = 0xDD;

/// Bytes that one step of returning memory discards, or a buffer more: some ten microseconds.
pub const RELEASE_STEP_BYTES: u32 = 256 * 1024;

/// Buffers that one such step looks at.
pub const RELEASE_STEP_SLOTS: u32 = 2048;

/// Passes during which a buffer was not used when its memory is returned.
pub const RELEASE_AGE_PASSES: u16 = 2;

const _: () = assert!(SMALL_BYTES < LARGE_BYTES && LARGE_BYTES < HUGE_BYTES);
const _: () = assert!(SMALL_BYTES.is_multiple_of(64) && LARGE_BYTES.is_multiple_of(64));
const _: () = assert!(HUGE_BYTES.is_multiple_of(64));
const _: () = assert!(BUFS_MAX < 1 << 30);
