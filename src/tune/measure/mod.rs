//! `--measure`: each proposed change tried on a toron that runs, under a load of `toron bench`.
//!
//! ```text
//!  args ─▶ load     a part: one value, some seconds        toron started anew where that is needed
//!           │
//!  trial ───┤       old and new value in turn, announced in the journal
//!           ▼
//!        rounds ─▶ judge ─▶ chance     better, worse, or not told from chance
//!                    └────▶ output     lines below the row, JSON
//! ```
//!
//! A round measures the old and the new value one after the other; which comes first alternates, so
//! that what disturbs the machine disturbs both alike. One setting is tried at a time; those that are
//! kept (`--apply`) stay on while the next ones are tried.

pub mod args;
pub mod chance;
pub mod judge;
mod load;
pub(super) mod output;
mod trial;

use std::io::IsTerminal;
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

pub use args::MeasureArgs;
use judge::{Compared, Judgement, Part, Round, Sum};
use load::Load;
use trial::Trial;

use super::apply;
use super::change::{self, Change};
use super::journal::{Journal, Record};
use super::row::Effect;
use crate::control::machine::Machine;

/// Rounds unless told otherwise or more are needed.
const ROUNDS: u32 = 10;

/// A change that is to be tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub(super) change: Change,
    /// Since when it holds.
    pub(super) effect: Effect,
}

/// What came of one.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Tried {
    /// It was not measured, for this reason.
    Not(String),
    /// It was.
    Measured(Measured),
}

/// The figures of a setting.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Measured {
    /// Whole rounds.
    pub(super) rounds: usize,
    pub(super) compared: Vec<Compared>,
    pub(super) judgement: Judgement,
    /// What was counted with the old value, and with the new one.
    pub(super) sums: [Sum; 2],
    /// The new value stays.
    pub(super) kept: bool,
    /// What else a reader has to know, a sentence each.
    pub(super) notes: Vec<String>,
}

/// All of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Study {
    /// In the order of the candidates.
    pub(super) tried: Vec<Tried>,
    /// Comparisons of all settings together.
    pub(super) comparisons: usize,
    /// What went wrong, a sentence each; also that it was interrupted.
    pub(super) faults: Vec<String>,
    /// Settings that do not have their old value again.
    pub(super) unrestored: usize,
}

impl Study {
    /// How many new values stay.
    pub(super) fn kept(&self) -> usize {
        let is_kept = |tried: &&Tried| matches!(tried, Tried::Measured(m) if m.kept);
        self.tried.iter().filter(is_kept).count()
    }
}

/// How a study goes about, known before it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outline {
    /// Rounds of each setting.
    pub(super) rounds: u32,
    /// Comparisons of all settings together.
    pub(super) comparisons: usize,
    /// Settings that can be measured.
    pub(super) settings: usize,
    /// How long the loads take together.
    pub(super) time: Duration,
}

/// Why a change cannot be measured, whatever the load.
fn obstacle(effect: Effect, args: &MeasureArgs) -> Option<String> {
    match effect {
        Effect::Now | Effect::Connections => None,
        Effect::Start if args.restart.is_some() => None,
        Effect::Start => Some(
            "takes effect only when toron starts: give the command that starts it anew with \
             --restart 'COMMAND'"
                .to_owned(),
        ),
        Effect::Interfaces => {
            Some("takes effect only for network interfaces that come up later".to_owned())
        }
    }
}

/// What is ahead.
pub(super) fn outline(candidates: &[Candidate], args: &MeasureArgs) -> Outline {
    let can = |candidate: &&Candidate| obstacle(candidate.effect, args).is_none();
    let settings = candidates.iter().filter(can).count();
    let figures = judge::Figure::ALL.len() - usize::from(!args.has_process());
    let comparisons = figures * settings;
    let rounds = args
        .rounds
        .unwrap_or_else(|| ROUNDS.max(chance::rounds_needed(comparisons)));
    let part = args.load.measured() + args.load.warmup();
    let parts = rounds.saturating_mul(2 * u32::try_from(settings).unwrap_or(u32::MAX));
    Outline {
        rounds,
        comparisons,
        settings,
        time: part.saturating_mul(parts),
    }
}

/// Tries all candidates in turn. Whatever happens, values are put back, but for those that help if
/// `keep`. An error is one before anything was changed.
pub(super) fn study(
    machine: &Machine,
    candidates: &[Candidate],
    args: &MeasureArgs,
    journal: &Path,
    keep: bool,
) -> Result<Study, String> {
    require_here(args)?;
    let load = Load::new(machine, args)?;
    let place = journal.display();
    let mut journal =
        apply::begin(machine, journal).map_err(|error| format!("{place}: {error}"))?;
    let had = journal.announces();
    let outline = outline(candidates, args);
    let mut study = Study {
        tried: Vec::new(),
        comparisons: outline.comparisons,
        faults: Vec::new(),
        unrestored: 0,
    };
    let bench = Bench {
        machine,
        load: &load,
        outline,
        seed: args.load.seed,
        keep,
    };
    for candidate in candidates {
        let tried = match obstacle(candidate.effect, args) {
            Some(why) => Tried::Not(why),
            None if load.interrupt.is_seen() => Tried::Not("interrupted".to_owned()),
            None if !study.faults.is_empty() => Tried::Not("given up after a fault".to_owned()),
            None => bench
                .try_one(candidate, &mut journal, &mut study)
                .map_err(|error| format!("{place}: {error}"))?,
        };
        study.tried.push(tried);
    }
    if load.interrupt.is_seen() {
        study.faults.push("interrupted".to_owned());
    }
    end_journal(machine, journal, had, &mut study);
    Ok(study)
}

/// Removes the journal if there is nothing in it to restore: all that it announces is as it was.
fn end_journal(machine: &Machine, journal: Journal, had: bool, study: &mut Study) {
    if had || study.kept() > 0 {
        return;
    }
    let is_astray = |record: &&Record| match record {
        Record::Will { name, old, .. } => change::read(machine, name).as_ref() != Ok(old),
        Record::Began { .. } | Record::Did { .. } | Record::Refused { .. } => false,
    };
    study.unrestored = journal.records.iter().filter(is_astray).count();
    if study.unrestored > 0 {
        return;
    }
    if let Err(error) = journal.finish() {
        let fault = format!("the journal is not removed: {error}");
        study.faults.push(fault);
    }
}

/// Values that are changed here have to be those that toron feels.
fn require_here(args: &MeasureArgs) -> Result<(), String> {
    let Some(target) = args.load.targets.first() else {
        return Err("--measure needs a URL".to_owned());
    };
    let address = target.url.resolve()?;
    // Only an address of this machine and namespace can be bound to.
    UdpSocket::bind((address.ip(), 0)).map_err(|error| {
        format!("{address} is no address of this machine, whose settings are changed: {error}")
    })?;
    Ok(())
}

/// What all trials have in common.
struct Bench<'a> {
    machine: &'a Machine,
    load: &'a Load<'a>,
    outline: Outline,
    seed: u64,
    keep: bool,
}

impl Bench<'_> {
    /// Tries one. What goes wrong is noted in `study`; an error is one of the journal.
    fn try_one(
        &self,
        candidate: &Candidate,
        journal: &mut Journal,
        study: &mut Study,
    ) -> std::io::Result<Tried> {
        let change = &candidate.change;
        let mut trial = match Trial::begin(self.machine, change, journal)? {
            Ok(trial) => trial,
            Err(why) => return Ok(Tried::Not(why)),
        };
        let mut fault = |what: String| study.faults.push(format!("{}: {what}", change.name));
        let mut notes = Vec::new();
        if let Some(made) = trial.made_of_it() {
            notes.push(format!("The kernel made {made} of {}.", change.value));
        }
        let restarts = self.restarts(candidate.effect);
        if candidate.effect == Effect::Connections && !restarts {
            notes.push(
                "Connections to upstreams that toron keeps are older: --restart renews them."
                    .to_owned(),
            );
        }
        let mut rounds = Vec::new();
        let mut runs_with_new = false;
        for round in 0..self.outline.rounds {
            self.show_progress(&change.name, round);
            match self.round(&mut trial, round, restarts, &mut runs_with_new) {
                Ok(Some(round)) => rounds.push(round),
                Ok(None) => break,
                Err(why) => {
                    fault(why);
                    break;
                }
            }
        }
        let mut measured = self.judged(&rounds, notes);
        let whole = rounds.len() == self.outline.rounds as usize;
        measured.kept = self.keep && whole && measured.judgement == Judgement::Helps;
        let ended = match measured.kept {
            true => trial.keep(),
            false => trial.give_up(),
        };
        if let Err(why) = ended {
            measured.kept = false;
            fault(format!("not restored: {why}"));
            study.unrestored += 1;
        }
        if restarts && runs_with_new != measured.kept {
            if let Err(why) = self.load.restart() {
                fault(why);
            }
        }
        Ok(match rounds.is_empty() {
            true => Tried::Not("no round was measured to its end".to_owned()),
            false => Tried::Measured(measured),
        })
    }

    fn restarts(&self, effect: Effect) -> bool {
        matches!(effect, Effect::Start | Effect::Connections) && self.load.can_restart()
    }

    /// Both values, one after the other. `None`: interrupted.
    fn round(
        &self,
        trial: &mut Trial<'_>,
        round: u32,
        restarts: bool,
        runs_with_new: &mut bool,
    ) -> Result<Option<Round>, String> {
        let first = round % 2 == 1;
        let mut both = Round::default();
        for new in [first, !first] {
            trial.set(new)?;
            if restarts {
                *runs_with_new = new;
                self.load.restart()?;
            }
            let Some(part) = self.load.part()? else {
                return Ok(None);
            };
            match new {
                true => both.new = part,
                false => both.old = part,
            }
        }
        Ok(Some(both))
    }

    fn judged(&self, rounds: &[Round], mut notes: Vec<String>) -> Measured {
        let comparisons = self.outline.comparisons;
        let compared = judge::compare(rounds, comparisons, self.seed);
        let parts = || rounds.iter().flat_map(|round| [&round.old, &round.new]);
        let strained = parts().filter(|part: &&Part| part.strained).count();
        if strained > 0 {
            notes.push(format!(
                "In {strained} of {} parts the load was too much for its own generator: a lower \
                 --rate, more --threads, or other processors for it (taskset).",
                parts().count()
            ));
        }
        let judgement = judge::judge(&compared, rounds.len(), comparisons);
        if judgement == Judgement::TooFewRounds {
            notes.push(format!(
                "{} comparisons need {} rounds.",
                comparisons,
                chance::rounds_needed(comparisons)
            ));
        }
        Measured {
            rounds: rounds.len(),
            compared,
            judgement,
            sums: [
                Sum::of(rounds.iter().map(|round| &round.old)),
                Sum::of(rounds.iter().map(|round| &round.new)),
            ],
            kept: false,
            notes,
        }
    }

    /// A line on a terminal, nothing elsewhere.
    fn show_progress(&self, name: &str, round: u32) {
        if std::io::stderr().is_terminal() {
            let of = self.outline.rounds;
            eprint!("\r\x1b[K{name}: round {} of {of}", round + 1);
            if round + 1 == of {
                eprint!("\r\x1b[K");
            }
        }
    }
}
