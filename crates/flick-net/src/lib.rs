//! Transports: what carries bytes between the platform and its peers.
//! Start reading at [`driver`], the one interface; then `sim`, the smallest implementation; then `epoll`.
//! Promises: a driver knows bytes and readiness, never messages; it allocates nothing after it is built.
//! Refuses: framing, retries, timeouts, name resolution. The platform does those.
//! Source: FLICK §5 (input and output channels of a task graph are byte streams of connections).

pub mod address;
pub mod any;
mod clock;
mod conn;
pub mod continuation;
pub mod driver;
pub mod epoll;
mod event_sink;
mod fault;
pub mod fd_channel;
mod internal;
pub mod limits;
pub mod listen;
mod listeners;
pub mod poller;
pub mod queue_delay;
mod receive_buffer;
pub mod shared_listener;
mod shm;
pub mod sim;
mod socket;
mod table;
mod tap;
mod tick_counter;
pub mod uring;
mod waker;

use flick_shm::slot_queue;

pub use address::{DescriptorAddr, Endpoint, PeerAddr};
pub use any::{AnyDriver, IoKind};
pub use clock::monotonic_ns;
pub use continuation::{Continuation, ContinuationEnd};
pub use driver::{
    Detached, Driver, DriverEvent, DriverLimits, Handle, ListenerId, PlainReason, ShmStats, TransportKind,
};
pub use epoll::EpollDriver;
pub use fault::ConnFault;
pub use fd_channel::{FdChannel, FdMessage};
pub use internal::internal_shm_name;
pub use listen::{ListenSocket, ListenSockets};
pub use poller::Poller;
pub use queue_delay::{DelaySample, QueueDelay, QueueDelayMeter};
pub use shared_listener::{PrereadConn, SharedListener};
pub use sim::{SimDriver, SimNet};
pub use socket::{local_endpoint, peer_addr};
pub use tap::TapSink;
pub use tick_counter::TickCounter;
pub use uring::UringDriver;
pub use waker::Waker;
