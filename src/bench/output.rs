//! Where results go: standard output, files, the progress line.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::args::{BenchArgs, Sink};
use super::hdr::Hlog;
use super::measurement::{Measurement, Observer, Point};
use super::plan::Plan;
use super::process::Usage;
use super::record::Record;
use super::text::{grouped, short_time};
use super::verdict::Verdict;

/// One target, or one phase of an attack, measured.
#[derive(Debug)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// What was asked for.
    pub url: String,
    /// What was done.
    pub plan: Arc<Plan>,
    /// What came of it.
    pub measured: Measurement,
    /// What that is worth.
    pub verdict: Verdict,
    /// What the target's processes used.
    pub usage: Option<Usage>,
}

/// Writes to standard output. A reader that has gone is no failure of the measurement.
pub fn print(text: &str) -> Result<(), String> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Writes a file. The error is for people.
pub fn write_file(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Writes the JSON.
pub fn write_json(sink: &Sink, value: &Value) -> Result<(), String> {
    let mut text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    text.push('\n');
    match sink {
        Sink::Stdout => print(&text),
        Sink::File(path) => write_file(path, &text),
    }
}

/// The file of one of several outcomes: `x.hgrm` becomes `x-NAME.hgrm`.
#[must_use]
pub fn file_of(path: &Path, name: &str, alone: bool) -> PathBuf {
    if alone {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut file = format!("{stem}-{name}");
    if let Some(extension) = path.extension() {
        file = format!("{file}.{}", extension.to_string_lossy());
    }
    path.with_file_name(file)
}

/// A line on a terminal that says how far the run is (nothing elsewhere), and the interval log.
#[derive(Debug)]
pub struct Follower {
    shows: bool,
    duration: Duration,
    told: Duration,
    answered: u64,
    lost: u64,
    p99: u64,
    log: Option<Hlog<BufWriter<File>>>,
}

/// Time between two updates.
const PROGRESS: Duration = Duration::from_millis(500);

impl Follower {
    /// Of a run.
    pub fn new(args: &BenchArgs, plan: &Plan) -> Result<Follower, String> {
        let log = match &args.files.hlog {
            None => None,
            Some(path) => {
                let told = |error: io::Error| format!("cannot write {}: {error}", path.display());
                let file = BufWriter::new(File::create(path).map_err(told)?);
                Some(Hlog::begin(file, "toron bench, latency in nanoseconds").map_err(told)?)
            }
        };
        Ok(Follower {
            shows: !args.quiet && io::stderr().is_terminal(),
            duration: plan.load.duration(),
            told: Duration::ZERO,
            answered: 0,
            lost: 0,
            p99: 0,
            log,
        })
    }

    /// Clears the line and ends the log.
    pub fn end(self) -> Result<(), String> {
        if self.shows {
            eprint!("\r\x1b[K");
        }
        match self.log {
            Some(log) => log
                .end()
                .map_err(|error| format!("cannot write the interval log: {error}")),
            None => Ok(()),
        }
    }
}

impl Observer for Follower {
    fn slice(&mut self, point: &Point, record: &Record) {
        if let Some(log) = &mut self.log {
            let start = point.at.saturating_sub(point.length);
            log.interval(start, point.length, &record.latency);
        }
        self.answered += point.answered;
        self.lost += point.lost;
        self.p99 = self.p99.max(point.p99);
        let since = point.at.saturating_sub(self.told);
        if self.shows && since >= PROGRESS {
            let rate = self.answered as f64 / since.as_secs_f64();
            eprint!(
                "\r\x1b[K{:>6.1} of {:.1} s  {rate:>9.0}/s  p99 {:>8}  {} lost",
                point.at.as_secs_f64(),
                self.duration.as_secs_f64(),
                short_time(self.p99),
                grouped(self.lost)
            );
            (self.told, self.answered, self.p99) = (point.at, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_several_outcomes_have_their_names() {
        let path = Path::new("/a/x.hgrm");
        assert_eq!(file_of(path, "b", true), path);
        assert_eq!(file_of(path, "b", false), Path::new("/a/x-b.hgrm"));
        assert_eq!(file_of(Path::new("x"), "b", false), Path::new("x-b"));
    }
}
