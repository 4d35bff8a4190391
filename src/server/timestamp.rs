//! Moments in text: RFC 3339 with milliseconds, UTC.
//!
//! By hand, since each line of the access log has one: by way of a formatter the lines' stamps, numbers
//! and addresses took three quarters of their instructions.

use std::time::{SystemTime, UNIX_EPOCH};

/// Length of a stamp: `2023-11-14T22:13:20.123Z`.
const LENGTH: usize = 24;
const DAY: u64 = 86_400;

/// The stamp of `at`. What is before 1970 is shown as its beginning; of years beyond 9999 the last
/// four digits are.
pub(crate) fn stamp(at: SystemTime) -> [u8; LENGTH] {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / DAY, since.as_secs() % DAY);
    let (year, month, day) = date_of(days);
    let millis = u64::from(since.subsec_millis());
    let [y1, y2] = two(year / 100 % 100);
    let [y3, y4] = two(year % 100);
    let [m1, m2] = two(month);
    let [d1, d2] = two(day);
    let [h1, h2] = two(second / 3600);
    let [i1, i2] = two(second / 60 % 60);
    let [s1, s2] = two(second % 60);
    let [f1, f2] = two(millis / 10);
    let [_, f3] = two(millis % 10);
    [
        y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T', h1, h2, b':', i1, i2, b':', s1, s2, b'.',
        f1, f2, f3, b'Z',
    ]
}

/// Two digits of a number below 100.
fn two(n: u64) -> [u8; 2] {
    [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8]
}

/// Year, month and day of a day counted from 1970, in the Gregorian calendar. Years are counted from
/// March, so that a leap day is the last of its year, and in eras of 400, after which all repeats.
fn date_of(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    // From 1 March of the year 0.
    let days = days + 719_468;
    let (era, of_era) = (days / ERA, days % ERA);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / (ERA - 1)) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Five months from March on, and five from August on, have 153 days.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let of_next = month >= 10;
    let month = if of_next { month - 9 } else { month + 3 };
    (era * 400 + year + u64::from(of_next), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_stamp_is_what_others_write() {
        // Every day until 2400, each at another time of day.
        for day in 0..160_000 {
            let second = day * DAY + day * 7_919 % DAY;
            let at = UNIX_EPOCH + Duration::from_millis(second * 1_000 + day % 1_000);
            let other = humantime::format_rfc3339_millis(at).to_string();
            assert_eq!(stamp(at), other.as_bytes(), "{other}");
        }
    }

    #[test]
    fn what_is_before_1970_is_its_beginning() {
        let at = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(&stamp(at), b"1970-01-01T00:00:00.000Z");
    }
}
