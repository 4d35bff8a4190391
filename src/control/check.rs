//! `toron check`: every fault of both files, or what holds.

use std::fmt::Write;

use super::config::finding::Finding;
use super::config::{load, Inputs, Rejected};
use super::report::Report;
use super::resolve::Endpoints;

/// What `toron check` prints, and whether the configuration can be used.
pub struct Outcome {
    /// For standard output.
    pub output: String,
    /// For standard error.
    pub errors: String,
    /// Whether it can be used; if asked strictly, whether there was not even a warning.
    pub good: bool,
}

/// Reads both files and tells all about them. Opens no socket and resolves no name. `strict`: a
/// warning is a failure.
#[must_use]
pub fn check(inputs: &Inputs, strict: bool) -> Outcome {
    match load(inputs, &mut Endpoints::default()) {
        Ok(loaded) => {
            let files: Vec<String> = loaded
                .files
                .iter()
                .map(|f| f.display().to_string())
                .collect();
            let verdict = verdict(&loaded.warnings, strict);
            let output = format!(
                "{}{}: {verdict}\n",
                Report(&loaded.snapshot),
                files.join(", ")
            );
            Outcome {
                output,
                errors: lines("warning: ", &loaded.warnings),
                good: !strict || loaded.warnings.is_empty(),
            }
        }
        Err(Rejected { faults, warnings }) => {
            let errors = lines("", &faults) + &lines("warning: ", &warnings);
            Outcome {
                output: String::new(),
                errors,
                good: false,
            }
        }
    }
}

/// The last words, for an operator who reads nothing else.
fn verdict(warnings: &[Finding], strict: bool) -> String {
    let word = match strict && !warnings.is_empty() {
        true => "refused by --strict",
        false => "good",
    };
    match warnings.len() {
        0 => word.to_owned(),
        1 => format!("{word}, with 1 warning"),
        n => format!("{word}, with {n} warnings"),
    }
}

fn lines(before: &str, findings: &[Finding]) -> String {
    findings.iter().fold(String::new(), |mut text, finding| {
        // The place stays at the start of the line, where editors look for it.
        let place = finding.to_string();
        let message = finding.message.as_str();
        let place = place.strip_suffix(message).unwrap_or_default();
        let _ = writeln!(text, "{place}{before}{message}");
        text
    })
}
