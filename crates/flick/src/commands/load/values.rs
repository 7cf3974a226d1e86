//! Values of the options of `flick load`.
//! Promises: every error says what to write instead.

use std::fmt;
use std::str::FromStr;

use flick_load::limits::{KEY_BYTES_MAX, LATENCY_US_MAX, VALUE_BYTES_MAX, ZIPF_EXPONENT_MAX};
use flick_load::load::{KeyOrder, KeySize, LoadLatency, ValueSize};

use crate::settings::units::NonZeroPeriod;

/// Exponent of `zipf`, as in YCSB.
const ZIPF_EXPONENT: f64 = 0.99;
/// Highest rate of an open loop.
const RATE_MAX: f64 = 1e8;

/// A rate: `50k`, `1.5M`, `800`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, unit) = match text.as_bytes().last() {
            Some(b'k') => (&text[..text.len() - 1], 1e3),
            Some(b'M') => (&text[..text.len() - 1], 1e6),
            _ => (text, 1.0),
        };
        let rate = digits.parse::<f64>().ok().map(|number| number * unit);
        rate.filter(|rate| (0.1..=RATE_MAX).contains(rate))
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a rate; write requests per second: `800`, `50k`, `1.5M`"))
    }
}

/// A share from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio(pub f64);

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio.map(Self).ok_or_else(|| format!("`{text}` is not a share; write a number from 0 to 1: `0.9`"))
    }
}

/// An order of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyOrderValue(pub KeyOrder);

impl FromStr for KeyOrderValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let order = match text {
            "uniform" => Some(KeyOrder::Random),
            "sequential" => Some(KeyOrder::Sequential),
            "zipf" => Some(KeyOrder::Zipf(ZIPF_EXPONENT)),
            other => other
                .strip_prefix("zipf:")
                .and_then(|exponent| exponent.parse().ok())
                .filter(|exponent| (0.01..=ZIPF_EXPONENT_MAX).contains(exponent))
                .map(KeyOrder::Zipf),
        };
        order.map(Self).ok_or_else(|| {
            format!(
                "`{text}` is not an order; write `uniform`, `sequential`, `zipf`, or `zipf:1.2` (0.01 to 10)"
            )
        })
    }
}

/// A length of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySizeValue(pub KeySize);

impl FromStr for KeySizeValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "etc" {
            return Ok(Self(KeySize::Etc));
        }
        let bytes = text.parse().ok().filter(|bytes| (1..=KEY_BYTES_MAX).contains(bytes));
        bytes.map(|bytes| Self(KeySize::Fixed(bytes))).ok_or_else(|| {
            format!("`{text}` is not a length of keys; write bytes (1 to {KEY_BYTES_MAX}) or `etc`")
        })
    }
}

/// A length of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSizeValue(pub ValueSize);

impl FromStr for ValueSizeValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "etc" {
            return Ok(Self(ValueSize::Etc));
        }
        let bytes = |text: &str| text.parse().ok().filter(|bytes| *bytes <= VALUE_BYTES_MAX);
        let size = match text.split_once('-') {
            None => bytes(text).map(ValueSize::Fixed),
            Some((min, max)) => bytes(min)
                .zip(bytes(max))
                .filter(|(min, max)| min <= max)
                .map(|(min, max)| ValueSize::Between(min, max)),
        };
        size.map(Self).ok_or_else(|| {
            format!(
                "`{text}` is not a length of values; write bytes (0 to {VALUE_BYTES_MAX}), `MIN-MAX` or `etc`"
            )
        })
    }
}

/// Requests above a percentile that a measurement of it must have.
const TAIL_MIN: f64 = 10.0;

/// A bound of a latency: `p99:500us`, or `p99=500us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    percentile: Percentile,
    latency_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Percentile {
    P50,
    P90,
    P99,
    P999,
}

impl FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a bound; write `p50:`, `p90:`, `p99:` or `p99.9:` and a time: `p99:500us`"
            )
        };
        let (percentile, time) = text.split_once([':', '=']).ok_or_else(wrong)?;
        let percentile = match percentile {
            "p50" => Percentile::P50,
            "p90" => Percentile::P90,
            "p99" => Percentile::P99,
            "p99.9" => Percentile::P999,
            _ => return Err(wrong()),
        };
        let time: NonZeroPeriod = time.parse().map_err(|_| wrong())?;
        let latency_us = u64::try_from(time.0.as_micros()).ok().filter(|us| *us < LATENCY_US_MAX);
        let latency_us = latency_us.ok_or_else(|| {
            format!("`{text}` is too long a bound: longer latencies than an hour are measured as an hour")
        })?;
        Ok(Self { percentile, latency_us })
    }
}

impl Bound {
    /// The longest latency that keeps it.
    pub fn latency_us(&self) -> u64 {
        self.latency_us
    }

    /// The share of requests that keep it.
    pub fn share(&self) -> f64 {
        match self.percentile {
            Percentile::P50 => 0.5,
            Percentile::P90 => 0.9,
            Percentile::P99 => 0.99,
            Percentile::P999 => 0.999,
        }
    }

    /// Requests of which enough are above the percentile: fewer do not say where it is.
    pub fn requests_min(&self) -> u64 {
        (TAIL_MIN / (1.0 - self.share())).round() as u64
    }

    /// The name of its percentile.
    pub fn name(&self) -> &'static str {
        match self.percentile {
            Percentile::P50 => "p50",
            Percentile::P90 => "p90",
            Percentile::P99 => "p99",
            Percentile::P999 => "p99.9",
        }
    }

    /// The latency that it bounds.
    pub fn of(&self, latency: &LoadLatency) -> u64 {
        match self.percentile {
            Percentile::P50 => latency.p50_us,
            Percentile::P90 => latency.p90_us,
            Percentile::P99 => latency.p99_us,
            Percentile::P999 => latency.p999_us,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <= {} us", self.name(), self.latency_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_load_are_read() {
        assert_eq!("50k".parse(), Ok(Rate(50_000.0)));
        assert_eq!("1.5M".parse(), Ok(Rate(1_500_000.0)));
        assert_eq!("0.033".parse(), Ok(Ratio(0.033)));
        assert_eq!("zipf:1.2".parse(), Ok(KeyOrderValue(KeyOrder::Zipf(1.2))));
        assert_eq!("etc".parse(), Ok(KeySizeValue(KeySize::Etc)));
        assert_eq!("24-2000".parse(), Ok(ValueSizeValue(ValueSize::Between(24, 2_000))));
        let bound: Bound = "p99.9:2ms".parse().expect("a bound");
        assert_eq!((bound.name(), bound.latency_us()), ("p99.9", 2_000));
        assert_eq!("p99.9=2ms".parse(), Ok(bound));
        assert_eq!(bound.of(&LoadLatency { p999_us: 7, ..LoadLatency::default() }), 7);
    }

    #[test]
    fn latencies_above_a_minute_kept_any_bound_above_it() {
        let bound: Bound = "p99:59m".parse().expect("it can be measured");
        assert!(bound.latency_us() < LATENCY_US_MAX);
        let error = "p99:1h".parse::<Bound>().expect_err("whether a latency keeps it is unknown");
        assert!(error.contains("`p99:1h` is too long a bound"), "{error}");
    }

    #[test]
    fn wrong_values_of_a_load_are_refused() {
        for text in ["", "k", "-1", "0", "1e99", "NaN", "50kk"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["1.1", "-0.1", "NaN", "x"] {
            assert!(text.parse::<Ratio>().is_err(), "{text}");
        }
        for text in ["zipf:0", "zipf:", "zipf:NaN", "random"] {
            assert!(text.parse::<KeyOrderValue>().is_err(), "{text}");
        }
        assert!("0".parse::<KeySizeValue>().is_err() && "251".parse::<KeySizeValue>().is_err());
        for text in ["5-4", "1048577", "-5", "4-", "4KiB"] {
            assert!(text.parse::<ValueSizeValue>().is_err(), "{text}");
        }
        for text in ["p99", "p99:", "p99:500", "p95:1ms", "p99:0"] {
            assert!(text.parse::<Bound>().is_err(), "{text}");
        }
    }
}
