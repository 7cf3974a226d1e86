//! The admin endpoint: metrics, health, admin page, JSON state and commands, over HTTP on a socket of its own.
//! Start reading at [`state`], the data; then [`metrics`], the same for Prometheus; [`server`], the HTTP server;
//! [`history`], the last ten minutes; [`recent_events`], recent warnings and errors; [`client`], the client of
//! `flick top` and `flick reload`.
//! Promises: requests never block a worker; connections are limited in number, size and time.
//! Not here: the platform. The process provides the data through [`server::StateProvider`].
#![forbid(unsafe_code)]

pub mod client;
pub mod history;
pub mod limits;
pub mod metrics;
mod peer;
mod policy;
pub mod process;
pub mod recent_events;
mod request;
mod response;
pub mod server;
pub mod state;
mod tap;

pub use policy::Tokens;
pub use server::{Address, AdminCommand, Config, Responses, Server, StateProvider};
pub use state::StateReport;
pub use tap::TapLines;
