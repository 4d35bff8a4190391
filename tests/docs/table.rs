//! The tables of docs/configuration.md, read back.

use super::read;

/// A row of a table that begins with a key.
pub struct Row {
    /// `section.key`, as the parser calls it.
    pub key: String,
    pub default: String,
    pub allowed: String,
    /// Of the table of older names.
    pub is_older: bool,
}

/// The cells of a table's line. A bar inside of backticks would need an escape; there is none.
pub fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
    Some(inner.split(" | ").collect())
}

/// What stands between backticks, if that is all.
pub fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('`')?.strip_suffix('`')
}

/// As the parser calls a key that stands under a heading.
fn full_key(section: &str, key: &str) -> String {
    if key.starts_with("targets[].") || key.starts_with("header_deadline_response.") {
        return key.to_owned();
    }
    let section = if section == "routes" {
        "routes[]"
    } else {
        section
    };
    format!("{section}.{key}")
}

/// All rows of docs/configuration.md that stand for a key.
pub fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let (mut section, mut head) = ("", Vec::new());
    for content in text.lines() {
        if let Some(heading) = content.strip_prefix("## ") {
            section = heading;
        }
        let Some(cells) = cells(content) else {
            head.clear();
            continue;
        };
        if head.is_empty() {
            head = cells;
            continue;
        }
        let is_older = head[0] == "older name";
        if let Some(key) = quoted(cells[0]).filter(|_| is_older || head[0] == "key") {
            rows.push(Row {
                key: full_key(section, key),
                default: cells.get(1).copied().unwrap_or_default().to_owned(),
                allowed: cells.get(2).copied().unwrap_or_default().to_owned(),
                is_older,
            });
        }
    }
    rows
}

/// Those of the document as it is.
pub fn documented() -> Vec<Row> {
    let rows = rows(&read("docs/configuration.md"));
    assert!(rows.len() > 100, "only {} rows were found", rows.len());
    rows
}
