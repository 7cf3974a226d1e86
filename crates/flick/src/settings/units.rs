//! Values with units, as people write them: `250ms`, `64MiB`, and counts that have a range.
//! Promises: a number without a unit is refused where it would be a guess.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::access::Sample;

/// Most workers of one process.
pub const WORKERS_MAX: u32 = 1024;

/// A span of time: `10s`, `250ms`, `50us`, `5m`; `0` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(pub Duration);

/// An amount of memory: `64KiB`, `1GiB`, `4096B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// A part of something: `1%` to `100%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(pub u32);

/// A percentage that may be none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part(pub u32);

/// A count from `MIN` to `MAX`, on the command line and in the file alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<const MIN: u32, const MAX: u32>(pub u32);

/// One at least.
pub type Positive = Count<1, { u32::MAX }>;

/// A span of time of `MIN_US` to `MAX_US` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<const MIN_US: u64, const MAX_US: u64>(pub Duration);

/// A span of time that is not over at once.
pub type Lasting = Span<1, { u64::MAX }>;

/// A number of workers.
pub type Workers = Count<1, WORKERS_MAX>;

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is no span of time; write a number and a unit: `10s`, `250ms`, `50us`, `5m`")
        };
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let micros_per_unit: u64 = match unit {
            "us" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            _ => return Err(wrong()),
        };
        let micros = number.checked_mul(micros_per_unit).ok_or_else(wrong)?;
        Ok(Self(Duration::from_micros(micros)))
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is no amount of memory; write a number and a unit: `64KiB`, `512MiB`, `1GiB`")
        };
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let shift = match unit {
            "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            _ => return Err(wrong()),
        };
        number.checked_mul(1 << shift).map(Self).ok_or_else(wrong)
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').and_then(|digits| digits.parse().ok());
        number
            .filter(|percent| (1..=100).contains(percent))
            .map(Self)
            .ok_or_else(|| format!("`{text}` is no part; write `1%` to `100%`"))
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "0" | "0%" => Ok(Self(0)),
            _ => text.parse::<Percent>().map(|percent| Self(percent.0)),
        }
    }
}

impl<const MIN: u32, const MAX: u32> FromStr for Count<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse::<i64>().map_err(|_| format!("`{text}` is no count"))?;
        Self::try_from(number)
    }
}

impl<const MIN: u32, const MAX: u32> TryFrom<i64> for Count<MIN, MAX> {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        match u32::try_from(number) {
            Ok(number) if (MIN..=MAX).contains(&number) => Ok(Self(number)),
            _ if MAX == u32::MAX => Err(format!("{number} will not do here; give {MIN} or more")),
            _ => Err(format!("{number} will not do here; give {MIN} to {MAX}")),
        }
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(i64::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl<const MIN_US: u64, const MAX_US: u64> FromStr for Span<MIN_US, MAX_US> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Period(time) = text.parse()?;
        let (least, most) = (Duration::from_micros(MIN_US), Duration::from_micros(MAX_US));
        if time < least {
            return Err(format!("`{text}` would be over at once; give {least:?} or more"));
        }
        if time > most {
            return Err(format!("`{text}` is too long here; give {most:?} at most"));
        }
        Ok(Self(time))
    }
}

/// Reads any of these from a string in the file; a bare number is told which unit it may have meant.
struct Text<T> {
    what: &'static str,
    kind: PhantomData<T>,
}

impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Lets these be written in quotes in the file; the text says how.
macro_rules! written_in_quotes {
    ($([$($generics:tt)*] $kind:ty: $what:literal,)*) => {$(
        impl<'de, $($generics)*> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text { what: $what, kind: PhantomData })
            }
        }
    )*};
}

written_in_quotes! {
    [] Period: "a span of time in quotes, such as \"250ms\"",
    [const MIN_US: u64, const MAX_US: u64] Span<MIN_US, MAX_US>: "a span of time in quotes, such as \"250ms\"",
    [] Percent: "a part in quotes, such as \"50%\"",
    [] Part: "a part in quotes, such as \"20%\"",
    [] Sample: "a part of the requests in quotes, such as \"1/100\"",
    [] Size: "an amount of memory in quotes, such as \"512MiB\"",
}

/// Digits, then the rest.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<u64>) {
        let micros =
            text.parse::<Period>().ok().map(|period| u64::try_from(period.0.as_micros()).expect("small"));
        assert_eq!(micros, expected, "{text}");
    }

    #[test]
    fn periods_need_a_unit() {
        for (text, expected) in [
            ("10s", 10_000_000),
            ("250ms", 250_000),
            ("50us", 50),
            ("5m", 300_000_000),
            ("1h", 3_600_000_000),
            ("0", 0),
        ] {
            check(text, Some(expected));
        }
        for text in ["", "10", "s", "-1s", "1.5s", "10 s", "99999999999999999h", "1d"] {
            check(text, None);
        }
    }

    #[test]
    fn sizes_need_a_unit() {
        for (text, expected) in
            [("64KiB", Some(65_536)), ("1GiB", Some(1 << 30)), ("7B", Some(7)), ("64", None)]
        {
            assert_eq!(text.parse::<Size>().ok().map(|size| size.0), expected, "{text}");
        }
    }
}
