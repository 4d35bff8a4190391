//! The counts beside those that are kept in baseline.txt.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use super::scenario::{Scenario, ALL};

/// Growth that fails a run, in per cent. The same program counts the same to 0.1 %; what is inlined
/// where, and so what code costs that nobody has touched, moves by 1 to 3 % when something beside it
/// changes. What is more than that has a cause that somebody ought to know.
const MOST_GROWTH: f64 = 5.0;

fn file() -> PathBuf {
    [
        env!("CARGO_MANIFEST_DIR"),
        "benches/instructions/baseline.txt",
    ]
    .iter()
    .collect()
}

/// On what the counts depend beside this project's code: the compiler, and the C library and processor
/// that decide which copy of memcpy runs.
fn built_with() -> String {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.lines().next()?.trim().to_owned())
    };
    let compiler = said("rustc", &["--version"]).unwrap_or_else(|| "an unknown rustc".to_owned());
    let library =
        said("getconf", &["GNU_LIBC_VERSION"]).unwrap_or_else(|| "an unknown libc".to_owned());
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!(
        "{compiler}; {library}; {}",
        model.map_or("an unknown processor", |(_, model)| model)
    )
}

struct Baseline {
    built_with: String,
    counts: BTreeMap<String, f64>,
}

impl Baseline {
    fn read() -> Baseline {
        let mut baseline = Baseline {
            built_with: String::new(),
            counts: BTreeMap::new(),
        };
        for line in fs::read_to_string(file()).unwrap_or_default().lines() {
            if let Some(with) = line.strip_prefix("# with ") {
                with.clone_into(&mut baseline.built_with);
            } else if let Some((name, count)) = line.split_once(char::is_whitespace) {
                if let Ok(count) = count.trim().parse() {
                    baseline.counts.insert(name.to_owned(), count);
                }
            }
        }
        baseline
    }

    fn write(&self) -> std::io::Result<()> {
        let mut text = format!(
            "# Instructions per operation; written by `make bench BASELINE=update`.\n# with {}\n",
            self.built_with
        );
        for Scenario { name, .. } in &ALL {
            if let Some(count) = self.counts.get(*name) {
                let _ = writeln!(text, "{name:22}{count:9.0}");
            }
        }
        fs::write(file(), text)
    }
}

/// Prints the table. Fails when something has grown.
pub fn report(counts: &[(&Scenario, f64)], update: bool) -> ExitCode {
    let mut baseline = Baseline::read();
    let here = built_with();
    if !update && baseline.built_with != here {
        println!("The baseline was made elsewhere, so its counts may differ by some per cent:");
        println!("  baseline: {}\n  here:     {here}\n", baseline.built_with);
    }
    println!("| scenario | what | instructions | baseline | change |");
    println!("| --- | --- | ---: | ---: | ---: |");
    let mut grown = Vec::new();
    for &(Scenario { name, what, .. }, count) in counts {
        let before = baseline.counts.get(*name).copied();
        let change = before.map(|before| (count / before - 1.0) * 100.0);
        println!(
            "| {name} | {what} | {count:.0} | {} | {} |",
            before.map_or("-".to_owned(), |before| format!("{before:.0}")),
            change.map_or("-".to_owned(), |change| format!("{change:+.1} %")),
        );
        if change.is_some_and(|change| change > MOST_GROWTH) {
            grown.push(*name);
        }
    }
    if update {
        baseline.built_with = here;
        let new = counts
            .iter()
            .map(|(scenario, count)| (scenario.name.to_owned(), *count));
        baseline.counts.extend(new);
        return match baseline.write() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{}: {error}", file().display());
                ExitCode::from(2)
            }
        };
    }
    if grown.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("\ngrown by more than {MOST_GROWTH} %: {}", grown.join(", "));
    println!("If that is meant: make bench BASELINE=update, and say why where it is committed.");
    ExitCode::FAILURE
}
