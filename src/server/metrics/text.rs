//! The text of an exposition: Prometheus text 0.0.4, or OpenMetrics 1.0.0 for those who ask for it.

use std::fmt::Display;
use std::io::Write as _;

use crate::policy::counter::{Buckets, Distribution};

/// How the text looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Prometheus text exposition format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0: counters are named without `_total` where they are described, and the end
    /// is marked.
    OpenMetrics,
}

impl Format {
    /// The one that a request with this `Accept` is answered in.
    #[must_use]
    pub fn accepted(accept: Option<&[u8]>) -> Format {
        let accept = accept.and_then(|value| std::str::from_utf8(value).ok());
        let ranges = || accept.into_iter().flat_map(|value| value.split(','));
        let best = |wanted: &[&str]| ranges().filter_map(|r| weight(r, wanted)).max();
        let open = best(&["application/openmetrics-text"]);
        let text = best(&["text/plain", "text/*", "*/*"]);
        match open {
            Some(open) if open > 0 && Some(open) > text => Format::OpenMetrics,
            Some(_) | None => Format::Prometheus,
        }
    }

    /// For `Content-Type`.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Thousandths by which a media range that is one of `wanted` is preferred (RFC 9110 section
/// 12.4.2).
fn weight(range: &str, wanted: &[&str]) -> Option<u32> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?;
    if !wanted.iter().any(|w| media.eq_ignore_ascii_case(w)) {
        return None;
    }
    let quality = parts.find_map(|p| p.strip_prefix("q=").or_else(|| p.strip_prefix("Q=")));
    let quality = quality.map_or(Some(1.0), |q| q.parse::<f64>().ok())?;
    Some((quality.clamp(0.0, 1.0) * 1000.0) as u32)
}

/// What kind of metric a family is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only goes up; the name ends in `_total`.
    Counter,
    /// A value of this moment.
    Gauge,
    /// Counts by buckets.
    Histogram,
}

impl Kind {
    /// The name in `# TYPE`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A label and its value.
pub type Label<'a> = (&'a str, &'a str);

/// Writes samples of one family after the other.
#[derive(Debug)]
pub struct Text<'a> {
    out: &'a mut Vec<u8>,
    name: &'a str,
}

impl<'a> Text<'a> {
    /// Samples of the family `name`.
    pub fn of(name: &'a str, out: &'a mut Vec<u8>) -> Self {
        Text { out, name }
    }

    /// What the family is; once, in front of its samples.
    pub fn describe(&mut self, kind: Kind, help: &str, format: Format) {
        let name = match (format, kind) {
            (Format::OpenMetrics, Kind::Counter) => self.name.trim_end_matches("_total"),
            _ => self.name,
        };
        let (out, kind) = (&mut *self.out, kind.as_str());
        // Writing to a Vec cannot fail, here and below.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One sample.
    pub fn sample(&mut self, labels: &[Label<'_>], value: impl Display) {
        self.line("", labels, None, value);
    }

    /// A sample without labels.
    pub fn value(&mut self, value: impl Display) {
        self.line("", &[], None, value);
    }

    /// The samples of a histogram.
    pub fn histogram<const N: usize>(
        &mut self,
        labels: &[Label<'_>],
        buckets: &Buckets<N>,
        values: &Distribution<N>,
    ) {
        let unit = buckets.per_second as f64;
        let mut below = 0;
        for (&bound, &count) in buckets.bounds.iter().zip(&values.counts) {
            below += count;
            let bound = bound as f64 / unit;
            // OpenMetrics wants "1.0", and the series are to have one name in both formats.
            let bound = match bound.fract() == 0.0 {
                true => format!("{bound:.1}"),
                false => bound.to_string(),
            };
            self.line("_bucket", labels, Some(&bound), below);
        }
        let count = values.count();
        self.line("_bucket", labels, Some("+Inf"), count);
        self.line("_sum", labels, None, values.sum as f64 / unit);
        self.line("_count", labels, None, count);
    }

    fn line(
        &mut self,
        suffix: &str,
        labels: &[Label<'_>],
        bound: Option<&str>,
        value: impl Display,
    ) {
        let out = &mut *self.out;
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(suffix.as_bytes());
        let bound = bound.map(|bound| ("le", bound));
        let mut before = b'{';
        for (name, value) in labels.iter().copied().chain(bound) {
            out.push(before);
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"=\"");
            escape(value, out);
            out.push(b'"');
            before = b',';
        }
        if before == b',' {
            out.push(b'}');
        }
        let _ = writeln!(out, " {value}");
    }
}

/// Backslash, quote and line feed are written as `\\`, `\"` and `\n`.
fn escape(value: &str, out: &mut Vec<u8>) {
    for &byte in value.as_bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'"' => out.extend_from_slice(b"\\\""),
            b'\n' => out.extend_from_slice(b"\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_prefer_it() {
        let of = |accept: &str| Format::accepted(Some(accept.as_bytes()));
        // As Prometheus 2.42 asks.
        let prometheus = "application/openmetrics-text;version=1.0.0,\
             application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(of(prometheus), Format::OpenMetrics);
        assert_eq!(of("Application/OpenMetrics-Text"), Format::OpenMetrics);
        for plain in [
            "",
            "*/*",
            "text/plain",
            "text/plain, application/openmetrics-text",
            "application/openmetrics-text;q=0.5, text/plain;q=0.6",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=much",
        ] {
            assert_eq!(of(plain), Format::Prometheus, "{plain}");
        }
        assert_eq!(Format::accepted(None), Format::Prometheus);
        assert_eq!(Format::accepted(Some(b"\xff")), Format::Prometheus);
    }

    #[test]
    fn labels_are_escaped() {
        let mut out = Vec::new();
        let mut text = Text::of("x_total", &mut out);
        text.describe(Kind::Counter, "All of it.", Format::OpenMetrics);
        text.sample(&[("a", "b\"\\\nü"), ("c", "")], 3);
        text.value(0.25);
        let expected = "# HELP x All of it.\n# TYPE x counter\n\
             x_total{a=\"b\\\"\\\\\\nü\",c=\"\"} 3\nx_total 0.25\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn histograms_are_cumulative_and_in_seconds() {
        let buckets = Buckets {
            bounds: [20, 1_000_000],
            per_second: 1_000_000,
        };
        let values = Distribution {
            counts: [2, 3],
            beyond: 1,
            sum: 2_500_000,
        };
        let mut out = Vec::new();
        Text::of("y_seconds", &mut out).histogram(&[("r", "s")], &buckets, &values);
        let expected = "y_seconds_bucket{r=\"s\",le=\"0.00002\"} 2\n\
             y_seconds_bucket{r=\"s\",le=\"1.0\"} 5\n\
             y_seconds_bucket{r=\"s\",le=\"+Inf\"} 6\n\
             y_seconds_sum{r=\"s\"} 2.5\ny_seconds_count{r=\"s\"} 6\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
