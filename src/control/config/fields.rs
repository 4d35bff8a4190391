//! Field names and values as a configuration gives them.

use super::section::Section;

/// A token (RFC 9110, section 5.6.2).
#[must_use]
pub fn is_token(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(good)
}

/// Pairs of a field name and its value; each name at most once, whatever its case.
pub fn read_fields(s: &Section<'_>, key: &'static str) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for (entry, value) in s.pairs(key).unwrap_or_default() {
        let name = &entry.key;
        if !is_token(name) {
            s.report
                .fault(entry.mark, format!("{key}: \"{name}\" is not a field name"));
        } else if fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name)) {
            let text =
                format!("{key}: \"{name}\" is given twice (names are compared without case)");
            s.report.fault(entry.mark, text);
        } else if value.bytes().any(|b| b < b' ' && b != b'\t' || b == 0x7f)
            || value.trim() != value
        {
            let text = format!("{key}: the value of \"{name}\" cannot stand in a header");
            s.report.fault(entry.value.mark, text);
        } else {
            fields.push((name.clone(), value.to_owned()));
        }
    }
    fields
}
