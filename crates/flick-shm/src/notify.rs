//! Wake-ups that reach the other process: a bit of its ready bitmap and a byte of the socket, or a futex.
//! Promises: a signal is sent only while the other side sleeps; a sleep word with a wrong value costs a system call or
//! a fault, nothing else; no signal blocks, whatever the other process does with its end of the socket.

use alloc::sync::Arc;

use rustix::fd::{AsFd, OwnedFd};

use crate::control::SideWords;
use crate::raw::Words;
use crate::ready::ReadyBitmap;
use crate::sleep::{Fencing, Wake};
use crate::sync::{AtomicU32, Ordering, fence};
use crate::sys;

/// Result of a look for signals of the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// None has arrived.
    Nothing,
    /// At least one has.
    Arrived,
    /// The other process has closed the socket, or sent something else.
    Over,
}

/// Delivers wake-ups to the other process of a pair.
#[derive(Clone, Debug)]
pub(crate) struct Notifier {
    /// Bits that the other side takes.
    pub ready: ReadyBitmap,
    pub peer: Words<SideWords>,
    pub socket: Arc<OwnedFd>,
    pub fencing: Fencing,
}

impl Notifier {
    /// Delivers the wake-up of a sleep word.
    pub fn deliver(&self, slot: u32, wake: Wake, word: &AtomicU32) {
        match wake {
            Wake::NotNeeded => {}
            Wake::EventLoop => self.mark_ready(slot),
            Wake::Thread => sys::futex_wake(word),
        }
    }

    /// Sets the bit of a slot and signals the other side's event loop if it sleeps.
    pub fn mark_ready(&self, slot: u32) {
        self.ready.set(slot);
        // The sleeper executes a fence too, whatever the fencing of connections is: bits are rarer than publications.
        fence(Ordering::SeqCst);
        // Any value but 0 asks for a signal; a wrong one costs this side a system call.
        if self.peer.sleep.load(Ordering::Relaxed) != 0 && self.peer.sleep.swap(0, Ordering::AcqRel) != 0 {
            sys::send_signal(self.socket.as_fd());
        }
    }
}
