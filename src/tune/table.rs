//! The audit for people: 100 columns, no colour.

use std::fmt::Write;

use super::row::{on_one_line, Group, Means, Row, Verdict};

/// Columns of a line at most.
pub const WIDTH: usize = 100;
const VERDICT: usize = 10;
const NAME: usize = 36;
/// Where the words of why, evidence and risk begin.
const INDENT: usize = 22;

/// Labels with their words, then an empty line. Paths of files have any length.
#[must_use]
pub fn heading(lines: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (label, words) in lines {
        hang(&mut text, label, label.chars().count() + 1, words);
    }
    text.push('\n');
    text
}

/// All rows with their headings, then what to do.
#[must_use]
pub fn full(groups: &[Group]) -> String {
    let mut text = String::new();
    let head = ["verdict", "setting", "present → proposed"];
    let [verdict, name, value] = head;
    let _ = writeln!(text, "{verdict:VERDICT$}{name:NAME$}{value}");
    for group in groups {
        let _ = writeln!(text, "\n{}", group.title);
        for row in &group.rows {
            write_row(&mut text, row);
        }
    }
    text.push('\n');
    text.push_str(&summary(groups));
    text
}

/// Rows that were tried, with what came of it: a first line and further ones.
#[must_use]
pub fn tried(rows: &[(&Row, (String, Vec<String>))]) -> String {
    let mut text = String::new();
    for (row, (head, lines)) in rows {
        write_row(&mut text, row);
        detail(&mut text, "measured", head);
        for line in lines {
            // Figures in columns stand as they are.
            match line.chars().count() + INDENT <= WIDTH {
                true => {
                    let _ = writeln!(text, "{:INDENT$}{line}", "");
                }
                false => hang(&mut text, "", INDENT, line),
            }
        }
        text.push('\n');
    }
    text
}

/// Words on lines of the page's width.
#[must_use]
pub fn paragraph(words: &str) -> String {
    let mut text = String::new();
    hang(&mut text, "", 0, words);
    // Nothing stands before the words.
    text.trim_start().to_owned()
}

/// The must-haves that are missing, or cannot be judged.
#[must_use]
pub fn missing(groups: &[Group]) -> String {
    let rows = groups.iter().flat_map(|group| &group.rows);
    let mut text = String::new();
    for row in rows.filter(|row| {
        row.verdict == Verdict::Missing || (row.must_have && row.verdict == Verdict::Unknown)
    }) {
        write_row(&mut text, row);
    }
    if text.is_empty() {
        text.push_str("no must-have is missing\n");
    }
    text
}

fn write_row(text: &mut String, row: &Row) {
    let present = match &row.present {
        Ok(value) => on_one_line(value),
        Err(why) => format!("unknown: {why}"),
    };
    let value = match &row.proposed {
        Some(proposed) => format!("{present} → {proposed}"),
        None => present,
    };
    let start = format!("{:VERDICT$}{:NAME$}", row.verdict.as_str(), row.name);
    hang(text, &start, VERDICT + NAME, &value);
    let risk = format!("{} {}", row.risk, row.effect.in_words());
    let details = [
        ("why", &row.why),
        ("evidence", &row.evidence),
        ("risk", &risk),
    ];
    for (what, words) in details {
        let wanted = what != "risk" || row.proposed.is_some();
        if wanted && !words.trim().is_empty() {
            detail(text, what, words);
        }
    }
}

fn detail(text: &mut String, what: &str, words: &str) {
    hang(text, &format!("{:VERDICT$}  {what:10}", ""), INDENT, words);
}

/// `start`, then `words` from column `indent` on, wrapped. A start that is too long for its column
/// has a line to itself.
fn hang(text: &mut String, start: &str, indent: usize, words: &str) {
    let used = start.trim_end().chars().count();
    let mut column = used;
    text.push_str(start.trim_end());
    if used >= indent {
        text.push('\n');
        column = 0;
    }
    let mut first = true;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if !first && column + 1 + length > WIDTH {
            text.push('\n');
            (column, first) = (0, true);
        }
        if first {
            let _ = write!(text, "{:width$}", "", width = indent.saturating_sub(column));
            column = indent.max(column);
        } else {
            text.push(' ');
            column += 1;
        }
        first = false;
        // A path, say, that is longer than the line.
        for (at, c) in word.chars().enumerate() {
            if at > 0 && column == WIDTH {
                let _ = write!(text, "\n{:indent$}", "");
                column = indent;
            }
            text.push(c);
            column += 1;
        }
    }
    text.push('\n');
}

/// How many of each kind, and the next step.
fn summary(groups: &[Group]) -> String {
    let rows: Vec<&Row> = groups.iter().flat_map(|group| &group.rows).collect();
    let mut text = String::new();
    let kinds = [
        (Verdict::Missing, "a configured limit cannot be reached"),
        (Verdict::Better, "recommended"),
        (Verdict::Consider, "may help, has a price: try it"),
    ];
    for (verdict, meaning) in kinds {
        let names: Vec<&str> = rows
            .iter()
            .filter(|row| row.verdict == verdict)
            .map(|row| row.name.as_str())
            .collect();
        if !names.is_empty() {
            let start = format!("{} {} ({meaning}):", names.len(), verdict.as_str());
            hang(&mut text, &start, 2, &names.join(", "));
        }
    }
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let _ = writeln!(
        text,
        "{} good, {} facts, {} unknown",
        count(Verdict::Good),
        count(Verdict::Fact),
        count(Verdict::Unknown)
    );
    let settable = rows.iter().any(|row| {
        row.means == Means::Sysctl && matches!(row.verdict, Verdict::Missing | Verdict::Better)
    });
    if settable {
        text.push_str(
            "toron tune --apply sets those that are kernel settings now, --undo puts them back;\n\
             toron tune --emit DIR writes files that set them at every start\n",
        );
    }
    let tries = |row: &&Row| row.means == Means::Sysctl && row.proposed.is_some();
    if rows.iter().any(tries) {
        text.push_str(
            "toron tune --measure URL tries kernel settings on a toron that runs, and says what each \
             does\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hang_and_no_line_is_longer_than_the_page() {
        let mut text = String::new();
        let words = format!("{} {}", "word ".repeat(40), "x".repeat(250));
        hang(&mut text, "start", 20, &words);
        assert!(text.starts_with("start               word word"));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
        assert!(text
            .lines()
            .skip(1)
            .all(|line| line.starts_with(&" ".repeat(20))));
        let squeezed: String = text.split_whitespace().collect();
        assert_eq!(
            squeezed,
            format!("start{}{}", "word".repeat(40), "x".repeat(250))
        );
    }

    #[test]
    fn a_long_start_has_its_own_line() {
        let mut text = String::new();
        hang(&mut text, &"n".repeat(30), 20, "value");
        assert_eq!(
            text,
            format!("{}\n{}value\n", "n".repeat(30), " ".repeat(20))
        );
    }
}
