//! Scenarios: small texts that say what peers do and what the service must do, one symptom each.
//! Start reading at `parse.rs` for the language, then `play.rs` for what a line means.
//! Promises: a scenario plays on any [`stage`]: the simulator, or real sockets, with every engine; a failure names the
//! line and shows what had arrived instead.
//! Messages are written as bytes, in quotes; those of the memcached binary protocol have words of their own.
//! Source: the test languages of Varnish (`.vtc`) and packetdrill.

mod diagram;
mod messages;
mod parse;
mod play;
pub mod stage;

pub use diagram::{Happening, What};
pub use messages::MessageText;
pub use parse::{Action, Scenario, Stages, Step, Wanted, parse};
pub use play::play;
