//! Control words of a connection's direction, as they lie in the segment. Each cache line has one writer, or is written
//! rarely.
//! Promises: every bit pattern is a valid value, because the other process may write any; the size is fixed.
//! Not here: their meaning (`ring.rs`, `sleep.rs`, `switch.rs`).

#[cfg(not(loom))]
use crate::sync::Ordering;
use crate::sync::{AtomicU32, AtomicU64};

/// Keeps its fields on a cache line of their own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct CacheLine<T>(pub T);

impl<T> core::ops::Deref for CacheLine<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The sender has published its last byte.
pub(crate) const FINISHED: u32 = 1;
/// The sender has given the connection up: bytes may be missing.
pub(crate) const RESET: u32 = 2;

/// Words that the sender writes.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct SenderWords {
    /// Bytes published since the connection began.
    pub head: AtomicU64,
    /// Number of the sender's present ring.
    pub ring_number: AtomicU32,
    /// [`FINISHED`] after the last byte is published, [`RESET`] if the sender gives the connection up.
    pub closed: AtomicU32,
    /// Location of the ring with an even number, and of the one with an odd number.
    pub ring_location: [AtomicU64; 2],
    /// Offset in the stream at which each of the two begins.
    pub ring_start: [AtomicU64; 2],
    /// Generation of the connection that uses the slot, by this side; 0 if none.
    pub generation: AtomicU32,
}

/// Words that the receiver writes.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct ReceiverWords {
    /// Bytes consumed since the connection began.
    pub tail: AtomicU64,
}

/// Words that both sides look at with every message and write rarely.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct SharedWords {
    /// Sleep word of the receiver, which waits for data.
    pub data_sleep: AtomicU32,
    /// Sleep word of the sender, which waits for space.
    pub space_sleep: AtomicU32,
    /// 1 when the receiver reads no more; the sender may then reuse its ring.
    pub receiver_closed: AtomicU32,
    /// State of the transport switch: epoch, holds, state.
    pub control: AtomicU32,
    /// Process that injects the ring's bytes into the kernel's socket; 0 if none.
    pub injector: AtomicU32,
}

/// Words of the transport switch that are written only while the ring is not in use.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct SwitchWords {
    /// Bytes of this direction that were read from the kernel's socket, ever.
    pub kernel_taken: AtomicU64,
    /// Epoch and the two indices at which the ring was cut.
    pub cut: AtomicU64,
    /// Bytes of this direction that were written to the kernel's socket, ever.
    pub kernel_bytes: AtomicU64,
    /// Value of `kernel_bytes` when the ring was last entered: the receiver reads as many from the kernel first.
    pub kernel_bytes_at_entry: AtomicU64,
    /// Error number that an injector received in the sender's place; 0 if none.
    pub error: AtomicU32,
}

/// Words that say which thread may use the ring of a switched direction, at one of its ends; see `token.rs`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct TokenWords {
    /// Thread with the bias, flags, and the number of changes of this word.
    pub owner: AtomicU64,
    /// Time of the last takeover in nanoseconds.
    pub taken_ns: AtomicU64,
    /// Takeovers that followed each other quickly.
    pub revocations: AtomicU32,
    /// Thread that has the shared lock, and whether another one waits; 0: it is free.
    pub lock: AtomicU32,
    /// Thread that had the shared lock last, and how often in sequence without another one that waited.
    pub streak: AtomicU32,
    /// Processes that have the end open; 0: none. Of the sending end only.
    pub holders: [AtomicU32; crate::limits::HOLDERS_MAX],
}

#[cfg(not(loom))]
impl TokenWords {
    /// Sets all words to zero, before the slot gets another connection.
    pub(crate) fn reset(&self) {
        let narrow = [&self.revocations, &self.lock, &self.streak];
        narrow.into_iter().chain(&self.holders).for_each(|word| word.store(0, Ordering::Relaxed));
        self.taken_ns.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
    }
}

/// Words of a thread that sends or receives through switched directions; only the thread writes them.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct ThreadWords {
    /// Generation of the record, and the process of its thread; no process: the record is free.
    pub identity: AtomicU64,
    /// Ends at which the thread is in a call: more than one if a signal handler interrupts it.
    pub busy: [AtomicU64; crate::limits::CALL_DEPTH_MAX],
}

/// Words of a process that has a segment open.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct ProcessWords {
    /// Process number, generation of the entry, state.
    pub identity: AtomicU64,
    /// Number that the kernel gives a process once, and the generation; another generation: unknown.
    pub birth: AtomicU64,
    /// Number of the namespace in which the process number counts, and the generation.
    pub namespace: AtomicU64,
}

/// Words of all members of a segment.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct MembersWords {
    /// Records of threads that were ever used.
    pub threads_used: AtomicU32,
}

/// Control words of one direction of a connection.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Direction {
    pub(crate) sender: CacheLine<SenderWords>,
    pub(crate) receiver: CacheLine<ReceiverWords>,
    pub(crate) shared: CacheLine<SharedWords>,
    pub(crate) switch: CacheLine<SwitchWords>,
}

impl Direction {
    /// Sets all words to zero, before the slot gets another connection.
    #[cfg(not(loom))]
    pub(crate) fn reset(&self) {
        let Self { sender, receiver, shared, switch } = self;
        let wide = [
            &sender.head,
            &sender.ring_location[0],
            &sender.ring_location[1],
            &sender.ring_start[0],
            &sender.ring_start[1],
            &receiver.tail,
            &switch.kernel_taken,
            &switch.cut,
            &switch.kernel_bytes,
            &switch.kernel_bytes_at_entry,
        ];
        let narrow = [
            &sender.ring_number,
            &sender.closed,
            &sender.generation,
            &shared.data_sleep,
            &shared.space_sleep,
            &shared.receiver_closed,
            &shared.control,
            &shared.injector,
            &switch.error,
        ];
        wide.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        narrow.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Direction>() as u64 == crate::limits::DIRECTION_BYTES);
    assert!(size_of::<TokenWords>() == 64 && size_of::<ThreadWords>() == 64);
    assert!(size_of::<ProcessWords>() == 24 && size_of::<MembersWords>() == 64);
};

/// Words of one side of a pair, written by both: the sleep word of its event loop.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct SideWords {
    /// 1 while the side's event loop sleeps and needs a signal through the socket.
    pub sleep: AtomicU32,
    /// Capabilities of the side, once it has attached; 0 before.
    pub capabilities: AtomicU32,
}
