//! Puts the commit into `toron --version`, where there is a git checkout to ask.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A source archive unpacked inside another checkout is not that checkout's commit.
    let top = git(&["rev-parse", "--show-toplevel"]);
    let here = std::env::var("CARGO_MANIFEST_DIR").ok();
    let canonical = |path: Option<String>| std::fs::canonicalize(path?).ok();
    if canonical(top) != canonical(here) {
        return;
    }
    // Every commit and checkout writes a line there.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo:rustc-env=TORON_COMMIT={commit}");
    }
}
