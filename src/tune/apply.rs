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
        let (line, good) = set(machine, change, &mut journal)?.told(&change.value);
        applied.failed += usize::from(!good);
        applied.lines.push(format!("{}: {line}", change.name));
    }
    // Nothing was written: nothing to restore.
    if !journal.announces() {
        journal.finish()?;
    }
    Ok(applied)
}

/// The journal to go on with. One from before a restart of the machine is begun anew.
pub(super) fn begin(machine: &Machine, path: &Path) -> io::Result<Journal> {
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

/// What became of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Set {
    /// Nothing was written: the value is there already.
    Already(String),
    /// It was written; its bytes before, and as read back.
    Changed { old: String, now: String },
    /// It is as it was, or nobody knows, for a reason in words.
    Failed(String),
}

impl Set {
    /// What happened, in words, and whether the wanted value holds.
    fn told(&self, wanted: &str) -> (String, bool) {
        match self {
            Set::Already(value) => (format!("is {} already", on_one_line(value)), true),
            Set::Failed(why) => (why.clone(), false),
            Set::Changed { old, now } => {
                let [old, now, wanted] = [old, now, wanted].map(on_one_line);
                match now == wanted {
                    true => (format!("{old} → {now}"), true),
                    false => (
                        format!("{old} → {now}: the kernel made that of {wanted}"),
                        false,
                    ),
                }
            }
        }
    }
}

/// Sets a value, announced in the journal before and noted there after.
pub(super) fn set(machine: &Machine, change: &Change, journal: &mut Journal) -> io::Result<Set> {
    let name = &change.name;
    let old = match change::read(machine, name) {
        Ok(old) => old,
        Err(why) => return Ok(Set::Failed(format!("left alone: {why}"))),
    };
    if on_one_line(&old) == on_one_line(&change.value) {
        return Ok(Set::Already(old));
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
        return Ok(Set::Failed(format!("refused by the kernel: {error}")));
    }
    let now = match now {
        Ok(now) => now,
        Err(why) => return Ok(Set::Failed(format!("written, but not read back: {why}"))),
    };
    journal.add(Record::Did {
        name: name.clone(),
        now: now.clone(),
    })?;
    Ok(Set::Changed { old, now })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::Command;

    use super::*;

    fn change(name: &str, value: &str) -> [Change; 1] {
        [Change {
            name: name.to_owned(),
            value: value.to_owned(),
        }]
    }

    /// The kernel rounds the largest pipe up to a power of two, here to what it is already: so the
    /// value of the whole machine does not change.
    #[test]
    fn a_value_that_the_kernel_changes_or_refuses_is_reported() {
        const NAME: &str = "fs.pipe-max-size";
        let machine = Machine::here();
        let before = change::read(&machine, NAME).unwrap();
        let less = before.trim().parse::<u64>().unwrap() - 1;
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal");
        let applied = apply(&machine, &change(NAME, &less.to_string()), &journal).unwrap();
        assert_eq!(change::read(&machine, NAME).unwrap(), before);
        assert_eq!((applied.failed, applied.lines.len()), (1, 1));
        let line = &applied.lines[0];
        let changed = line.ends_with(&format!("the kernel made that of {less}"));
        // An ordinary user, or a container.
        let refused = line.contains("refused by the kernel: ");
        let writable = std::fs::OpenOptions::new()
            .write(true)
            .open("/proc/sys/fs/pipe-max-size")
            .is_ok();
        assert_eq!((changed, refused), (writable, !writable), "{line}");
        let records = Journal::open(&journal).unwrap().unwrap().records;
        assert_eq!(records.len(), 3);
    }

    #[test]
    fn a_value_that_holds_already_leaves_no_journal() {
        const NAME: &str = "fs.pipe-max-size";
        let machine = Machine::here();
        let value = change::read(&machine, NAME).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal");
        let applied = apply(&machine, &change(NAME, value.trim()), &journal).unwrap();
        assert_eq!(applied.failed, 0);
        assert!(applied.lines[0].contains("already"));
        assert!(!journal.exists());
        let applied = apply(&machine, &change("net.none.such", "1"), &journal).unwrap();
        assert_eq!(applied.failed, 1);
        assert!(applied.lines[0].contains("left alone: "));
    }

    /// Runs the next test in a network namespace of its own.
    #[test]
    fn a_list_that_is_refused_in_the_middle_is_as_it_was() {
        let mut command = Command::new("unshare");
        command
            .args(["-r", "-n"])
            .arg(std::env::current_exe().unwrap());
        command.args(["--exact", "tune::apply::tests::in_a_namespace", "--ignored"]);
        let host = std::fs::read_link("/proc/self/ns/net").unwrap();
        let output = command.env("TORON_TEST_HOST_NET", host).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}"
        );
    }

    #[test]
    #[ignore = "changes kernel settings: run by a_list_that_is_refused_in_the_middle_is_as_it_was"]
    fn in_a_namespace() {
        let host = std::env::var_os("TORON_TEST_HOST_NET").unwrap();
        assert_ne!(std::fs::read_link("/proc/self/ns/net").unwrap(), host);
        const NAME: &str = "net.ipv4.tcp_wmem";
        let machine = Machine::here();
        let before = change::read(&machine, NAME).unwrap();
        // The kernel itself sets the first number and refuses the second.
        change::write(&machine, NAME, "5000 0 70000").unwrap_err();
        assert_ne!(change::read(&machine, NAME).unwrap(), before);
        change::write(&machine, NAME, &before).unwrap();

        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal");
        let applied = apply(&machine, &change(NAME, "5000 0 70000"), &journal).unwrap();
        assert!(
            applied.lines[0].contains("refused by the kernel"),
            "{applied:?}"
        );
        assert_eq!(change::read(&machine, NAME).unwrap(), before);
    }
}
