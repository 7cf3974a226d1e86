//! Limits of the admin endpoint.

use std::time::Duration;

/// Maximum size of a request head.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of headers of a request or response.
pub const REQUEST_HEADERS_MAX: usize = 64;
/// Maximum number of connections. A new one above it replaces the oldest that has sent no request, or is answered 503.
pub const CONNECTIONS_MAX: usize = 16;
/// Timeout for reading a request, and for writing a response.
pub const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(5);
/// Timeout of a command such as a reload.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);
/// Timeout of the probe before a command: another server at that address may never answer.
pub const PROBE_TIME_MAX: Duration = Duration::from_secs(3);
/// Pause after a failed accept, for example without free file descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Stack size of a thread that handles a connection.
pub const CONNECTION_STACK_BYTES: usize = 512 * 1024;
/// Time between two samples of the history.
pub const HISTORY_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of samples that are kept for a service: ten minutes.
pub const HISTORY_SAMPLES_MAX: usize = 120;
/// Number of recent events that are kept.
pub const RECENT_EVENTS_MAX: usize = 200;
/// Maximum length of a recent event.
pub const EVENT_BYTES_MAX: usize = 300;
/// Minimum length of the token: one that is guessed in fewer attempts protects nothing.
pub const TOKEN_BYTES_MIN: usize = 16;
/// Maximum length of the token.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// Maximum length of a response that the client reads.
pub const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Size of a read of the client.
pub const PIECE_BYTES: usize = 16 * 1024;
/// Time between two looks at what a tap has copied.
pub const TAP_LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Time after which a tap without data writes an empty line.
pub const TAP_LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Time that the reader of a tap may take before it reads on.
pub const TAP_WRITE_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum length of a line of a tap.
pub const TAP_LINE_BYTES_MAX: usize = 64 * 1024;
