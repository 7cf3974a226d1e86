//! When backends get no requests, or fewer: the same fields as options and as keys of `[health]` in `flick.toml`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use flick_runtime::Limits;
use flick_runtime::limits::CHECK_BYTES_MAX;
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::limits::set;
use super::units::{Lasting, Part, Percent, Period, Positive};

/// What a check sends or expects: text in which `\r`, `\n`, `\t`, `\\` and `\xNN` stand for bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckBytes(Vec<u8>);

impl FromStr for CheckBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` has a `\\` before something else than `r`, `n`, `t`, `\\` or `xNN`");
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
            return Err(format!("a check sends and expects at most {CHECK_BYTES_MAX} bytes"));
        }
        Ok(Self(bytes))
    }
}

impl<'de> Deserialize<'de> for CheckBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// When backends get no requests, or fewer.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Health of backends")]
pub struct HealthSettings {
    /// Requests that must fail in a row before a backend gets none for a while; 0: never [default: 0]
    #[arg(long, value_name = "N")]
    eject_failures: Option<u32>,
    /// Part of its requests that must fail before a backend gets none for a while; 0%: whatever their part [default: 0%]
    #[arg(long, value_name = "PERCENT")]
    eject_share: Option<Part>,
    /// Requests of the last ten seconds without which that part says nothing [default: 20]
    #[arg(long, value_name = "N")]
    eject_requests_min: Option<Positive>,
    /// For how long; each further time soon after that twice as long [default: 10s]
    #[arg(long, value_name = "TIME")]
    eject_time: Option<Period>,
    /// Part of a channel's backends that may be out at one time [default: 50%]
    #[arg(long, value_name = "PERCENT")]
    eject_max: Option<Percent>,
    /// How long a backend that is back gets less than its share from picks without a key [default: 0]
    #[arg(long, value_name = "TIME")]
    slow_start: Option<Period>,
    /// Clients that wait for a connection to one backend, beyond which further ones are told at once that it is busy; 0: no bound [default: 0]
    #[arg(long, value_name = "N")]
    backend_pending_max: Option<u32>,
    /// Requests under way on one backend, beyond which further ones fail at once; 0: no bound [default: 0]
    #[arg(long, value_name = "N")]
    backend_requests_max: Option<u32>,
    /// Requests sent to another backend when theirs has failed, where the protocol lets them be repeated and the program picked
    /// without a key: so many of a hundred of the last second [default: 20%]
    #[arg(long, value_name = "PERCENT")]
    retry_budget: Option<Part>,
    /// So many in each second, however few requests there are; with a budget of 0%, 0: none at all [default: 10]
    #[arg(long, value_name = "N")]
    retry_min: Option<u32>,
    /// How often each worker checks each backend; 0: never [default: 0]
    #[arg(long, value_name = "TIME")]
    check_every: Option<Period>,
    /// How long a check may take [default: 1s]
    #[arg(long, value_name = "TIME")]
    check_timeout: Option<Lasting>,
    /// What a check sends, such as `GET /health HTTP/1.1\r\nHost: x\r\n\r\n`; nothing: it is over when it is connected
    #[arg(long, value_name = "TEXT")]
    check_send: Option<CheckBytes>,
    /// What the answer must begin with, such as `HTTP/1.1 200`
    #[arg(long, value_name = "TEXT")]
    check_expect: Option<CheckBytes>,
    /// Checks that must fail in a row before a backend gets no requests [default: 3]
    #[arg(long, value_name = "N")]
    check_fall: Option<Positive>,
    /// Checks that must succeed in a row before it gets some again [default: 2]
    #[arg(long, value_name = "N")]
    check_rise: Option<Positive>,
}

impl HealthSettings {
    /// Whether it says how often backends are checked, be it never.
    pub fn sets_checks(&self) -> bool {
        self.check_every.is_some()
    }

    /// A setting that says how, if one is there.
    pub fn of_checks(&self) -> Option<&'static str> {
        let all = [
            ("check_expect", self.check_expect.is_some()),
            ("check_send", self.check_send.is_some()),
            ("check_timeout", self.check_timeout.is_some()),
            ("check_fall", self.check_fall.is_some()),
            ("check_rise", self.check_rise.is_some()),
        ];
        all.iter().find(|(_, is_set)| *is_set).map(|(key, _)| *key)
    }

    /// Whether it says how many failures put a backend out, be it none.
    pub fn sets_ejection(&self) -> bool {
        self.eject_failures.is_some() || self.sets_share()
    }

    /// Whether it says which part of its requests does.
    pub fn sets_share(&self) -> bool {
        self.eject_share.is_some()
    }

    /// Whether it says that, or how often backends are checked: both may put one out.
    pub fn sets_what_puts_out(&self) -> bool {
        self.sets_ejection() || self.sets_checks()
    }

    /// A setting that says for how long backends are put out, if it is there.
    pub fn of_ejection(&self) -> Option<&'static str> {
        self.eject_time.map(|_| "eject_time")
    }

    /// A setting that says how many backends may be out, if it is there.
    pub fn of_being_out(&self) -> Option<&'static str> {
        self.eject_max.map(|_| "eject_max")
    }

    /// A setting that says of which requests that part is, if one is there.
    pub fn of_share(&self) -> Option<&'static str> {
        self.eject_requests_min.map(|_| "eject_requests_min")
    }

    /// How often backends are checked, if it says so.
    pub fn check_every(&self) -> Option<Duration> {
        self.check_every.map(|period| period.0)
    }

    /// How long a check may take, if it says so.
    pub fn check_timeout(&self) -> Option<Duration> {
        self.check_timeout.map(|time| time.0)
    }

    /// Overwrites what is set here.
    pub fn apply(&self, limits: &mut Limits) {
        set(&mut limits.retries.percent, self.retry_budget.map(|percent| percent.0));
        set(&mut limits.retries.min_per_s, self.retry_min);
        let health = &mut limits.health;
        let period = |setting: Option<Period>| setting.map(|period| period.0);
        let bytes = |setting: &Option<CheckBytes>| setting.as_ref().map(|bytes| bytes.0.clone());
        set(&mut health.eject_failures, self.eject_failures);
        set(&mut health.eject_percent, self.eject_share.map(|part| part.0));
        set(&mut health.eject_requests_min, self.eject_requests_min.map(|count| count.0));
        set(&mut health.eject_time, period(self.eject_time));
        set(&mut health.eject_max_percent, self.eject_max.map(|percent| percent.0));
        set(&mut health.slow_start, period(self.slow_start));
        set(&mut health.backend_pending_max, self.backend_pending_max);
        set(&mut health.backend_requests_max, self.backend_requests_max);
        set(&mut health.check_every, period(self.check_every));
        set(&mut health.check_timeout, self.check_timeout.map(|time| time.0));
        set(&mut health.check_send, bytes(&self.check_send));
        set(&mut health.check_expect, bytes(&self.check_expect));
        set(&mut health.check_fall, self.check_fall.map(|count| count.0));
        set(&mut health.check_rise, self.check_rise.map(|count| count.0));
    }
}

#[cfg(test)]
mod tests {
    use super::CheckBytes;

    #[test]
    fn bytes_of_a_check_are_written_as_text() {
        let read = |text: &str| text.parse::<CheckBytes>().map(|bytes| bytes.0);
        assert_eq!(read("PING\\r\\n"), Ok(b"PING\r\n".to_vec()));
        assert_eq!(read("\\x80\\x0a\\\\ \\t"), Ok(b"\x80\n\\ \t".to_vec()));
        for wrong in ["\\", "\\q", "\\x8", "\\xzz"] {
            assert!(read(wrong).expect_err(wrong).contains("before something else"), "{wrong}");
        }
        assert!(read(&"a".repeat(257)).expect_err("too long").contains("at most 256"));
    }
}
