//! Links of the documents, and what `make install` puts where.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{read, root};

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
    let mut followed = 0;
    for file in [
        "README.md",
        "docs/configuration.md",
        "docs/operations.md",
        "docs/performance.md",
        "docs/rules.md",
    ] {
        let text = read(file);
        let folder = root().join(file).parent().unwrap().to_owned();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.starts_with("http") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                root().join(file)
            } else {
                folder.join(path)
            };
            assert!(target.exists(), "{file}: {link}");
            if !anchor.is_empty() {
                let headings = anchors(&std::fs::read_to_string(&target).unwrap());
                assert!(
                    headings.iter().any(|h| h == anchor),
                    "{file}: {link}: {headings:?}"
                );
            }
            followed += 1;
        }
    }
    assert!(followed > 15, "only {followed} links were found");
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
    let expected = [
        "usr/bin/toron",
        "usr/lib/systemd/system/toron.service",
        "usr/share/doc/toron/bench.md",
        "usr/share/doc/toron/configuration.md",
        "usr/share/doc/toron/example/config.yaml",
        "usr/share/doc/toron/example/routes.yaml",
        "usr/share/doc/toron/operations.md",
        "usr/share/doc/toron/rules.md",
        "usr/share/doc/toron/toron",
        "usr/share/doc/toron/tune.md",
    ];
    let found = files(folder.path());
    assert_eq!(found, expected.map(PathBuf::from));
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
