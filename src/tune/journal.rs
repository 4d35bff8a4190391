//! The journal of changes: a line for each step, on the disk before the step is taken.
//!
//! ```text
//! {"began":{"format":1,"boot":"…","net":"net:[4026531840]"}}
//! {"will":{"name":"net.core.somaxconn","old":"128\n","new":"4096"}}      then the value is written
//! {"did":{"name":"net.core.somaxconn","now":"4096\n"}}                   as read back
//! {"refused":{"name":"fs.nr_open","why":"…"}}                            instead of did
//! ```
//!
//! A last line without its end was never followed by its step, because each line is synchronised
//! first: it is ignored, and cut off before more is added.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{flock, FlockOperation};
use serde::{Deserialize, Serialize};

use crate::control::machine::Machine;

const FORMAT: u32 = 1;

/// One line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Record {
    /// Always the first.
    Began {
        /// Version of this format.
        format: u32,
        /// /proc/sys/kernel/random/boot_id: values set at run time end with a restart.
        boot: Option<String>,
        /// The network namespace whose settings these are.
        net: Option<String>,
    },
    /// The value is written next.
    Will {
        /// Dotted name.
        name: String,
        /// Its bytes before.
        old: String,
        /// What is written.
        new: String,
    },
    /// It was written.
    Did {
        /// Dotted name.
        name: String,
        /// Its bytes as read back.
        now: String,
    },
    /// The kernel did not take it.
    Refused {
        /// Dotted name.
        name: String,
        /// Its words.
        why: String,
    },
}

impl Record {
    /// The first record of a journal for `machine`.
    #[must_use]
    pub fn began(machine: &Machine) -> Self {
        let net = fs::read_link(machine.path("/proc/self/ns/net"));
        Record::Began {
            format: FORMAT,
            boot: machine.sysctl("kernel.random.boot_id").ok(),
            net: net.ok().map(|link| link.display().to_string()),
        }
    }
}

/// A journal that nobody else uses meanwhile.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// What was in it when it was opened.
    pub records: Vec<Record>,
}

impl Journal {
    /// Opens the journal, or begins one.
    pub fn open_or_begin(path: &Path, machine: &Machine) -> io::Result<Self> {
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let mut journal = Self::from_file(path, file)?;
        if journal.records.is_empty() {
            journal.add(Record::began(machine))?;
            sync_folder(path)?;
        }
        Ok(journal)
    }

    /// Opens the journal; `None` if there is none.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => Self::from_file(path, file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn from_file(path: &Path, mut file: File) -> io::Result<Self> {
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            match io::Error::from(error) {
                held if held.kind() == io::ErrorKind::WouldBlock => {
                    io::Error::new(held.kind(), "another toron tune is using the journal")
                }
                other => other,
            }
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (records, whole) =
            parse(&bytes).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Journal {
            path: path.to_owned(),
            file,
            records,
        })
    }

    /// Adds a line; it is on the disk when this returns.
    pub fn add(&mut self, record: Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_all()?;
        self.records.push(record);
        Ok(())
    }

    /// Whether any change was announced.
    #[must_use]
    pub fn announces(&self) -> bool {
        let is_will = |record: &Record| matches!(record, Record::Will { .. });
        self.records.iter().any(is_will)
    }

    /// Forgets what is in it.
    pub fn begin_anew(&mut self, machine: &Machine) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.records.clear();
        self.add(Record::began(machine))
    }

    /// Removes the file: nothing is left to restore.
    pub fn finish(self) -> io::Result<()> {
        fs::remove_file(&self.path)?;
        sync_folder(&self.path)
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The records, and how many bytes the whole lines take.
fn parse(bytes: &[u8]) -> Result<(Vec<Record>, usize), String> {
    let whole = bytes
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    let lines = bytes.get(..whole).unwrap_or_default();
    let mut records = Vec::new();
    for (index, line) in lines.split_inclusive(|b| *b == b'\n').enumerate() {
        let record: Record = serde_json::from_slice(line)
            .map_err(|error| format!("the journal is damaged in line {}: {error}", index + 1))?;
        records.push(record);
    }
    match records.first() {
        None | Some(Record::Began { format: FORMAT, .. }) => Ok((records, whole)),
        Some(_) => Err("the journal is not one that this version of toron writes".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn machine(dir: &Path) -> Machine {
        Machine::at(dir)
    }

    fn will(old: &str) -> Record {
        Record::Will {
            name: "a.b".to_owned(),
            old: old.to_owned(),
            new: "2".to_owned(),
        }
    }

    #[test]
    fn a_line_without_its_end_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/journal");
        let machine = machine(dir.path());
        let mut journal = Journal::open_or_begin(&path, &machine).unwrap();
        journal.add(will("1\t2\n")).unwrap();
        drop(journal);
        let whole = fs::read(&path).unwrap();
        let second = whole.iter().position(|b| *b == b'\n').unwrap() + 1;
        for end in 0..=whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            let mut journal = Journal::open_or_begin(&path, &machine).unwrap();
            let count = if end == whole.len() { 2 } else { 1 };
            assert_eq!(journal.records.len(), count, "cut at {end}");
            journal.add(will("9")).unwrap();
            drop(journal);
            let kept = if end == whole.len() { end } else { second };
            assert_eq!(fs::read(&path).unwrap()[..kept], whole[..kept]);
            let again = Journal::open(&path).unwrap().unwrap();
            assert_eq!(again.records.len(), count + 1);
        }
    }

    #[test]
    fn damage_elsewhere_is_told_and_nothing_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        for text in [
            "nonsense\n",
            "{\"did\":{\"name\":\"a\",\"now\":\"1\"}}\n",
            "{}\n",
        ] {
            fs::write(&path, text).unwrap();
            let error = Journal::open(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn only_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let machine = machine(dir.path());
        let held = Journal::open_or_begin(&path, &machine).unwrap();
        assert!(Journal::open(&path).is_err());
        held.finish().unwrap();
        assert!(Journal::open(&path).unwrap().is_none());
    }
}
