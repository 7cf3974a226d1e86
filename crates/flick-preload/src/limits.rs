//! The limits of the preloaded library.

/// Descriptors of a process that are followed: numbers below this.
pub const FDS_MAX: usize = 1 << 16;

/// Descriptors in a chunk of the table. A chunk is populated when its first descriptor is entered.
pub const CHUNK_FDS: usize = 256;

/// Chunks of the table.
pub const CHUNKS_MAX: usize = FDS_MAX / CHUNK_FDS;

/// Bytes of a path: the library's, the directory of states, a patched text.
pub const PATH_BYTES_MAX: usize = 512;

/// Variables of an environment that is completed for a new image; a larger one is passed unchanged.
pub const ENVIRONMENT_MAX: usize = 1000;

/// Bytes of an `LD_PRELOAD` that is completed for a new image.
pub const PRELOAD_BYTES_MAX: usize = 2048;

/// Descriptors in one message (`SCM_MAX_FD` of the kernel).
pub const PASSED_FDS_MAX: usize = 253;

/// Messages of one `sendmmsg` or `recvmmsg` (`UIO_MAXIOV` of the kernel).
pub const MESSAGES_MAX: usize = 1024;

/// Bytes of control data that are looked through for descriptors.
pub const CONTROL_BYTES_MAX: usize = 1 << 14;

/// Libraries in a process's list that are looked at for libc and for this library.
pub const LIBRARIES_MAX: usize = 4096;

/// Sites in a patched text.
pub const SITES_MAX: usize = 512;

/// Runs of pages in a patched text.
pub const RUNS_MAX: usize = 128;

/// Bytes of a patched text's file.
pub const IMAGE_BYTES_MAX: usize = 4 << 20;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

const _: () = assert!(FDS_MAX.is_multiple_of(CHUNK_FDS));

/// Comparisons of a connection with the kernel's counts before it counts as different.
pub const COMPARISONS_MAX: u32 = 4;
