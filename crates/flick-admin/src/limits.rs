//! Bounds of the admin side.

use std::time::Duration;

/// Longest request head.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Connections at a time; what comes beyond has the place of one that has asked for nothing yet, or is answered with 503.
pub const CONNECTIONS_MAX: usize = 16;
/// How long a whole exchange may take, reading and writing each.
pub const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(5);
/// How long something that was asked for may take: compiling programs, say.
pub const ASK_TIME_MAX: Duration = Duration::from_secs(60);
/// Pause after an accept that failed, for want of descriptors say.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Stack of a thread that answers.
pub const ANSWER_STACK_BYTES: usize = 512 * 1024;
/// Faults that are kept: the latest.
pub const FAULTS_MAX: usize = 200;
/// Longest text of a fault.
pub const FAULT_BYTES_MAX: usize = 300;
/// Longest token.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// Longest answer that `flick top` reads.
pub const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;
