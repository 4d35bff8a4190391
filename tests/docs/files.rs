//! Links of the documents, and what `make install` puts where.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::root;

/// Headings as GitHub names them in links.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let pages = [
        "README.md",
        "docs/configuration.md",
        "docs/operations.md",
        "docs/performance.md",
        "docs/rules.md",
        "docs/tune.md",
    ];
    let followed: usize = pages.iter().map(|page| follow(&root().join(page))).sum();
    assert!(followed > 15, "only {followed} links were found");
}

/// Follows the links of a page to files and headings; how many there were.
fn follow(page: &Path) -> usize {
    let text = std::fs::read_to_string(page).unwrap();
    let mut followed = 0;
    for link in text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
    {
        if link.starts_with("http") {
            continue;
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = match path {
            "" => page.to_owned(),
            path => page.parent().unwrap().join(path),
        };
        assert!(target.exists(), "{}: {link}", page.display());
        if !anchor.is_empty() {
            let headings = anchors(&std::fs::read_to_string(&target).unwrap());
            let found = headings.iter().any(|h| h == anchor);
            assert!(found, "{}: {link}: {headings:?}", page.display());
        }
        followed += 1;
    }
    followed
}

/// All files below a folder, relative to it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn make_install_puts_what_the_document_says() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("make")
        .arg("install")
        .arg("PREFIX=/usr")
        .arg(format!("DESTDIR={}", folder.path().display()))
        .arg(format!("BINARY={}", env!("CARGO_BIN_EXE_toron")))
        .current_dir(root())
        .env_remove("MAKEFLAGS")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let pages = ["bench", "configuration", "operations", "rules", "tune"];
    let doc = PathBuf::from("usr/share/doc/toron");
    let mut expected = vec![
        PathBuf::from("usr/bin/toron"),
        PathBuf::from("usr/lib/systemd/system/toron.service"),
        doc.join("configs/systemd/toron.service"),
    ];
    expected.extend(pages.map(|page| doc.join(format!("docs/{page}.md"))));
    for part in [
        "discovery",
        "example",
        "firewall",
        "logrotate",
        "recipes",
        "tune",
    ] {
        let part = Path::new("configs").join(part);
        let there = files(&root().join(&part)).into_iter();
        expected.extend(there.map(|file| doc.join(&part).join(file)));
    }
    expected.sort();
    assert_eq!(files(folder.path()), expected);
    let doc = folder.path().join(doc);
    let followed = pages.map(|page| follow(&doc.join(format!("docs/{page}.md"))));
    assert!(followed.iter().sum::<usize>() > 10, "{followed:?}");
    let unit = folder.path().join("usr/lib/systemd/system/toron.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    assert!(unit.contains("\nExecStart=/usr/bin/toron serve -c /etc/toron/config.yaml\n"));
    assert!(!unit.contains("@BINDIR@"), "{unit}");
    let binary = folder.path().join("usr/bin/toron");
    assert!(Command::new(binary)
        .arg("--version")
        .output()
        .unwrap()
        .status
        .success());
}
