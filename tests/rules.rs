//! docs/rules.md says which files hold a rule of the families I, R and D by tests that name it; this
//! holds the page to it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Files below `dir` that end in `.rs`.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Families whose rules all have tests, and how many rules they have.
const FAMILIES: [(char, u32); 3] = [('i', 40), ('r', 22), ('d', 12)];

/// A rule: its family and number.
type Rule = (char, u32);

/// The rules that the name of a function names: `s2_i18_r4_upload` names I18 and R4.
fn rules_in(name: &str) -> impl Iterator<Item = Rule> + '_ {
    // A number at the end is no rule: `fn test_i1` says nothing.
    let words = name.rsplit_once('_').map_or("", |(rest, _)| rest);
    words.split('_').filter_map(|word| {
        let family = word.chars().next()?;
        let known = FAMILIES.iter().any(|(letter, _)| *letter == family);
        let number = word.get(1..).filter(|_| known)?;
        Some((family, number.parse().ok()?))
    })
}

/// Which files hold which rule.
fn held() -> BTreeMap<Rule, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for dir in ["src", "tests", "reactor/src", "reactor/tests"] {
        sources(&root.join(dir), &mut files);
    }
    let mut held: BTreeMap<Rule, BTreeSet<String>> = BTreeMap::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(root).unwrap().display().to_string();
        let names = text.split("fn ").skip(1).filter_map(|rest| {
            let name = rest.split(['(', '<']).next()?;
            (!name.contains(char::is_whitespace)).then_some(name)
        });
        for rule in names.flat_map(rules_in) {
            held.entry(rule).or_default().insert(file.clone());
        }
    }
    held
}

#[test]
fn names_are_read() {
    let read = |name| rules_in(name).collect::<Vec<_>>();
    assert_eq!(read("s2_i18_i24_a_steady_upload"), [('i', 18), ('i', 24)]);
    assert_eq!(read("i9_d12_a"), [('i', 9), ('d', 12)]);
    assert_eq!(read("is_io_i_x_s7_r6"), []);
}

#[test]
fn the_page_names_the_files_that_hold_each_rule() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules.md"))
        .unwrap();
    let held = held();
    let rules = FAMILIES
        .into_iter()
        .flat_map(|(family, last)| (1..=last).map(move |number| (family, number)));
    for rule in rules {
        let id = format!("{}{}", rule.0.to_ascii_uppercase(), rule.1);
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| {id} |")))
            .unwrap_or_else(|| panic!("{id} is not in docs/rules.md"));
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let said: BTreeSet<String> = cell
            .split(", ")
            .map(|f| f.trim_matches('`').to_owned())
            .collect();
        let found = held.get(&rule).cloned().unwrap_or_default();
        assert!(!found.is_empty(), "no test names {id}");
        let stale: Vec<_> = said.difference(&found).collect();
        assert!(
            stale.is_empty(),
            "{id}: no test names it in {stale:?}, but in {found:?}"
        );
    }
}
