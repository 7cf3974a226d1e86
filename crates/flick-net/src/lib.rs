//! Transports: what carries bytes between the platform and its peers.
//! Start reading at [`driver`], the one interface; then `sim`, the smallest honest implementation; then `epoll`.
//! Promises: a driver knows bytes and readiness, never messages; after it is built it allocates nothing.
//! Refuses: framing, retries, time-outs, name resolution. Those are the platform's.
//! Source: FLICK §5 (input and output channels of a task graph are byte streams of connections).

pub mod address;
pub mod any;
pub mod door;
pub mod driver;
pub mod epoll;
mod intake;
pub mod limits;
pub mod line;
mod linger;
pub mod listen;
mod output;
pub mod passage;
mod queue;
pub mod sim;
mod socket;
mod table;
pub mod uring;
mod waker;
pub mod watch;

pub use address::{Endpoint, PeerAddr};
pub use any::{AnyDriver, IoKind};
pub use door::{Arrival, Door};
pub use driver::{ConnFault, Detached, Driver, DriverLimits, Event, Handle, Line, ListenerId};
pub use epoll::{EpollDriver, monotonic_ns};
pub use line::{LineWatch, Reached};
pub use listen::{ListenSocket, ListenSockets};
pub use sim::{SimDriver, SimNet};
pub use uring::UringDriver;
pub use waker::Waker;
pub use watch::Watch;
