//! `--emit`: files that set the values at every start, and one that puts them back.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::row::{on_one_line, Group, Means, Row, Verdict};
use crate::control::machine::Machine;
use crate::control::needs::{descriptors_to_ask_for, locked_to_ask_for, show_clients_and_source};
use crate::policy::demand::Demand;
use crate::policy::settings::EngineChoice;

/// For /etc/sysctl.d.
pub const SYSCTL: &str = "90-toron.conf";
/// The values before.
pub const UNDO: &str = "90-toron-undo.conf";
/// For the folder toron.service.d of systemd.
pub const UNIT: &str = "toron-limits.conf";

/// Writes the three files into `folder`; none of them may be there, as the values before would be
/// lost. `chosen` are the rows whose proposals are taken. Returns what was written.
pub(super) fn emit(
    folder: &Path,
    machine: &Machine,
    demand: &Demand,
    groups: &[Group],
    chosen: &[&Row],
) -> io::Result<Vec<PathBuf>> {
    let files = [
        (SYSCTL, sysctl(demand, groups, chosen)),
        (UNDO, undo(chosen)),
        (UNIT, unit(machine, demand, chosen)),
    ];
    fs::create_dir_all(folder)?;
    let paths = files.map(|(name, text)| (folder.join(name), text));
    if let Some((path, _)) = paths.iter().find(|(path, _)| path.exists()) {
        let text = format!(
            "{} is there already (remove it, or name another folder)",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    let mut written = Vec::new();
    for (path, text) in paths {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        file.write_all(text.as_bytes())?;
        written.push(path);
    }
    Ok(written)
}

/// A comment of lines up to the width of a page.
fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.len() > 1 && line.len() + 1 + word.len() > super::table::WIDTH {
            let _ = writeln!(text, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}

fn settable<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    let is_settable = |row: &&Row| row.means == Means::Sysctl && row.proposed.is_some();
    rows.iter().copied().filter(is_settable).collect()
}

fn sysctl(demand: &Demand, groups: &[Group], chosen: &[&Row]) -> String {
    let mut text = String::new();
    comment(
        &mut text,
        &format!(
            "Kernel settings for toron with {}, written by toron tune.",
            show_clients_and_source(demand)
        ),
    );
    comment(
        &mut text,
        &format!(
            "Copy to /etc/sysctl.d/ and run: sysctl --system. To go back: remove it there and run: \
             sysctl -p {UNDO}"
        ),
    );
    let chosen = settable(chosen);
    for row in &chosen {
        text.push('\n');
        comment(&mut text, &row.why);
        let value = row.proposed.as_deref().unwrap_or_default();
        let _ = writeln!(text, "{} = {value}", row.name);
    }
    let all: Vec<&Row> = groups.iter().flat_map(|group| &group.rows).collect();
    let to_consider = settable(&all);
    for row in to_consider
        .iter()
        .filter(|row| row.verdict == Verdict::Consider && !chosen.contains(row))
    {
        text.push('\n');
        comment(
            &mut text,
            &format!("To consider. {} Risk: {}", row.why, row.risk),
        );
        let value = row.proposed.as_deref().unwrap_or_default();
        let _ = writeln!(text, "# {} = {value}", row.name);
    }
    text
}

fn undo(chosen: &[&Row]) -> String {
    let mut text = String::new();
    comment(
        &mut text,
        &format!("The values before {SYSCTL}. Run: sysctl -p {UNDO}"),
    );
    for row in settable(chosen) {
        if let Ok(present) = &row.present {
            let _ = writeln!(text, "{} = {}", row.name, on_one_line(present));
        }
    }
    text
}

fn unit(machine: &Machine, demand: &Demand, chosen: &[&Row]) -> String {
    let cores = machine.cores().unwrap_or(1);
    let mut text = String::new();
    comment(
        &mut text,
        &format!(
            "Limits of the service for toron with {}, written by toron tune. Copy to \
             /etc/systemd/system/toron.service.d/ and run: systemctl daemon-reload",
            show_clients_and_source(demand)
        ),
    );
    text.push_str("[Service]\n");
    comment(
        &mut text,
        "Descriptors: connections on both sides, and pipes.",
    );
    let descriptors = descriptors_to_ask_for(demand, cores);
    let _ = writeln!(text, "LimitNOFILE={descriptors}");
    if demand.engine == EngineChoice::Epoll {
        comment(
            &mut text,
            "No LimitMEMLOCK: the engine is epoll, which locks no memory.",
        );
    } else {
        comment(
            &mut text,
            "Locked memory in bytes: the rings of io_uring, twice over.",
        );
        let _ = writeln!(text, "LimitMEMLOCK={}", locked_to_ask_for(demand, cores));
    }
    for (name, key) in [
        ("limit nproc", "LimitNPROC"),
        ("cgroup pids.max", "TasksMax"),
    ] {
        let row = chosen.iter().find(|row| row.name == name);
        if let Some(proposed) = row.and_then(|row| row.proposed.as_deref()) {
            comment(&mut text, "Threads.");
            let _ = writeln!(text, "{key}={proposed}");
        }
    }
    affinity(&mut text, machine);
    text
}

/// On a machine of several nodes, the processors of the node of its first network card.
fn affinity(text: &mut String, machine: &Machine) {
    let nodes = machine.value("/sys/devices/system/node/online");
    if !nodes.as_deref().is_ok_and(|nodes| nodes != "0") {
        comment(
            text,
            "No CPUAffinity: the processors are all equally near to memory and network cards.",
        );
        return;
    }
    let cards = machine.names_in("/sys/class/net").unwrap_or_default();
    let near = cards.iter().find_map(|card| {
        let node = machine
            .number_in(&format!("/sys/class/net/{card}/device/numa_node"))
            .ok()?;
        let list = machine.value(&format!("/sys/devices/system/node/node{node}/cpulist"));
        Some((card, list.ok()?))
    });
    match near {
        Some((card, list)) => {
            comment(text, &format!("The processors of the node of {card}."));
            let _ = writeln!(text, "CPUAffinity={list}");
        }
        None => comment(
            text,
            "No CPUAffinity: there are several nodes, but none is known to be a card's.",
        ),
    }
}
