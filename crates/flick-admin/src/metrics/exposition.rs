//! Writes metric families and samples in one of two formats.
//!
//! | | OpenMetrics | classic |
//! |---|---|---|
//! | name of a counter family | without `_total` | with `_total` |
//! | type of an info family | `info` | `gauge`, with `_info` |
//! | units | `# UNIT` | none |
//! | end | `# EOF` | none |

use std::fmt::{Display, Write};

use crate::state::Times;

/// Bounds of the buckets: powers of two of nanoseconds, from a microsecond to a minute. The histograms count these
/// exactly.
const BUCKET_BITS: std::ops::RangeInclusive<u32> = 10..=36;

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus text format 0.0.4.
    Classic,
}

impl Format {
    /// The media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Chooses the format by an `Accept` header: OpenMetrics if it is listed with at least the quality of plain text.
    pub fn negotiate(accept: Option<&str>) -> Self {
        let (mut open_metrics, mut classic) = (0.0_f32, 0.0_f32);
        for range in accept.unwrap_or("").split(',') {
            let mut parameters = range.split(';').map(str::trim);
            let media_type = parameters.next().unwrap_or("");
            let mut parameters = parameters.filter_map(|parameter| parameter.split_once('='));
            let quality = parameters.find(|(name, _)| name.eq_ignore_ascii_case("q"));
            let quality = quality.and_then(|(_, value)| value.parse().ok()).unwrap_or(1.0);
            match media_type.to_ascii_lowercase().as_str() {
                "application/openmetrics-text" => open_metrics = open_metrics.max(quality),
                "text/plain" => classic = classic.max(quality),
                _ => {}
            }
        }
        if open_metrics > 0.0 && open_metrics >= classic { Self::OpenMetrics } else { Self::Classic }
    }
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

impl Kind {
    /// Counter or gauge.
    pub(super) fn of(is_gauge: bool) -> Self {
        if is_gauge { Self::Gauge } else { Self::Counter }
    }

    fn name(self, format: Format) -> &'static str {
        match (self, format) {
            (Self::Counter, _) => "counter",
            (Self::Gauge, _) | (Self::Info, Format::Classic) => "gauge",
            (Self::Histogram, _) => "histogram",
            (Self::Info, Format::OpenMetrics) => "info",
        }
    }

    /// Suffix of a sample's name.
    fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge | Self::Histogram => "",
            Self::Info => "_info",
        }
    }
}

/// Name and value of a label.
pub(super) type Label<'a> = (&'a str, &'a str);

/// Metrics that are being written.
pub(super) struct Exposition {
    format: Format,
    out: String,
    /// Name and type of the current family.
    family: (String, Kind),
}

impl Exposition {
    /// Starts without metrics.
    pub(super) fn new(format: Format) -> Self {
        Self { format, out: String::new(), family: (String::new(), Kind::Gauge) }
    }

    /// Starts a family. The name of a counter is without `_total`, that of an info without `_info`.
    pub(super) fn family(&mut self, name: &str, kind: Kind, unit: &str, help: &str) {
        self.family = (name.to_owned(), kind);
        let suffix = if self.format == Format::Classic { kind.suffix() } else { "" };
        // Writing to a `String` does not fail.
        let _ = writeln!(self.out, "# TYPE {name}{suffix} {}", kind.name(self.format));
        if !unit.is_empty() && self.format == Format::OpenMetrics {
            let _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.out, "# HELP {name}{suffix} {}", self.escape_help(help));
    }

    /// Writes a sample of the current family.
    pub(super) fn sample(&mut self, labels: &[Label<'_>], value: impl Display) {
        self.write(self.family.1.suffix(), labels, value);
    }

    /// Writes a histogram of the current family.
    pub(super) fn histogram(&mut self, labels: &[Label<'_>], times: &Times) {
        for bits in BUCKET_BITS {
            let bound_ns = 1_u64 << bits;
            let below: u64 =
                times.buckets.iter().filter(|(end, _)| *end < bound_ns).map(|(_, count)| count).sum();
            let bound = seconds(bound_ns);
            self.write("_bucket", &[labels, &[("le", bound.as_str())]].concat(), below);
        }
        self.write("_bucket", &[labels, &[("le", "+Inf")]].concat(), times.count());
        self.write("_sum", labels, seconds(times.sum_ns));
        self.write("_count", labels, times.count());
    }

    /// The text of all metrics.
    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    fn write(&mut self, suffix: &str, labels: &[Label<'_>], value: impl Display) {
        self.out.push_str(&self.family.0);
        self.out.push_str(suffix);
        for (index, (label, value)) in labels.iter().enumerate() {
            let separator = if index == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.out, "{separator}{label}=\"{value}\"");
        }
        let _ = writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// Escapes a help text; only OpenMetrics has an escape for quotes in it.
    fn escape_help(&self, help: &str) -> String {
        let escaped = help.replace('\\', "\\\\").replace('\n', "\\n");
        if self.format == Format::OpenMetrics { escaped.replace('"', "\\\"") } else { escaped }
    }
}

/// Nanoseconds as seconds, exactly.
pub(super) fn seconds(ns: u64) -> String {
    let (whole, fraction) = (ns / 1_000_000_000, ns % 1_000_000_000);
    let fraction = format!("{fraction:09}");
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { format!("{whole}.0") } else { format!("{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::{Exposition, Format, Kind, seconds};

    #[test]
    fn seconds_are_exact() {
        for (ns, text) in [(0, "0.0"), (1, "0.000000001"), (1024, "0.000001024"), (1 << 36, "68.719476736")] {
            assert_eq!(seconds(ns), text);
        }
    }

    #[test]
    fn negotiates_by_quality() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        let classic_first = "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5";
        for (accept, format) in [
            (None, Format::Classic),
            (Some("*/*"), Format::Classic),
            (Some("text/html,*/*;q=0.8"), Format::Classic),
            (Some("application/openmetrics-text; version=1.0.0"), Format::OpenMetrics),
            (Some(prometheus), Format::OpenMetrics),
            (Some(classic_first), Format::Classic),
            (Some("application/openmetrics-text;q=0"), Format::Classic),
        ] {
            assert_eq!(Format::negotiate(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn formats_differ_in_families() {
        let text = |format| {
            let mut out = Exposition::new(format);
            out.family("flick_build", Kind::Info, "", "Of \"flick\".");
            out.sample(&[("version", "1\"")], 1);
            out.family("process_cpu_seconds", Kind::Counter, "seconds", "CPU time.");
            out.sample(&[], 2);
            out.finish()
        };
        assert_eq!(
            text(Format::OpenMetrics),
            "# TYPE flick_build info\n# HELP flick_build Of \\\"flick\\\".\nflick_build_info{version=\"1\\\"\"} 1\n\
             # TYPE process_cpu_seconds counter\n# UNIT process_cpu_seconds seconds\n\
             # HELP process_cpu_seconds CPU time.\nprocess_cpu_seconds_total 2\n# EOF\n"
        );
        assert_eq!(
            text(Format::Classic),
            "# TYPE flick_build_info gauge\n# HELP flick_build_info Of \"flick\".\nflick_build_info{version=\"1\\\"\"} 1\n\
             # TYPE process_cpu_seconds_total counter\n\
             # HELP process_cpu_seconds_total CPU time.\nprocess_cpu_seconds_total 2\n"
        );
    }
}
