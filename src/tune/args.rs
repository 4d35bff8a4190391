//! The command line of `toron tune`.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::{Arg, Error, Parser, ValueExt};

use super::measure::args::{Draft, MeasureArgs};
use crate::args::ServeArgs;

/// For `toron tune --help`.
pub const HELP: &str = "\
toron tune: what this kernel allows, what toron's configuration needs, and how to change it

Usage:
  toron tune [-c FILE] [-r FILE]      audit; changes nothing
  toron tune --measure URL [LOAD]     try each proposed kernel setting on a toron that runs

Options:
  -c, --config FILE   the configuration to audit for (as for toron serve; without any, defaults)
  -r, --routes FILE   its routes
  --check             print what is missing only; exit status 1 if a must-have is missing
  --json [FILE]       the audit for machines, into FILE or to standard output
  --emit DIR          write 90-toron.conf (sysctl.d), toron-limits.conf (a drop-in for the systemd
                      unit) and 90-toron-undo.conf (the present values) into DIR
  --apply             set the kernel settings marked MISSING and better, now (root; asks first)
  --only NAME         with --apply, --emit or --measure: this setting only, also one marked consider
                      (repeatable)
  --pid PID           audit for this process (toron's) and its limits, not for those of the shell
  --undo              put back what --apply has changed (root)
  -y, --yes           do not ask
  --measure URL       change each proposed kernel setting to and fro while a load runs, say what it
                      does and put it back (root; asks first); with --apply: keep what helps
  --journal FILE      where --apply notes old values (default /var/lib/toron/tune.journal)
  --root DIR          look at the proc and sys folders below DIR instead of this machine's
  -h, --help          this text

With --measure:
  --rounds N          each with the old and the new value (default: 10, more for many settings)
  --seconds N         length of one part, old or new (default 2)
  --pid PID           toron's process: CPU time per answer
  --pid-file FILE     the same, read anew before each part
  --restart 'COMMAND' starts toron anew; needed for what takes effect only at its start
  --rate, --arrivals, --closed, --connections, --keep-alive, --pipeline, --warmup, --timeout,
  --threads, --engine, --seed, --method, --header, --body, --upload, --chunked, --mix
                      the load, as for toron bench
";

/// Where old values are noted.
pub const JOURNAL: &str = "/var/lib/toron/tune.journal";

/// What to do with the audit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Action {
    /// Show it.
    #[default]
    Show,
    /// Set values.
    Apply,
    /// Put them back.
    Undo,
}

/// Where JSON goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Json {
    /// Standard output, in place of the table.
    Stdout,
    /// A file.
    File(PathBuf),
}

/// For `toron tune`.
#[derive(Clone, PartialEq, Debug)]
pub struct TuneArgs {
    /// The configuration to audit for.
    pub files: ServeArgs,
    /// What to do.
    pub action: Action,
    /// Whether a missing must-have is a failure.
    pub check: bool,
    /// Whether and where to write JSON.
    pub json: Option<Json>,
    /// Where to write files for sysctl.d and systemd.
    pub emit: Option<PathBuf>,
    /// Settings to restrict changes to; empty is all recommended ones.
    pub only: Vec<String>,
    /// The process whose limits count; `None`: those of this one.
    pub pid: Option<u32>,
    /// What to measure proposals with.
    pub measure: Option<Box<MeasureArgs>>,
    /// Do not ask.
    pub yes: bool,
    /// The journal.
    pub journal: PathBuf,
    /// Where /proc and /sys stand.
    pub root: PathBuf,
}

impl TuneArgs {
    /// Without any option.
    #[must_use]
    pub fn new(files: ServeArgs) -> Self {
        TuneArgs {
            files,
            action: Action::Show,
            check: false,
            json: None,
            emit: None,
            only: Vec::new(),
            pid: None,
            measure: None,
            yes: false,
            journal: JOURNAL.into(),
            root: "/".into(),
        }
    }

    /// Reads what follows the word `tune`; `files` is what stood before it. `None`: help is asked
    /// for.
    pub fn read(parser: &mut Parser, files: ServeArgs) -> Result<Option<Self>, Error> {
        let mut args = Self::new(files);
        let mut draft = Draft::default();
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Short('c') | Arg::Long("config") => {
                    set(&mut args.files.config, "--config", parser.value()?)?;
                }
                Arg::Short('r') | Arg::Long("routes") => {
                    set(&mut args.files.routes, "--routes", parser.value()?)?;
                }
                Arg::Short('y') | Arg::Long("yes") => args.yes = true,
                Arg::Long("check") => args.check = true,
                Arg::Long("json") => args.json = Some(json(parser)),
                Arg::Long("emit") => set(&mut args.emit, "--emit", parser.value()?)?,
                Arg::Long("apply") => args.act(Action::Apply)?,
                Arg::Long("undo") => args.act(Action::Undo)?,
                Arg::Long("only") => args.only.push(parser.value()?.string()?),
                Arg::Long("journal") => args.journal = parser.value()?.into(),
                Arg::Long("root") => args.root = parser.value()?.into(),
                Arg::Long("pid") => args.pid = Some(process(parser)?),
                Arg::Long(name) => {
                    let name = name.to_owned();
                    if !draft.take(&name, parser)? {
                        return Err(Error::UnexpectedOption(format!("--{name}")));
                    }
                }
                Arg::Short(_) | Arg::Value(_) => return Err(argument.unexpected()),
            }
        }
        args.measure = draft.finish(args.pid)?.map(Box::new);
        args.checked().map(Some)
    }

    fn act(&mut self, action: Action) -> Result<(), Error> {
        if self.action != Action::Show && self.action != action {
            return Err("--apply and --undo exclude each other".into());
        }
        self.action = action;
        Ok(())
    }

    fn checked(self) -> Result<Self, Error> {
        let measures = self.measure.is_some();
        let shows = self.check || self.json.is_some() || self.emit.is_some();
        if measures && (self.check || self.emit.is_some() || self.action == Action::Undo) {
            return Err("--check, --emit and --undo do not belong to --measure".into());
        }
        if measures && self.json == Some(Json::Stdout) && !self.yes {
            return Err("--measure asks first: with --json on standard output give --yes".into());
        }
        if self.action != Action::Show && shows && !measures {
            return Err("--check, --json and --emit do not belong to --apply and --undo".into());
        }
        if self.action == Action::Show && self.yes && !measures {
            return Err("--yes belongs to --apply, --measure and --undo".into());
        }
        let chooses = self.action == Action::Apply || self.emit.is_some() || measures;
        if !self.only.is_empty() && !chooses {
            return Err("--only belongs to --apply, --emit and --measure".into());
        }
        if self.pid.is_some() && self.action == Action::Undo {
            return Err("--pid does not belong to --undo".into());
        }
        Ok(self)
    }
}

fn set(slot: &mut Option<PathBuf>, name: &str, value: OsString) -> Result<(), Error> {
    if slot.replace(value.into()).is_some() {
        return Err(format!("{name} is given twice").into());
    }
    Ok(())
}

fn process(parser: &mut Parser) -> Result<u32, Error> {
    let word = parser.value()?.string()?;
    let pid = word.parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| format!("bad process id \"{word}\"").into())
}

/// `--json=FILE`, `--json FILE`, or `--json` before another option or at the end.
fn json(parser: &mut Parser) -> Json {
    if let Some(file) = parser.optional_value() {
        return Json::File(file.into());
    }
    let is_file = |word: &std::ffi::OsStr| !word.as_encoded_bytes().starts_with(b"-");
    let next = parser
        .try_raw_args()
        .and_then(|mut raw| raw.next_if(is_file));
    next.map_or(Json::Stdout, |file| Json::File(file.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(line: &str) -> Result<Option<TuneArgs>, String> {
        let mut parser = Parser::from_args(line.split_whitespace());
        TuneArgs::read(&mut parser, ServeArgs::default()).map_err(|error| error.to_string())
    }

    fn good(line: &str) -> TuneArgs {
        read(line).unwrap().unwrap()
    }

    #[test]
    fn json_takes_a_file_or_none() {
        for (line, json) in [
            ("--json", Json::Stdout),
            ("--json --check", Json::Stdout),
            ("--json a.json", Json::File("a.json".into())),
            ("--json=a.json --check", Json::File("a.json".into())),
        ] {
            assert_eq!(good(line).json, Some(json), "{line}");
        }
        assert!(good("--json --check").check);
    }

    #[test]
    fn options() {
        let args = good("-c a -r b --apply --yes --only x.y --only z --journal j --root /r");
        assert_eq!(args.files.config, Some("a".into()));
        assert_eq!(args.action, Action::Apply);
        assert_eq!(args.only, ["x.y", "z"]);
        assert_eq!((args.journal, args.root), ("j".into(), "/r".into()));
        assert_eq!(good("--undo -y").action, Action::Undo);
        assert_eq!(good("").journal, PathBuf::from(JOURNAL));
        assert_eq!(read("--help"), Ok(None));
    }

    #[test]
    fn the_load_is_that_of_bench() {
        let line =
            "--measure http://a/x --closed --connections 8 --seconds 0.5 --rounds 3 --pid 7 \
                    --chunked --only b --json --yes --apply --keep-alive 0";
        let args = good(line);
        assert_eq!((args.pid, args.action), (Some(7), Action::Apply));
        let measure = args.measure.unwrap();
        assert_eq!(measure.rounds, Some(3));
        let load = &measure.load;
        assert_eq!((load.rate, load.connections), (None, 8));
        assert_eq!(load.measured().as_millis(), 500);
        assert_eq!(load.targets[0].pids, [7]);
        assert_eq!(load.targets[0].url.to_string(), "http://a/x");
        assert!(load.requests[0].chunk.is_some() && load.keep_alive == 0.0);
        let usual = good("--measure http://a/ --pid-file p --restart r")
            .measure
            .unwrap();
        assert_eq!((usual.rounds, usual.load.measured().as_secs()), (None, 2));
        assert_eq!(
            (usual.pid_file, usual.restart),
            (Some("p".into()), Some("r".into()))
        );
        assert_eq!(good("").measure, None);
    }

    #[test]
    fn mistakes() {
        for (line, said) in [
            ("--apply --undo", "exclude each other"),
            ("--apply --json", "do not belong to --apply"),
            ("--yes", "--yes belongs to"),
            ("--only x", "--only belongs to"),
            ("--emit a --emit b", "--emit is given twice"),
            ("--measure", "missing argument for option '--measure'"),
            ("--measured", "invalid option '--measured'"),
            ("--measure nowhere", "not a URL"),
            (
                "--measure http://a/ --measure http://b/",
                "--measure is given twice",
            ),
            ("--rate 5", "options of a load belong to --measure URL"),
            ("--restart x", "options of a load belong to --measure URL"),
            ("--measure http://a/ --rate 1..2", "a constant rate"),
            ("--measure http://a/ --rate x", "x"),
            ("--measure http://a/ --seconds 0", "0.05 to 3600"),
            ("--measure http://a/ --check", "do not belong to --measure"),
            ("--measure http://a/ --undo", "do not belong to --measure"),
            ("--measure http://a/ --json", "give --yes"),
            ("--measure http://a/ --pid x", "bad process id"),
            (
                "--measure http://a/ --pid 1 --pid-file x",
                "exclude each other",
            ),
            (
                "--measure http://a/ --pid 1 --restart x",
                "--pid-file instead",
            ),
            (
                "--measure http://a/ --compare a=http://b/",
                "invalid option '--compare'",
            ),
            ("word", "unexpected argument"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
