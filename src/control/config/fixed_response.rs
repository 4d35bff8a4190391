//! An answer that a configuration spells out.

use crate::policy::settings::FixedResponse;

use super::fields::read_fields;
use super::section::Section;

/// A fixed answer in a section of its own.
pub fn read_fixed_response(s: Section<'_>, default_status: u16) -> FixedResponse {
    let response = fixed_response(&s, default_status);
    s.finish();
    response
}

/// A fixed answer whose keys stand among others; they are read, the section is not finished.
pub fn fixed_response(s: &Section<'_>, default_status: u16) -> FixedResponse {
    let status = s.number("status", 200..=599).unwrap_or(default_status);
    let body = s.string("body").unwrap_or("").to_owned();
    if matches!(status, 204 | 205 | 304) && !body.is_empty() {
        let text = format!("a {status} response has no body (RFC 9110, section 6.4.1)");
        s.report.fault(s.value_mark("body"), text);
    }
    let headers = match s.mark_of("headers") {
        Some(_) => read_fields(s, "headers"),
        None => Vec::new(),
    };
    s.known("headers");
    for own in ["content-length", "transfer-encoding", "connection"] {
        if headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(own))
        {
            let text = format!("headers: {own} is set by toron itself");
            s.report.fault(s.value_mark("headers"), text);
        }
    }
    FixedResponse {
        status,
        headers,
        body,
    }
}
