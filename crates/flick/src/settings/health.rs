//! Backend health: each field is an option of `flick run` and a key of `[health]` in `flick.toml`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use flick_runtime::Limits;
use flick_runtime::limits::CHECK_BYTES_MAX;
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::limits::set;
use super::units::{CountOrZero, NonZeroPeriod, Percent, PercentOrZero, Period, Positive};

/// Bytes that a health check sends or expects, written as text with the escapes `\r`, `\n`, `\t`, `\\` and `\xNN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckBytes(Vec<u8>);

impl FromStr for CheckBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` has an unknown escape; the escapes are `\\r`, `\\n`, `\\t`, `\\\\` and `\\xNN`")
        };
        let (mut bytes, mut rest) = (Vec::new(), text);
        while let Some(at) = rest.find('\\') {
            bytes.extend_from_slice(&rest.as_bytes()[..at]);
            let (byte, len) = match rest.as_bytes().get(at + 1) {
                Some(b'r') => (b'\r', 2),
                Some(b'n') => (b'\n', 2),
                Some(b't') => (b'\t', 2),
                Some(b'\\') => (b'\\', 2),
                Some(b'x') => {
                    let digits = rest.get(at + 2..at + 4).ok_or_else(wrong)?;
                    (u8::from_str_radix(digits, 16).map_err(|_| wrong())?, 4)
                }
                _ => return Err(wrong()),
            };
            bytes.push(byte);
            rest = &rest[at + len..];
        }
        bytes.extend_from_slice(rest.as_bytes());
        if bytes.len() > CHECK_BYTES_MAX {
            return Err(format!("a health check sends and expects at most {CHECK_BYTES_MAX} bytes"));
        }
        Ok(Self(bytes))
    }
}

impl<'de> Deserialize<'de> for CheckBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Outlier ejection, health checks, limits and retries of backends.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Backend health")]
pub struct HealthSettings {
    /// Consecutive failed requests after which a backend is ejected. A request fails by a timeout, a broken connection,
    /// a malformed response, or a response that reports a failure of the backend (`%failed`; HTTP: 5xx but 501 and
    /// 505). If set, also to 5, requests of any kind count, and a request whose key selects an ejected backend is
    /// answered with *unavailable*. If not set, only requests balanced without a key count and avoid the backend. 0
    /// disables. [default: 5 of the requests balanced without a key]
    #[arg(long, value_name = "N")]
    outlier_consecutive_failures: Option<CountOrZero>,
    /// Percentage of failed requests of any kind, over ten seconds, from which a backend is ejected. A request whose
    /// key selects an ejected backend is then answered with *unavailable*. 0% disables. [default: 0%]
    #[arg(long, value_name = "PERCENT")]
    outlier_failure_percent: Option<PercentOrZero>,
    /// Number of requests in those ten seconds below which `--outlier-failure-percent` ejects nothing. [default: 20]
    #[arg(long, value_name = "N")]
    outlier_min_requests: Option<Positive>,
    /// Time of a backend's first ejection. It doubles with each further ejection, up to 32 times this, until the
    /// backend has stayed healthy for as long. [default: 10s]
    #[arg(long, value_name = "DURATION")]
    outlier_ejection_time: Option<Period>,
    /// Maximum percentage of a channel's backends that may be ejected. When more fail their health checks, the checks
    /// are ignored (Envoy's panic threshold). [default: 50%]
    #[arg(long, value_name = "PERCENT")]
    outlier_max_ejected: Option<Percent>,
    /// Time during which a backend that is new or healthy again receives a growing share of the requests balanced
    /// without a key, from a twentieth up. 0 disables. [default: 0]
    #[arg(long, value_name = "DURATION")]
    slow_start: Option<Period>,
    /// Maximum number of clients waiting for a connection to one backend. Further requests are answered with
    /// *overload*. 0 disables the limit. [default: 0]
    #[arg(long, value_name = "N")]
    max_pending_per_backend: Option<CountOrZero>,
    /// Maximum number of requests in flight on one backend. Further requests are answered with *overload*. Not for
    /// services that relay connections. 0 disables the limit. [default: 0]
    #[arg(long, value_name = "N")]
    max_requests_per_backend: Option<CountOrZero>,
    /// Retries on another backend, as a percentage of the requests of the last second. Only requests that the protocol
    /// lets flick repeat (`%retry`), balanced without a key, before any byte of a response. [default: 20%]
    #[arg(long, value_name = "PERCENT")]
    retry_budget: Option<PercentOrZero>,
    /// Retries allowed per second whatever the budget. With `--retry-budget 0%`, 0 disables retries. [default: 10]
    #[arg(long, value_name = "N")]
    retry_min_per_second: Option<CountOrZero>,
    /// Interval of active health checks, per worker and backend. 0 disables. [default: 0]
    #[arg(long, value_name = "DURATION")]
    health_check_interval: Option<Period>,
    /// Time after which a health check has failed. At most `--health-check-interval`. [default: 1s]
    #[arg(long, value_name = "DURATION")]
    health_check_timeout: Option<NonZeroPeriod>,
    /// Bytes that a health check sends, such as `GET /health HTTP/1.1\r\nHost: x\r\n\r\n`. At most 256; `\r`, `\n`,
    /// `\t`, `\\` and `\xNN` are escapes. [default: none; connecting is enough]
    #[arg(long, value_name = "BYTES")]
    health_check_send: Option<CheckBytes>,
    /// Bytes that the response to a health check must begin with, such as `HTTP/1.1 200`. Escapes as in
    /// `--health-check-send`. [default: none]
    #[arg(long, value_name = "BYTES")]
    health_check_expect: Option<CheckBytes>,
    /// Consecutive failed health checks after which a backend is ejected. [default: 3]
    #[arg(long, value_name = "N")]
    health_check_fall: Option<Positive>,
    /// Consecutive successful health checks after which an ejected backend is healthy again. [default: 2]
    #[arg(long, value_name = "N")]
    health_check_rise: Option<Positive>,
}

impl HealthSettings {
    /// Whether the interval of health checks is set, even to zero.
    pub fn sets_health_checks(&self) -> bool {
        self.health_check_interval.is_some()
    }

    /// Key of a setting that describes health checks, if one is set.
    pub fn health_check_detail(&self) -> Option<&'static str> {
        let all = [
            ("health_check_expect", self.health_check_expect.is_some()),
            ("health_check_send", self.health_check_send.is_some()),
            ("health_check_timeout", self.health_check_timeout.is_some()),
            ("health_check_fall", self.health_check_fall.is_some()),
            ("health_check_rise", self.health_check_rise.is_some()),
        ];
        all.iter().find(|(_, is_set)| *is_set).map(|(key, _)| *key)
    }

    /// Whether the percentage of failed requests is set.
    pub fn sets_failure_percent(&self) -> bool {
        self.outlier_failure_percent.is_some()
    }

    /// Key of the minimum number of requests, if it is set.
    pub fn min_requests_detail(&self) -> Option<&'static str> {
        self.outlier_min_requests.map(|_| "outlier_min_requests")
    }

    /// Interval of health checks, if set.
    pub fn health_check_interval(&self) -> Option<Duration> {
        self.health_check_interval.map(|period| period.0)
    }

    /// Timeout of a health check, if set.
    pub fn health_check_timeout(&self) -> Option<Duration> {
        self.health_check_timeout.map(|time| time.0)
    }

    /// Overwrites the limits that are set.
    pub fn apply(&self, limits: &mut Limits) {
        set(&mut limits.retries.percent, self.retry_budget.map(|percent| percent.0));
        set(&mut limits.retries.min_per_second, self.retry_min_per_second.map(|count| count.0));
        let health = &mut limits.health;
        let period = |setting: Option<Period>| setting.map(|period| period.0);
        let bytes = |setting: &Option<CheckBytes>| setting.as_ref().map(|bytes| bytes.0.clone());
        set(
            &mut health.outlier_consecutive_failures,
            self.outlier_consecutive_failures.map(|count| Some(count.0)),
        );
        set(&mut health.outlier_failure_percent, self.outlier_failure_percent.map(|percent| percent.0));
        set(&mut health.outlier_min_requests, self.outlier_min_requests.map(|count| count.0));
        set(&mut health.outlier_ejection_time, period(self.outlier_ejection_time));
        set(&mut health.outlier_max_ejected_percent, self.outlier_max_ejected.map(|percent| percent.0));
        set(&mut health.slow_start, period(self.slow_start));
        set(&mut health.max_pending_per_backend, self.max_pending_per_backend.map(|count| count.0));
        set(&mut health.max_requests_per_backend, self.max_requests_per_backend.map(|count| count.0));
        set(&mut health.health_check_interval, period(self.health_check_interval));
        set(&mut health.health_check_timeout, self.health_check_timeout.map(|time| time.0));
        set(&mut health.health_check_send, bytes(&self.health_check_send));
        set(&mut health.health_check_expect, bytes(&self.health_check_expect));
        set(&mut health.health_check_fall, self.health_check_fall.map(|count| count.0));
        set(&mut health.health_check_rise, self.health_check_rise.map(|count| count.0));
    }
}

#[cfg(test)]
mod tests {
    use super::CheckBytes;

    #[test]
    fn escapes_of_health_check_bytes() {
        let read = |text: &str| text.parse::<CheckBytes>().map(|bytes| bytes.0);
        assert_eq!(read("PING\\r\\n"), Ok(b"PING\r\n".to_vec()));
        assert_eq!(read("\\x80\\x0a\\\\ \\t"), Ok(b"\x80\n\\ \t".to_vec()));
        for wrong in ["\\", "\\q", "\\x8", "\\xzz"] {
            assert!(read(wrong).expect_err(wrong).contains("unknown escape"), "{wrong}");
        }
        assert!(read(&"a".repeat(257)).expect_err("too long").contains("at most 256"));
    }
}
