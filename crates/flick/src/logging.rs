//! The log: events of `tracing` on standard error, as text or as JSON.
//! Promises: once the service runs, no thread waits for standard error (`background.rs`).

pub mod background;

use std::io::IsTerminal;
use std::sync::OnceLock;

use flick_admin::recent_events::RecentEvents;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Target of the event that says why flick exits.
pub const FAILURE_TARGET: &str = "flick::failure";
/// Logs that event whatever `FLICK_LOG` filters.
const FAILURE_DIRECTIVE: &str = "flick::failure=error";

/// Format of the log, once it is started.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line of text per event
    #[default]
    Text,
    /// One JSON object per event
    Json,
}

/// Starts the log on standard error; warnings and errors go to `recent` as well. Later calls do nothing. The filter is
/// `FLICK_LOG` (`debug`, `flick_runtime=trace`), by default `info`, or `debug` if `verbose`.
pub fn start(format: LogFormat, verbose: bool, recent: &RecentEvents) {
    if FORMAT.set(format).is_err() {
        return;
    }
    let default = if verbose { "debug" } else { "info" };
    let mut filter = EnvFilter::try_from_env("FLICK_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    if let Ok(shown) = FAILURE_DIRECTIVE.parse::<Directive>() {
        filter = filter.add_directive(shown);
    }
    let log = tracing_subscriber::fmt::layer().with_writer(background::Lines).with_target(false);
    let all = tracing_subscriber::registry();
    // No other log is installed.
    let _ = match format {
        LogFormat::Text => {
            let log = log.with_ansi(std::io::stderr().is_terminal()).with_filter(filter);
            all.with(log).with(recent.layer()).try_init()
        }
        LogFormat::Json => {
            let log = log.json().flatten_event(true).with_filter(filter);
            all.with(log).with(recent.layer()).try_init()
        }
    };
}

/// Whether the log is JSON: then all messages on standard error are events.
pub fn is_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}
