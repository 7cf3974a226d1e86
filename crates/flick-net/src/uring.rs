//! The driver for kernels that have all of it (6.15 and later, and late ones of 6.12): io_uring.
//! Promises: requests of all connections go to the kernel in one system call per poll; a connection is armed once and
//! receives until it is paused; many small receives share one buffer; no allocation after `new`.
//! Refuses: kernels and policies that deny any part; `new` returns the error, and the caller takes epoll.
//! Start reading at `driver.rs`, then `poll.rs` and `complete.rs`.
//! Source: io_uring(7); provided buffer rings consumed incrementally (Linux 6.12).

mod accept;
mod complete;
mod driver;
mod poll;
mod probe;
mod requests;
mod sys;
#[cfg(test)]
mod tests;
mod token;

pub use driver::{UringDriver, leaked_outputs};
