//! One setting that is changed to and fro. It is in the journal, with its old value, before it is
//! changed for the first time; so whatever ends the program, `--undo` restores it.

use std::io;

use crate::control::machine::Machine;
use crate::tune::apply::{self, Set};
use crate::tune::change::{self, Change};
use crate::tune::journal::Journal;
use crate::tune::row::on_one_line;

/// A setting under trial. It has its old value again when this is dropped, unless it is kept.
#[derive(Debug)]
pub struct Trial<'a> {
    machine: &'a Machine,
    name: &'a str,
    /// Its bytes before.
    old: String,
    /// What is written to change it.
    wanted: &'a str,
    /// What the kernel makes of that.
    new: String,
    is_new: bool,
    kept: bool,
}

impl<'a> Trial<'a> {
    /// Announces the change in the journal, makes it, and takes it back: so it is known that both
    /// work. The inner error says why it cannot be tried.
    pub(in crate::tune) fn begin(
        machine: &'a Machine,
        change: &'a Change,
        journal: &mut Journal,
    ) -> io::Result<Result<Self, String>> {
        let (old, new) = match apply::set(machine, change, journal)? {
            Set::Changed { old, now } => (old, now),
            Set::Already(value) => {
                return Ok(Err(format!("is {} already", on_one_line(&value))));
            }
            Set::Failed(why) => return Ok(Err(why)),
        };
        let mut trial = Trial {
            machine,
            name: &change.name,
            old,
            wanted: &change.value,
            new,
            is_new: true,
            kept: false,
        };
        Ok(trial.set(false).map(|()| trial))
    }

    /// Changes it to the new value, or back. An error: somebody else has changed it meanwhile, or
    /// the kernel does not take it.
    pub fn set(&mut self, new: bool) -> Result<(), String> {
        let present = change::read(self.machine, self.name)?;
        let [expected, written, wanted]: [&str; 3] = match (self.is_new, new) {
            (true, true) => return self.check(&present, &self.new),
            (false, false) => return self.check(&present, &self.old),
            (false, true) => [&self.old, self.wanted, &self.new],
            (true, false) => [&self.new, &self.old, &self.old],
        };
        self.check(&present, expected)?;
        if let Err(error) = change::write(self.machine, self.name, written) {
            // A list is taken number by number, up to the one that is refused.
            let _ = change::write(self.machine, self.name, expected);
            return Err(format!("refused by the kernel: {error}"));
        }
        let now = change::read(self.machine, self.name)?;
        self.check(&now, wanted)?;
        self.is_new = new;
        Ok(())
    }

    fn check(&self, present: &str, expected: &str) -> Result<(), String> {
        if present == expected {
            return Ok(());
        }
        Err(format!(
            "{} is {} now, not {}: somebody else has changed it meanwhile",
            self.name,
            on_one_line(present),
            on_one_line(expected)
        ))
    }

    /// What the kernel made of the new value, if that is not what was asked for.
    #[must_use]
    pub fn made_of_it(&self) -> Option<String> {
        let [new, wanted] = [&self.new, self.wanted].map(on_one_line);
        (new != wanted).then_some(new)
    }

    /// Leaves the new value.
    pub fn keep(mut self) -> Result<(), String> {
        self.set(true)?;
        self.kept = true;
        Ok(())
    }

    /// Ends with the old value.
    pub fn give_up(mut self) -> Result<(), String> {
        self.set(false)
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if !self.is_new || self.kept {
            return;
        }
        if let Err(why) = self.set(false) {
            eprintln!("toron: {}: not restored: {why}", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;
    use crate::tune::undo::undo;

    struct Rig {
        dir: tempfile::TempDir,
        machine: Machine,
        change: Change,
    }

    fn rig() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/sys/a")).unwrap();
        fs::write(dir.path().join("proc/sys/a/b"), "1\t2\n").unwrap();
        Rig {
            machine: Machine::at(dir.path()),
            change: Change {
                name: "a.b".to_owned(),
                value: "3 4".to_owned(),
            },
            dir,
        }
    }

    impl Rig {
        fn now(&self) -> String {
            fs::read_to_string(self.dir.path().join("proc/sys/a/b")).unwrap()
        }

        fn journal(&self) -> Journal {
            Journal::open_or_begin(&self.dir.path().join("journal"), &self.machine).unwrap()
        }

        fn begin<'a>(&'a self, journal: &mut Journal) -> Trial<'a> {
            let begun = Trial::begin(&self.machine, &self.change, journal);
            begun.unwrap().unwrap()
        }
    }

    #[test]
    fn it_goes_to_and_fro_and_ends_as_it_was() {
        let rig = rig();
        let mut journal = rig.journal();
        let mut trial = rig.begin(&mut journal);
        assert_eq!(rig.now(), "1\t2\n");
        for new in [true, true, false, false, true] {
            trial.set(new).unwrap();
            assert_eq!(rig.now(), if new { "3 4" } else { "1\t2\n" });
        }
        assert_eq!(trial.made_of_it(), None);
        drop(trial);
        assert_eq!(rig.now(), "1\t2\n");
        let kept = rig.begin(&mut journal);
        kept.keep().unwrap();
        assert_eq!(rig.now(), "3 4");
    }

    /// Killed with either value, the journal knows the old one.
    #[test]
    fn the_journal_restores_it_at_any_moment() {
        for new in [false, true] {
            let rig = rig();
            let mut journal = rig.journal();
            let mut trial = rig.begin(&mut journal);
            for step in [true, false, new] {
                trial.set(step).unwrap();
            }
            std::mem::forget(trial);
            drop(journal);
            let undone = undo(&rig.machine, &rig.dir.path().join("journal")).unwrap();
            assert_eq!(undone.failed, 0, "{undone:?}");
            assert_eq!(rig.now(), "1\t2\n");
        }
    }

    #[test]
    fn what_somebody_else_sets_is_left_alone() {
        let rig = rig();
        let mut journal = rig.journal();
        let mut trial = rig.begin(&mut journal);
        trial.set(true).unwrap();
        fs::write(rig.dir.path().join("proc/sys/a/b"), "7\n").unwrap();
        for new in [true, false] {
            let error = trial.set(new).unwrap_err();
            assert!(error.contains("is 7 now, not 3 4"), "{error}");
        }
        drop(trial);
        assert_eq!(rig.now(), "7\n");
    }

    #[test]
    fn what_cannot_be_tried_says_why() {
        let rig = rig();
        fs::write(rig.dir.path().join("proc/sys/a/b"), "3\t4\n").unwrap();
        let mut journal = rig.journal();
        let why = Trial::begin(&rig.machine, &rig.change, &mut journal).unwrap();
        assert_eq!(why.unwrap_err(), "is 3 4 already");
        fs::remove_file(rig.dir.path().join("proc/sys/a/b")).unwrap();
        let why = Trial::begin(&rig.machine, &rig.change, &mut journal).unwrap();
        assert!(why.unwrap_err().contains("not there"));
        assert!(!journal.announces());
    }
}
