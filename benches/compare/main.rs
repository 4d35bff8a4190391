//! `make compare`: toron beside nginx, HAProxy and the bare relays, row by row.
//!
//! Every figure is a median of interleaved rounds, and what counts is the ratio of two figures of
//! one run: the machine's own speed drifts by a fifth within minutes. The goals stand beside the
//! figures, met or not. Nothing here runs in the tests; the loads go to loopback only.

mod client;
mod load;
mod output;
mod peers;
mod studies;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// What was asked for.
pub struct Options {
    rows: Vec<String>,
    /// Interleaved rounds of each row.
    pub rounds: usize,
    /// How long one load lasts.
    pub length: Duration,
    out: Option<PathBuf>,
}

const HELP: &str = "\
usage: make compare [ROWS='NAME …'] [ROUNDS=5] [SECONDS=4]
       cargo bench --bench compare -- [--rounds N] [--seconds S] [--out DIR] [NAME …]

Runs the rows named (default: all), prints a table in Markdown for each, and with --out writes
compare.md, compare.json and compare.svg into DIR. Rows:
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.peek().is_some_and(|word| word == "transfer") {
        return client::main(words.skip(1));
    }
    match asked(words).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn asked(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        rows: Vec::new(),
        rounds: 5,
        length: Duration::from_secs(4),
        out: None,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            // cargo bench says so to every benchmark.
            "--bench" => {}
            "--rounds" => options.rounds = number(&value()?)?,
            "--seconds" => options.length = Duration::from_secs(number(&value()?)? as u64),
            "--out" => options.out = Some(value()?.into()),
            "-h" | "--help" => {
                print!("{HELP}{}", studies::list());
                std::process::exit(0);
            }
            name if studies::find(name).is_some() => options.rows.push(word),
            other => return Err(format!("no row {other:?}; there are\n{}", studies::list())),
        }
    }
    Ok(options)
}

fn number(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| *n > 0);
    n.ok_or(format!("{text:?} is not a number above 0"))
}

fn run(options: &Options) -> Result<(), String> {
    let mut tables = Vec::new();
    for study in studies::ALL {
        if !options.rows.is_empty() && !options.rows.iter().any(|row| row == study.name) {
            continue;
        }
        eprintln!("{}: {}", study.name, study.what);
        let table = (study.run)(options).map_err(|error| format!("{}: {error}", study.name))?;
        print!("{}", output::markdown(&table));
        tables.push(table);
    }
    if let Some(dir) = &options.out {
        output::write(dir, &tables).map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    Ok(())
}
