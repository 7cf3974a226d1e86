//! Shared memory between two processes of one host: segments, byte rings, wake-ups, and the switch of a connection
//! between the kernel's socket and a ring.
//! Promises: nothing is allocated after set-up; nothing that the other process writes makes this one panic, read or
//! write outside of the segment, or deliver bytes of another connection: it gets a [`fault::PeerFault`]; bytes that a
//! process has published are delivered also after its death.
//! Refuses: message boundaries; finding peers (a caller brings a Unix socket, or `shm:NAME`).
//! Source: SocksDirect (SIGCOMM 2019) for the idea; the ring's indices as in Linux `xsk.h`; `membarrier(2)` for the
//! asymmetric sleep.
//!
//! # Where to begin
//!
//! - [`client::ClientSet`] is for clients of a service at `shm:NAME`, of flick or another: many connections, a thread.
//! - [`pairing::PairListener`] is for services: each process that connects is a [`pair::Pair`] of many connections.
//! - [`stream::ShmStream`] is one byte stream between two processes, whose calls can wait.
//!
//! The other modules are the parts of these:
//!
//! | modules | purpose |
//! |---|---|
//! | [`pairing`], [`pair`], [`conn`], [`slot_queue`] | two processes become a pair; its connections |
//! | [`segment`], [`arena`], [`ring`] | the memory that they share, and the bytes in it |
//! | [`ready`], [`sleep`], [`watch`] | news for the other side, and for one that sleeps; the end of a process |
//! | [`switch`], [`members`] | a connection that moves between the kernel's socket and a ring |
//! | [`fault`], [`limits`] | errors of the other process; limits |
//!
//! A request and its reply:
//!
//! ```
//! use flick_shm::client::{ClientConfig, ClientEvent, ClientSet, RingRead};
//! use flick_shm::pairing::{PairListener, PairPolicy};
//! use flick_shm::stream::{ShmStream, StreamConfig, StreamInterest};
//!
//! // The service, here a thread that answers one request, otherwise a process: `flick run --listen client=shm:NAME`.
//! let name = format!("shm:example-{}", std::process::id());
//! let listener = PairListener::bind(&name, PairPolicy::SameUser)?;
//! let service = std::thread::spawn(move || {
//!     let mut stream = ShmStream::accept(&listener, &StreamConfig::default()).expect("the client connects");
//!     let mut request = [0; 64];
//!     while stream.receive(&mut request).expect("the client is there") == RingRead::Empty {
//!         stream.wait(StreamInterest::Readable, None).expect("the client is there");
//!     }
//!     stream.send(b"pong").expect("the client is there");
//!     stream
//! });
//!
//! let mut set = ClientSet::new(&ClientConfig::new(1))?;
//! set.connect(0, &name.parse()?)?;
//! let (mut events, mut bytes, mut reply) = (Vec::with_capacity(16), [0; 64], Vec::new());
//! while reply.is_empty() {
//!     set.wait(&mut events, None)?;
//!     for event in &events {
//!         match *event {
//!             ClientEvent::Connected(token) => assert_eq!(set.send(token, b"ping")?, 4),
//!             ClientEvent::Readable(token) => match set.receive(token, &mut bytes)? {
//!                 RingRead::Bytes(count) => reply.extend_from_slice(&bytes[..count]),
//!                 RingRead::Finished | RingRead::Reset => return Err("there is no reply".into()),
//!                 RingRead::Empty => {}
//!             },
//!             ClientEvent::Failed(_) => return Err("the service refuses".into()),
//!             ClientEvent::Writable(_) | ClientEvent::Watched(_) => {}
//!         }
//!     }
//! }
//! assert_eq!(reply, b"pong");
//! drop(service.join());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
pub mod busy_poll;
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
