//! `toron.header.<Name>` and `toron.headers`: the fields that requests must carry.

use std::collections::BTreeMap;

use crate::control::config::fields::is_token;

/// In front of the name of a field.
pub const SINGLE: &str = "toron.header.";
/// Several at once.
pub const GROUPED: &str = "toron.headers";

/// The fields, and labels that ask for some and cannot be read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Constraints {
    /// Names in Title-Case, in the order of their letters.
    pub fields: Vec<(String, String)>,
    /// What is wrong with labels; what these asked for does not hold.
    pub ignored: Vec<String>,
    /// What else the operator should know.
    pub notes: Vec<String>,
}

/// Reads them from all labels of a container. Single ones win over grouped ones.
#[must_use]
pub fn read(labels: &BTreeMap<String, String>) -> Constraints {
    let mut made = Constraints::default();
    let mut fields = BTreeMap::new();
    let single = labels
        .iter()
        .filter_map(|(label, value)| Some((label.strip_prefix(SINGLE)?, value.as_str())));
    for (name, value) in single {
        match field(name, value) {
            Ok((name, value)) => put(&mut fields, name, value, &mut made.notes),
            Err(problem) => made.ignored.push(format!("{SINGLE}{name}: {problem}")),
        }
    }
    let grouped = labels.get(GROUPED).map_or("", |text| text.trim());
    for pair in grouped_pairs(grouped) {
        match pair {
            // A single label of the same name wins, which is nothing to report.
            Ok((name, value)) => {
                fields.entry(name).or_insert(value);
            }
            Err(problem) => made.ignored.push(format!("{GROUPED}: {problem}")),
        }
    }
    made.fields = fields.into_iter().collect();
    made
}

/// Labels that differ in case only name the same field: the first in the order of the labels holds.
fn put(
    fields: &mut BTreeMap<String, String>,
    name: String,
    value: String,
    notes: &mut Vec<String>,
) {
    match fields.get(&name) {
        Some(kept) if *kept != value => notes.push(format!(
            "{SINGLE}{name} is there twice, in different case; \"{kept}\" holds"
        )),
        Some(_) => {}
        None => {
            fields.insert(name, value);
        }
    }
}

/// The fields of a JSON object, else of `k=v,k=v`. What was meant as JSON is not taken in part.
fn grouped_pairs(text: &str) -> Vec<Result<(String, String), String>> {
    if let Some(pairs) = json_pairs(text) {
        let checked = |(name, value): (String, String)| {
            field(&name, &value).map_err(|problem| format!("\"{name}\" {problem}"))
        };
        return pairs.into_iter().map(checked).collect();
    }
    let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    let pair = |part: &str| match part.split_once('=') {
        Some((name, value)) => {
            field(name, value).map_err(|problem| format!("\"{name}\" {problem}"))
        }
        None => Err(format!("\"{part}\" has no =")),
    };
    let pairs: Vec<_> = parts.map(pair).collect();
    if text.starts_with('{') && pairs.iter().any(Result::is_err) {
        return vec![Err(format!(
            "\"{text}\" is neither a JSON object nor k=v,k=v"
        ))];
    }
    pairs
}

/// Values that are numbers or truth values are taken as they are written.
fn json_pairs(text: &str) -> Option<Vec<(String, String)>> {
    use serde_json::Value;
    let object: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
    let text_of = |value: Value| match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(on) => Some(on.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    let pairs = object.into_iter().map(|(k, v)| Some((k, text_of(v)?)));
    pairs.collect()
}

/// A field that a request can carry; its name in Title-Case, its value without blanks around it,
/// which no received value has (RFC 9110, section 5.5).
fn field(name: &str, value: &str) -> Result<(String, String), String> {
    let (name, value) = (name.trim(), value.trim());
    if !is_token(name) {
        return Err("is not a field name".to_owned());
    }
    if value.bytes().any(|b| b < b' ' && b != b'\t' || b == 0x7f) {
        return Err("has a value that cannot stand in a header".to_owned());
    }
    Ok((title_case(name), value.to_owned()))
}

/// `x-tenant-id` as `X-Tenant-Id`.
fn title_case(name: &str) -> String {
    let mut first = true;
    let case = |c: char| {
        let cased = if first {
            c.to_ascii_uppercase()
        } else {
            c.to_ascii_lowercase()
        };
        first = c == '-';
        cased
    };
    name.chars().map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(labels: &[(&str, &str)]) -> Constraints {
        let owned = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        read(&owned.collect())
    }

    fn shown(labels: &[(&str, &str)]) -> String {
        let made = made(labels);
        let pairs = made.fields.iter().map(|(n, v)| format!("{n}={v}"));
        pairs.collect::<Vec<_>>().join("&")
    }

    #[test]
    fn json_and_csv_say_the_same() {
        let json = [(
            "toron.headers",
            r#"{"X-Tier":"premium","x-tenant":"alpha"}"#,
        )];
        let csv = [("toron.headers", " X-Tenant=alpha , X-TIER=premium,")];
        assert_eq!(shown(&json), "X-Tenant=alpha&X-Tier=premium");
        assert_eq!(shown(&csv), shown(&json));
        let odd = [("toron.headers", r#"{"X-N": 1, "X-B": true, "X-E": ""}"#)];
        assert_eq!(shown(&odd), "X-B=true&X-E=&X-N=1");
        assert_eq!(shown(&[("toron.headers", "X-A=b=c")]), "X-A=b=c");
    }

    #[test]
    fn single_ones_are_added_and_win() {
        let labels = [
            ("toron.headers", "X-Region=eu,X-Tier=a"),
            ("toron.header.x-region", "us-east-1"),
        ];
        assert_eq!(shown(&labels), "X-Region=us-east-1&X-Tier=a");
        let twice = [("toron.header.X-A", "1"), ("toron.header.x-a", "2")];
        assert_eq!(shown(&twice), "X-A=1");
        assert_eq!(made(&twice).notes.len(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_ignored_and_said() {
        for (label, value, left, ignored) in [
            ("toron.headers", r#"{"X-A":"b""#, "", 1),
            ("toron.headers", r#"{"X-A":"b",}"#, "", 1),
            ("toron.headers", r#"{"X-A":{"b":1}}"#, "", 1),
            ("toron.headers", r#"{X-A=b}"#, "", 1),
            ("toron.headers", "X-A", "", 1),
            ("toron.headers", "X-A=1,garbage,X B=2", "X-A=1", 2),
            ("toron.headers", "", "", 0),
            ("toron.headers", "{}", "", 0),
            ("toron.headers", "=x", "", 1),
            ("toron.header.", "x", "", 1),
            ("toron.header.X A", "x", "", 1),
            ("toron.header.X-A", "a\nb", "", 1),
            ("toron.header.X-A", "\u{7f}", "", 1),
        ] {
            let made = made(&[(label, value)]);
            assert_eq!(shown(&[(label, value)]), left, "{value}");
            assert_eq!(made.ignored.len(), ignored, "{value}: {made:?}");
        }
    }
}
