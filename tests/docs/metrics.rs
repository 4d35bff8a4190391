//! The table of metrics in docs/operations.md, held to the code.

use toron::server::metrics::families;

use super::{read, root, updates};

const FILE: &str = "docs/operations.md";
const HEAD: &str = "| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n";

fn table() -> String {
    let row = |family: &toron::server::metrics::family::Family| {
        let labels: Vec<String> = family.labels.iter().map(|l| format!("`{l}`")).collect();
        let (name, kind, help) = (family.name, family.kind.as_str(), family.help);
        format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", "))
    };
    families().map(row).collect()
}

#[test]
fn every_metric_is_documented() {
    let text = read(FILE);
    let (before, rest) = text.split_once(HEAD).expect("the table of metrics");
    let (_, after) = rest.split_once("\n\n").expect("text behind the table");
    let expected = format!("{before}{HEAD}{}\n{after}", table());
    if updates() {
        std::fs::write(root().join(FILE), expected).unwrap();
        return;
    }
    assert!(
        text == expected,
        "the table is not that of the code: TORON_UPDATE_DOCS=1 cargo test --test docs writes it:\n{}",
        table()
    );
}

#[test]
fn names_follow_the_conventions() {
    let mut names: Vec<&str> = families().map(|family| family.name).collect();
    for family in families() {
        let (name, kind) = (family.name, family.kind.as_str());
        let own = name.starts_with("toron_") || name.starts_with("process_");
        let word = |b: u8| b.is_ascii_lowercase() || b == b'_';
        assert!(own && name.bytes().all(word), "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        assert!(kind != "histogram" || name.ends_with("_seconds"), "{name}");
        let help = family.help;
        assert!(
            help.ends_with('.') && !help.contains(['\\', '\n', '|']),
            "{name}: {help}"
        );
        for label in family.labels {
            assert!(label.bytes().all(word) && *label != "le", "{name}: {label}");
        }
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name twice");
}
