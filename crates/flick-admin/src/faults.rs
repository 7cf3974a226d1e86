//! The tail of what went wrong, taken from the events of the log.
//! Promises: bounded, however much goes wrong; a thread that is hindered by another one leaves its fault out, and counts
//! it, rather than wait.
//! Not here: the log itself, which has everything.

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

use crate::limits::{FAULT_BYTES_MAX, FAULTS_MAX};
use crate::state::Fault;

/// The latest faults; a handle that can be copied.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    kept: Mutex<VecDeque<Fault>>,
    lost: AtomicU64,
}

impl Faults {
    /// Those that are kept, oldest first, and how many are not.
    pub fn all(&self) -> (Vec<Fault>, u64) {
        let kept = self.0.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (kept.iter().cloned().collect(), self.0.lost.load(Ordering::Relaxed))
    }

    fn note(&self, level: Level, text: String) {
        let mut kept = match self.0.kept.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.0.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        if kept.len() >= FAULTS_MAX {
            kept.pop_front();
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        kept.push_back(Fault { at_ms, level: level.as_str().to_lowercase(), text });
    }

    /// A layer of the log that keeps its warnings and errors here.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        Tail(self.clone()).with_filter(LevelFilter::WARN)
    }
}

/// The layer.
struct Tail(Faults);

impl<S: Subscriber> Layer<S> for Tail {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.note(*event.metadata().level(), line.text());
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
        if self.message.len() > FAULT_BYTES_MAX {
            let end = self.message.floor_char_boundary(FAULT_BYTES_MAX);
            self.message.truncate(end);
            self.message.push('…');
        }
        self.message
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a text does not fail.
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

    fn check(expected: &[&str], lost: u64, work: impl FnOnce()) {
        let faults = Faults::default();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(faults.layer()), work);
        let (kept, counted) = faults.all();
        let kept: Vec<_> = kept.iter().map(|fault| format!("{} {}", fault.level, fault.text)).collect();
        assert_eq!(
            (kept.as_slice(), counted),
            (expected.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>().as_slice(), lost)
        );
    }

    #[test]
    fn warnings_and_errors_are_kept_with_their_fields() {
        check(&["warn slow backend=3", "error gone"], 0, || {
            tracing::warn!(backend = 3, "slow");
            tracing::info!("all is well");
            tracing::error!("gone");
        });
    }

    #[test]
    fn a_flood_leaves_the_latest() {
        let faults = Faults::default();
        for index in 0..FAULTS_MAX + 7 {
            faults.note(Level::WARN, index.to_string());
        }
        let (kept, lost) = faults.all();
        assert_eq!((kept.len(), kept[0].text.as_str(), lost), (FAULTS_MAX, "7", 7));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let line = Line { message: "ä".repeat(FAULT_BYTES_MAX), fields: String::new() };
        let text = line.text();
        assert!(text.len() <= FAULT_BYTES_MAX + '…'.len_utf8() && text.ends_with("ä…"), "{text}");
    }
}
