//! Test support that several crates share. Start reading at [`golden`], files that hold an input and its expected
//! output; [`feed`], bytes for parsers, piece by piece; [`generate`], programs; [`http`], a reference for HTTP messages
//! by its RFCs; then `service`, the platform in the simulator between scripted peers, and `scenario`, stories of such
//! peers as texts (both only with the feature of that name: tests of the language do without the platform).
#![forbid(unsafe_code)]

pub mod feed;
pub mod generate;
pub mod golden;
pub mod http;
#[cfg(feature = "service")]
pub mod scenario;
#[cfg(feature = "service")]
pub mod service;
