use super::*;
use forward::{public_origin, sane_request_id};

fn plain<'a>() -> Forward<'a> {
    Forward {
        path: b"/x",
        stripped: None,
        target_path: b"",
        target_authority: b"10.0.0.1:9000",
        preserve_host: true,
        trusted: false,
        peer_ip: b"203.0.113.7",
        client_ip: b"203.0.113.7",
        scheme: b"http",
        request_id: b"id-1",
        via: false,
        expect: false,
        keep_alive: true,
        framing: UpstreamFraming::AsReceived,
    }
}

fn forwarded(head: &str, forward: &Forward<'_>) -> (String, u32) {
    with_request(head.as_bytes(), |r, _| {
        let mut out = Vec::new();
        let request = r.unwrap();
        write_request_head(&request, forward, &mut out);
        (String::from_utf8(out).unwrap(), request.underscores)
    })
    .unwrap()
}

/// The lines between the host and the fields that toron adds.
fn passed(fields: &str, forward: &Forward<'_>) -> String {
    let head = format!("POST /x HTTP/1.1\r\nHost: t.example\r\n{fields}\r\n");
    let (out, _) = forwarded(&head, forward);
    let start = out.find("Host: t.example\r\n").unwrap() + "Host: t.example\r\n".len();
    out[start..out.find("X-Forwarded-For: ").unwrap()].to_owned()
}

#[test]
fn a_whole_head() {
    let head =
        "GET /api/x?q=%20a HTTP/1.1\r\nuser-agent: curl\r\nHost: t.example\r\nACCEPT: */*\r\n\r\n";
    let forward = Forward {
        stripped: Some(b"/api"),
        target_path: b"/v1",
        via: true,
        ..plain()
    };
    let (out, dropped) = forwarded(head, &forward);
    assert_eq!(
        out,
        "GET /v1/x?q=%20a HTTP/1.1\r\nHost: t.example\r\nuser-agent: curl\r\nACCEPT: */*\r\n\
         X-Forwarded-For: 203.0.113.7\r\nX-Real-IP: 203.0.113.7\r\nX-Forwarded-Host: t.example\r\n\
         X-Forwarded-Proto: http\r\nX-Forwarded-Prefix: /api\r\nX-Request-Id: id-1\r\n\
         Via: 1.1 toron\r\n\r\n"
    );
    assert_eq!(dropped, 0);
}

/// Lines are copied in one piece where they stand as toron writes them, and written where they do not:
/// what comes of it is the same.
#[test]
fn lines_are_written_alike_however_they_came() {
    let fields =
        "A: 1\r\nB:2\r\nC:  3\r\nD: 4 \r\nE:\t5\r\nF:\r\nG: \r\nH: 8\r\nX_I: 9\r\nJ: a: b\r\n\
        Cookie: c\r\nX-Real-IP: x\r\nK: \t\r\nL: 1  2\r\n";
    let canonical = "A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\nF: \r\nG: \r\nH: 8\r\nJ: a: b\r\n\
        Cookie: c\r\nK: \r\nL: 1  2\r\n";
    assert_eq!(passed(fields, &plain()), canonical);
    assert_eq!(passed(canonical, &plain()), canonical);
    // Behind the first 64 as well.
    let many: String = (0..90).map(|n| format!("N{n}: {n}\r\n")).collect();
    assert_eq!(passed(&many, &plain()), many);
}

#[test]
fn r11_fields_of_the_connection_are_removed() {
    for (fields, left) in [
        (
            "Connection: X-Foo, keep-alive\r\nX-Foo: 1\r\nX-Bar: 2\r\n",
            "X-Bar: 2\r\n",
        ),
        ("X-Foo: 1\r\nConnection: close\r\nConnection: x-foo\r\n", ""),
        (
            "Keep-Alive: timeout=9\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\n",
            "",
        ),
        (
            "Proxy-Authorization: x\r\nProxy-Authenticate: y\r\nUpgrade: websocket\r\n",
            "",
        ),
        ("X-Toron-Admin-Key: secret\r\nA: b\r\n", "A: b\r\n"),
        (
            "Content-Length: 5\r\nConnection: Content-Length, Host\r\n",
            "Content-Length: 5\r\n",
        ),
        (
            "Content-Length: 5\r\nA: b\r\nContent-Length: 005\r\n",
            "Content-Length: 5\r\nA: b\r\n",
        ),
        ("Forwarded: for=1.2.3.4\r\nVia: 1.1 x\r\n", "Via: 1.1 x\r\n"),
        ("X-Pad: \t v \t \r\n", "X-Pad: v\r\n"),
        ("Empty:\r\n", "Empty: \r\n"),
        (
            "Expect: 100-continue\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\n",
        ),
    ] {
        assert_eq!(passed(fields, &plain()), left, "{fields:?}");
    }
    let taken = Forward {
        expect: true,
        ..plain()
    };
    let fields = "Content-Length: 1\r\nExpect: 100-continue\r\n";
    assert_eq!(passed(fields, &taken), fields);
}

#[test]
fn i4_underscore_names_are_dropped_and_counted() {
    let head = "GET /x HTTP/1.1\r\nHost: t.example\r\nX_Real_IP: 1\r\na_b: c\r\nA-B: d\r\n\r\n";
    let (out, dropped) = forwarded(head, &plain());
    assert_eq!(dropped, 2);
    assert!(!out.contains('_') && out.contains("A-B: d\r\n"));
}

#[test]
fn r12_untrusted_peers_are_not_believed() {
    let head = "GET /x HTTP/1.1\r\nHost: t.example\r\nConnection: close, X-Forwarded-For\r\n\
                X-Forwarded-For: 198.51.100.7\r\nx-forwarded-for: 9.9.9.9\r\nX-Real-Ip: 1\r\n\
                X-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Prefix: /e\r\n\
                X-Request-Id: theirs\r\nForwarded: for=1\r\n\r\n";
    let (out, _) = forwarded(head, &plain());
    assert_eq!(
        out,
        "GET /x HTTP/1.1\r\nHost: t.example\r\nX-Forwarded-For: 203.0.113.7\r\n\
         X-Real-IP: 203.0.113.7\r\nX-Forwarded-Host: t.example\r\nX-Forwarded-Proto: http\r\n\
         X-Request-Id: id-1\r\n\r\n"
    );
}

#[test]
fn r12_trusted_proxies_are() {
    let head = "GET /x HTTP/1.1\r\nHost: t.example\r\n\
                X-Forwarded-For: 198.51.100.7\r\nx-forwarded-for: 9.9.9.9\r\n\
                X-Forwarded-Host: public.example\r\nX-Forwarded-Proto: https\r\n\
                X-Forwarded-Prefix: /outer/\r\nForwarded: for=1\r\n\r\n";
    let forward = Forward {
        trusted: true,
        stripped: Some(b"/api"),
        client_ip: b"9.9.9.9",
        ..plain()
    };
    let (out, _) = forwarded(head, &forward);
    assert_eq!(
        out,
        "GET /x HTTP/1.1\r\nHost: t.example\r\nForwarded: for=1\r\n\
         X-Forwarded-For: 198.51.100.7, 9.9.9.9, 203.0.113.7\r\n\
         X-Real-IP: 9.9.9.9\r\nX-Forwarded-Host: public.example\r\nX-Forwarded-Proto: https\r\n\
         X-Forwarded-Prefix: /outer/api\r\nX-Request-Id: id-1\r\n\r\n"
    );
}

#[test]
fn r12_request_ids() {
    for (id, trusted, kept) in [
        ("abc-123", true, true),
        ("abc-123", false, false),
        ("", true, false),
        ("a b", true, false),
        ("a\"b", true, false),
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: {id}\r\n\r\n");
        let seen = with_request(head.as_bytes(), |r, _| {
            sane_request_id(&r.unwrap(), trusted) == Some(id.as_bytes())
        });
        assert_eq!(seen, Some(kept), "{id}");
    }
    let long = format!(
        "GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: {}\r\n\r\n",
        "a".repeat(129)
    );
    let seen = with_request(long.as_bytes(), |r, _| {
        sane_request_id(&r.unwrap(), true).is_none()
    });
    assert_eq!(seen, Some(true));
}

#[test]
fn r12_hosts() {
    for (head, preserve, host) in [
        (
            "GET / HTTP/1.1\r\nHost: t.example:81\r\n\r\n",
            true,
            "t.example:81",
        ),
        (
            "GET / HTTP/1.1\r\nHost: t.example:81\r\n\r\n",
            false,
            "10.0.0.1:9000",
        ),
        (
            "GET http://t.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n",
            true,
            "t.example",
        ),
        ("GET / HTTP/1.0\r\n\r\n", true, "10.0.0.1:9000"),
    ] {
        let (out, _) = forwarded(
            head,
            &Forward {
                preserve_host: preserve,
                ..plain()
            },
        );
        assert_eq!(out.matches("\r\nHost: ").count(), 1, "{head}");
        assert!(out.contains(&format!("\r\nHost: {host}\r\n")), "{head}");
        assert!(!out.contains("other.example"));
        assert_eq!(out.contains("X-Forwarded-Host"), head.contains("t.example"));
    }
}

#[test]
fn framing_goes_along_once() {
    let chunked =
        "POST /x HTTP/1.1\r\nHost: h\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (out, _) = forwarded(chunked, &plain());
    assert_eq!(out.matches("Transfer-Encoding: chunked\r\n").count(), 1);
    assert!(out.contains("Trailer: X-Sum\r\n") && !out.contains("Content-Length"));
    let collected = Forward {
        framing: UpstreamFraming::Collected(12),
        ..plain()
    };
    let (out, _) = forwarded(chunked, &collected);
    assert_eq!(out.matches("Content-Length: 12\r\n").count(), 1);
    assert!(!out.contains("Transfer-Encoding") && !out.contains("Trailer:"));
    let (out, _) = forwarded("POST /x HTTP/1.1\r\nHost: h\r\n\r\n", &plain());
    assert!(!out.contains("Content-Length") && !out.contains("Transfer-Encoding"));
}

#[test]
fn r11_r14_connection_towards_the_upstream() {
    for (fields, keep_alive, connection, upgrade) in [
        ("", true, None, false),
        ("", false, Some("close"), false),
        ("Connection: close\r\n", true, None, false),
        ("TE: trailers, gzip\r\n", true, Some("TE"), false),
        ("TE: trailers\r\n", false, Some("TE, close"), false),
        (
            "Connection: Upgrade\r\nUpgrade: websocket\r\n",
            false,
            Some("Upgrade"),
            true,
        ),
        (
            "Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n",
            true,
            None,
            false,
        ),
    ] {
        let head = format!("GET /x HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let (out, _) = forwarded(
            &head,
            &Forward {
                keep_alive,
                ..plain()
            },
        );
        let line = out.lines().find_map(|l| l.strip_prefix("Connection: "));
        assert_eq!(line, connection, "{fields}");
        assert_eq!(out.contains("Upgrade: websocket\r\n"), upgrade, "{fields}");
        assert_eq!(
            out.contains("\r\nTE: trailers\r\n"),
            fields.starts_with("TE"),
            "{fields}"
        );
        assert!(!out.contains("HTTP2-Settings"));
    }
}

#[test]
fn r9_r12_public_origin() {
    let head =
        "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: p\r\n\r\n";
    let empty = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto:\r\nX-Forwarded-Host:\r\n\r\n";
    let none = "GET / HTTP/1.0\r\n\r\n";
    for (head, trusted, want) in [
        (head, true, ("https", "p")),
        (head, false, ("http", "h")),
        (empty, true, ("http", "h")),
        (none, true, ("http", "")),
    ] {
        with_request(head.as_bytes(), |r, _| {
            let seen = public_origin(&r.unwrap(), trusted, b"http");
            assert_eq!(seen, (want.0.as_bytes(), want.1.as_bytes()), "{head}");
        })
        .unwrap();
    }
}
