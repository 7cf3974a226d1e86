//! The log: events of `tracing` on stderr, as text for people or JSON for collectors.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line of text for each event
    #[default]
    Text,
    /// One JSON object for each event
    Json,
}

/// Sends events to stderr from here on. What is logged: `FLICK_LOG` (`debug`, `flick_runtime=trace`), otherwise
/// `info`, or `debug` when `verbose`.
pub fn start(format: LogFormat, verbose: bool) {
    let default = if verbose { "debug" } else { "info" };
    let filter = EnvFilter::try_from_env("FLICK_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let log =
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).with_target(false);
    // A second call is possible in tests only, and then the first log stays.
    let _ = match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}
