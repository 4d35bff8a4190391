//! One line of the audit.

use serde::Serialize;

use crate::control::machine::{Known, Machine};
use crate::control::needs::Need;

/// What the audit thinks of a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A configured limit cannot be reached with it.
    Missing,
    /// The proposed value serves this configuration better.
    Better,
    /// The proposed value may help; it costs something, too. Not set unless named.
    Consider,
    /// Good as it is.
    Good,
    /// Nothing to judge, but to know.
    Fact,
    /// It could not be read.
    Unknown,
}

impl Verdict {
    /// The word in the table.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Missing => "MISSING",
            Verdict::Better => "better",
            Verdict::Consider => "consider",
            Verdict::Good => "good",
            Verdict::Fact => "fact",
            Verdict::Unknown => "unknown",
        }
    }
}

/// How a value is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Means {
    /// A kernel setting: `--apply`, `--emit`.
    Sysctl,
    /// A line of a systemd unit: `--emit`.
    Unit,
    /// By hand; the row says how.
    Hand,
}

/// Since when a changed value holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// From the moment it is written.
    Now,
    /// For connections that begin later; those that stand keep the old one.
    Connections,
    /// For a process that starts later.
    Start,
    /// For network interfaces that come up later.
    Interfaces,
}

impl Effect {
    /// A sentence about it for whoever changes the value, if there is anything to tell.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Effect::Now => "",
            Effect::Connections => "Takes effect for new connections.",
            Effect::Start => "Takes effect when toron starts.",
            Effect::Interfaces => "Takes effect for interfaces that come up from then on.",
        }
    }
}

/// One setting or fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// A kernel setting by its full dotted name, or what it is.
    pub name: String,
    /// The value as it stands, or why it is unknown.
    pub present: Known<String>,
    /// What to make of it; `None` keeps it.
    pub proposed: Option<String>,
    /// What the audit thinks.
    pub verdict: Verdict,
    /// Whether toron's configured limits cannot be reached without it.
    pub must_have: bool,
    /// How it is changed.
    pub means: Means,
    /// Since when a change holds.
    pub effect: Effect,
    /// What it does to toron with this configuration.
    pub why: String,
    /// What this machine shows about it; may be empty.
    pub evidence: String,
    /// What a change may cost; may be empty.
    pub risk: String,
}

impl Row {
    /// A kernel setting: good as it is unless a proposal follows, unknown if it cannot be read.
    pub fn sysctl(machine: &Machine, name: &str, why: impl Into<String>) -> Self {
        Self::new(name, machine.sysctl(name), Means::Sysctl, why)
    }

    /// Something else that is good as it is.
    pub fn good(name: impl Into<String>, present: Known<String>, why: impl Into<String>) -> Self {
        Self::new(name, present, Means::Hand, why)
    }

    /// Something to know.
    pub fn fact(name: impl Into<String>, present: Known<String>, why: impl Into<String>) -> Self {
        let mut row = Self::good(name, present, why);
        if row.verdict == Verdict::Good {
            row.verdict = Verdict::Fact;
        }
        row
    }

    /// A must-have.
    #[must_use]
    pub fn need(need: Need, means: Means) -> Self {
        let why = format!("{}. {}", capital(&need.bounds), need.more);
        let mut row = Self::new(need.name, need.present, means, why);
        row.must_have = true;
        if let (Some(value), Ok(_)) = (need.proposed, &row.present) {
            row.verdict = Verdict::Missing;
            row.proposed = Some(value);
        }
        row
    }

    fn new(
        name: impl Into<String>,
        present: Known<String>,
        means: Means,
        why: impl Into<String>,
    ) -> Self {
        let verdict = match present {
            Ok(_) => Verdict::Good,
            Err(_) => Verdict::Unknown,
        };
        Row {
            name: name.into(),
            present,
            proposed: None,
            verdict,
            must_have: false,
            means,
            effect: Effect::Now,
            why: why.into(),
            evidence: String::new(),
            risk: String::new(),
        }
    }

    /// Proposes a value where `wanted`, unless the present one is unknown.
    #[must_use]
    pub fn propose(mut self, wanted: bool, verdict: Verdict, value: impl Into<String>) -> Self {
        if wanted && self.present.is_ok() && self.verdict != Verdict::Missing {
            self.verdict = verdict;
            self.proposed = Some(value.into());
        }
        self
    }

    /// Since when a change holds, if not from the moment it is written.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// What the machine shows.
    #[must_use]
    pub fn evidence(mut self, text: impl Into<String>) -> Self {
        self.evidence = text.into();
        self
    }

    /// What a change may cost.
    #[must_use]
    pub fn risk(mut self, text: impl Into<String>) -> Self {
        self.risk = text.into();
        self
    }
}

/// Rows of one subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its heading.
    pub title: &'static str,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// With a large first letter.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// White space made single spaces: kernel settings of several numbers have tabs between them.
#[must_use]
pub fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
