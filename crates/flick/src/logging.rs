//! The log: events of `tracing` on stderr, as text for people or JSON for collectors.

use std::io::IsTerminal;

use flick_admin::faults::Faults;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

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

/// Sends events to stderr from here on, and warnings and errors to `faults` too. What is logged: `FLICK_LOG` (`debug`,
/// `flick_runtime=trace`), otherwise `info`, or `debug` when `verbose`.
pub fn start(format: LogFormat, verbose: bool, faults: &Faults) {
    let default = if verbose { "debug" } else { "info" };
    let filter = EnvFilter::try_from_env("FLICK_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let all = tracing_subscriber::registry();
    // A second call is possible in tests only, and then the first log stays.
    let _ = match format {
        LogFormat::Text => {
            let log = log.with_ansi(std::io::stderr().is_terminal()).with_filter(filter);
            all.with(log).with(faults.layer()).try_init()
        }
        LogFormat::Json => {
            let log = log.json().flatten_event(true).with_filter(filter);
            all.with(log).with(faults.layer()).try_init()
        }
    };
}
