//! Scenarios: small texts that say what peers do and what the service must do, one symptom each.
//! Start reading at `parse.rs` for the language, then `play.rs` for what a line means.
//! Promises: a scenario plays on any [`stage`]: the simulator, or real sockets, with every engine; a failure names the
//! line and shows what had arrived instead.
//! Refuses: protocols other than the memcached binary one, in which the messages are written.
//! Source: the test languages of Varnish (`.vtc`) and packetdrill.

mod messages;
mod parse;
mod play;
pub mod stage;

pub use messages::Message;
pub use parse::{Action, Scenario, Step, parse};
pub use play::play;
