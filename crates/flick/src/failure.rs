//! Failures of a subcommand and their exit statuses.
//!
//! | status | meaning |
//! |---|---|
//! | 0 | success; a service was drained |
//! | 1 | the program is wrong, or the run failed, for example writing the last snapshot |
//! | 2 | the command line or `flick.toml` is wrong |
//! | 128 + n | a second signal n ended a service at once, or one stopped a filter inside a message of its input |
//! | 126, 127 | the program that was to be started cannot be executed, or is not there |
//! | 141 | the reader of a filter's output is gone (SIGPIPE) |

use std::io;
use std::process::ExitCode;

use flick_compiler::CompileFailure;

use crate::{logging, report};

/// A failure with its exit status. Having one means that its message has not been reported yet, unless it is empty.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    message: String,
    /// The message has a title of its own.
    is_titled: bool,
}

impl From<CompileFailure> for Failure {
    fn from(failure: CompileFailure) -> Self {
        match failure {
            CompileFailure::Refused { diagnostics, sources } => {
                Self::diagnosed(report::text(&diagnostics, &sources).0)
            }
            other => Self::failed(other.to_string()),
        }
    }
}

/// Says what to do about an address that cannot be listened on, or about a thread that cannot be started.
pub fn start_help(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another process listens there (`ss -lnp` shows which)",
        io::ErrorKind::AddrNotAvailable => {
            "; this machine does not have that address (`ip addr` lists those it has)"
        }
        // `io_uring` is refused with EPERM.
        _ if error.raw_os_error() == Some(libc::EACCES) => {
            "; a port below 1024 needs root (and `--user` to leave it) or `CAP_NET_BIND_SERVICE`, a Unix socket needs \
             a directory that can be written"
        }
        // No address is refused so, only a thread.
        io::ErrorKind::WouldBlock => {
            "; the limit on threads may be reached (`ulimit -u`, `TasksMax=` of a systemd unit)"
        }
        _ if error.raw_os_error() == Some(libc::EMFILE) => {
            "; raise the limit on open files (`ulimit -n`, `LimitNOFILE=` of a systemd unit)"
        }
        _ => "",
    }
}

/// The result of a subcommand.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// The program is wrong, or the run failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { status: 1, message: message.into(), is_titled: false }
    }

    /// The program is wrong; `message` is its rendered diagnostics.
    pub fn diagnosed(message: String) -> Self {
        Self { status: 1, message, is_titled: true }
    }

    /// The program is wrong, and the diagnostics were reported already.
    pub fn reported() -> Self {
        Self::failed("")
    }

    /// The command line or the settings are wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { status: 2, message: message.into(), is_titled: false }
    }

    /// Another program cannot be started: the status is 127 if there is none, and else 126, as of a shell.
    pub fn not_started(message: String, error: &io::Error) -> Self {
        let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        Self { status, message, is_titled: false }
    }

    /// A signal ended the service at once.
    pub fn signal(number: i32) -> Self {
        let number = u8::try_from(number).unwrap_or(0);
        Self { status: 128 + (number & 0x7f), message: String::new(), is_titled: false }
    }

    /// Drops the message, which was reported already.
    pub fn without_message(self) -> Self {
        Self { message: String::new(), ..self }
    }

    /// Replaces the message by an excerpt of its cause. A message that has an excerpt already is kept.
    pub fn shown(self, excerpt: impl FnOnce(&str) -> Option<String>) -> Self {
        let is_plain = !self.is_titled && !self.message.is_empty() && !self.message.contains('\n');
        match is_plain.then(|| excerpt(&self.message)).flatten() {
            Some(message) => Self { message, is_titled: true, ..self },
            None => self,
        }
    }

    /// The message without colours.
    pub fn text(&self) -> String {
        anstream::adapter::strip_str(self.message.trim_end()).to_string()
    }

    /// Reports the message on standard error, as an event if the log is JSON, and returns the exit status.
    pub fn report(&self) -> ExitCode {
        if !self.message.is_empty() && logging::is_json() {
            tracing::error!(target: logging::FAILURE_TARGET, "{}", self.text());
        } else if !self.message.is_empty() {
            let message = self.message.trim_end();
            // Messages with an excerpt have a title of their own.
            let is_titled = self.is_titled || message.starts_with("error");
            let title = if is_titled { "" } else { "error: " };
            logging::background::flush();
            anstream::eprintln!("{title}{message}");
        }
        ExitCode::from(self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::start_help;

    #[test]
    fn thread_that_the_limit_refuses_names_the_limit() {
        let of = |errno| start_help(&std::io::Error::from_raw_os_error(errno));
        assert!(of(libc::EAGAIN).contains("`TasksMax=`"), "{}", of(libc::EAGAIN));
        assert!(of(libc::EMFILE).contains("`LimitNOFILE=`"), "{}", of(libc::EMFILE));
        assert!(of(libc::EACCES).contains("a port below 1024 needs root"), "{}", of(libc::EACCES));
        assert_eq!(of(libc::EPERM), "");
        assert_eq!(of(libc::ENOENT), "");
    }
}
