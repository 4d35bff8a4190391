//! The files that HdrHistogram's viewers read: percentiles (`.hgrm`) and an interval log (`.hlog`).

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use hdrhistogram::Histogram;

/// Percentile steps for each halving of the distance to 100%.
const TICKS: u32 = 5;
/// Nanoseconds in a millisecond, the unit of both files.
const MILLISECOND: f64 = 1e6;

/// The percentile distribution in milliseconds, in the form of `outputPercentileDistribution`.
#[must_use]
pub fn hgrm(histogram: &Histogram<u64>) -> String {
    let mut out = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let mut total = 0;
    for step in histogram.iter_quantiles(TICKS) {
        let value = step.value_iterated_to() as f64 / MILLISECOND;
        let quantile = step.quantile_iterated_to();
        total += step.count_since_last_iteration();
        let _ = if quantile < 1.0 {
            let inverse = 1.0 / (1.0 - quantile);
            writeln!(
                out,
                "{value:12.3} {quantile:14.12} {total:10} {inverse:14.2}"
            )
        } else {
            writeln!(out, "{value:12.3} {quantile:14.12} {total:10}          inf")
        };
    }
    let (mean, deviation) = (histogram.mean(), histogram.stdev());
    let _ = writeln!(
        out,
        "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]\n\
         #[Max     = {:12.3}, Total count    = {:12}]\n\
         #[Buckets = {:12}, SubBuckets     = {:12}]",
        mean / MILLISECOND,
        deviation / MILLISECOND,
        histogram.max() as f64 / MILLISECOND,
        histogram.len(),
        histogram.buckets(),
        2048
    );
    out
}

/// Writes an interval log as it goes, so that a long run costs no memory. Values are nanoseconds.
pub struct Hlog<W: Write> {
    out: W,
    serializer: V2DeflateSerializer,
    scratch: Vec<u8>,
    failed: Option<io::Error>,
}

impl<W: Write> std::fmt::Debug for Hlog<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hlog(failed: {:?})", self.failed)
    }
}

impl<W: Write> Hlog<W> {
    /// Begins a log.
    pub fn begin(mut out: W, comment: &str) -> io::Result<Hlog<W>> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let start = since.unwrap_or_default().as_secs_f64();
        write!(
            out,
            "#[{comment}]\n#[Histogram log format version 1.3]\n#[StartTime: {start:.3} (seconds since \
             epoch)]\n\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\
             \"Interval_Compressed_Histogram\"\n"
        )?;
        Ok(Hlog {
            out,
            serializer: V2DeflateSerializer::new(),
            scratch: Vec::new(),
            failed: None,
        })
    }

    /// Adds an interval. A failure is kept for [`Hlog::end`].
    pub fn interval(&mut self, start: Duration, length: Duration, histogram: &Histogram<u64>) {
        if self.failed.is_none() {
            self.failed = self.try_interval(start, length, histogram).err();
        }
    }

    fn try_interval(
        &mut self,
        start: Duration,
        length: Duration,
        histogram: &Histogram<u64>,
    ) -> io::Result<()> {
        use base64::Engine as _;
        self.scratch.clear();
        self.serializer
            .serialize(histogram, &mut self.scratch)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let encoded = base64::engine::general_purpose::STANDARD.encode(&self.scratch);
        writeln!(
            self.out,
            "{:.3},{:.3},{:.3},{encoded}",
            start.as_secs_f64(),
            length.as_secs_f64(),
            histogram.max() as f64 / MILLISECOND
        )
    }

    /// Writes out what is left.
    pub fn end(mut self) -> io::Result<()> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::bench::record::{histogram, merge};
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use hdrhistogram::serialization::Deserializer;

    fn thousand() -> Histogram<u64> {
        let mut histogram = histogram();
        for n in 1..=1000 {
            histogram.record(n * 1_000_000).unwrap();
        }
        histogram
    }

    #[test]
    fn percentiles_in_milliseconds() {
        let text = hgrm(&thousand());
        let line = |start: &str| {
            let found = text
                .lines()
                .find(|l| l.split_whitespace().nth(1) == Some(start));
            found
                .unwrap()
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let median = line("0.500000000000");
        let value: f64 = median[0].parse().unwrap();
        assert!((value - 500.0).abs() < 0.6, "{median:?}");
        assert_eq!((&*median[2], &*median[3]), ("500", "2.00"));
        assert_eq!(line("1.000000000000")[2], "1000");
        assert!(text.contains("#[Max     =     1000"));
    }

    /// What is written is read by the crate's own parser, and the intervals add up.
    #[test]
    fn an_interval_log_comes_back() {
        let mut bytes = Vec::new();
        let mut log = Hlog::begin(&mut bytes, "test").unwrap();
        let second = Duration::from_secs(1);
        log.interval(Duration::ZERO, second, &thousand());
        log.interval(second, second, &thousand());
        log.end().unwrap();
        let mut sum = histogram();
        let mut starts = Vec::new();
        for entry in IntervalLogIterator::new(&bytes) {
            if let LogEntry::Interval(interval) = entry.unwrap() {
                use base64::Engine as _;
                let encoded = interval.encoded_histogram();
                let raw = base64::engine::general_purpose::STANDARD
                    .decode(encoded)
                    .unwrap();
                let one: Histogram<u64> = Deserializer::new().deserialize(&mut &raw[..]).unwrap();
                assert_eq!(one.len(), 1000);
                merge(&mut sum, &one);
                starts.push(interval.start_timestamp());
            }
        }
        assert_eq!((sum.len(), starts), (2000, vec![Duration::ZERO, second]));
    }
}
