//! Durations and sizes as they are written in the files.

use std::time::Duration;

/// What is wrong with a value; the caller adds what was written and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadValue {
    /// Completes `"5x" …`.
    pub problem: String,
    /// A value that was probably meant.
    pub meant: Option<String>,
}

fn bad(problem: &str) -> BadValue {
    BadValue {
        problem: problem.to_owned(),
        meant: None,
    }
}

/// A duration that may be negative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignedDuration {
    /// Below zero.
    pub negative: bool,
    /// Its length.
    pub length: Duration,
}

const DURATION_UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Reads `250ms`, `5s`, `1m30s`, `2h`, `1d`, `0`, each with an optional `-` in front. Units come
/// from the largest to the smallest, each at most once.
pub fn duration(text: &str) -> Result<SignedDuration, BadValue> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        if digits.bytes().all(|b| b == b'0') {
            return Ok(SignedDuration {
                negative: false,
                length: Duration::ZERO,
            });
        }
        if negative {
            // `-1` is the usual way to write "off".
            return Ok(SignedDuration {
                negative,
                length: Duration::from_secs(1),
            });
        }
        let meant = Some(format!("{digits}s"));
        return Err(BadValue {
            problem: "has no unit".to_owned(),
            meant,
        });
    }
    let mut rest = digits;
    let mut millis: u64 = 0;
    let mut next_unit = 0;
    while !rest.is_empty() {
        let (number, tail) = split(rest, |b| b.is_ascii_digit());
        let (unit, tail) = split(tail, |b| b.is_ascii_alphabetic());
        let found = DURATION_UNITS.iter().position(|(name, _)| *name == unit);
        let Some(at) = found.filter(|&at| at >= next_unit && !number.is_empty()) else {
            return Err(BadValue {
                problem: "is not a duration".to_owned(),
                meant: meant_duration(text),
            });
        };
        next_unit = at + 1;
        let number: u64 = number.parse().map_err(|_| bad("is too large"))?;
        let part = number.checked_mul(DURATION_UNITS[at].1);
        millis = part
            .and_then(|p| millis.checked_add(p))
            .ok_or_else(|| bad("is too large"))?;
        rest = tail;
    }
    if next_unit == 0 {
        return Err(bad("is not a duration"));
    }
    Ok(SignedDuration {
        negative: negative && millis > 0,
        length: Duration::from_millis(millis),
    })
}

fn split(text: &str, belongs: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().position(|b| !belongs(b)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// What `1.5s`, `5 s`, `5sec`, `10 Minutes` are to be written as.
fn meant_duration(text: &str) -> Option<String> {
    let (number, unit) = split(text, |b| b.is_ascii_digit() || b == b'.');
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "d" | "day" | "days" => "d",
        "h" | "hr" | "hour" | "hours" => "h",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "ms" | "msec" | "milli" | "millis" | "millisecond" | "milliseconds" => "ms",
        _ => return None,
    };
    let (_, factor) = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?;
    let millis = scaled(number, *factor)?;
    Some(show_duration(Duration::from_millis(millis)))
}

/// `1.5` times `factor`, if that is a whole number above zero.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let digits = u32::try_from(part.len()).ok()?;
    let part: u64 = if part.is_empty() {
        0
    } else {
        part.parse().ok()?
    };
    let tens = 10_u64.checked_pow(digits)?;
    let product = part.checked_mul(factor)?;
    if product % tens != 0 {
        return None;
    }
    let sum = whole.checked_mul(factor)?.checked_add(product / tens)?;
    Some(sum).filter(|&sum| sum > 0)
}

const SIZE_UNITS: [(&str, u64); 9] = [
    ("", 1),
    ("b", 1),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

/// Reads a number of bytes: `4194304`, `64KB` (1000), `4MiB` (1024 × 1024).
pub fn size(text: &str) -> Result<u64, BadValue> {
    let (number, unit) = split(text, |b| b.is_ascii_digit());
    if number.is_empty() {
        return Err(bad(if text.starts_with('-') {
            "is negative"
        } else {
            "is not a size"
        }));
    }
    let unit = unit.trim_start().to_ascii_lowercase();
    let found = SIZE_UNITS.iter().find(|(name, _)| *name == unit);
    let Some((_, factor)) = found else {
        return Err(BadValue {
            problem: "is not a size".to_owned(),
            meant: meant_size(text),
        });
    };
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|n| n.checked_mul(*factor))
        .ok_or_else(|| bad("is too large"))
}

/// What `10m` or `1G` (as nginx writes 1024 and its powers) and `1.5MiB` are to be written as.
fn meant_size(text: &str) -> Option<String> {
    let (number, unit) = split(text, |b| b.is_ascii_digit() || b == b'.');
    let unit = unit.trim().to_ascii_lowercase();
    let name = match unit.as_str() {
        "k" | "m" | "g" | "t" => format!("{unit}ib"),
        _ => unit,
    };
    let (_, factor) = SIZE_UNITS.iter().find(|(known, _)| *known == name)?;
    if !number.contains('.') {
        let (first, rest) = name.split_at_checked(1)?;
        return Some(format!(
            "{number}{}{}",
            first.to_ascii_uppercase(),
            rest.replace('b', "B")
        ));
    }
    scaled(number, *factor).map(show_size)
}

/// A duration for people: `1m30s`, `250ms`, `0s`.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let mut millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, factor) in DURATION_UNITS {
        let n = millis / u128::from(factor);
        if n > 0 {
            text.push_str(&format!("{n}{unit}"));
        }
        millis %= u128::from(factor);
    }
    text
}

/// A size for people: in the largest binary unit that divides it, else in bytes; `u64::MAX` is
/// `unlimited`.
#[must_use]
pub fn show_size(size: u64) -> String {
    if size == u64::MAX {
        return "unlimited".to_owned();
    }
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if size > 0 && size.trailing_zeros() >= shift {
            return format!("{}{unit}", size >> shift);
        }
    }
    size.to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in [
            ("5s", 5000),
            ("250ms", 250),
            ("1m30s", 90_000),
            ("0", 0),
            ("0s", 0),
            ("1h", 3_600_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("90s", 90_000),
        ] {
            let read = duration(text).unwrap();
            assert_eq!(
                (read.negative, read.length),
                (false, Duration::from_millis(millis)),
                "{text}"
            );
        }
        assert!(duration("-1s").unwrap().negative);
        assert!(duration("-1").unwrap().negative);
        assert!(!duration("-0s").unwrap().negative);
        for text in [
            "", "s", "5x", "5 s", "1s1m", "1s1s", "1.5s", "--1s", "5S", "é", "5é",
        ] {
            assert_eq!(
                duration(text).unwrap_err().problem,
                "is not a duration",
                "{text}"
            );
        }
        assert_eq!(
            duration("99999999999999999999s").unwrap_err().problem,
            "is too large"
        );
        assert_eq!(
            duration("999999999999999999d").unwrap_err().problem,
            "is too large"
        );
        let unitless = duration("30").unwrap_err();
        assert_eq!(
            (unitless.problem.as_str(), unitless.meant.as_deref()),
            ("has no unit", Some("30s"))
        );
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4194304", 4_194_304),
            ("64KB", 64_000),
            ("4MiB", 4 << 20),
            ("1 GiB", 1 << 30),
            ("10b", 10),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        assert_eq!(size("-1").unwrap_err().problem, "is negative");
        assert_eq!(
            size("99999999999999999999").unwrap_err().problem,
            "is too large"
        );
        assert_eq!(size("99999999TiB").unwrap_err().problem, "is too large");
        assert_eq!(size("64k").unwrap_err().meant.as_deref(), Some("64KiB"));
        for text in ["", "MiB", "4MiBs", "1.5MB", "é"] {
            assert_eq!(size(text).unwrap_err().problem, "is not a size", "{text}");
        }
    }

    #[test]
    fn what_was_meant_is_said_and_can_be_written() {
        for (text, meant) in [
            ("1.5s", "1s500ms"),
            ("0.25s", "250ms"),
            ("5 s", "5s"),
            ("5S", "5s"),
            ("30sec", "30s"),
            ("10 minutes", "10m"),
            ("90min", "1h30m"),
        ] {
            assert_eq!(
                duration(text).unwrap_err().meant.as_deref(),
                Some(meant),
                "{text}"
            );
            assert!(duration(meant).is_ok(), "{meant}");
        }
        for text in ["1.5ms", "0.0s", "1.2.3s", "5us", "s", ".s", "1..5s"] {
            assert_eq!(duration(text).unwrap_err().meant, None, "{text}");
        }
        for (text, meant) in [
            ("1G", "1GiB"),
            ("10m", "10MiB"),
            ("512k", "512KiB"),
            ("2T", "2TiB"),
            ("1.5MiB", "1536KiB"),
            ("1.5MB", "1500000"),
            ("1.5g", "1536MiB"),
        ] {
            assert_eq!(
                size(text).unwrap_err().meant.as_deref(),
                Some(meant),
                "{text}"
            );
            assert!(size(meant).is_ok(), "{meant}");
        }
        for text in ["5x", "1.5", "0.1b", "MiB"] {
            assert_eq!(size(text).unwrap_err().meant, None, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_shown_reads_back(millis in 0u64..1_000_000_000, bytes in 0u64..1 << 45) {
            let length = Duration::from_millis(millis);
            prop_assert_eq!(duration(&show_duration(length)).unwrap().length, length);
            prop_assert_eq!(size(&show_size(bytes)).unwrap(), bytes);
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = (duration(&text), size(&text));
        }
    }
}
