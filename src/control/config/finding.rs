//! What is wrong, or worth saying, and where.

use std::cell::RefCell;
use std::collections::BTreeSet;
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
    asked: RefCell<BTreeSet<String>>,
}

impl Findings {
    /// Notes that `section.key` is a key that may be written.
    pub fn asked(&self, full: String) {
        self.asked.borrow_mut().insert(full);
    }

    /// All keys that were asked for so far, as `section.key`.
    pub fn into_asked(self) -> BTreeSet<String> {
        self.asked.into_inner()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

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
