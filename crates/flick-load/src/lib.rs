//! Both ends of a memcached conversation, and clients of HTTP and Redis: for `flick load`, demonstrations, tests and
//! benchmarks.
//!
//! - [`binary`], [`text`] and [`meta`]: the wire protocols of memcached, as plain encode and decode functions;
//!   [`resp`]: that of Redis; [`http`]: the replies of a web server.
//! - [`store`]: an embedded store with the binary protocol, so that a demonstration needs no installed server.
//! - [`load`]: a load generator that checks every reply it receives and measures latency without coordinated omission.
//!
//! Promises: every buffer is bounded (see [`limits`]); the load generator allocates nothing per request once warm;
//! a reply that is not exactly the requested one is counted, never accepted.
//! Not here: code of the platform. This crate knows sockets and protocols, not tasks and channels, so that shared code
//! cannot hide a fault of the platform. Of `flick-shm` it uses the client.
//!
//! # A store and a load against it
//!
//! ```
//! use flick_load::load::{self, LoadConfig};
//! use flick_load::store::EmbeddedStore;
//!
//! let store = EmbeddedStore::start("127.0.0.1:0".parse().expect("a literal address"))?;
//! let config = LoadConfig { connections: 4, requests: Some(1_000), ..LoadConfig::new(store.addr()) };
//! load::populate(&config)?;
//!
//! let run = load::start(config)?;            // returns at once; the load runs on its own threads
//! let progress = run.progress().snapshot();  // any time, from any thread: for a live view
//! assert!(progress.replies <= 1_000);
//! let report = run.wait();
//!
//! assert_eq!((report.replies, report.faults()), (1_000, 0));
//! println!("p50 {} us, p99 {} us", report.latency.p50_us, report.latency.p99_us);
//! store.stop();
//! # std::io::Result::Ok(())
//! ```
//!
//! Reading order: [`binary`], [`store`], [`load`].

#![forbid(unsafe_code)]
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a failed set-up panics at its line"))]

pub mod binary;
pub mod http;
pub mod meta;
pub mod resp;
pub mod text;

pub mod store;

pub mod load;

pub mod limits;
mod random;
