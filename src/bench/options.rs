//! Reads the command line of `toron bench`.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};
use toron_reactor::EngineKind;

use super::args::{BenchArgs, Files, Sink, Target};
use super::attack::AttackSpec;
use super::mix::{header, method, Body, Template, LONGEST_CHUNK};
use super::mix_file::{self, Mix};
use super::profile::{Arrivals, RateSpec};
use super::url::Url;
use crate::control::config::hint::allowed;
use crate::control::config::values;

/// Size of chunks unless given.
const CHUNK: u32 = 16 * 1024;

/// The command line of `toron bench`, read.
#[derive(Clone, PartialEq, Debug)]
pub enum Asked {
    /// To measure.
    Run(Box<BenchArgs>),
    /// To print [`HELP`](super::args::HELP).
    Help,
}

/// What has been read so far.
#[derive(Default)]
struct Draft {
    url: Option<Url>,
    rate: Option<RateSpec>,
    closed: bool,
    arrivals: Option<Arrivals>,
    connections: Option<usize>,
    duration: Option<Duration>,
    warmup: Option<Duration>,
    timeout: Option<Duration>,
    pipeline: Option<usize>,
    keep_alive: Option<f64>,
    threads: Option<usize>,
    engine: EngineKind,
    seed: Option<u64>,
    method: Option<String>,
    headers: Vec<(String, String)>,
    body: Body,
    chunk: Option<u32>,
    mix: Option<Mix>,
    compare: Vec<(String, Url)>,
    rounds: Option<u32>,
    pids: Vec<(Option<String>, u32)>,
    attack: Option<AttackSpec>,
    attack_interval: Option<Duration>,
    json: Option<Sink>,
    files: Files,
    quiet: bool,
}

/// Reads what stands behind `toron bench`.
pub fn read(parser: &mut Parser) -> Result<Asked, lexopt::Error> {
    let mut draft = Draft::default();
    loop {
        if let Some(word) = pending_word(parser)? {
            if draft.url.is_some() {
                return Err(format!("two URLs: {word}").into());
            }
            draft.url = Some(Url::parse(&word)?);
            continue;
        }
        let Some(argument) = parser.next()? else {
            return Ok(Asked::Run(Box::new(draft.finish()?)));
        };
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Asked::Help),
            Arg::Long(name) => {
                let name = name.to_owned();
                if !draft
                    .option(&name, parser)
                    .map_err(|error| named(&name, error))?
                {
                    return Err(lexopt::Error::UnexpectedOption(format!("--{name}")));
                }
            }
            Arg::Short(_) | Arg::Value(_) => return Err(argument.unexpected()),
        }
    }
}

/// A word that is no option, if one comes next.
fn pending_word(parser: &mut Parser) -> Result<Option<String>, lexopt::Error> {
    let Some(mut raw) = parser.try_raw_args() else {
        return Ok(None);
    };
    let word = raw.next_if(|word| !word.to_string_lossy().starts_with('-'));
    word.map(ValueExt::string).transpose()
}

/// An error about the value of an option, with the option's name if it does not have it yet.
fn named(name: &str, error: lexopt::Error) -> lexopt::Error {
    let text = error.to_string();
    match text.contains("--") {
        true => error,
        false => format!("--{name}: {text}").into(),
    }
}

/// A value that must be above zero.
fn positive<T: FromStr + PartialOrd + Default>(parser: &mut Parser) -> Result<T, lexopt::Error>
where
    T::Err: Into<Box<dyn std::error::Error + Send + Sync + 'static>>,
{
    let value = parser.value()?;
    let n: T = value.parse()?;
    if n > T::default() {
        return Ok(n);
    }
    Err(format!("must be above 0, not {}", value.to_string_lossy()).into())
}

fn duration(parser: &mut Parser) -> Result<Duration, lexopt::Error> {
    let text = parser.value()?.string()?;
    match values::duration(&text) {
        Ok(duration) if !duration.negative => Ok(duration.length),
        Ok(_) => Err(format!("\"{text}\" is negative").into()),
        Err(error) => {
            let allowed = "(allowed: 250ms, 5s, 1m30s)";
            Err(format!("\"{text}\" {} {allowed}", error.problem).into())
        }
    }
}

fn size(text: &str) -> Result<u64, lexopt::Error> {
    values::size(text).map_err(|error| format!("\"{text}\" {}", error.problem).into())
}

fn choice<T: Copy>(parser: &mut Parser, all: &[(&str, T)]) -> Result<T, lexopt::Error> {
    let word = parser.value()?.string()?;
    let found = all.iter().find(|(name, _)| *name == word);
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| format!("unknown word \"{word}\" {}", allowed(&word, &names)).into())
}

fn content(value: &OsString) -> Result<Body, lexopt::Error> {
    let text = value.to_string_lossy();
    match text.strip_prefix('@') {
        Some(path) => match std::fs::read(path) {
            Ok(bytes) => Ok(Body::Bytes(bytes)),
            Err(error) => Err(format!("cannot read {path}: {error}").into()),
        },
        None => Ok(Body::Bytes(text.into_owned().into_bytes())),
    }
}

impl Draft {
    /// Takes an option and its value; `false` if there is none of this name.
    fn option(&mut self, name: &str, parser: &mut Parser) -> Result<bool, lexopt::Error> {
        Ok(self.load_option(name, parser)?
            || self.request_option(name, parser)?
            || self.study_option(name, parser)?
            || self.output_option(name, parser)?)
    }

    fn load_option(&mut self, name: &str, parser: &mut Parser) -> Result<bool, lexopt::Error> {
        match name {
            "rate" => self.rate = Some(RateSpec::parse(&parser.value()?.string()?)?),
            "closed" => self.closed = true,
            "arrivals" => {
                let all = [
                    ("constant", Arrivals::Constant),
                    ("poisson", Arrivals::Poisson),
                ];
                self.arrivals = Some(choice(parser, &all)?);
            }
            "connections" => self.connections = Some(positive(parser)?),
            "duration" => self.duration = Some(duration(parser)?),
            "warmup" => self.warmup = Some(duration(parser)?),
            "timeout" => self.timeout = Some(duration(parser)?),
            "pipeline" => self.pipeline = Some(positive(parser)?),
            "keep-alive" => {
                let share: f64 = parser.value()?.parse()?;
                if !(0.0..=1.0).contains(&share) {
                    return Err("--keep-alive is a share between 0 and 1".into());
                }
                self.keep_alive = Some(share);
            }
            "threads" => self.threads = Some(positive(parser)?),
            "engine" => {
                let all = [
                    ("auto", EngineKind::Auto),
                    ("io_uring", EngineKind::IoUring),
                    ("epoll", EngineKind::Epoll),
                ];
                self.engine = choice(parser, &all)?;
            }
            "seed" => self.seed = Some(parser.value()?.parse()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn request_option(&mut self, name: &str, parser: &mut Parser) -> Result<bool, lexopt::Error> {
        match name {
            "method" => self.method = Some(method(&parser.value()?.string()?)?),
            "header" => self.headers.push(header(&parser.value()?.string()?)?),
            "body" | "upload" if self.body != Body::None => {
                return Err("there is one --body or --upload".into());
            }
            "body" => self.body = content(&parser.value()?)?,
            "upload" => self.body = Body::Filling(size(&parser.value()?.string()?)?),
            "chunked" => {
                let given = parser.optional_value().map(ValueExt::string).transpose()?;
                let chunk = match given {
                    Some(text) => size(&text)?,
                    None => u64::from(CHUNK),
                };
                let fits = u32::try_from(chunk).ok();
                let fits = fits.filter(|n| (1..=LONGEST_CHUNK).contains(n));
                self.chunk = Some(fits.ok_or("chunks have 1 to 65536 bytes")?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn study_option(&mut self, name: &str, parser: &mut Parser) -> Result<bool, lexopt::Error> {
        match name {
            "mix" => {
                let path = parser.value()?;
                let shown = path.to_string_lossy();
                let text = std::fs::read_to_string(&path);
                let text = text.map_err(|error| format!("cannot read {shown}: {error}"))?;
                self.mix = Some(mix_file::parse(&shown, &text)?);
            }
            "compare" => {
                let word = parser.value()?.string()?;
                let named = word.split_once('=').filter(|(name, _)| is_name(name));
                let (name, url) =
                    named.ok_or("--compare is NAME=URL, a name of letters and digits")?;
                if self.compare.iter().any(|(known, _)| known == name) {
                    return Err(format!("two targets are called {name}").into());
                }
                self.compare.push((name.to_owned(), Url::parse(url)?));
            }
            "rounds" => self.rounds = Some(positive(parser)?),
            "pid" => {
                let word = parser.value()?.string()?;
                let (name, pid) = match word.split_once('=') {
                    Some((name, pid)) => (Some(name.to_owned()), pid),
                    None => (None, &*word),
                };
                let pid = pid
                    .parse()
                    .map_err(|_| format!("bad process id \"{pid}\""))?;
                self.pids.push((name, pid));
            }
            "attack" => self.attack = Some(AttackSpec::parse(&parser.value()?.string()?)?),
            "attack-interval" => self.attack_interval = Some(duration(parser)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn output_option(&mut self, name: &str, parser: &mut Parser) -> Result<bool, lexopt::Error> {
        match name {
            "json" => self.json = Some(sink(parser)?),
            "csv" => self.files.csv = Some(parser.value()?.into()),
            "hgrm" => self.files.hgrm = Some(parser.value()?.into()),
            "hlog" => self.files.hlog = Some(parser.value()?.into()),
            "report" => self.files.report = Some(parser.value()?.into()),
            "svg" => self.files.svg = Some(parser.value()?.into()),
            "quiet" => self.quiet = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish(mut self) -> Result<BenchArgs, lexopt::Error> {
        self.check()?;
        let targets = self.targets()?;
        let duration = self.duration.unwrap_or(Duration::from_secs(10));
        let timeout = self.timeout.unwrap_or(Duration::from_secs(5));
        if duration.is_zero() || timeout.is_zero() {
            return Err("--duration and --timeout must be above 0".into());
        }
        let rate = match (self.closed, self.rate) {
            (true, _) => None,
            (false, Some(rate)) => Some(rate),
            (false, None) => Some(RateSpec::parse("1000")?),
        };
        let (of_mix, pipelined) = match &self.mix {
            Some(mix) => (mix.keep_alive, mix.pipeline),
            None => (None, None),
        };
        Ok(BenchArgs {
            targets,
            rounds: self.rounds.unwrap_or(10),
            attack: self.attack,
            attack_interval: self.attack_interval.unwrap_or(Duration::from_secs(1)),
            rate,
            arrivals: self.arrivals.unwrap_or_default(),
            connections: self.connections.unwrap_or(50),
            duration,
            warmup: self.warmup,
            timeout,
            pipeline: self.pipeline.or(pipelined).unwrap_or(1),
            keep_alive: self.keep_alive.or(of_mix).unwrap_or(1.0),
            threads: self.threads,
            engine: self.engine,
            seed: self.seed.unwrap_or(1),
            json: self.json.take(),
            files: std::mem::take(&mut self.files),
            quiet: self.quiet,
            requests: self.requests(),
        })
    }

    fn requests(self) -> Vec<Template> {
        if let Some(mix) = self.mix {
            return mix.requests;
        }
        let has_content = self.body != Body::None || self.chunk.is_some();
        let usual = if has_content { "POST" } else { "GET" };
        vec![Template {
            method: self.method.unwrap_or_else(|| usual.to_owned()),
            headers: self.headers,
            body: self.body,
            chunk: self.chunk,
            ..Template::default()
        }]
    }

    /// What does not go together.
    fn check(&self) -> Result<(), lexopt::Error> {
        let compares = !self.compare.is_empty();
        let asks = self.method.is_some()
            || self.chunk.is_some()
            || self.body != Body::None
            || !self.headers.is_empty();
        let faults = [
            (self.url.is_none() && !compares, "toron bench needs a URL"),
            (
                self.url.is_some() && compares,
                "with --compare there is no URL beside the targets",
            ),
            (self.compare.len() == 1, "--compare needs two targets"),
            (
                self.closed && (self.rate.is_some() || self.arrivals.is_some()),
                "--closed has no rate: the answers make it",
            ),
            (
                self.duration.is_some() && self.rate.is_some_and(|r| r.length.is_some()),
                "the duration stands in --rate already",
            ),
            (
                self.mix.is_some() && asks,
                "--mix says what is asked: no --method, --header, --body, --upload or --chunked",
            ),
            (
                compares && self.attack.is_some(),
                "--attack is against one target",
            ),
            (
                self.files.hlog.is_some() && (compares || self.attack.is_some()),
                "--hlog is of one measurement: not with --compare or --attack",
            ),
            (
                compares && self.rate.is_some_and(|rate| !rate.is_constant()),
                "--compare needs a constant rate",
            ),
        ];
        match faults.into_iter().find(|(found, _)| *found) {
            Some((_, fault)) => Err(fault.into()),
            None => Ok(()),
        }
    }

    fn targets(&mut self) -> Result<Vec<Target>, lexopt::Error> {
        let single = self.url.take().map(|url| ("target".to_owned(), url));
        let named = std::mem::take(&mut self.compare).into_iter().chain(single);
        let mut targets: Vec<Target> = named
            .map(|(name, url)| Target {
                name,
                url,
                pids: Vec::new(),
            })
            .collect();
        for (name, pid) in &self.pids {
            let target = match (name, &mut targets[..]) {
                (None, [one]) => Some(one),
                (None, _) => return Err("--pid needs the target's name: --pid NAME=PID".into()),
                (Some(name), all) => all.iter_mut().find(|t| t.name == *name),
            };
            let unknown = || {
                format!(
                    "--pid: no target is called {}",
                    name.as_deref().unwrap_or("")
                )
            };
            target.ok_or_else(unknown)?.pids.push(*pid);
        }
        Ok(targets)
    }
}

/// Whether it can stand in file names and keys.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// `--json FILE`, `--json=FILE`, or `--json` alone: what looks like an option or a URL is no file.
fn sink(parser: &mut Parser) -> Result<Sink, lexopt::Error> {
    let given = match parser.optional_value() {
        Some(value) => Some(value),
        None => parser.try_raw_args().and_then(|mut raw| {
            raw.next_if(|word| {
                let word = word.to_string_lossy();
                word == "-" || !(word.starts_with('-') || word.contains("://"))
            })
        }),
    };
    Ok(match given {
        None => Sink::Stdout,
        Some(word) if word == "-" => Sink::Stdout,
        Some(word) => Sink::File(word.into()),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn args(line: &str) -> Result<BenchArgs, String> {
        let mut parser = Parser::from_args(line.split_whitespace());
        match read(&mut parser) {
            Ok(Asked::Run(args)) => Ok(*args),
            Ok(Asked::Help) => Err("help".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_usual_and_the_defaults() {
        let plain = args("http://a/").unwrap();
        assert!(plain.rate.is_some() && plain.json.is_none());
        assert_eq!(
            (plain.connections, plain.warmup()),
            (50, Duration::from_secs(1))
        );
        let closed = args("http://a/ --closed --connections 8 --duration 2s --quiet").unwrap();
        assert!(closed.rate.is_none() && closed.quiet);
        assert_eq!(closed.warmup(), Duration::from_millis(200));
        let ramp = args("--rate 1..2/30s http://a/").unwrap();
        assert_eq!(ramp.measured(), Duration::from_secs(30));
        let post = args("--body hello --chunked=3 --header X:y http://a/").unwrap();
        assert_eq!(post.requests[0].method, "POST");
        assert_eq!(post.requests[0].chunk, Some(3));
        assert_eq!(post.requests[0].headers, [("X".to_owned(), "y".to_owned())]);
        let two = "--compare a=http://a/ --compare b=http://b/?c=d --pid b=7 --pid b=8";
        let two = args(two).unwrap();
        assert_eq!(
            (&*two.targets[1].name, &two.targets[1].pids),
            ("b", &vec![7, 8])
        );
        assert_eq!(two.targets[1].url.target(), "/?c=d");
        assert_eq!(args("--help"), Err("help".into()));
    }

    #[test]
    fn json_with_and_without_a_file() {
        let file = Some(Sink::File("x.json".into()));
        for (line, json) in [
            ("--json http://a/", Some(Sink::Stdout)),
            ("http://a/ --json", Some(Sink::Stdout)),
            ("http://a/ --json --closed", Some(Sink::Stdout)),
            ("http://a/ --json -", Some(Sink::Stdout)),
            ("--json x.json http://a/", file.clone()),
            ("--json=x.json http://a/", file.clone()),
            ("http://a/ --json x.json", file),
        ] {
            assert_eq!(args(line).unwrap().json, json, "{line}");
        }
    }

    #[test]
    fn mistakes() {
        for (line, said) in [
            ("", "needs a URL"),
            ("http://a/ http://b/", "two URLs"),
            ("https://a/", "https is not supported"),
            ("http://a/ --rate 0", "bad rate"),
            ("http://a/ --rate 5 --closed", "--closed has no rate"),
            ("http://a/ --rate 1..2/1s --duration 1s", "stands in --rate"),
            (
                "http://a/ --duration 5",
                "--duration: \"5\" has no unit (allowed: 250ms",
            ),
            ("http://a/ --duration 0", "above 0"),
            (
                "http://a/ --connections 0",
                "--connections: must be above 0",
            ),
            ("http://a/ --connections x", "--connections: "),
            ("http://a/ --keep-alive 2", "between 0 and 1"),
            (
                "http://a/ --engine kqueue",
                "allowed: auto, io_uring, epoll",
            ),
            ("http://a/ --header x", "bad header"),
            ("http://a/ --header content-length:1", "follows from"),
            ("http://a/ --body a --upload 1", "one --body or --upload"),
            ("http://a/ --nonsense", "invalid option '--nonsense'"),
            ("http://a/ --method G=T", "bad method"),
            ("--compare a=http://a/", "needs two targets"),
            (
                "http://a/ --compare a=http://a/ --compare b=http://b/",
                "no URL beside",
            ),
            (
                "--compare a=http://a/ --compare a=http://b/",
                "two targets are called a",
            ),
            (
                "--compare a=http://a/ --compare b=http://b/ --pid 1",
                "needs the target's name",
            ),
            (
                "--compare a=http://a/ --compare b=http://b/ --pid c=1",
                "no target is called c",
            ),
            (
                "--compare a=http://a/ --compare b=http://b/ --rate 1..2",
                "constant rate",
            ),
            ("--compare http://a/?x=y", "NAME=URL"),
            ("http://a/ --attack teardrop", "unknown attack"),
            ("http://a/ --attack churn --hlog x", "--hlog is of one"),
            ("http://a/ --mix /nonexistent", "cannot read /nonexistent"),
        ] {
            let error = args(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
