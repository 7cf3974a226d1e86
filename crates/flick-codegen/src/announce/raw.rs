//! gdb's JIT interface: a list of object files under a name that gdb looks for, and a function on which it sets a
//! breakpoint.
//! Promises: the list is consistent whenever that function is called and whenever no thread changes it; an entry stays
//! in memory until it has been removed.
//! Source: gdb's manual, "JIT Compilation Interface", with its names and layouts.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// An object file in gdb's list.
#[derive(Debug)]
#[repr(C)]
struct Entry {
    next: AtomicPtr<Entry>,
    previous: AtomicPtr<Entry>,
    image: AtomicPtr<u8>,
    image_bytes: u64,
}

/// Descriptor of gdb's JIT interface: the head of the list of object files and the last change to it.
#[derive(Debug)]
#[repr(C)]
pub struct Descriptor {
    version: u32,
    action: AtomicU32,
    relevant: AtomicPtr<Entry>,
    first: AtomicPtr<Entry>,
}

const NO_ACTION: u32 = 0;
const REGISTER: u32 = 1;
const UNREGISTER: u32 = 2;

/// The list; written to under the lock of [`ENTRIES`], read by gdb while the process stands still.
// SAFETY: the name is gdb's, for a thing of this layout; nothing else of this process has it.
#[unsafe(no_mangle)]
#[used]
pub static __jit_debug_descriptor: Descriptor = Descriptor {
    version: 1,
    action: AtomicU32::new(NO_ACTION),
    relevant: AtomicPtr::new(null_mut()),
    first: AtomicPtr::new(null_mut()),
};

/// Function in which gdb sets a breakpoint; it is called after each change of the list.
// SAFETY: the name is gdb's, for a function without arguments; nothing else of this process has it.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn __jit_debug_register_code() {
    std::hint::black_box(&__jit_debug_descriptor);
}

/// A listed object file.
#[derive(Debug)]
struct Listed {
    entry: Box<Entry>,
    /// Object file that the entry points to.
    _image: Box<[u8]>,
}

/// In the order of the list.
static ENTRIES: Mutex<Vec<Listed>> = Mutex::new(Vec::new());

/// An object file that gdb knows until this is dropped.
#[derive(Debug)]
pub(super) struct GdbRegistration {
    /// Address of its entry.
    entry: AtomicPtr<Entry>,
}

impl GdbRegistration {
    pub(super) fn new(image: Vec<u8>) -> Self {
        let mut image = image.into_boxed_slice();
        let mut entry = Box::new(Entry {
            next: AtomicPtr::default(),
            previous: AtomicPtr::default(),
            image: AtomicPtr::new(image.as_mut_ptr()),
            image_bytes: image.len() as u64,
        });
        let address: *mut Entry = &raw mut *entry;
        let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(Listed { entry, _image: image });
        tell(&mut entries, address, REGISTER);
        Self { entry: AtomicPtr::new(address) }
    }
}

impl Drop for GdbRegistration {
    fn drop(&mut self) {
        let own = *self.entry.get_mut();
        let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
        let at = entries.iter_mut().position(|listed| std::ptr::eq(&raw const *listed.entry, own));
        let taken = entries.remove(at.expect("what was registered is listed"));
        tell(&mut entries, own, UNREGISTER);
        // gdb has let go of it.
        drop(taken);
    }
}

/// Links the entries in their order, and tells gdb about one of them.
fn tell(entries: &mut [Listed], relevant: *mut Entry, action: u32) {
    let addresses: Vec<*mut Entry> = entries.iter_mut().map(|listed| &raw mut *listed.entry).collect();
    for (at, listed) in entries.iter().enumerate() {
        let neighbour =
            |at: Option<usize>| at.and_then(|at| addresses.get(at)).copied().unwrap_or(null_mut());
        listed.entry.previous.store(neighbour(at.checked_sub(1)), Ordering::Release);
        listed.entry.next.store(neighbour(Some(at + 1)), Ordering::Release);
    }
    let descriptor = &__jit_debug_descriptor;
    descriptor.first.store(addresses.first().copied().unwrap_or(null_mut()), Ordering::Release);
    descriptor.relevant.store(relevant, Ordering::Release);
    descriptor.action.store(action, Ordering::Release);
    __jit_debug_register_code();
    descriptor.action.store(NO_ACTION, Ordering::Release);
}
