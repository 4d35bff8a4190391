//! `--apply`: each value noted, written, read back.

use std::io;
use std::path::Path;

use super::change::{self, Change};
use super::journal::{Journal, Record};
use super::row::on_one_line;
use crate::control::machine::Machine;

/// What became of the changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Applied {
    /// One line for each change.
    pub(super) lines: Vec<String>,
    /// Those that did not get their value.
    pub(super) failed: usize,
}

/// Sets the values in turn. An error is one of the journal, without which nothing is changed.
pub(super) fn apply(machine: &Machine, changes: &[Change], journal: &Path) -> io::Result<Applied> {
    let mut journal = begin(machine, journal)?;
    let mut applied = Applied::default();
    for change in changes {
        let (line, good) = set(machine, change, &mut journal)?;
        applied.failed += usize::from(!good);
        applied.lines.push(format!("{}: {line}", change.name));
    }
    // Nothing was written: nothing to restore.
    if !journal
        .records
        .iter()
        .any(|r| matches!(r, Record::Will { .. }))
    {
        journal.finish()?;
    }
    Ok(applied)
}

/// The journal to go on with. One from before a restart of the machine is begun anew.
fn begin(machine: &Machine, path: &Path) -> io::Result<Journal> {
    let mut journal = Journal::open_or_begin(path, machine)?;
    let now = Record::began(machine);
    match (journal.records.first(), &now) {
        (
            Some(Record::Began { boot, net, .. }),
            Record::Began {
                boot: boot_now,
                net: net_now,
                ..
            },
        ) => {
            if boot != boot_now {
                journal.begin_anew(machine)?;
            } else if net != net_now {
                let text = "the journal is of another network namespace (undo it there, or name \
                            another one with --journal)";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        }
        _ => journal.begin_anew(machine)?,
    }
    Ok(journal)
}

/// What happened, in words, and whether the value holds.
fn set(machine: &Machine, change: &Change, journal: &mut Journal) -> io::Result<(String, bool)> {
    let name = &change.name;
    let old = match change::read(machine, name) {
        Ok(old) => old,
        Err(why) => return Ok((format!("left alone: {why}"), false)),
    };
    if on_one_line(&old) == on_one_line(&change.value) {
        return Ok((format!("is {} already", on_one_line(&old)), true));
    }
    journal.add(Record::Will {
        name: name.clone(),
        old: old.clone(),
        new: change.value.clone(),
    })?;
    let written = change::write(machine, name, &change.value);
    let now = change::read(machine, name);
    if let Err(error) = written {
        // The kernel takes a list of numbers one by one: those before the bad one are set.
        if now.as_ref() != Ok(&old) {
            let _ = change::write(machine, name, &old);
        }
        journal.add(Record::Refused {
            name: name.clone(),
            why: error.to_string(),
        })?;
        return Ok((format!("refused by the kernel: {error}"), false));
    }
    let now = match now {
        Ok(now) => now,
        Err(why) => return Ok((format!("written, but not read back: {why}"), false)),
    };
    journal.add(Record::Did {
        name: name.clone(),
        now: now.clone(),
    })?;
    let (old, now, wanted) = (
        on_one_line(&old),
        on_one_line(&now),
        on_one_line(&change.value),
    );
    if now == wanted {
        Ok((format!("{old} → {now}"), true))
    } else {
        Ok((
            format!("{old} → {now}: the kernel made that of {wanted}"),
            false,
        ))
    }
}
