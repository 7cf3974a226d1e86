//! Values with units: `250ms`, `64MiB`, `50%`, and counts with a range.
//! Promises: a number without a unit is an error where the unit would be a guess.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::access::Sample;

/// Largest number of workers of one process.
pub const WORKERS_MAX: u32 = 1024;

/// A duration: `10s`, `250ms`, `50us`, `5m`, or `0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(pub Duration);

/// A size in bytes: `64KiB`, `1GiB`, `4096B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// A size of `MIN` to `MAX` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedSize<const MIN: u32, const MAX: u32>(pub u32);

/// A percentage from `MIN` to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentage<const MIN: u32>(pub u32);

/// `1%` to `100%`.
pub type Percent = Percentage<1>;

/// `0%` to `100%`.
pub type PercentOrZero = Percentage<0>;

/// A count from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<const MIN: u32, const MAX: u32>(pub u32);

/// A count, or zero.
pub type CountOrZero = Count<0, { u32::MAX }>;

/// A count of at least one.
pub type Positive = Count<1, { u32::MAX }>;

/// A duration of `MIN_US` to `MAX_US` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded<const MIN_US: u64, const MAX_US: u64>(pub Duration);

/// A duration above zero.
pub type NonZeroPeriod = Bounded<1, { u64::MAX }>;

/// The number of worker threads.
pub type Workers = Count<1, WORKERS_MAX>;

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a duration; write a number and a unit: `10s`, `250ms`, `50us`, `5m`");
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let micros_per_unit: u64 = match unit {
            "us" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" | "min" => 60_000_000,
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
        let wrong =
            || format!("`{text}` is not a size; write a number and a unit: `64KiB`, `512MiB`, `1GiB`");
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

impl<const MIN: u32, const MAX: u32> FromStr for BoundedSize<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Size(bytes) = text.parse()?;
        match u32::try_from(bytes) {
            Ok(bytes) if (MIN..=MAX).contains(&bytes) => Ok(Self(bytes)),
            _ => Err(format!("`{text}` is out of range; the range is {MIN}B to {}KiB", MAX / 1024)),
        }
    }
}

impl<const MIN: u32> FromStr for Percentage<MIN> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = if text == "0" { Some(text) } else { text.strip_suffix('%') };
        let number = digits.and_then(|digits| digits.parse().ok());
        number
            .filter(|percent| (MIN..=100).contains(percent))
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a percentage; write `{MIN}%` to `100%`"))
    }
}

impl<const MIN: u32, const MAX: u32> FromStr for Count<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse::<i64>().map_err(|_| format!("`{text}` is not a number"))?;
        Self::try_from(number)
    }
}

impl<const MIN: u32, const MAX: u32> TryFrom<i64> for Count<MIN, MAX> {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        match u32::try_from(number) {
            Ok(number) if (MIN..=MAX).contains(&number) => Ok(Self(number)),
            _ if MAX == u32::MAX && number < i64::from(MIN) => {
                Err(format!("{number} is out of range; the minimum is {MIN}"))
            }
            _ => Err(Self::out_of_range(number)),
        }
    }
}

impl<const MIN: u32, const MAX: u32> Count<MIN, MAX> {
    fn out_of_range(number: impl fmt::Display) -> String {
        format!("{number} is out of range; the range is {MIN} to {MAX}")
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number<const MIN: u32, const MAX: u32>;
        impl<const MIN: u32, const MAX: u32> Visitor<'_> for Number<MIN, MAX> {
            type Value = Count<MIN, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                number.try_into().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                let counted = i64::try_from(number).map_err(|_| Count::<MIN, MAX>::out_of_range(number));
                counted.and_then(i64::try_into).map_err(E::custom)
            }

            // A variable of the environment is in quotes.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_i64(Number)
    }
}

impl<const MIN_US: u64, const MAX_US: u64> FromStr for Bounded<MIN_US, MAX_US> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Period(time) = text.parse()?;
        let (least, most) = (Duration::from_micros(MIN_US), Duration::from_micros(MAX_US));
        if time < least {
            return Err(format!("`{text}` is too short; the minimum is {least:?}"));
        }
        if time > most {
            return Err(format!("`{text}` is too long; the maximum is {most:?}"));
        }
        Ok(Self(time))
    }
}

/// Deserialises a quoted value. The error for a bare number says how to write the unit.
struct Quoted<T> {
    what: &'static str,
    kind: PhantomData<T>,
}

impl<T: FromStr<Err = String>> Visitor<'_> for Quoted<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Implements `Deserialize` for values in quotes; the text is what the error expects.
macro_rules! quoted {
    ($([$($generics:tt)*] $kind:ty: $what:literal,)*) => {$(
        impl<'de, $($generics)*> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Quoted { what: $what, kind: PhantomData })
            }
        }
    )*};
}

quoted! {
    [] Period: "a duration in quotes, such as \"250ms\"",
    [const MIN_US: u64, const MAX_US: u64] Bounded<MIN_US, MAX_US>: "a duration in quotes, such as \"250ms\"",
    [const MIN: u32] Percentage<MIN>: "a percentage in quotes, such as \"50%\"",
    [] Sample: "a ratio in quotes, such as \"1/100\"",
    [const MIN: u32, const MAX: u32] BoundedSize<MIN, MAX>: "a size in quotes, such as \"8KiB\"",
    [] Size: "a size in quotes, such as \"512MiB\"",
}

/// Splits off the leading digits.
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
    fn duration_needs_a_unit() {
        for (text, expected) in [
            ("10s", 10_000_000),
            ("250ms", 250_000),
            ("50us", 50),
            ("5m", 300_000_000),
            ("5min", 300_000_000),
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
    fn count_that_is_too_large_was_called_too_small() {
        let most = "the range is 1 to 4294967295";
        for (number, help) in [(0, "the minimum is 1"), (1 << 32, most), (i64::MAX, most)] {
            let error = Count::<1, { u32::MAX }>::try_from(number).expect_err("it is out of range");
            assert!(error.contains(help), "{error}");
        }
    }

    #[test]
    fn size_needs_a_unit() {
        for (text, expected) in
            [("64KiB", Some(65_536)), ("1GiB", Some(1 << 30)), ("7B", Some(7)), ("64", None)]
        {
            assert_eq!(text.parse::<Size>().ok().map(|size| size.0), expected, "{text}");
        }
    }
}
