use super::*;

fn facts(bytes: &str) -> RequestFacts {
    with_request(bytes.as_bytes(), |r, _| r.unwrap().facts).unwrap()
}

fn refusal(bytes: &[u8]) -> (u16, &'static str) {
    with_request(bytes, |r, _| {
        let fault = r.unwrap_err();
        (Answer::to(fault).unwrap().status(), fault.code())
    })
    .unwrap_or_else(|| panic!("incomplete: {}", bytes.escape_ascii()))
}

const HOST: &str = "Host: t.example\r\n";

#[test]
fn i4_refused_request_lines() {
    for (line, status, reason) in [
        ("GET / HTTP/1.1\n", 400, "bare_lf"),
        ("GET\t/\tHTTP/1.1\r\n", 400, "bad_method"),
        ("GET /\tx HTTP/1.1\r\n", 400, "bad_target"),
        ("GET /a b HTTP/1.1\r\n", 400, "bad_request_line"),
        ("GET  / HTTP/1.1\r\n", 400, "bad_request_line"),
        ("GET / HTTP/1.1 \r\n", 400, "bad_request_line"),
        ("GET  HTTP/1.1\r\n", 400, "bad_request_line"),
        (" GET / HTTP/1.1\r\n", 400, "bad_method"),
        ("GET /a\0b HTTP/1.1\r\n", 400, "bad_target"),
        ("GET /caf\u{e9} HTTP/1.1\r\n", 400, "bad_target"),
        ("GET /a#frag HTTP/1.1\r\n", 400, "fragment_in_target"),
        ("GET /a?b#frag HTTP/1.1\r\n", 400, "fragment_in_target"),
        ("GET /\r\n", 400, "bad_request_line"),
        ("Invalid\r\n", 400, "bad_request_line"),
        ("GE(T),[x] /m HTTP/1.1\r\n", 400, "bad_method"),
        ("\x16\x03\x01\x02\0\x01", 400, "bad_method"),
        ("GET / HTTP/1.1\rX", 400, "bare_cr"),
        ("GET / HTTP/9.9\r\n", 505, "unsupported_version"),
        ("GET / HTTP/1.2\r\n", 505, "unsupported_version"),
        ("GET / HTTP/2.0\r\n", 505, "unsupported_version"),
        ("GET / http/1.1\r\n", 400, "bad_version"),
        ("GET / HTTP/1.10\r\n", 400, "bad_version"),
        ("GET / HTTP/11\r\n", 400, "bad_version"),
        ("GET / HTTP/\r\n", 400, "bad_version"),
        ("GET * HTTP/1.1\r\n", 400, "bad_target"),
        ("GET x HTTP/1.1\r\n", 400, "bad_target"),
        ("GET ftp://t.example/ HTTP/1.1\r\n", 400, "bad_target"),
        ("GET http:///x HTTP/1.1\r\n", 400, "bad_authority"),
        (
            "GET http://user:pw@t.example/ HTTP/1.1\r\n",
            400,
            "userinfo_in_target",
        ),
        (
            "GET http://t.example:99999/ HTTP/1.1\r\n",
            400,
            "bad_authority",
        ),
        (
            "CONNECT db.internal.example:5432 HTTP/1.1\r\n",
            405,
            "connect_method",
        ),
        ("CONNECT / HTTP/1.1\r\n", 405, "connect_method"),
    ] {
        let bytes = format!("{line}{HOST}\r\n");
        assert_eq!(refusal(bytes.as_bytes()), (status, reason), "{line:?}");
    }
}

#[test]
fn i4_refused_fields() {
    for (fields, reason) in [
        ("X-Test : value\r\n", "space_before_colon"),
        ("X-Test\t: value\r\n", "space_before_colon"),
        (": value\r\n", "empty_field_name"),
        ("\x01Transfer-Encoding: chunked\r\n", "bad_field_name"),
        ("X(y): v\r\n", "bad_field_name"),
        ("X\u{e9}: v\r\n", "bad_field_name"),
        ("NoColon\r\n", "no_colon"),
        ("X-Test: val\0ue\r\n", "control_byte"),
        ("X-Test: val\x7fue\r\n", "control_byte"),
        ("X-Test: val\rue\r\n", "bare_cr"),
        ("X-A: 1\nX-B: 2\r\n", "bare_lf"),
        ("\n", "bare_lf"),
        ("X-Test: a\r\n b\r\n", "obs_fold"),
        ("X-Test: a\r\n\tb\r\n", "obs_fold"),
        ("Transfer-Encoding:\r\n chunked\r\n", "obs_fold"),
        ("Host: t.example\r\n", "repeated_host"),
        ("Host: other.example\r\n", "repeated_host"),
        ("Content-Length: +5\r\n", "bad_content_length"),
        ("Content-Length: 5, 5\r\n", "bad_content_length"),
        ("Content-Length: \r\n", "bad_content_length"),
        (
            "Content-Length: 5\r\nContent-Length: 10\r\n",
            "conflicting_lengths",
        ),
        (
            "Content-Length: 44\r\nTransfer-Encoding: chunked\r\n",
            "length_and_coding",
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
            "length_and_coding",
        ),
        (
            "Content-Length: 44\r\nTransfer-Encoding : chunked\r\n",
            "space_before_colon",
        ),
        ("Transfer-Encoding: chunked, gzip\r\n", "chunked_not_last"),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "chunked_not_last",
        ),
        ("Transfer-Encoding: \x0bchunked\r\n", "control_byte"),
        ("Transfer-Encoding:\tchunked\r\n", "obfuscated_coding"),
        ("Transfer-Encoding: chunked \t\r\n", "obfuscated_coding"),
        ("Transfer-Encoding: xchunked\r\n", "obfuscated_coding"),
        ("Transfer-Encoding:\r\n", "obfuscated_coding"),
    ] {
        let bytes = format!("POST / HTTP/1.1\r\n{HOST}{fields}\r\n");
        assert_eq!(refusal(bytes.as_bytes()), (400, reason), "{fields:?}");
    }
    let first = b"GET / HTTP/1.1\r\n Host: t.example\r\n\r\n";
    assert_eq!(refusal(first), (400, "space_before_first_field"));
    let old = b"POST / HTTP/1.0\r\nHost: t.example\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refusal(old), (400, "coding_on_http10"));
    for coding in ["gzip, chunked", "gzip", "identity"] {
        let bytes = format!("POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: {coding}\r\n\r\n");
        assert_eq!(
            refusal(bytes.as_bytes()),
            (501, "unsupported_coding"),
            "{coding}"
        );
    }
}

#[test]
fn i4_hosts() {
    assert_eq!(refusal(b"GET / HTTP/1.1\r\n\r\n"), (400, "missing_host"));
    assert_eq!(
        refusal(b"GET http://t.example/ HTTP/1.1\r\n\r\n"),
        (400, "missing_host")
    );
    for bad in [
        "t.example:65536",
        "",
        "a b",
        "u@t.example",
        "t.example/x",
        "[::1",
    ] {
        let bytes = format!("GET / HTTP/1.1\r\nHost: {bad}\r\n\r\n");
        assert_eq!(refusal(bytes.as_bytes()), (400, "bad_host"), "{bad}");
    }
    for (head, host) in [
        (
            "GET / HTTP/1.1\r\nHost: T.EXAMPLE\r\n\r\n",
            Some("T.EXAMPLE"),
        ),
        (
            "GET / HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n",
            Some("[2001:db8::1]"),
        ),
        ("GET / HTTP/1.0\r\n\r\n", None),
        (
            "GET http://t.example:81/ HTTP/1.1\r\nHost: other.example\r\n\r\n",
            Some("t.example:81"),
        ),
        ("GET http://t.example HTTP/1.0\r\n\r\n", Some("t.example")),
    ] {
        let seen = with_request(head.as_bytes(), |r, _| {
            r.unwrap()
                .host
                .map(|h| String::from_utf8(h.as_bytes().to_vec()).unwrap())
        });
        assert_eq!(seen.unwrap().as_deref(), host, "{head}");
    }
}

#[test]
fn i6_targets_are_cut() {
    for (target, path, query) in [
        ("/", "/", None),
        ("/a?b=1?c", "/a", Some("b=1?c")),
        ("/a?", "/a", Some("")),
        ("//x", "//x", None),
        ("http://t.example/a?b=1", "/a", Some("b=1")),
        ("HTTPS://t.example", "/", None),
        ("http://t.example?q", "/", Some("q")),
    ] {
        let bytes = format!("GET {target} HTTP/1.1\r\n{HOST}\r\n");
        with_request(bytes.as_bytes(), |r, _| {
            let r = r.unwrap();
            assert_eq!(
                (r.path, r.query),
                (path.as_bytes(), query.map(str::as_bytes)),
                "{target}"
            );
        })
        .unwrap();
    }
    for target in ["*", "http://t.example"] {
        let bytes = format!("OPTIONS {target} HTTP/1.1\r\n{HOST}\r\n");
        let seen = with_request(bytes.as_bytes(), |r, _| {
            r.unwrap().target == Target::Asterisk
        });
        assert_eq!(seen, Some(true), "{target}");
    }
}

#[test]
fn i5_empty_lines_before_a_request() {
    for (lines, complete) in [("", true), ("\r\n", true), ("\r\n\r\n", true)] {
        let bytes = format!("{lines}GET / HTTP/1.1\r\n{HOST}\r\nnext");
        let seen = with_request(bytes.as_bytes(), |r, rest| r.is_ok() && rest == b"next");
        assert_eq!(seen, Some(complete));
    }
    assert_eq!(refusal(b"\r\n\r\n\r\n"), (400, "empty_lines"));
    assert_eq!(refusal(b"\n"), (400, "bare_lf"));
    assert_eq!(refusal(b"\rG"), (400, "bare_cr"));
    assert_eq!(refusal(b" "), (400, "bad_method"));
    let mut scanner = HeadScanner::request();
    assert_eq!(scanner.scan(b"\r\n\r\n"), Scan::Incomplete);
    assert!(!scanner.started(), "empty lines alone are no request");
    assert_eq!(scanner.scan(b"\r\n\r\nG"), Scan::Incomplete);
    assert!(scanner.started());
}

#[test]
fn i2_too_many_fields() {
    let head = |n: usize| format!("GET / HTTP/1.1\r\n{HOST}{}\r\n", "X: y\r\n".repeat(n - 1));
    assert_eq!(
        with_request(head(100).as_bytes(), |r, _| r.is_ok()),
        Some(true)
    );
    assert_eq!(refusal(head(101).as_bytes()), (431, "too_many_fields"));
}

#[test]
fn connection_options_are_bounded() {
    let head = |n: usize| {
        format!(
            "GET / HTTP/1.1\r\n{HOST}Connection: {}\r\n\r\n",
            "a,".repeat(n)
        )
    };
    assert_eq!(
        with_request(head(32).as_bytes(), |r, _| r.is_ok()),
        Some(true)
    );
    assert_eq!(
        refusal(head(33).as_bytes()),
        (400, "too_many_connection_options")
    );
}

#[test]
fn keep_alive_by_version_and_option() {
    for (version, fields, keeps) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: keep-alive, CLOSE\r\n", false),
        ("1.1", "Connection: x\r\nConnection: close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let head = format!("GET / HTTP/{version}\r\n{HOST}{fields}\r\n");
        assert_eq!(facts(&head).keep_alive, keeps, "{version} {fields}");
    }
}

#[test]
fn i11_expectations() {
    for (version, fields, expect) in [
        ("1.1", "", Expect::None),
        ("1.1", "Expect: 100-Continue\r\n", Expect::Continue),
        (
            "1.1",
            "Expect: 100-continue\r\nExpect: 100-continue\r\n",
            Expect::Continue,
        ),
        (
            "1.1",
            "Expect: 100-continue\r\nExpect: x\r\n",
            Expect::Other,
        ),
        (
            "1.1",
            "Expect: x\r\nExpect: 100-continue\r\n",
            Expect::Other,
        ),
        ("1.1", "Expect:\r\n", Expect::Other),
        ("1.0", "Expect: 100-continue\r\n", Expect::None),
    ] {
        let head = format!("POST / HTTP/{version}\r\n{HOST}Content-Length: 5\r\n{fields}\r\n");
        assert_eq!(facts(&head).expect, expect, "{version} {fields}");
    }
}

#[test]
fn r14_upgrades() {
    for (version, fields, upgrade) in [
        (
            "1.1",
            "Connection: Upgrade\r\nUpgrade: websocket\r\n",
            UpgradeAsked::Yes,
        ),
        (
            "1.1",
            "Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\n",
            UpgradeAsked::Yes,
        ),
        ("1.1", "Upgrade: websocket\r\n", UpgradeAsked::No),
        ("1.1", "Connection: Upgrade\r\n", UpgradeAsked::No),
        (
            "1.1",
            "Connection: Upgrade\r\nUpgrade: h2c\r\n",
            UpgradeAsked::H2c,
        ),
        (
            "1.1",
            "Connection: Upgrade\r\nUpgrade: websocket, H2C\r\n",
            UpgradeAsked::H2c,
        ),
        (
            "1.0",
            "Connection: Upgrade\r\nUpgrade: websocket\r\n",
            UpgradeAsked::No,
        ),
    ] {
        let head = format!("GET / HTTP/{version}\r\n{HOST}{fields}\r\n");
        assert_eq!(facts(&head).upgrade, upgrade, "{version} {fields}");
    }
}

#[test]
fn bodies_of_accepted_requests() {
    for (fields, body) in [
        ("", RequestBody::None),
        ("Content-Length: 5\r\n", RequestBody::Length(5)),
        (
            "Content-Length: 5\r\ncontent-length: 5\r\n",
            RequestBody::Length(5),
        ),
        ("TRANSFER-ENCODING: Chunked\r\n", RequestBody::Chunked),
        (
            "Transfer_Encoding: chunked\r\nContent-Length: 5\r\n",
            RequestBody::Length(5),
        ),
        ("TE: trailers\r\n", RequestBody::None),
    ] {
        let head = format!("POST / HTTP/1.1\r\n{HOST}{fields}\r\n");
        assert_eq!(facts(&head).body, body, "{fields}");
    }
    assert!(
        facts(&format!(
            "GET / HTTP/1.1\r\n{HOST}TE: gzip, Trailers\r\n\r\n"
        ))
        .te_trailers
    );
}

#[test]
fn parse_alone_refuses_what_is_not_exactly_one_head() {
    let mut slots = field_slots::<8>();
    for bad in [
        &b""[..],
        b"GET / HTTP/1.1\r\nHost: h\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\nx",
        b"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\nHost: h\n\n",
        b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        assert!(
            request::parse(bad, &LIMITS, &mut slots).is_err(),
            "{}",
            bad.escape_ascii()
        );
    }
}
