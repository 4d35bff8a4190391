//! A mapping of a file, read key by key. Every value that does not fit is a fault with its place,
//! and so is every key that nobody asked for.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::finding::{Findings, Mark};
use super::hint::{allowed, allowed_keys};
use super::values::{self, BadValue, SignedDuration};
use super::yaml::{Entry, Node, Value};
use crate::policy::settings::{Origin, Place, SetBy};

/// Longest duration that makes sense anywhere.
pub const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// Where findings about one file go.
#[derive(Clone, Copy)]
pub struct Report<'a> {
    /// The file as it was named.
    pub file: &'a Arc<str>,
    /// All findings of this run.
    pub findings: &'a Findings,
}

impl Report<'_> {
    /// Adds a fault.
    pub fn fault(&self, mark: Mark, message: impl Into<String>) {
        self.findings.fault(self.file, mark, message.into());
    }

    /// Adds a warning.
    pub fn warning(&self, mark: Mark, message: impl Into<String>) {
        self.findings.warning(self.file, mark, message.into());
    }
}

/// The words for on and off.
pub const SWITCH: [(&str, bool); 6] = [
    ("true", true),
    ("false", false),
    ("on", true),
    ("off", false),
    ("yes", true),
    ("no", false),
];

/// A mapping.
pub struct Section<'a> {
    /// Where findings go.
    pub report: Report<'a>,
    /// For messages and the list of pending settings: `server`, `routes[]`; empty at the root.
    pub name: &'static str,
    /// Where the mapping stands.
    pub mark: Mark,
    entries: &'a [Entry],
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// A section of the keys of `node`; an empty one is none at all. Anything else than a mapping
    /// is a fault.
    pub fn new(report: Report<'a>, name: &'static str, node: &'a Node) -> Option<Self> {
        let entries: &[Entry] = match &node.value {
            Value::Map(entries) => entries,
            Value::Null => &[],
            Value::Scalar { .. } | Value::List(_) => {
                let what = if name.is_empty() { "the file" } else { name };
                let kind = node.value.kind();
                report.fault(
                    node.mark,
                    format!("{what} must be a mapping of keys, not {kind}"),
                );
                return None;
            }
        };
        Some(Section {
            report,
            name,
            mark: node.mark,
            entries,
            asked: RefCell::default(),
        })
    }

    /// A section of which nothing is written.
    pub fn absent(report: Report<'a>, name: &'static str) -> Self {
        let mark = Mark::default();
        Section {
            report,
            name,
            mark,
            entries: &[],
            asked: RefCell::default(),
        }
    }

    /// `section.key`.
    fn full(&self, key: &str) -> String {
        if self.name.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.name)
        }
    }

    fn entry(&self, key: &'static str) -> Option<&'a Entry> {
        self.asked.borrow_mut().push(key);
        self.entries.iter().find(|e| e.key == key)
    }

    /// Whether the key is written, and where.
    pub fn mark_of(&self, key: &str) -> Option<Mark> {
        self.entries.iter().find(|e| e.key == key).map(|e| e.mark)
    }

    /// Where the key is set: here if it is written, else nowhere.
    pub fn origin(&self, key: &str, by: SetBy) -> Origin {
        match self.mark_of(key) {
            Some(mark) => Origin {
                by,
                at: Some(self.place(mark)),
            },
            None => Origin::DEFAULT,
        }
    }

    /// A place in this file.
    pub fn place(&self, mark: Mark) -> Place {
        Place {
            file: self.report.file.clone(),
            line: mark.line,
        }
    }

    /// The place of a key's value, or of the section.
    pub fn value_mark(&self, key: &str) -> Mark {
        self.entries
            .iter()
            .find(|e| e.key == key)
            .map_or(self.mark, |e| e.value.mark)
    }

    /// The value of a key, whatever it is. A key without a value is a fault.
    pub fn node(&self, key: &'static str) -> Option<&'a Node> {
        let entry = self.entry(key)?;
        if entry.value.value == Value::Null {
            self.report
                .fault(entry.mark, format!("{} has no value", self.full(key)));
            return None;
        }
        Some(&entry.value)
    }

    /// A mapping below this one; one without keys may be left empty.
    pub fn section(&self, key: &'static str, name: &'static str) -> Option<Section<'a>> {
        let entry = self.entry(key)?;
        Section::new(self.report, name, &entry.value)
    }

    /// The elements of a list; a single value is a list of one.
    pub fn list(&self, key: &'static str) -> Option<&'a [Node]> {
        let node = self.node(key)?;
        match &node.value {
            Value::List(list) => Some(list),
            Value::Scalar { .. } => Some(std::slice::from_ref(node)),
            Value::Null | Value::Map(_) => {
                let kind = node.value.kind();
                self.report.fault(
                    node.mark,
                    format!("{} must be a list, not {kind}", self.full(key)),
                );
                None
            }
        }
    }

    fn scalar(&self, key: &'static str) -> Option<(&'a str, bool, Mark)> {
        let node = self.node(key)?;
        match &node.value {
            Value::Scalar { text, plain } => Some((text, *plain, node.mark)),
            value => {
                let message = format!(
                    "{} must be a single value, not {}",
                    self.full(key),
                    value.kind()
                );
                self.report.fault(node.mark, message);
                None
            }
        }
    }

    /// Any single value, as written.
    pub fn string(&self, key: &'static str) -> Option<&'a str> {
        Some(self.scalar(key)?.0)
    }

    /// On or off.
    pub fn boolean(&self, key: &'static str) -> Option<bool> {
        let (text, plain, mark) = self.scalar(key)?;
        let lower = text.to_ascii_lowercase();
        let found = SWITCH.iter().find(|(word, _)| plain && *word == lower);
        if let Some(&(_, on)) = found {
            return Some(on);
        }
        let is_switch = SWITCH.iter().any(|(word, _)| *word == lower);
        let message = if is_switch {
            format!(
                "{}: \"{text}\" in quotes is a text, not on or off (allowed: {lower}, without quotes)",
                self.full(key)
            )
        } else {
            let hint = allowed(text, &SWITCH.map(|(word, _)| word));
            format!("{}: \"{text}\" is not on or off {hint}", self.full(key))
        };
        self.report.fault(mark, message);
        None
    }

    /// A whole number in a range.
    pub fn integer(&self, key: &'static str, range: RangeInclusive<i64>) -> Option<i64> {
        let (text, plain, mark) = self.scalar(key)?;
        let hint = format!("(allowed: {} to {})", range.start(), range.end());
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let problem = match text.parse() {
            Ok(number) if is_number && plain && range.contains(&number) => return Some(number),
            _ if !is_number => "is not a whole number",
            _ if !plain => "in quotes is a text, not a number",
            _ if text.starts_with('-') && *range.start() >= 0 => "is negative",
            Ok(number) if number < *range.start() => "is too small",
            _ => "is too large",
        };
        let written = if plain {
            text.to_owned()
        } else {
            format!("\"{text}\"")
        };
        self.report.fault(
            mark,
            format!("{}: {written} {problem} {hint}", self.full(key)),
        );
        None
    }

    /// A whole number in a range that starts at zero or above.
    pub fn number<T: TryFrom<i64>>(
        &self,
        key: &'static str,
        range: RangeInclusive<i64>,
    ) -> Option<T> {
        T::try_from(self.integer(key, range)?).ok()
    }

    /// A duration of zero or more.
    pub fn duration(&self, key: &'static str) -> Option<Duration> {
        let (text, _, mark) = self.scalar(key)?;
        let read = values::duration(text).and_then(|read| {
            if read.negative {
                Err(BadValue {
                    problem: "is negative".to_owned(),
                    meant: None,
                })
            } else {
                Ok(read)
            }
        });
        self.checked_duration(key, text, mark, read)
            .map(|read| read.length)
    }

    /// A deadline: zero or less is off.
    pub fn deadline(&self, key: &'static str) -> Option<Option<Duration>> {
        let (text, _, mark) = self.scalar(key)?;
        let read = self.checked_duration(key, text, mark, values::duration(text))?;
        Some(Some(read.length).filter(|length| !read.negative && !length.is_zero()))
    }

    fn checked_duration(
        &self,
        key: &str,
        text: &str,
        mark: Mark,
        read: Result<SignedDuration, BadValue>,
    ) -> Option<SignedDuration> {
        let read = read.and_then(|read| {
            if read.length > LONGEST {
                Err(BadValue {
                    problem: "is longer than a year".to_owned(),
                    meant: None,
                })
            } else {
                Ok(read)
            }
        });
        self.checked(
            key,
            text,
            mark,
            read,
            "a duration such as 250ms, 5s, 1m30s, 0",
        )
    }

    /// A number of bytes in a range.
    pub fn size(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let (text, _, mark) = self.scalar(key)?;
        let read = values::size(text).and_then(|size| {
            let problem = match size {
                size if size < *range.start() => "is too small",
                size if size > *range.end() => "is too large",
                size => return Ok(size),
            };
            Err(BadValue {
                problem: problem.to_owned(),
                meant: None,
            })
        });
        let bounds = match (*range.start(), *range.end()) {
            (0, u64::MAX) => String::new(),
            (start, u64::MAX) => format!(", at least {start}"),
            (start, end) => format!(", {start} to {end}"),
        };
        let what = format!("bytes, or a size such as 64KB, 4MiB{bounds}");
        self.checked(key, text, mark, read, &what)
    }

    fn checked<T>(
        &self,
        key: &str,
        text: &str,
        mark: Mark,
        read: Result<T, BadValue>,
        what: &str,
    ) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(BadValue { problem, meant }) => {
                let meant = meant
                    .map(|m| format!("; did you mean \"{m}\"?"))
                    .unwrap_or_default();
                let full = self.full(key);
                self.report.fault(
                    mark,
                    format!("{full}: \"{text}\" {problem} (allowed: {what}{meant})"),
                );
                None
            }
        }
    }

    /// One of several words. Words that mean the same as an earlier one are understood, but only
    /// the first `shown` are offered.
    pub fn choice<T: Copy>(
        &self,
        key: &'static str,
        words: &[(&str, T)],
        shown: usize,
    ) -> Option<T> {
        let (text, _, mark) = self.scalar(key)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let offered: Vec<&str> = words.iter().take(shown).map(|(word, _)| *word).collect();
        let hint = allowed(text, &offered);
        self.report.fault(
            mark,
            format!("{}: unknown value \"{text}\" {hint}", self.full(key)),
        );
        None
    }

    /// The pairs of a mapping of names to single values.
    pub fn pairs(&self, key: &'static str) -> Option<Vec<(&'a Entry, &'a str)>> {
        let node = self.node(key)?;
        let Value::Map(entries) = &node.value else {
            let kind = node.value.kind();
            let message = format!(
                "{} must be a mapping of names to values, not {kind}",
                self.full(key)
            );
            self.report.fault(node.mark, message);
            return None;
        };
        let mut pairs = Vec::new();
        for entry in entries {
            match &entry.value.value {
                Value::Scalar { text, .. } => pairs.push((entry, text.as_str())),
                Value::Null => {
                    let message = format!(
                        "{}: \"{}\" has no value (allowed: a text; \"\" is the empty one)",
                        self.full(key),
                        entry.key
                    );
                    self.report.fault(entry.mark, message);
                }
                value => {
                    let message = format!(
                        "\"{}\" must be a single value, not {}",
                        entry.key,
                        value.kind()
                    );
                    self.report.fault(entry.value.mark, message);
                }
            }
        }
        Some(pairs)
    }

    /// Accepts a key without looking at it here.
    pub fn known(&self, key: &'static str) {
        self.asked.borrow_mut().push(key);
    }

    /// Reports every key that nobody asked for.
    pub fn finish(self) {
        for key in self.asked.borrow().iter() {
            self.report.findings.asked(self.full(key));
        }
        let asked = self.asked.into_inner();
        // Older names, in camelCase, are understood but not offered.
        let mut offered = asked.clone();
        offered.retain(|key| !key.bytes().any(|b| b.is_ascii_uppercase()));
        for entry in self
            .entries
            .iter()
            .filter(|e| !asked.contains(&e.key.as_str()))
        {
            let place = match self.name {
                "" => String::new(),
                "routes[]" => " in a route".to_owned(),
                name => format!(" in {name}"),
            };
            let hint = allowed_keys(&entry.key, self.name, &offered);
            self.report.fault(
                entry.mark,
                format!("unknown key \"{}\"{place} {hint}", entry.key),
            );
        }
    }
}
