//! What is malformed, in every way that has a name of its own (I4, I6).

use super::cases::Limit::BuiltIn;
use super::cases::{case, get, with, Case, CHUNKED};

const BAD: &str = r#"{"error":"400 Bad Request"}"#;

fn bad(request: impl Into<Vec<u8>>, reason: &'static str) -> Case {
    case(request, BAD, reason)
}

/// Request lines, and what comes in front of them.
pub fn lines() -> Vec<Case> {
    let line = |line: &str, reason| bad(format!("{line}\r\nHost: t.example\r\n\r\n"), reason);
    vec![
        bad("GET / HTTP/1.1\rX", "bare_cr"),
        bad("\r\n\r\n\r\n", "empty_lines"),
        line(" GET / HTTP/1.1", "bad_method"),
        line("GET /a b HTTP/1.1", "bad_request_line"),
        line("GET x HTTP/1.1", "bad_target"),
        line("GET / HTTP/11", "bad_version"),
        line("GET /a#frag HTTP/1.1", "fragment_in_target"),
        line("GET http://u:p@t.example/ HTTP/1.1", "userinfo_in_target"),
        line("GET http://t.example:99999/ HTTP/1.1", "bad_authority"),
        line("GET /a\\b HTTP/1.1", "bad_path_byte"),
        line("GET /a%zz HTTP/1.1", "bad_path_escape"),
        line("GET /a%00 HTTP/1.1", "encoded_nul"),
        line("GET /a/..%2fb HTTP/1.1", "encoded_dot_segment"),
    ]
}

/// Fields.
pub fn fields() -> Vec<Case> {
    let fields = |fields: &str, reason| bad(with("POST", "/plain", fields), reason);
    let options: String = (0..33).map(|n| format!("x{n}, ")).collect();
    let old = "POST /plain HTTP/1.0\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n";
    vec![
        fields("X-Test: a\r\n b\r\n", "obs_fold"),
        bad(
            "GET / HTTP/1.1\r\n Host: t\r\n\r\n",
            "space_before_first_field",
        ),
        fields(": value\r\n", "empty_field_name"),
        fields("X-Test : value\r\n", "space_before_colon"),
        fields("NoColon\r\n", "no_colon"),
        fields("X(y): v\r\n", "bad_field_name"),
        fields("X-Test: val\0ue\r\n", "control_byte"),
        fields(
            &format!("Connection: {options}close\r\n"),
            "too_many_connection_options",
        )
        .by(BuiltIn("connection options", 32)),
        bad("GET / HTTP/1.1\r\n\r\n", "missing_host"),
        bad("GET / HTTP/1.1\r\nHost: u@t.example\r\n\r\n", "bad_host"),
        fields("Host: t.example\r\n", "repeated_host"),
        fields("Content-Length: +5\r\n", "bad_content_length"),
        fields(
            "Content-Length: 5\r\nContent-Length: 10\r\n",
            "conflicting_lengths",
        ),
        bad(old, "coding_on_http10"),
        fields("Transfer-Encoding: xchunked\r\n", "obfuscated_coding"),
        fields("Transfer-Encoding: chunked, gzip\r\n", "chunked_not_last"),
    ]
}

/// Chunked bodies.
pub fn chunks() -> Vec<Case> {
    let body = |body: &str, reason| bad(with("POST", "/plain", CHUNKED) + body, reason);
    vec![
        body("10000000000000000\r\n", "chunk_size_too_large"),
        body("5;a\0\r\n", "chunk_extension_byte"),
        body(
            &format!("5;{}\r\n", "a".repeat(300)),
            "chunk_extension_too_long",
        )
        .by(BuiltIn("chunk extensions", 256)),
        body("5;a\nhello", "chunk_bare_lf"),
        body("5\rhello", "chunk_bare_cr"),
        body("5\r\nhello!!\r\n", "chunk_data_end"),
        body("0\r\nA : b\r\n\r\n", "bad_trailer"),
        body("0\r\nContent-Length: 1\r\n\r\n", "forbidden_trailer"),
    ]
}

/// Responses that cannot be passed on (I27).
pub fn of_upstreams() -> Vec<Case> {
    let invalid = r#"{"error":"502 Bad Gateway: Invalid upstream response"}"#;
    let from = |path, reason| case(get(path), invalid, reason);
    vec![
        from("/bad-head", "response_head"),
        from("/bad-framing", "response_framing"),
        from("/bad-chunk", "response_body"),
        from("/switches", "unasked_upgrade"),
        from("/huge-head", "response_head_too_large").by(BuiltIn("response head", 65_536)),
    ]
}
