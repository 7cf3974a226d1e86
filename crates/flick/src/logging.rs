//! The log: events of `tracing` on standard error, as text or as JSON.
//! Promises: once the service runs, no thread waits for standard error (`background.rs`).

pub mod background;

use std::fmt;
use std::io::IsTerminal;
use std::sync::OnceLock;

use flick_admin::recent_events::RecentEvents;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{Directive, LevelFilter};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::failure::{Failure, Outcome};

/// Environment variable of the filter.
const FILTER: &str = "FLICK_LOG";
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
///
/// Errors: `FLICK_LOG` is no filter.
pub fn start(format: LogFormat, verbose: bool, recent: &RecentEvents) -> Outcome {
    let default = if verbose { "debug" } else { "info" };
    let text = std::env::var(FILTER).ok().filter(|text| !text.is_empty());
    let mut filter = parse_filter(text.as_deref().unwrap_or(default)).map_err(Failure::usage)?;
    if FORMAT.set(format).is_err() {
        return Ok(());
    }
    if let Ok(shown) = FAILURE_DIRECTIVE.parse::<Directive>() {
        filter = filter.add_directive(shown);
    }
    let log = tracing_subscriber::fmt::layer().with_writer(background::Lines);
    let all = tracing_subscriber::registry();
    // No other log is installed.
    let _ = match format {
        LogFormat::Text => {
            let has_ansi = std::io::stderr().is_terminal();
            let format = StampedLines::new(has_ansi);
            let log = log.with_ansi(has_ansi).event_format(format).with_filter(filter);
            all.with(log).with(recent.layer()).try_init()
        }
        LogFormat::Json => {
            let log = log.json().with_target(false).flatten_event(true).with_filter(filter);
            all.with(log).with(recent.layer()).try_init()
        }
    };
    Ok(())
}

/// Parses levels and `MODULE=LEVEL`, separated by commas. A word that is no level would be the name of a module, and
/// the log would be empty.
fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        if level.parse::<LevelFilter>().is_err() {
            let levels = "the levels are `error`, `warn`, `info`, `debug`, `trace` and `off`";
            let of_module = "for one module write `flick_runtime=debug`";
            return Err(format!("{FILTER}: `{level}` is no level of the log; {levels}; {of_module}"));
        }
    }
    EnvFilter::builder().parse(text).map_err(|error| format!("{FILTER}: {error}"))
}

/// The format of the log as text, with time and level on each line of a message: errors of a program have several.
/// Empty lines are left out.
struct StampedLines {
    lines: Format,
    has_ansi: bool,
}

impl StampedLines {
    fn new(has_ansi: bool) -> Self {
        let lines = tracing_subscriber::fmt::format().with_target(false).with_ansi(has_ansi);
        Self { lines, has_ansi }
    }
}

impl<S, N> FormatEvent<S, N> for StampedLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.lines.format_event(context, Writer::new(&mut text), event)?;
        let level = event.metadata().level().as_str();
        let stamp = text.find(level).map_or("", |at| &text[..at + level.len()]);
        let end = if self.has_ansi { "\x1b[0m" } else { "" };
        for (number, line) in text.lines().filter(|line| !line.trim().is_empty()).enumerate() {
            match number {
                0 => writeln!(writer, "{line}")?,
                _ => writeln!(writer, "{stamp}{end} {line}")?,
            }
        }
        Ok(())
    }
}

/// Whether the log is JSON: then all messages on standard error are events.
pub fn is_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex, PoisonError};

    use super::StampedLines;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_of_a_failed_reload_had_no_time() {
        let memory = Memory::default();
        let written = memory.clone();
        let log = tracing_subscriber::fmt().event_format(StampedLines::new(false));
        let log = log.with_writer(move || memory.clone()).finish();
        tracing::subscriber::with_default(log, || {
            tracing::info!("one line");
            tracing::warn!("the reload failed: error[E0101]\n 3 | let x\n\n   | ^ here\n");
        });
        let text = written.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = String::from_utf8(text).expect("the log is text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        let (time, _) = lines[1].split_once("  WARN the reload").expect("a time and a level");
        for (line, rest) in lines[2..].iter().zip([" 3 | let x", "   | ^ here"]) {
            assert_eq!(*line, format!("{time}  WARN {rest}"));
        }
    }
}
