//! Slices of time as comma-separated values.

use std::fmt::Write as _;

use super::measurement::Point;

/// The first line.
pub const HEAD: &str = "target,at_s,answered,lost,received_bytes,sent_bytes,p50_us,p99_us,max_us\n";

/// A line for each slice. `target` is quoted where it must be (RFC 4180).
#[must_use]
pub fn lines(target: &str, series: &[Point]) -> String {
    let name = match target.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", target.replace('"', "\"\"")),
        false => target.to_owned(),
    };
    let mut out = String::new();
    for point in series {
        let _ = writeln!(
            out,
            "{name},{:.3},{},{},{},{},{:.3},{:.3},{:.3}",
            point.at.as_secs_f64(),
            point.answered,
            point.lost,
            point.received,
            point.sent,
            point.p50 as f64 / 1e3,
            point.p99 as f64 / 1e3,
            point.max as f64 / 1e3
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn names_are_quoted_where_they_must_be() {
        let point = Point {
            at: Duration::from_millis(1500),
            answered: 3,
            p50: 1500,
            ..Point::default()
        };
        assert_eq!(lines("a", &[point]), "a,1.500,3,0,0,0,1.500,0.000,0.000\n");
        assert!(lines("a,\"b\"", &[point]).starts_with("\"a,\"\"b\"\"\",1.500"));
        assert_eq!(HEAD.matches(',').count(), 8);
    }
}
