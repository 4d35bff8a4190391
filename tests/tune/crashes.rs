//! The program ended at any moment of `--apply` or `--undo`: what the journal holds is enough.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::changes::ailing;
use crate::tree::Tree;

/// The lines of the journal of a whole `--apply`.
fn journal_of(tree: &Tree) -> Vec<u8> {
    assert_eq!(tree.run(&["--apply", "--yes"]).code, Some(0));
    std::fs::read(tree.journal()).unwrap()
}

fn member<'a>(line: &'a serde_json::Value, kind: &str, key: &str) -> Option<&'a str> {
    line.get(kind)?.get(key)?.as_str()
}

/// Brings a fresh machine into the state that it has when the journal ends after `kept` bytes:
/// every value that was written before that. `last_written`: whether the value announced by a last
/// whole line was written.
fn crashed(journal: &[u8], kept: usize, last_written: bool) -> Tree {
    let tree = ailing();
    let kept_bytes = &journal[..kept];
    let whole = kept_bytes
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    let lines: Vec<serde_json::Value> = kept_bytes[..whole]
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    for (index, line) in lines.iter().enumerate() {
        let is_last = index + 1 == lines.len() && whole == kept;
        if let Some(name) = member(line, "will", "name") {
            if !is_last || last_written {
                tree.set(name, member(line, "will", "new").unwrap());
            }
        }
    }
    std::fs::write(tree.journal(), kept_bytes).unwrap();
    tree
}

/// The files of a machine by their paths on it.
fn relative(tree: &Tree) -> BTreeMap<PathBuf, Vec<u8>> {
    let root = tree.root();
    let strip = |path: PathBuf| path.strip_prefix(&root).unwrap().to_owned();
    let files = tree.snapshot().into_iter();
    files.map(|(path, bytes)| (strip(path), bytes)).collect()
}

#[test]
fn a_journal_that_ends_after_any_line_is_understood() {
    let journal = journal_of(&ailing());
    let healthy = ailing();
    let wanted = relative(&healthy);
    let ends = journal.iter().enumerate().filter(|(_, b)| **b == b'\n');
    let ends: Vec<usize> = ends.map(|(at, _)| at + 1).collect();
    // The first line, and two for each of five changes.
    assert_eq!(ends.len(), 11);
    for end in std::iter::once(0).chain(ends) {
        for last_written in [false, true] {
            let tree = crashed(&journal, end, last_written);
            let said = tree.run(&["--undo", "--yes"]);
            assert_eq!(said.code, Some(0), "{end} {last_written}: {said:?}");
            assert!(relative(&tree) == wanted, "{end} {last_written}: {said:?}");
            assert!(!tree.journal().exists());
        }
    }
}

/// A line cut anywhere: its step had not begun.
#[test]
fn a_journal_that_ends_inside_a_line_is_understood() {
    let journal = journal_of(&ailing());
    let ends = journal.iter().enumerate().filter(|(_, b)| **b == b'\n');
    let ends: Vec<usize> = ends.map(|(at, _)| at + 1).collect();
    // Lines 2 and 3: the first change announced, and made. A few places in each.
    for (start, end) in [(0, ends[0]), (ends[0], ends[1]), (ends[1], ends[2])] {
        for kept in [start + 1, (start + end) / 2, end - 1] {
            let tree = crashed(&journal, kept, true);
            let said = tree.run(&["--undo", "--yes"]);
            assert_eq!(said.code, Some(0), "{kept}: {said:?}");
            assert_eq!(tree.sysctl("net.core.somaxconn"), "128\n", "{kept}");
        }
    }
}

/// After a crash `--apply` goes on, and `--undo` still finds the first values.
#[test]
fn an_apply_after_a_crash_is_undone_as_well() {
    let journal = journal_of(&ailing());
    let ends = journal.iter().enumerate().filter(|(_, b)| **b == b'\n');
    let ends: Vec<usize> = ends.map(|(at, _)| at + 1).collect();
    for kept in [ends[0] + 5, ends[1], ends[1] + 9, ends[2]] {
        for last_written in [false, true] {
            let tree = crashed(&journal, kept, last_written);
            let said = tree.run(&["--apply", "--yes"]);
            assert_eq!(said.code, Some(0), "{kept}: {said:?}");
            assert_eq!(tree.sysctl("net.core.somaxconn").trim(), "4096");
            let said = tree.run(&["--undo", "--yes"]);
            assert_eq!(said.code, Some(0), "{kept}: {said:?}");
            assert_eq!(tree.sysctl("net.core.somaxconn"), "128\n");
            assert_eq!(
                tree.sysctl("net.ipv4.ip_local_port_range"),
                "50902\t61000\n"
            );
            assert_eq!(tree.sysctl("net.ipv4.tcp_syncookies"), "0\n");
        }
    }
}

/// A real crash: the program is killed while it writes a line of the journal, at different lines and
/// places, because the file may not grow beyond 1 KiB. A value that was not announced by a whole
/// line has not been written, and all are restored.
#[test]
fn whoever_is_killed_at_the_journal_has_announced_what_was_changed() {
    let (mut killed, mut torn) = (0, 0);
    for pad in (0..1000).step_by(53) {
        let tree = ailing();
        // Bytes that make the journal longer: the old value is noted as it stands.
        tree.set("net.core.somaxconn", &format!("128{}\n", " ".repeat(pad)));
        let before = tree.snapshot();
        let said = tree.run_with_files_up_to(1, &["--apply", "--yes"]);
        let journal = std::fs::read_to_string(tree.journal()).unwrap();
        if said.code.is_none() {
            killed += 1;
            assert_eq!(journal.len(), 1024);
            torn += usize::from(!journal.ends_with('\n'));
        }
        let whole = journal.rfind('\n').map_or("", |at| &journal[..at]);
        for (path, bytes) in &tree.snapshot() {
            let name = path.file_name().unwrap().to_str().unwrap();
            let announced = whole
                .lines()
                .any(|line| line.starts_with("{\"will\"") && line.contains(&format!(".{name}\"")));
            assert!(announced || before[path] == *bytes, "{pad}: {name}");
        }
        let said = tree.run(&["--undo", "--yes"]);
        assert_eq!(said.code, Some(0), "{pad}: {said:?}");
        assert!(tree.snapshot() == before, "{pad}");
    }
    assert!(killed >= 10 && torn >= 8, "{killed} killed, {torn} torn");
}

/// An `--undo` that ended in the middle is done again.
#[test]
fn an_undo_is_repeated_after_a_crash() {
    let tree = ailing();
    let before = tree.snapshot();
    let journal = journal_of(&tree);
    let applied = tree.snapshot();
    let changed: Vec<_> = before
        .keys()
        .filter(|path| applied[*path] != before[*path])
        .collect();
    // Undone so far: the last ones.
    for undone in 0..=changed.len() {
        for (index, path) in changed.iter().rev().enumerate() {
            let bytes = if index < undone {
                &before[*path]
            } else {
                &applied[*path]
            };
            std::fs::write(path, bytes).unwrap();
        }
        std::fs::write(tree.journal(), &journal).unwrap();
        let said = tree.run(&["--undo", "--yes"]);
        assert_eq!(said.code, Some(0), "{undone}: {said:?}");
        assert!(tree.snapshot() == before, "{undone}");
    }
}

#[test]
fn a_damaged_journal_is_told_and_nothing_is_done() {
    let tree = ailing();
    let mut journal = journal_of(&tree);
    let applied = tree.snapshot();
    journal[2] = b'x';
    std::fs::write(tree.journal(), &journal).unwrap();
    for arguments in [["--undo", "--yes"], ["--undo", "-y"]] {
        let said = tree.run(&arguments);
        assert_eq!(said.code, Some(1));
        assert!(
            said.err.contains("the journal is damaged in line 1"),
            "{}",
            said.err
        );
    }
    assert!(tree.snapshot() == applied);
    assert_eq!(std::fs::read(tree.journal()).unwrap(), journal);
}
