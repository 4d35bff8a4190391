use super::*;

const GET: Asked = Asked {
    head: false,
    upgrade: false,
};

fn read(bytes: &[u8], asked: Asked) -> Result<ResponseFacts, &'static str> {
    let mut slots = field_slots::<128>();
    match HeadScanner::response().find(bytes, usize::MAX) {
        Scan::Incomplete => panic!("incomplete: {}", bytes.escape_ascii()),
        Scan::Bad(reason) => Err(reason.code()),
        Scan::Complete { skip, len } => {
            assert_eq!(skip, 0);
            response::parse(&bytes[..len], asked, &mut slots)
                .map(|r| r.facts)
                .map_err(Reason::code)
        }
    }
}

#[test]
fn i27_i28_refused_responses() {
    for (bytes, reason) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: foo\r\n\r\n",
            "bad_content_length",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "conflicting_lengths",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 30\r\n\r\n",
            "length_and_coding",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "unsupported_coding",
        ),
        (
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "coding_on_http10",
        ),
        (
            "HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\nContent-Length: 2\r\n\r\n",
            "obs_fold",
        ),
        ("HTTP/1.1 200 OK\r\nX-A: a\rb\r\n\r\n", "bare_cr"),
        ("HTTP/1.1 200 OK\r\nX-A: a\0b\r\n\r\n", "control_byte"),
        ("HTTP/1.1 200 OK\r\nX A: b\r\n\r\n", "space_before_colon"),
        (
            "HTTP/1.1 abc OK\r\nContent-Length: 2\r\n\r\n",
            "bad_status_line",
        ),
        ("HTTP/1.1 99 OK\r\n\r\n", "bad_status_line"),
        ("HTTP/1.1 099 OK\r\n\r\n", "bad_status_line"),
        ("HTTP/2.0 200 OK\r\n\r\n", "bad_status_line"),
        ("hello", "bad_status_line"),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", "bad_status_line"),
        (
            "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n",
            "unasked_upgrade",
        ),
    ] {
        assert_eq!(read(bytes.as_bytes(), GET), Err(reason), "{bytes:?}");
    }
}

#[test]
fn r13_bodies() {
    let head = Asked {
        head: true,
        upgrade: false,
    };
    for (bytes, asked, body, length) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n",
            GET,
            ResponseBody::Length(4),
            Some(4),
        ),
        (
            "HTTP/1.1 200 OK\r\n\r\n",
            GET,
            ResponseBody::UntilClose,
            None,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            GET,
            ResponseBody::Chunked,
            None,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9757\r\n\r\n",
            head,
            ResponseBody::None,
            Some(9757),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            head,
            ResponseBody::None,
            None,
        ),
        (
            "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
            GET,
            ResponseBody::None,
            Some(0),
        ),
        (
            "HTTP/1.1 304 X\r\nContent-Length: 10\r\n\r\n",
            GET,
            ResponseBody::None,
            Some(10),
        ),
        (
            "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n",
            GET,
            ResponseBody::None,
            None,
        ),
        (
            "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\n",
            GET,
            ResponseBody::Length(1),
            Some(1),
        ),
        (
            "HTTP/1.1 200 OK\nContent-Length: 1\n\n",
            GET,
            ResponseBody::Length(1),
            Some(1),
        ),
    ] {
        let facts = read(bytes.as_bytes(), asked).unwrap();
        assert_eq!(
            (facts.body, facts.declared_length),
            (body, length),
            "{bytes:?}"
        );
    }
}

#[test]
fn r17_keep_alive() {
    for (bytes, keeps, timeout) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true, None),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            false,
            None,
        ),
        ("HTTP/1.1 200 OK\r\n\r\n", false, None),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false, None),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n",
            true,
            None,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nKeep-Alive: max=5, Timeout = 7\r\n\r\n",
            true,
            Some(7),
        ),
        (
            "HTTP/1.1 204 OK\r\nKeep-Alive: timeout=x\r\n\r\n",
            true,
            None,
        ),
    ] {
        let facts = read(bytes.as_bytes(), GET).unwrap();
        assert_eq!(
            (facts.keep_alive, facts.keep_alive_timeout),
            (keeps, timeout),
            "{bytes:?}"
        );
    }
}

#[test]
fn r13_r14_interim_and_switch() {
    let asked = Asked {
        head: false,
        upgrade: true,
    };
    let switch = read(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n", asked).unwrap();
    assert!(switch.is_switch() && !switch.is_interim() && !switch.keep_alive);
    let hints = read(b"HTTP/1.1 103 X\r\n\r\n", GET).unwrap();
    assert!(hints.is_interim() && !hints.is_switch());
    let invite = read(b"HTTP/1.1 100 Continue\r\n\r\n", GET).unwrap();
    assert!(invite.is_interim() && !invite.is_switch());
}

#[test]
fn r14_a_101_switches_within_what_was_asked() {
    let upgrade = Asked {
        head: false,
        upgrade: true,
    };
    for (asked, named, within) in [
        ("websocket", "Upgrade: websocket\r\n", true),
        ("websocket", "upgrade: WebSocket\r\n", true),
        ("irc/6.9, RTA/x11 ,websocket,", "Upgrade: rta/X11\r\n", true),
        ("a, b, c", "Upgrade: c, a\r\n", true),
        ("a, b, c", "Upgrade: c\r\nUpgrade: a\r\n", true),
        ("a, b, c", "Upgrade: c, d\r\n", false),
        ("a, b, c", "Upgrade: c\r\nUpgrade: d\r\n", false),
        ("irc/6.9", "Upgrade: irc/6.8\r\n", false),
        ("websocket", "Upgrade: h2c\r\n", false),
        ("websocket", "Upgrade: web\r\n", false),
        ("websocket", "Upgrade: \r\n", false),
        ("websocket", "Upgrade: ,\r\n", false),
        ("websocket", "Connection: Upgrade\r\n", false),
        ("", "Upgrade: websocket\r\n", false),
    ] {
        let head = format!("HTTP/1.1 101 X\r\n{named}\r\n");
        let mut slots = field_slots::<8>();
        let head = response::parse(head.as_bytes(), upgrade, &mut slots).unwrap();
        let told = head.switches_within(asked.as_bytes());
        assert_eq!(told, within, "{asked}: {named}");
    }
}

#[test]
fn r15_event_streams() {
    for (fields, stream) in [
        ("Content-Type: text/event-stream\r\n", true),
        ("Content-Type: Text/Event-Stream ; charset=utf-8\r\n", true),
        ("Content-Type: text/event-streams\r\n", false),
        ("X-Accel-Buffering: no\r\n", true),
        ("X-Accel-Buffering: yes\r\n", false),
        ("", false),
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        assert_eq!(
            read(bytes.as_bytes(), GET).unwrap().event_stream,
            stream,
            "{fields}"
        );
    }
}

#[test]
fn i27_field_limit_is_the_slots() {
    let mut slots = field_slots::<2>();
    let head = b"HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n";
    let fault = response::parse(head, GET, &mut slots).unwrap_err();
    assert_eq!(fault, Reason::ResponseHeadTooLarge);
}
