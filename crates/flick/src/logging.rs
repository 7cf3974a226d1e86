//! The log: events of `tracing` on stderr, as text for people or JSON for collectors.

use std::io::IsTerminal;
use std::sync::OnceLock;

use flick_admin::faults::Faults;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Where an event comes from that says why the tool ends.
pub const FAILURES: &str = "flick::failure";
/// Those are logged whatever `FLICK_LOG` leaves out.
const FAILURES_SHOWN: &str = "flick::failure=error";

/// How the log of this process looks, once there is one.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

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

/// The first call counts: it sends events to stderr from here on, and warnings and errors to `faults` too. What is logged: `FLICK_LOG` (`debug`,
/// `flick_runtime=trace`), otherwise `info`, or `debug` when `verbose`.
pub fn start(format: LogFormat, verbose: bool, faults: &Faults) {
    if FORMAT.set(format).is_err() {
        return;
    }
    let default = if verbose { "debug" } else { "info" };
    let mut filter = EnvFilter::try_from_env("FLICK_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    if let Ok(shown) = FAILURES_SHOWN.parse::<Directive>() {
        filter = filter.add_directive(shown);
    }
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let all = tracing_subscriber::registry();
    // There is no other log that could stay.
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

/// Whether everything on standard error is JSON: what is said to people elsewhere is an event then.
pub fn is_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}
