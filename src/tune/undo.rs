//! `--undo`: the journal backwards.

use std::io;
use std::path::Path;

use super::change;
use super::journal::{Journal, Record};
use super::row::on_one_line;
use crate::control::machine::Machine;

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Undone {
    /// One line for each setting.
    pub(super) lines: Vec<String>,
    /// Those that do not have their old value.
    pub(super) failed: usize,
}

/// A change that the journal tells of.
struct Step<'a> {
    name: &'a str,
    old: &'a str,
    ended: Ended<'a>,
}

/// How the journal says that it ended.
enum Ended<'a> {
    /// The value then was this.
    Did(&'a str),
    /// It was not taken.
    Refused,
    /// Not at all: the program was ended between the line and the next. The value may have been
    /// written or not, and the kernel may have made another one of it.
    Unknown,
}

/// Restores all values, the last change first, and removes the journal if that worked. Also what
/// only the journal announces is put back.
pub(super) fn undo(machine: &Machine, path: &Path) -> io::Result<Undone> {
    let mut undone = Undone::default();
    let Some(journal) = Journal::open(path)? else {
        let line = format!("nothing to undo: there is no {}", path.display());
        undone.lines.push(line);
        return Ok(undone);
    };
    if let Some(line) = belongs_elsewhere(machine, &journal.records)? {
        undone.lines.push(line);
        journal.finish()?;
        return Ok(undone);
    }
    let steps = steps(&journal.records);
    if steps.is_empty() {
        let line = "nothing to undo: the journal announces no change";
        undone.lines.push(line.to_owned());
    }
    for step in steps.iter().rev() {
        let (line, good) = restore(machine, step);
        undone.failed += usize::from(!good);
        undone.lines.push(format!("{}: {line}", step.name));
    }
    if undone.failed == 0 {
        journal.finish()?;
    } else {
        let line = format!("the journal is kept: {}", path.display());
        undone.lines.push(line);
    }
    Ok(undone)
}

/// `Some`: the changes ended with a restart. An error: they were made in another namespace.
fn belongs_elsewhere(machine: &Machine, records: &[Record]) -> io::Result<Option<String>> {
    let now = Record::began(machine);
    let (
        Some(Record::Began { boot, net, .. }),
        Record::Began {
            boot: boot_now,
            net: net_now,
            ..
        },
    ) = (records.first(), &now)
    else {
        return Ok(None);
    };
    if boot != boot_now {
        let line =
            "the machine was restarted since, which ended the changes; the journal is removed";
        return Ok(Some(line.to_owned()));
    }
    let of_network =
        |record: &Record| matches!(record, Record::Will { name, .. } if name.starts_with("net."));
    if net != net_now && records.iter().any(of_network) {
        let there = net.as_deref().unwrap_or("unknown");
        let text = format!(
            "the changes were made in another network namespace ({there}): undo them there"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(None)
}

/// The announced changes with their ends, in order.
fn steps(records: &[Record]) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for record in records {
        match record {
            Record::Began { .. } => {}
            Record::Will { name, old, .. } => steps.push(Step {
                name,
                old,
                ended: Ended::Unknown,
            }),
            Record::Did { name, now } => {
                if let Some(step) = steps.last_mut().filter(|step| step.name == name) {
                    step.ended = Ended::Did(now);
                }
            }
            Record::Refused { name, .. } => {
                if let Some(step) = steps.last_mut().filter(|step| step.name == name) {
                    step.ended = Ended::Refused;
                }
            }
        }
    }
    steps
}

/// What was done, in words, and whether the old value holds.
fn restore(machine: &Machine, step: &Step<'_>) -> (String, bool) {
    let shown = on_one_line(step.old);
    let present = match change::read(machine, step.name) {
        Ok(present) => present,
        Err(why) => return (format!("not restored: {why}"), false),
    };
    if present == step.old {
        return (format!("is {shown}"), true);
    }
    let ours = match step.ended {
        Ended::Did(now) => present == now,
        Ended::Refused => false,
        Ended::Unknown => true,
    };
    if !ours {
        let line = format!(
            "left at {}: somebody else has changed it since (it was {shown})",
            on_one_line(&present)
        );
        return (line, false);
    }
    if let Err(error) = change::write(machine, step.name, step.old) {
        return (format!("not restored to {shown}: {error}"), false);
    }
    match change::read(machine, step.name) {
        Ok(now) if now == step.old => (format!("{} → {shown}", on_one_line(&present)), true),
        Ok(now) => (
            format!("is {} although {shown} was written", on_one_line(&now)),
            false,
        ),
        Err(why) => (format!("written, but not read back: {why}"), false),
    }
}
