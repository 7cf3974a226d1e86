//! The driver for every Linux: edge-triggered epoll.
//! Promises: one `epoll_wait` per poll; one write per connection and poll where 64 pieces suffice; no registration
//! changes on the path of a message (interest in writing is added the first time a peer is slow); no allocation after
//! `new`.
//! Refuses: waiting more finely than a millisecond on kernels without epoll_pwait2.
//! Start reading at `driver.rs`, then `poll.rs`.
//! Source: epoll(7), "edge-triggered": read until short or empty, and remember readiness.

mod accept;
mod driver;
mod poll;
mod readiness;
#[cfg(test)]
mod tests;
mod token;
mod write;

pub use driver::EpollDriver;
