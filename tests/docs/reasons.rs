//! The table of reasons in docs/operations.md.

use toron::http::{Answer, Reason};

use super::{hold, read};

/// One row: code, answer, who ended it, meaning.
fn row(reason: Reason) -> String {
    let answer = match Answer::to(reason) {
        Some(answer) => answer.status().to_string(),
        None => "cut".to_owned(),
    };
    let (code, by) = (reason.code(), reason.ended_by().code());
    format!("| `{code}` | {answer} | {by} | {} |\n", reason.about())
}

#[test]
fn every_reason_is_documented() {
    const FILE: &str = "docs/operations.md";
    let text = read(FILE);
    let at = text.find("\n## Reasons\n").expect("a heading");
    // The paragraph below the heading stays; the table is written anew.
    let table = text[at..].find("\n| ").map_or(text.len(), |n| at + n + 1);
    let mut expected = text[..table].to_owned();
    expected.push_str("| reason | answer | ended by | meaning |\n| --- | --- | --- | --- |\n");
    expected.extend(Reason::ALL.into_iter().map(row));
    hold(FILE, &expected);
}
