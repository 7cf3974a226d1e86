//! A worker's pool: three classes of buffers, each with a last-in-first-out free list.
//! Promises: `alloc` and release cost a few instructions and no heap; the buffer given out is the one freed
//! last, whose lines are warm; a number above the high-water mark was never touched.
//! Refuses: falling back from one class to the other; the caller knows whether that makes sense.

use std::cell::Cell;
use std::rc::Rc;

use crate::buf::Buf;
use crate::limits::{BUFS_MAX, HANDLES_MAX, HUGE_BYTES, LARGE_BYTES, SMALL_BYTES};
use crate::raw::Area;

/// The size of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// [`SMALL_BYTES`].
    Small,
    /// [`LARGE_BYTES`].
    Large,
    /// [`HUGE_BYTES`].
    Huge,
}

impl Class {
    /// Capacity of a buffer of this class.
    pub fn bytes(self) -> u32 {
        match self {
            Class::Small => SMALL_BYTES,
            Class::Large => LARGE_BYTES,
            Class::Huge => HUGE_BYTES,
        }
    }
}

/// How many buffers a pool holds; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Buffers of [`Class::Small`].
    pub small_count: u32,
    /// Buffers of [`Class::Large`].
    pub large_count: u32,
    /// Buffers of [`Class::Huge`].
    pub huge_count: u32,
}

/// The buffers of one worker. Clone is a cheap second handle on the same pool; the memory goes back to the
/// system when the last pool handle and the last buffer are gone.
#[derive(Clone)]
pub struct Pool(Rc<Shelves>);

pub(crate) struct Shelves {
    small: Shelf,
    large: Shelf,
    huge: Shelf,
}

/// All buffers of one class.
pub(crate) struct Shelf {
    pub(crate) area: Area,
    pub(crate) slots: Box<[Slot]>,
    class: Class,
    /// First free slot below `fresh`, or `NONE`.
    free_head: Cell<u32>,
    /// Slots at and above this number were never given out.
    fresh: Cell<u32>,
    live: Cell<u32>,
}

/// Book-keeping of one buffer, apart from its bytes so that neither drags the other into the cache.
#[derive(Default)]
pub(crate) struct Slot {
    /// Handles on the buffer; 0 means free.
    pub(crate) handles: Cell<u32>,
    /// Frozen bytes.
    pub(crate) len: Cell<u32>,
    /// Next free slot; meaningful only while free.
    next_free: Cell<u32>,
    /// Who may write the bytes behind `len`.
    pub(crate) writer: Cell<Writer>,
}

/// Who holds the spare bytes of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Nobody: whoever appends next.
    #[default]
    None,
    /// A closure inside `append_with`.
    Appending,
    /// The kernel.
    Lent,
}

const NONE: u32 = u32::MAX;

/// A buffer's number and class in one word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufId(u32);

const LARGE_BIT: u32 = 1 << 31;
const HUGE_BIT: u32 = 1 << 30;

impl BufId {
    fn new(class: Class, index: u32) -> BufId {
        BufId(match class {
            Class::Small => index,
            Class::Large => index | LARGE_BIT,
            Class::Huge => index | HUGE_BIT,
        })
    }

    #[inline]
    pub(crate) fn class(self) -> Class {
        match self.0 & (LARGE_BIT | HUGE_BIT) {
            0 => Class::Small,
            LARGE_BIT => Class::Large,
            _ => Class::Huge,
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
    /// Cost: 16 bytes of book-keeping per buffer are written; buffer memory itself is not touched.
    /// Panics: a count above [`BUFS_MAX`], which is the caller's configuration check to prevent.
    pub fn new(config: PoolConfig) -> Pool {
        Pool(Rc::new(Shelves {
            small: Shelf::new(Class::Small, config.small_count),
            large: Shelf::new(Class::Large, config.large_count),
            huge: Shelf::new(Class::Huge, config.huge_count),
        }))
    }

    /// Takes an empty buffer, or `None` when all of this class are in use.
    pub fn alloc(&self, class: Class) -> Option<Buf> {
        let index = self.0.shelf(class).take()?;
        Some(Buf::adopt(Rc::clone(&self.0), BufId::new(class, index)))
    }

    /// Buffers of this class that [`Pool::alloc`] can still give.
    pub fn free_count(&self, class: Class) -> u32 {
        self.capacity_count(class) - self.live_count(class)
    }

    /// Buffers of this class there are.
    pub fn capacity_count(&self, class: Class) -> u32 {
        self.0.shelf(class).count()
    }

    /// Buffers of this class in use.
    pub fn live_count(&self, class: Class) -> u32 {
        self.0.shelf(class).live.get()
    }

    /// Says whether `buf` came from this pool.
    pub fn owns(&self, buf: &Buf) -> bool {
        Rc::ptr_eq(&self.0, buf.shelves())
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("small_live", &self.live_count(Class::Small))
            .field("large_live", &self.live_count(Class::Large))
            .field("huge_live", &self.live_count(Class::Huge))
            .finish()
    }
}

impl Shelves {
    #[inline]
    pub(crate) fn shelf(&self, class: Class) -> &Shelf {
        match class {
            Class::Small => &self.small,
            Class::Large => &self.large,
            Class::Huge => &self.huge,
        }
    }
}

impl Shelf {
    fn new(class: Class, count: u32) -> Shelf {
        assert!(count <= BUFS_MAX, "a pool's class holds at most BUFS_MAX buffers");
        let bytes = count as usize * class.bytes() as usize;
        Shelf {
            area: Area::new(bytes),
            slots: (0..count).map(|_| Slot::default()).collect(),
            class,
            free_head: Cell::new(NONE),
            fresh: Cell::new(0),
            live: Cell::new(0),
        }
    }

    fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Offset of a buffer's first byte in the area.
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
                self.free_head.set(self.slots[head as usize].next_free.get());
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
        assert!(handles != 0, "a handle that is dropped names a live buffer");
        slot.handles.set(handles - 1);
        if handles == 1 {
            self.give_back(index);
        }
    }

    fn give_back(&self, index: u32) {
        let slot = &self.slots[index as usize];
        #[cfg(debug_assertions)]
        {
            let used = crate::raw::SpareRange { at: self.offset(index), len: slot.len.get() as usize };
            used.bytes(&self.area).fill(crate::limits::POISON);
        }
        slot.next_free.set(self.free_head.get());
        self.free_head.set(index);
        self.live.set(self.live.get() - 1);
    }
}
