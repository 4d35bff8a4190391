//! What `--measure` can be told: the options of `toron bench` by their names, and a few of its own.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::{Error, Parser, ValueExt};

use crate::bench::{options, Asked, BenchArgs};

/// Options of `toron bench` that have a value.
const VALUED: [&str; 16] = [
    "rate",
    "arrivals",
    "connections",
    "warmup",
    "timeout",
    "pipeline",
    "keep-alive",
    "threads",
    "engine",
    "seed",
    "method",
    "header",
    "body",
    "upload",
    "mix",
    "rounds",
];

/// What to measure with.
#[derive(Clone, PartialEq, Debug)]
pub struct MeasureArgs {
    /// The load of one part: one value in one round.
    pub load: BenchArgs,
    /// Rounds; `None`: as many as are needed.
    pub rounds: Option<u32>,
    /// A command that starts toron anew.
    pub restart: Option<String>,
    /// A file that toron's process id is read from before each part.
    pub pid_file: Option<PathBuf>,
}

impl MeasureArgs {
    /// Whether toron's process is known, so that its processor time is measured.
    #[must_use]
    pub fn has_process(&self) -> bool {
        let named = self.load.targets.iter().any(|t| !t.pids.is_empty());
        named || self.pid_file.is_some()
    }

    /// The process that the file names; `None` without a file. The error is for people.
    pub fn pid_in_file(&self) -> Result<Option<u32>, String> {
        let Some(path) = &self.pid_file else {
            return Ok(None);
        };
        let told = |what: &dyn std::fmt::Display| format!("--pid-file {}: {what}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| told(&error))?;
        let pid = text.trim().parse().ok().filter(|pid| *pid > 0);
        let bad = || told(&format!("\"{}\" is no process id", text.trim()));
        pid.map(Some).ok_or_else(bad)
    }
}

/// What has been read so far.
#[derive(Default)]
pub struct Draft {
    url: Option<String>,
    words: Vec<OsString>,
    has_rounds: bool,
    restart: Option<String>,
    pid_file: Option<PathBuf>,
}

impl Draft {
    /// Takes `--NAME` with its value, if it belongs to `--measure`.
    pub fn take(&mut self, name: &str, parser: &mut Parser) -> Result<bool, Error> {
        match name {
            "measure" => once(&mut self.url, name, parser.value()?.string()?)?,
            "restart" => once(&mut self.restart, name, parser.value()?.string()?)?,
            "pid-file" => once(&mut self.pid_file, name, parser.value()?.into())?,
            "seconds" => {
                let seconds: f64 = parser.value()?.parse()?;
                if !(0.05..=3600.0).contains(&seconds) {
                    return Err("--seconds is the length of one part, 0.05 to 3600".into());
                }
                let millis = (seconds * 1000.0).round();
                self.words.push("--duration".into());
                self.words.push(format!("{millis}ms").into());
            }
            "closed" => self.words.push("--closed".into()),
            "chunked" => self.words.push(match parser.optional_value() {
                Some(size) => format!("--chunked={}", size.to_string_lossy()).into(),
                None => "--chunked".into(),
            }),
            name if VALUED.contains(&name) => {
                self.has_rounds |= name == "rounds";
                self.words.push(format!("--{name}").into());
                self.words.push(parser.value()?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// All of it together; `None`: nothing is to be measured. `pid` is toron's process.
    pub fn finish(mut self, pid: Option<u32>) -> Result<Option<MeasureArgs>, Error> {
        let Some(url) = self.url else {
            let given = !self.words.is_empty() || self.restart.is_some() || self.pid_file.is_some();
            return match given {
                true => Err("options of a load belong to --measure URL".into()),
                false => Ok(None),
            };
        };
        if pid.is_some() && self.pid_file.is_some() {
            return Err("--pid and --pid-file exclude each other".into());
        }
        if pid.is_some() && self.restart.is_some() {
            return Err(
                "after --restart toron is another process: --pid-file instead of --pid".into(),
            );
        }
        if !self.words.iter().any(|word| word == "--duration") {
            self.words.extend(["--duration", "2s"].map(OsString::from));
        }
        if let Some(pid) = pid {
            self.words
                .extend(["--pid".to_owned(), pid.to_string()].map(OsString::from));
        }
        self.words.push(url.into());
        let load = match options::read(&mut Parser::from_args(self.words))? {
            Asked::Run(load) => *load,
            Asked::Help => return Err("--help is asked for with a value".into()),
        };
        if load.rate.is_some_and(|rate| !rate.is_constant()) {
            return Err("--measure needs a constant rate".into());
        }
        Ok(Some(MeasureArgs {
            rounds: self.has_rounds.then_some(load.rounds),
            load,
            restart: self.restart,
            pid_file: self.pid_file,
        }))
    }
}

fn once<T>(slot: &mut Option<T>, name: &str, value: T) -> Result<(), Error> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("--{name} is given twice").into()),
    }
}
