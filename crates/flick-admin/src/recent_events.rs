//! The most recent warnings and errors of the log, for the admin endpoint.
//! Promises: bounded; a thread that finds the list locked drops its event and counts it instead of waiting.
//! Not here: the log itself, which has every event.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::limits::{EVENT_BYTES_MAX, RECENT_EVENTS_MAX};
use crate::state::LogEvent;

/// The most recent warnings and errors; clones share them.
#[derive(Clone, Debug, Default)]
pub struct RecentEvents(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    kept: Mutex<VecDeque<LogEvent>>,
    dropped: AtomicU64,
}

impl RecentEvents {
    /// The events, oldest first, and the number of dropped ones.
    pub fn all(&self) -> (Vec<LogEvent>, u64) {
        let kept = self.0.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (kept.iter().cloned().collect(), self.0.dropped.load(Ordering::Relaxed))
    }

    fn push(&self, level: Level, text: String) {
        let mut kept = match self.0.kept.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.0.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        if kept.len() >= RECENT_EVENTS_MAX {
            kept.pop_front();
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        kept.push_back(LogEvent { at_ms, level: level.as_str().to_lowercase(), text });
    }

    /// A layer of the log that records warnings and errors.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        RecentEventsLayer(self.clone()).with_filter(LevelFilter::WARN)
    }
}

/// The layer.
struct RecentEventsLayer(RecentEvents);

impl<S: Subscriber> Layer<S> for RecentEventsLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.push(*event.metadata().level(), line.text());
    }
}

/// An event as one line: its message, then its fields.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn text(mut self) -> String {
        self.message.push_str(&self.fields);
        if self.message.len() > EVENT_BYTES_MAX {
            let end = self.message.floor_char_boundary(EVENT_BYTES_MAX);
            self.message.truncate(end);
            self.message.push('…');
        }
        self.message
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a `String` does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn check(expected: &[&str], dropped: u64, work: impl FnOnce()) {
        let recent = RecentEvents::default();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(recent.layer()), work);
        let (kept, counted) = recent.all();
        let kept: Vec<_> = kept.iter().map(|event| format!("{} {}", event.level, event.text)).collect();
        assert_eq!(
            (kept.as_slice(), counted),
            (expected.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>().as_slice(), dropped)
        );
    }

    #[test]
    fn keeps_warnings_and_errors_with_fields() {
        check(&["warn slow backend=3", "error gone"], 0, || {
            tracing::warn!(backend = 3, "slow");
            tracing::info!("started");
            tracing::error!("gone");
        });
    }

    #[test]
    fn keeps_the_latest_events() {
        let recent = RecentEvents::default();
        for index in 0..RECENT_EVENTS_MAX + 7 {
            recent.push(Level::WARN, index.to_string());
        }
        let (kept, dropped) = recent.all();
        assert_eq!((kept.len(), kept[0].text.as_str(), dropped), (RECENT_EVENTS_MAX, "7", 7));
    }

    #[test]
    fn truncates_a_long_event_between_characters() {
        let line = Line { message: "ä".repeat(EVENT_BYTES_MAX), fields: String::new() };
        let text = line.text();
        assert!(text.len() <= EVENT_BYTES_MAX + '…'.len_utf8() && text.ends_with("ä…"), "{text}");
    }
}
