//! What is wrong, or worth saying, and where.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// A place in a file. Line 0 is the file as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mark {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

/// A fault or a warning. Displays as `file:line:column: message`, the form that editors jump to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// The file as it was named.
    pub file: Arc<str>,
    /// Where in it.
    pub mark: Mark,
    /// What is wrong, and in brackets what is allowed.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.mark.line > 0 {
            write!(f, ":{}:{}", self.mark.line, self.mark.column)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Collects findings while files are read; reading goes on after a fault, so that one run finds
/// them all.
#[derive(Debug, Default)]
pub struct Findings {
    faults: RefCell<Vec<Finding>>,
    warnings: RefCell<Vec<Finding>>,
}

impl Findings {
    /// Adds a fault: the configuration cannot be used.
    pub fn fault(&self, file: &Arc<str>, mark: Mark, message: String) {
        self.faults.borrow_mut().push(Finding {
            file: file.clone(),
            mark,
            message,
        });
    }

    /// Adds a warning: it can be used, but the operator should know.
    pub fn warning(&self, file: &Arc<str>, mark: Mark, message: String) {
        self.warnings.borrow_mut().push(Finding {
            file: file.clone(),
            mark,
            message,
        });
    }

    /// Whether there are no faults so far.
    pub fn is_good(&self) -> bool {
        self.faults.borrow().is_empty()
    }

    /// Faults and warnings, each in order of place and without repetitions.
    pub fn into_sorted(self) -> (Vec<Finding>, Vec<Finding>) {
        let mut both = (self.faults.into_inner(), self.warnings.into_inner());
        for list in [&mut both.0, &mut both.1] {
            list.sort();
            list.dedup();
        }
        both
    }
}

/// The word of `known` that `word` most likely stands for.
#[must_use]
pub fn did_you_mean<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word = word.to_ascii_lowercase();
    let likeness = |k: &str| strsim::jaro_winkler(&word, k);
    let near = |k: &&&str| {
        let edits = strsim::osa_distance(&word, k);
        edits <= 2.max(k.len() / 4) && edits < k.len() && likeness(k) > 0.75
    };
    known
        .iter()
        .filter(near)
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .copied()
}

/// The bracketed end of a message: what is allowed and, if anything comes near, what was meant.
#[must_use]
pub fn allowed(word: &str, known: &[&str]) -> String {
    let list = known.join(", ");
    match did_you_mean(word, known) {
        Some(meant) => format!("(allowed: {list}; did you mean \"{meant}\"?)"),
        None => format!("(allowed: {list})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised() {
        let known = ["read_timeout", "write_timeout", "host", "port", "via"];
        assert_eq!(did_you_mean("read_timout", &known), Some("read_timeout"));
        assert_eq!(did_you_mean("readtimeout", &known), Some("read_timeout"));
        assert_eq!(did_you_mean("Prot", &known), Some("port"));
        assert_eq!(did_you_mean("HOST", &known), Some("host"));
        assert_eq!(did_you_mean("banana", &known), None);
        assert_eq!(did_you_mean("", &known), None);
    }

    #[test]
    fn findings_come_in_order_of_place() {
        let findings = Findings::default();
        let file: Arc<str> = "a.yaml".into();
        findings.fault(
            &file,
            Mark {
                line: 10,
                column: 1,
            },
            "late".to_owned(),
        );
        findings.fault(&file, Mark { line: 2, column: 3 }, "early".to_owned());
        findings.fault(&file, Mark { line: 2, column: 3 }, "early".to_owned());
        findings.fault(&file, Mark::default(), "whole".to_owned());
        let (faults, warnings) = findings.into_sorted();
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["a.yaml: whole", "a.yaml:2:3: early", "a.yaml:10:1: late"]
        );
        assert!(warnings.is_empty());
    }
}
