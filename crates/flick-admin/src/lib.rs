//! What operators see of a running flick: metrics, health, a page and the state behind it, over HTTP on a socket of its own.
//! Start reading at [`state`], what there is to see; then [`metrics`], the same for machines; [`server`], who asks and how;
//! [`faults`], the tail of what went wrong; [`client`], how `flick top` reads it.
//! Promises: looking never stops a worker; every connection has a deadline and a bound, and so has their number; nothing
//! is changed from here, everything is read.
//! Refuses: knowing the platform. Whoever serves says what there is by [`server::Source`].
#![forbid(unsafe_code)]

mod answer;
pub mod client;
pub mod faults;
pub mod limits;
pub mod metrics;
pub mod process;
mod request;
pub mod server;
pub mod state;

pub use server::{Address, Answers, Ask, Config, Server, Source};
pub use state::State;
