//! Kernel settings that are to be changed, and how one is read and written.

use std::fs::OpenOptions;
use std::io::{self, Write};

use super::row::{Group, Means, Row, Verdict};
use crate::control::machine::{sysctl_path, Known, Machine};

/// One kernel setting and the value it is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// Dotted name.
    pub(super) name: String,
    /// The new value.
    pub(super) value: String,
}

/// Rows whose proposal is taken: all that are missing or better, or just those named, whatever
/// their verdict. An error names what `only` names in vain.
pub(super) fn chosen<'a>(groups: &'a [Group], only: &[String]) -> Result<Vec<&'a Row>, String> {
    let rows = || groups.iter().flat_map(|group| &group.rows);
    if only.is_empty() {
        let wanted = |row: &&Row| matches!(row.verdict, Verdict::Missing | Verdict::Better);
        return Ok(rows().filter(wanted).collect());
    }
    let find = |name: &String| {
        let row = rows().find(|row| row.name == *name);
        match row {
            None => Err(format!("--only {name}: the audit has no such setting")),
            Some(row) if row.proposed.is_none() => {
                Err(format!("--only {name}: nothing is proposed for it"))
            }
            Some(row) => Ok(row),
        }
    };
    only.iter().map(find).collect()
}

/// Rows with a proposal, also those that are only to be considered.
pub(super) fn proposed(groups: &[Group]) -> Vec<&Row> {
    let rows = groups.iter().flat_map(|group| &group.rows);
    rows.filter(|row| row.proposed.is_some()).collect()
}

/// The kernel settings among them.
pub(super) fn sysctls(rows: &[&Row]) -> Vec<Change> {
    let settable = rows.iter().filter(|row| row.means == Means::Sysctl);
    settable
        .filter_map(|row| {
            Some(Change {
                name: row.name.clone(),
                value: row.proposed.clone()?,
            })
        })
        .collect()
}

/// The bytes of a setting as they stand.
pub(super) fn read(machine: &Machine, name: &str) -> Known<String> {
    machine.text(&sysctl_path(name))
}

/// Writes a setting in one go. Never makes a file.
pub(super) fn write(machine: &Machine, name: &str, value: &str) -> io::Result<()> {
    let path = machine.path(&sysctl_path(name));
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(value.as_bytes())
}
