//! Shared memory between two processes of one host: segments, byte rings, wake-ups, and the switch of a connection
//! between the kernel's socket and a ring.
//! Promises: nothing is allocated after set-up; nothing that the other process writes makes this one panic, read or
//! write outside of the segment, or deliver bytes of another connection: it gets a [`fault::PeerFault`]; bytes that a
//! process has published are delivered also after its death.
//! Refuses: message boundaries; finding peers (a caller brings a Unix socket, or `shm:NAME`).
//! Source: SocksDirect (SIGCOMM 2019) for the idea; the ring's indices as in Linux `xsk.h`; `membarrier(2)` for the
//! asymmetric sleep.
#![no_std]
#![cfg_attr(
    loom,
    expect(dead_code, reason = "segments and connections, which use it, are no part of the models")
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod fault;
pub mod limits;
pub mod members;
pub mod ready;
pub mod ring;
pub mod sleep;
#[cfg(not(loom))]
pub mod slot_queue;
pub mod switch;

#[cfg(not(loom))]
pub mod arena;
#[cfg(not(loom))]
pub mod client;
#[cfg(not(loom))]
pub mod conn;
#[cfg(not(loom))]
pub mod pair;
#[cfg(not(loom))]
pub mod pairing;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
pub mod stream;
#[cfg(not(loom))]
pub mod watch;

#[cfg(not(loom))]
mod busy_poll;
mod control;
#[cfg(all(test, loom))]
mod model;
#[cfg(not(loom))]
mod notify;
mod raw;
mod sync;
#[cfg(not(loom))]
mod sys;
mod token;
