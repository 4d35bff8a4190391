//! One scenario under callgrind, in a process of its own, so that none depends on which ran before.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::scenario::{Run, Scenario};

/// Runs one scenario in this process: `--one NAME`.
pub const ONE: &str = "--one";

/// Until tables have grown to their size and what is done once is done.
const WARM_UP: u32 = 100;
/// Enough that what comes up now and then (a full second, a slot of the wheel) hardly counts, and that
/// all scenarios together take half a minute under callgrind.
const ROUNDS: u32 = 1000;

/// Makes a scenario ready, warms it up and runs what is counted.
pub fn run_here(scenario: &Scenario) {
    let mut run = (scenario.prepare)();
    for _ in 0..WARM_UP {
        run();
    }
    counted_rounds(&mut run);
}

/// What callgrind counts: it looks for this name.
#[inline(never)]
fn counted_rounds(run: &mut Run) {
    for _ in 0..ROUNDS {
        run();
    }
}

/// Instructions per operation.
pub fn of(scenario: &Scenario) -> Result<f64, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let out = dir.path().join("callgrind.out");
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*counted_rounds*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(this)
        .args([ONE, scenario.name])
        // The stack begins behind the environment: the same one each time.
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "valgrind is missing (apt-get install valgrind)".to_owned(),
            _ => format!("valgrind: {error}"),
        })?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    match total(&out)? {
        0 => Err("callgrind has counted nothing: is the program stripped?".to_owned()),
        total => Ok(total as f64 / f64::from(ROUNDS)),
    }
}

/// All instructions that callgrind has counted.
fn total(file: &Path) -> Result<u64, String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let lines = text.lines();
    let totals = lines.filter_map(|line| {
        line.strip_prefix("totals: ")
            .or(line.strip_prefix("summary: "))
    });
    totals
        .filter_map(|count| count.trim().parse().ok())
        .next()
        .ok_or_else(|| "callgrind's file has no sum".to_owned())
}
