//! A worker's pool: three size classes of buffers, each with a last-in-first-out free list.
//! Promises: `alloc` and release cost a few instructions and no heap; `alloc` returns the buffer freed last, whose
//! cache lines are warm; memory above the high-water mark was never touched, and what has been free for a while can be
//! given back ([`Pool::release_some`]).
//! Refuses: falling back from one class to another; the caller knows whether that makes sense.

mod release;

use std::cell::Cell;
use std::rc::Rc;

use rustix::param::page_size;

use crate::buf::Buf;
use crate::limits::{BUFS_MAX, HANDLES_MAX, HUGE_BYTES, LARGE_BYTES, SMALL_BYTES};
use crate::raw::Region;

/// The size class of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufClass {
    /// [`SMALL_BYTES`].
    Small,
    /// [`LARGE_BYTES`].
    Large,
    /// [`HUGE_BYTES`].
    Huge,
}

impl BufClass {
    /// Returns the capacity of a buffer of this class.
    pub fn bytes(self) -> u32 {
        match self {
            BufClass::Small => SMALL_BYTES,
            BufClass::Large => LARGE_BYTES,
            BufClass::Huge => HUGE_BYTES,
        }
    }
}

/// The number of buffers of a pool; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Buffers of [`BufClass::Small`].
    pub small_count: u32,
    /// Buffers of [`BufClass::Large`].
    pub large_count: u32,
    /// Buffers of [`BufClass::Huge`].
    pub huge_count: u32,
}

/// The buffers of one worker. A clone is a second handle on the same pool; the memory is freed when the last pool
/// handle and the last buffer are dropped.
#[derive(Clone)]
pub struct Pool(Rc<ClassPools>);

pub(crate) struct ClassPools {
    small: ClassPool,
    large: ClassPool,
    huge: ClassPool,
}

/// All buffers of one class.
pub(crate) struct ClassPool {
    pub(crate) region: Region,
    pub(crate) slots: Box<[Slot]>,
    class: BufClass,
    /// First free slot below `fresh`, or `NONE`.
    free_head: Cell<u32>,
    /// Slots at and above this number were never allocated.
    fresh: Cell<u32>,
    live: Cell<u32>,
    /// Free slots whose memory has been touched and not been given back.
    idle: Cell<u32>,
    /// Smallest number of buffers that fill whole pages.
    page_group: u32,
    /// Number of the present pass of `release`, from 1.
    pass: Cell<u16>,
    /// Slot at which the pass goes on.
    pass_at: Cell<u32>,
}

/// The state of one buffer, stored apart from its bytes so that neither pulls the other into the cache.
#[derive(Default)]
pub(crate) struct Slot {
    /// Handles on the buffer; 0 means free.
    pub(crate) handles: Cell<u32>,
    /// Frozen bytes.
    pub(crate) len: Cell<u32>,
    /// Next free slot; meaningful only while free.
    next_free: Cell<u32>,
    /// Current writer of the bytes after `len`.
    pub(crate) writer: Cell<Writer>,
    /// Pass during which the buffer was freed last; 0: it has no memory, or none that was ever freed.
    freed_in: Cell<u16>,
}

/// Writer that holds the spare bytes of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Free for the next append.
    #[default]
    None,
    /// A closure inside `append_with`.
    Appending,
    /// The kernel (see [`crate::ProvidedBuf`]).
    Kernel,
}

const NONE: u32 = u32::MAX;

/// A buffer's index and class in one word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufId(u32);

const LARGE_BIT: u32 = 1 << 31;
const HUGE_BIT: u32 = 1 << 30;

impl BufId {
    fn new(class: BufClass, index: u32) -> BufId {
        BufId(match class {
            BufClass::Small => index,
            BufClass::Large => index | LARGE_BIT,
            BufClass::Huge => index | HUGE_BIT,
        })
    }

    #[inline]
    pub(crate) fn class(self) -> BufClass {
        match self.0 & (LARGE_BIT | HUGE_BIT) {
            0 => BufClass::Small,
            LARGE_BIT => BufClass::Large,
            _ => BufClass::Huge,
        }
    }

    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.0 & !(LARGE_BIT | HUGE_BIT)
    }
}

impl Pool {
    /// Reserves the address space for all buffers.
    ///
    /// Cost: writes 16 bytes of state per buffer; buffer memory itself is not touched.
    /// Panics: a count above [`BUFS_MAX`]; the caller checks its configuration.
    pub fn new(config: PoolConfig) -> Pool {
        Pool(Rc::new(ClassPools {
            small: ClassPool::new(BufClass::Small, config.small_count),
            large: ClassPool::new(BufClass::Large, config.large_count),
            huge: ClassPool::new(BufClass::Huge, config.huge_count),
        }))
    }

    /// Takes an empty buffer, or `None` when all of this class are in use.
    pub fn alloc(&self, class: BufClass) -> Option<Buf> {
        let index = self.0.class_pool(class).take()?;
        Some(Buf::adopt(Rc::clone(&self.0), BufId::new(class, index)))
    }

    /// Returns how many buffers of this class are free.
    pub fn free_count(&self, class: BufClass) -> u32 {
        self.capacity_count(class) - self.live_count(class)
    }

    /// Returns how many buffers of this class the pool has.
    pub fn capacity_count(&self, class: BufClass) -> u32 {
        self.0.class_pool(class).count()
    }

    /// Returns the bytes of all buffers.
    pub fn capacity_bytes(&self) -> u64 {
        let classes = [BufClass::Small, BufClass::Large, BufClass::Huge];
        classes.map(|class| u64::from(self.capacity_count(class)) * u64::from(class.bytes())).iter().sum()
    }

    /// Returns how many buffers of this class are in use.
    pub fn live_count(&self, class: BufClass) -> u32 {
        self.0.class_pool(class).live.get()
    }

    /// Returns whether `buf` belongs to this pool.
    pub fn owns(&self, buf: &Buf) -> bool {
        Rc::ptr_eq(&self.0, buf.pools())
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("small_live", &self.live_count(BufClass::Small))
            .field("large_live", &self.live_count(BufClass::Large))
            .field("huge_live", &self.live_count(BufClass::Huge))
            .finish()
    }
}

impl ClassPools {
    #[inline]
    fn classes(&self) -> [&ClassPool; 3] {
        [&self.small, &self.large, &self.huge]
    }

    #[inline]
    pub(crate) fn class_pool(&self, class: BufClass) -> &ClassPool {
        match class {
            BufClass::Small => &self.small,
            BufClass::Large => &self.large,
            BufClass::Huge => &self.huge,
        }
    }
}

impl ClassPool {
    fn new(class: BufClass, count: u32) -> ClassPool {
        assert!(count <= BUFS_MAX, "a pool's class holds at most BUFS_MAX buffers");
        let bytes = count as usize * class.bytes() as usize;
        ClassPool {
            region: Region::new(bytes),
            slots: (0..count).map(|_| Slot::default()).collect(),
            class,
            free_head: Cell::new(NONE),
            fresh: Cell::new(0),
            live: Cell::new(0),
            idle: Cell::new(0),
            page_group: page_group(class),
            pass: Cell::new(1),
            pass_at: Cell::new(0),
        }
    }

    fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the offset of a buffer's first byte in the region.
    #[inline]
    pub(crate) fn offset(&self, index: u32) -> usize {
        index as usize * self.class.bytes() as usize
    }

    fn take(&self) -> Option<u32> {
        let index = match self.free_head.get() {
            NONE => {
                let fresh = self.fresh.get();
                if fresh == self.count() {
                    return None;
                }
                self.fresh.set(fresh + 1);
                fresh
            }
            head => {
                let slot = &self.slots[head as usize];
                self.free_head.set(slot.next_free.get());
                if slot.freed_in.get() != 0 {
                    self.idle.set(self.idle.get() - 1);
                }
                head
            }
        };
        let slot = &self.slots[index as usize];
        assert!(slot.handles.get() == 0, "a buffer on the free list has no handle");
        slot.handles.set(1);
        slot.len.set(0);
        self.live.set(self.live.get() + 1);
        Some(index)
    }

    /// Adds a handle to a live buffer.
    #[inline]
    pub(crate) fn retain(&self, index: u32) {
        let slot = &self.slots[index as usize];
        let handles = slot.handles.get();
        assert!(handles != 0 && handles < HANDLES_MAX, "a live buffer has 1 to HANDLES_MAX handles");
        slot.handles.set(handles + 1);
    }

    /// Removes a handle; the last one puts the buffer on the free list.
    #[inline]
    pub(crate) fn release(&self, index: u32) {
        let slot = &self.slots[index as usize];
        let handles = slot.handles.get();
        assert!(handles != 0, "a dropped handle names a live buffer");
        slot.handles.set(handles - 1);
        if handles == 1 {
            self.put_back(index);
        }
    }

    fn put_back(&self, index: u32) {
        let slot = &self.slots[index as usize];
        #[cfg(debug_assertions)]
        {
            let used = crate::raw::SpareRange { at: self.offset(index), len: slot.len.get() as usize };
            used.bytes(&self.region).fill(crate::limits::POISON);
        }
        slot.next_free.set(self.free_head.get());
        slot.freed_in.set(self.pass.get());
        self.free_head.set(index);
        self.live.set(self.live.get() - 1);
        self.idle.set(self.idle.get() + 1);
    }
}

/// Returns the smallest number of buffers of a class that fill whole pages.
fn page_group(class: BufClass) -> u32 {
    let page = page_size() as u32;
    assert!(page.is_power_of_two(), "the size of a page is a power of two");
    // The largest power of two that divides a buffer is `1 << trailing_zeros`.
    page / page.min(1 << class.bytes().trailing_zeros())
}

const _: () = assert!(size_of::<Slot>() == 16);
