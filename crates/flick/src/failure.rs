//! Why the tool ends with another status than 0.
//!
//! | status | meaning |
//! |---|---|
//! | 0 | it worked; a service was drained |
//! | 1 | the program is wrong, or the run failed, a last snapshot for one |
//! | 2 | the command line or `flick.toml` is wrong |
//! | 128 + n | a second signal of number n stopped a service at once |

use std::process::ExitCode;

use crate::logging;

/// A failure with its exit status. Having one means: whoever returns it has not told the person yet, unless
/// `message` is empty.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    message: String,
    /// The message brings its own title.
    is_titled: bool,
}

/// What every subcommand returns.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// The program is wrong or the run failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { status: 1, message: message.into(), is_titled: false }
    }

    /// The program is wrong, in the words of its diagnostics.
    pub fn diagnosed(message: String) -> Self {
        Self { status: 1, message, is_titled: true }
    }

    /// The same, when everything has been said already.
    pub fn reported() -> Self {
        Self::failed("")
    }

    /// The command line or the settings are wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { status: 2, message: message.into(), is_titled: false }
    }

    /// A signal stopped the service at once.
    pub fn signal(number: i32) -> Self {
        let number = u8::try_from(number).unwrap_or(0);
        Self { status: 128 + (number & 0x7f), message: String::new(), is_titled: false }
    }

    /// The same, shown where it comes from; what says its place already stays as it is.
    pub fn shown(self, excerpt: impl FnOnce(&str) -> Option<String>) -> Self {
        let is_plain = !self.is_titled && !self.message.is_empty() && !self.message.contains('\n');
        match is_plain.then(|| excerpt(&self.message)).flatten() {
            Some(message) => Self { message, is_titled: true, ..self },
            None => self,
        }
    }

    /// What it says, without colours: for whoever is not at the terminal.
    pub fn text(&self) -> String {
        anstream::adapter::strip_str(self.message.trim_end()).to_string()
    }

    /// Tells the person, or whoever reads a log of JSON, and gives the status.
    pub fn report(&self) -> ExitCode {
        if !self.message.is_empty() && logging::is_json() {
            tracing::error!(target: logging::FAILURES, "{}", self.text());
        } else if !self.message.is_empty() {
            let message = self.message.trim_end();
            // Messages with an excerpt bring their own title.
            let is_titled = self.is_titled || message.starts_with("error");
            let title = if is_titled { "" } else { "error: " };
            anstream::eprintln!("{title}{message}");
        }
        ExitCode::from(self.status)
    }
}
