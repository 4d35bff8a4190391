use super::*;
use reply::Promised;

fn plain<'a>() -> Reply<'a> {
    Reply {
        client: Version::Http11,
        keep_alive: true,
        rewrite: None,
        via: false,
    }
}

fn relayed(head: &str, asked: Asked, reply: &Reply<'_>) -> (String, Promised) {
    let mut slots = field_slots::<64>();
    let response = response::parse(head.as_bytes(), asked, &mut slots).unwrap();
    let mut out = Vec::new();
    let promised = write_response_head(&response, reply, &mut out);
    (String::from_utf8(out).unwrap(), promised)
}

const GET: Asked = Asked {
    head: false,
    upgrade: false,
};
const HEAD: Asked = Asked {
    head: true,
    upgrade: false,
};

/// As for requests; here a line may also end with a bare line feed.
#[test]
fn lines_are_written_alike_however_they_came() {
    let head = "HTTP/1.1 204 X\r\nA: 1\r\nB: 2\nC:3\r\nD:\nE: 5\r\nServer: x \r\nF: 6\n\n";
    let (out, _) = relayed(head, GET, &plain());
    assert_eq!(
        out,
        "HTTP/1.1 204 X\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: \r\nE: 5\r\nServer: x\r\nF: 6\r\n\r\n"
    );
}

#[test]
fn r13_framing_towards_the_client() {
    let http10 = Reply {
        client: Version::Http10,
        ..plain()
    };
    let until_close = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 04\r\ncontent-length: 4\r\n\r\n";
    for (head, asked, reply, seen, body, keeps) in [
        (
            length,
            GET,
            plain(),
            "Content-Length: 4\r\n\r\n",
            ResponseBody::Length(4),
            true,
        ),
        (
            length,
            HEAD,
            plain(),
            "Content-Length: 4\r\n\r\n",
            ResponseBody::None,
            true,
        ),
        (
            length,
            GET,
            http10,
            "Content-Length: 4\r\nConnection: keep-alive\r\n\r\n",
            ResponseBody::Length(4),
            true,
        ),
        (
            chunked,
            GET,
            plain(),
            "Transfer-Encoding: chunked\r\n\r\n",
            ResponseBody::Chunked,
            true,
        ),
        (chunked, HEAD, plain(), "\r\n", ResponseBody::None, true),
        (
            chunked,
            GET,
            http10,
            "Connection: close\r\n\r\n",
            ResponseBody::UntilClose,
            false,
        ),
        (
            until_close,
            GET,
            plain(),
            "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",
            ResponseBody::Chunked,
            true,
        ),
        (
            until_close,
            GET,
            http10,
            "Content-Type: text/plain\r\nConnection: close\r\n\r\n",
            ResponseBody::UntilClose,
            false,
        ),
    ] {
        let (out, promised) = relayed(head, asked, &reply);
        assert_eq!(out, format!("HTTP/1.1 200 OK\r\n{seen}"), "{head}");
        assert_eq!(
            promised,
            Promised {
                body,
                keep_alive: keeps
            },
            "{head}"
        );
    }
}

#[test]
fn r13_statuses_without_a_body() {
    let (out, _) = relayed(
        "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
        GET,
        &plain(),
    );
    assert_eq!(out, "HTTP/1.1 204 No Content\r\n\r\n");
    let unmodified = "HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\nETag: \"x\"\r\n\r\n";
    let (out, promised) = relayed(unmodified, GET, &plain());
    assert_eq!(out, unmodified);
    assert_eq!(promised.body, ResponseBody::None);
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    let closing = Reply {
        keep_alive: false,
        ..plain()
    };
    assert_eq!(relayed(hints, GET, &closing).0, hints);
}

#[test]
fn r11_fields_of_the_connection_are_removed() {
    let head = "HTTP/1.0 200 \r\nConnection: X-Foo\r\nX-Foo: 1\r\nKeep-Alive: timeout=5\r\n\
                Proxy-Authenticate: x\r\nUpgrade: h2\r\nServer: S\r\nContent-Length: 0\r\n\r\n";
    let reply = Reply {
        keep_alive: false,
        via: true,
        ..plain()
    };
    let (out, _) = relayed(head, GET, &reply);
    assert_eq!(
        out,
        "HTTP/1.1 200 OK\r\nServer: S\r\nContent-Length: 0\r\nVia: 1.0 toron\r\n\
         Connection: close\r\n\r\n"
    );
}

#[test]
fn reason_phrases_are_kept() {
    let (out, _) = relayed("HTTP/1.1 302 X\r\nContent-Length: 0\r\n\r\n", GET, &plain());
    assert!(out.starts_with("HTTP/1.1 302 X\r\n"));
    let (out, _) = relayed("HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n", GET, &plain());
    assert!(out.starts_with("HTTP/1.1 299 \r\n"));
}

#[test]
fn r14_a_switch_keeps_upgrade() {
    let asked = Asked {
        head: false,
        upgrade: true,
    };
    let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Accept: s3p\r\nContent-Length: 3\r\n\r\n";
    let (out, promised) = relayed(head, asked, &plain());
    assert_eq!(
        out,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3p\r\n\
         Connection: Upgrade\r\n\r\n"
    );
    assert_eq!(promised.body, ResponseBody::None);
}

#[test]
fn r8_r9_r10_only_where_a_prefix_was_stripped() {
    let rewrite = Rewrite {
        prefix: b"/app",
        target_path: b"",
        target_authority: b"10.0.0.1:9000",
        client_scheme: b"http",
        client_host: b"t.example",
        redirects: true,
        cookie_path: true,
    };
    let head = |status| {
        format!(
            "HTTP/1.1 {status} X\r\nLocation: /login\r\nSet-Cookie: a=1; Path=/\r\n\
             Set-Cookie: b=2\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let mapped = |l, c| {
        format!("Location: {l}\r\nSet-Cookie: a=1; Path={c}\r\nSet-Cookie: b=2\r\nContent-Length: 0\r\n\r\n")
    };
    for (status, rewrite, location, cookie) in [
        (302, Some(rewrite), "/app/login", "/app"),
        (201, Some(rewrite), "/login", "/app"),
        (302, None, "/login", "/"),
        (
            302,
            Some(Rewrite {
                redirects: false,
                ..rewrite
            }),
            "/login",
            "/app",
        ),
        (
            302,
            Some(Rewrite {
                cookie_path: false,
                ..rewrite
            }),
            "/app/login",
            "/",
        ),
    ] {
        let (out, _) = relayed(&head(status), GET, &Reply { rewrite, ..plain() });
        assert_eq!(
            out,
            format!("HTTP/1.1 {status} X\r\n{}", mapped(location, cookie))
        );
    }
}
