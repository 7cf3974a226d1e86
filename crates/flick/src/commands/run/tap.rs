//! Taps of a running service, as lines for the admin endpoint.
//! Promises: what a tap misses is counted; a tap ends when its connection ends, or its service drains or is replaced.
//! Not here: copies (`flick_runtime::tap`), what the lines mean (`flick tap`).

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flick_admin::TapLines;
use flick_admin::state::{TapLine, TapLineKind};
use flick_net::monotonic_ns;
use flick_runtime::ServiceStats;
use flick_runtime::tap::{Tap, TapKind, TapRecord};

use super::admin::{conn_id, parse_conn_id};

/// Time in which a worker finds the connection that is to be observed.
const TAP_BEGIN_TIME_MAX: Duration = Duration::from_secs(2);

/// The tap of one service.
struct ServiceTap {
    tap: Tap,
    watch: ServiceStats,
    /// Only one connection is observed.
    is_single: bool,
    /// Until when that connection must be found; `None`: it was.
    search_until: Option<Instant>,
    /// Microseconds that are added to the monotonic clock to get microseconds since 1970.
    epoch_us: i128,
    dropped_bytes: u64,
    is_over: bool,
}

/// Begins a tap of the one connection of a service, or of all its clients.
///
/// Errors: there is no such service or connection; several services, and none is named; the service has a tap already.
pub fn begin(
    watches: &[&ServiceStats],
    service: Option<&str>,
    connection: Option<&str>,
) -> Result<Box<dyn TapLines>, String> {
    let names = || watches.iter().map(|watch| watch.name()).collect::<Vec<_>>().join("`, `");
    let watch = match (service, watches) {
        (None, [only]) => only,
        (None, _) => return Err(format!("name one of the services `{}` (`--service`)", names())),
        (Some(name), _) => {
            let found = watches.iter().find(|watch| watch.name() == name);
            found.ok_or_else(|| format!("there is no service `{name}`; the services are `{}`", names()))?
        }
    };
    let parse = |text: &str| {
        let unknown = || format!("`{text}` is not a connection, such as `0.5.2`; `/api/sessions` lists them");
        parse_conn_id(text).ok_or_else(unknown)
    };
    let only = connection.map(parse).transpose()?;
    let tap = watch.tap(only)?;
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i128;
    Ok(Box::new(ServiceTap {
        tap,
        watch: (*watch).clone(),
        is_single: only.is_some(),
        search_until: only.map(|_| Instant::now() + TAP_BEGIN_TIME_MAX),
        epoch_us: now_us - i128::from(monotonic_ns() / 1000),
        dropped_bytes: 0,
        is_over: false,
    }))
}

impl TapLines for ServiceTap {
    fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        // Before the look: what was copied until then is shown.
        let is_ended = self.tap.is_ended();
        let mut over = match () {
            () if self.watch.is_draining() => Some("the service drains, or was replaced in a reload"),
            () if is_ended && self.is_single => Some("the connection has ended"),
            () if is_ended => Some("the service has ended"),
            () => None,
        };
        let mut text = String::new();
        let (is_single, epoch_us) = (self.is_single, self.epoch_us);
        let search_until = &mut self.search_until;
        self.tap.drain(|record| {
            put(&mut text, &line(&record, epoch_us));
            *search_until = None;
            if is_single && record.kind == TapKind::End {
                over = Some("the connection has ended");
            }
        });
        if self.search_until.is_some_and(|until| is_ended || Instant::now() > until) {
            over = Some("there is no such connection");
        }
        let dropped_bytes = self.tap.dropped_bytes();
        let mut last = TapLine { dropped_bytes, at_us: self.now_us(), ..TapLine::default() };
        if dropped_bytes > std::mem::replace(&mut self.dropped_bytes, dropped_bytes) {
            last.kind = TapLineKind::Dropped;
            put(&mut text, &last);
        }
        if let Some(reason) = over {
            self.is_over = true;
            put(&mut text, &TapLine { kind: TapLineKind::Over, data: reason.to_owned(), ..last });
        }
        Some(text)
    }
}

impl ServiceTap {
    fn now_us(&self) -> u64 {
        (self.epoch_us + i128::from(monotonic_ns() / 1000)) as u64
    }
}

fn line(record: &TapRecord<'_>, epoch_us: i128) -> TapLine {
    let hex = || record.payload.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
    let (kind, data) = match record.kind {
        TapKind::Begin => (TapLineKind::Begin, String::from_utf8_lossy(record.payload).into_owned()),
        TapKind::Received => (TapLineKind::Received, hex()),
        TapKind::Sent => (TapLineKind::Sent, hex()),
        TapKind::End => (TapLineKind::End, String::new()),
    };
    TapLine {
        at_us: (epoch_us + i128::from(record.at_ns / 1000)) as u64,
        id: conn_id(record.worker, record.conn),
        kind,
        is_client: record.is_client,
        offset: record.offset,
        data,
        dropped_bytes: 0,
    }
}

/// The digit of a number below 16.
fn digit(number: u8) -> char {
    char::from_digit(number.into(), 16).expect("the caller masks it")
}

fn put(text: &mut String, line: &TapLine) {
    // A line has only numbers and strings, which can be written.
    text.push_str(&serde_json::to_string(line).unwrap_or_default());
    text.push('\n');
}
