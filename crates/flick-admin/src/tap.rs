//! The stream of a tap: a response that goes on until the tap or its reader ends.
//! Promises: lines of JSON as they come, and an empty line every second; a reader that is gone ends the tap at once;
//! one that does not read stops nothing but its own stream.

use std::io;
use std::time::Instant;

use crate::limits::{TAP_LINE_INTERVAL, TAP_LOOK_INTERVAL, TAP_WRITE_TIME_MAX};
use crate::policy::{AccessPolicy, Scope};
use crate::request::Request;
use crate::response::{Response, SERVER};
use crate::server::{StateProvider, Stream};

/// The path of taps.
pub(crate) const PATH: &str = "/api/tap";

/// Copies of what passes through connections, as lines.
pub trait TapLines: Send {
    /// Returns the lines since the last call, each ended by a line break; `None`: there will be no more.
    fn next(&mut self) -> Option<String>;
}

/// Begins a tap. It shows what clients send, passwords included, and so needs the authority to change something.
///
/// Errors: the response that refuses it.
pub(crate) fn begin(
    request: &Request<'_>,
    policy: &AccessPolicy,
    user: impl FnOnce() -> Option<u32>,
    provider: &dyn StateProvider,
) -> Result<Box<dyn TapLines>, Response> {
    policy.check(request, Scope::Control, user)?;
    let parameters: Vec<_> = request.parameters().collect();
    provider.tap(&parameters).map_err(|error| Response::plain("409 Conflict", &error))
}

/// Writes the lines until there are no more.
///
/// Errors: the reader is gone, or has not read for [`TAP_WRITE_TIME_MAX`].
pub(crate) fn stream(mut stream: Box<dyn Stream>, mut lines: Box<dyn TapLines>) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: {SERVER}\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n"
    );
    write(&mut *stream, &head)?;
    let mut written = Instant::now();
    while let Some(text) = lines.next() {
        if !text.is_empty() {
            write(&mut *stream, &text)?;
        } else if written.elapsed() >= TAP_LINE_INTERVAL {
            write(&mut *stream, "\n")?;
        } else if is_gone(&mut *stream)? {
            return Ok(());
        } else {
            continue;
        }
        written = Instant::now();
    }
    Ok(())
}

fn write(stream: &mut dyn Stream, text: &str) -> io::Result<()> {
    stream.set_timeouts(TAP_WRITE_TIME_MAX)?;
    stream.write_all(text.as_bytes())
}

/// Waits for [`TAP_LOOK_INTERVAL`], or until the reader has disconnected, and returns whether it has.
fn is_gone(stream: &mut dyn Stream) -> io::Result<bool> {
    stream.set_timeouts(TAP_LOOK_INTERVAL)?;
    match stream.read(&mut [0]) {
        Ok(length) => Ok(length == 0),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
