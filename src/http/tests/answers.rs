use super::*;
use answer::{FixedAnswer, ALLOW_ALL};

const OPEN: Rendering<'static> = Rendering {
    client: Version::Http11,
    head_only: false,
    keep_alive: true,
    allow: "",
    date: b"",
    explain: None,
};

fn text(answer: Answer, rendering: &Rendering<'_>) -> (String, bool) {
    let mut out = Vec::new();
    let keeps = answer.write(rendering, &mut out);
    (String::from_utf8(out).unwrap(), keeps)
}

/// Checks one answer byte for byte, on a connection that would go on.
fn literal(answer: Answer, status_line: &str, extra: &str, body: &str, keeps: bool) {
    let close = if keeps { "" } else { "Connection: close\r\n" };
    let want = format!(
        "HTTP/1.1 {status_line}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         {extra}{close}\r\n{body}",
        body.len()
    );
    assert_eq!(text(answer, &OPEN), (want, keeps));
    assert_eq!(answer.closes(), !keeps);
    assert!(status_line.starts_with(&answer.status().to_string()));
}

macro_rules! literals {
    ($($name:ident: $answer:expr, $line:literal, $extra:expr, $body:literal, $keeps:literal;)*) => {
        $(#[test] fn $name() { literal($answer, $line, $extra, $body, $keeps); })*
    };
}

const RETRY_5: &str = "Retry-After: 5\r\n";
const RETRY_1: &str = "Retry-After: 1\r\n";
const ALLOW: &str = "Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n";

literals! {
    i4_bad_request: Answer::BadRequest, "400 Bad Request", "",
        r#"{"error":"400 Bad Request"}"#, false;
    unauthorized: Answer::Unauthorized, "401 Unauthorized", "WWW-Authenticate: Bearer\r\n",
        r#"{"error":"401 Unauthorized"}"#, true;
    admin_subnet: Answer::AdminSubnet, "403 Forbidden", "",
        r#"{"error":"403 Forbidden: Access denied by administrative subnet policy"}"#, true;
    blocked: Answer::AddressBlocked { retry_after: Some(300) }, "403 Forbidden",
        "Retry-After: 300\r\n", r#"{"error":"403 Forbidden: Address is blocked"}"#, true;
    denied: Answer::AddressBlocked { retry_after: None }, "403 Forbidden", "",
        r#"{"error":"403 Forbidden: Address is blocked"}"#, true;
    r4_not_found: Answer::NotFound, "404 Not Found", "", r#"{"error":"404 Not Found"}"#, true;
    r4_method: Answer::MethodNotAllowed, "405 Method Not Allowed", ALLOW,
        r#"{"error":"405 Method Not Allowed"}"#, true;
    i4_connect: Answer::ConnectRefused, "405 Method Not Allowed", ALLOW,
        r#"{"error":"405 Method Not Allowed"}"#, false;
    i3_timeout: Answer::RequestTimeout, "408 Request Timeout", "",
        r#"{"error":"408 Request Timeout"}"#, false;
    i8_declared: Answer::DeclaredTooLarge, "413 Payload Too Large", "",
        r#"{"error":"413 Payload Too Large: request Content-Length exceeds effective route limit"}"#,
        false;
    i10_body: Answer::BodyTooLarge, "413 Payload Too Large", "",
        r#"{"error":"413 Payload Too Large"}"#, false;
    i11_expectation: Answer::ExpectationFailed, "417 Expectation Failed", "",
        r#"{"error":"417 Expectation Failed"}"#, false;
    rate_limited: Answer::RateLimited { retry_after: 0 }, "429 Too Many Requests", RETRY_1,
        r#"{"error":"429 Too Many Requests: Rate limit exceeded"}"#, true;
    i2_head: Answer::HeadTooLarge, "431 Request Header Fields Too Large", "",
        r#"{"error":"431 Request Header Fields Too Large"}"#, false;
    i4_coding: Answer::UnsupportedCoding, "501 Not Implemented", "",
        r#"{"error":"501 Not Implemented: Unsupported Transfer-Encoding"}"#, false;
    chunked_disabled: Answer::ChunkedDisabled, "501 Not Implemented", "",
        r#"{"error":"501 Not Implemented: Inbound chunked transfer encoding is disabled"}"#, false;
    i23_connect: Answer::ConnectFailed, "502 Bad Gateway", "",
        r#"{"error":"502 Bad Gateway: Upstream connection failed"}"#, true;
    i27_invalid: Answer::InvalidResponse, "502 Bad Gateway", "",
        r#"{"error":"502 Bad Gateway: Invalid upstream response"}"#, true;
    i28_closed: Answer::UpstreamClosed, "502 Bad Gateway", "",
        r#"{"error":"502 Bad Gateway: Upstream closed the connection"}"#, true;
    r16_name: Answer::NameNotResolved, "502 Bad Gateway", "",
        r#"{"error":"502 Bad Gateway: Upstream name does not resolve"}"#, true;
    i13_route_full: Answer::RouteFull, "503 Service Unavailable", RETRY_5,
        r#"{"error":"503 Service Unavailable: Route concurrency limit reached"}"#, true;
    i37_memory: Answer::BufferMemory, "503 Service Unavailable", RETRY_1,
        r#"{"error":"503 Service Unavailable: Buffer memory exhausted"}"#, true;
    r19_targets: Answer::TargetsFull, "503 Service Unavailable", RETRY_5,
        r#"{"error":"503 Service Unavailable: All upstream targets are at capacity"}"#, true;
    r20_unhealthy: Answer::TargetsUnhealthy, "503 Service Unavailable", "",
        r#"{"error":"503 Service Unavailable: All upstream targets are unhealthy"}"#, true;
    r21_resources: Answer::LocalResources, "503 Service Unavailable", "",
        r#"{"error":"503 Service Unavailable: Out of local resources"}"#, true;
    connections: Answer::ConnectionLimit, "503 Service Unavailable", RETRY_1,
        r#"{"error":"503 Service Unavailable: Connection limit reached"}"#, false;
    address_connections: Answer::AddressConnectionLimit, "503 Service Unavailable", RETRY_1,
        r#"{"error":"503 Service Unavailable: Per-address connection limit reached"}"#, false;
    i24_header_timeout: Answer::HeaderTimeout, "504 Gateway Timeout", "",
        r#"{"error":"504 Gateway Timeout: Upstream response header timeout expired"}"#, true;
    i26_idle: Answer::UpstreamIdle, "504 Gateway Timeout", "",
        r#"{"error":"504 Gateway Timeout: Upstream idle timeout expired"}"#, true;
    i32_header_deadline: Answer::HeaderDeadline, "504 Gateway Timeout", "",
        r#"{"error":"504 Gateway Timeout: Request timed out"}"#, true;
    i33_request_deadline: Answer::RequestDeadline, "504 Gateway Timeout", "",
        r#"{"error":"504 Gateway Timeout: Request deadline exceeded"}"#, true;
    i4_version: Answer::VersionNotSupported, "505 HTTP Version Not Supported", "",
        r#"{"error":"505 HTTP Version Not Supported"}"#, false;
    health_ok: Answer::Healthy, "200 OK", "", r#"{"status":"ok"}"#, true;
    health_draining: Answer::Draining, "503 Service Unavailable", "",
        r#"{"status":"draining"}"#, true;
}

#[test]
fn options_asterisk() {
    let want = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nAllow: {ALLOW_ALL}\r\n\r\n");
    assert_eq!(text(Answer::Options, &OPEN), (want, true));
}

#[test]
fn r4_allow_names_the_route_methods() {
    let (out, _) = text(
        Answer::MethodNotAllowed,
        &Rendering {
            allow: "GET, PURGE",
            ..OPEN
        },
    );
    assert!(out.contains("\r\nAllow: GET, PURGE\r\n"));
}

#[test]
fn head_and_http10_renderings() {
    let (out, _) = text(
        Answer::NotFound,
        &Rendering {
            head_only: true,
            ..OPEN
        },
    );
    assert!(out.contains("Content-Length: 25\r\n") && out.ends_with("\r\n\r\n"));
    let old = Rendering {
        client: Version::Http10,
        ..OPEN
    };
    let (out, keeps) = text(Answer::NotFound, &old);
    assert!(keeps && out.contains("Connection: keep-alive\r\n"));
    let (out, keeps) = text(
        Answer::NotFound,
        &Rendering {
            keep_alive: false,
            ..OPEN
        },
    );
    assert!(!keeps && out.contains("Connection: close\r\n"));
}

#[test]
fn i9_only_a_timeout_does_not_linger() {
    assert!(!Answer::RequestTimeout.lingers());
    assert!(Answer::DeclaredTooLarge.lingers() && Answer::BadRequest.lingers());
}

#[test]
fn fixed_answers() {
    let fields = [
        ("Retry-After".to_owned(), "7".to_owned()),
        ("Content-Length".to_owned(), "99".to_owned()),
        ("Connection".to_owned(), "x".to_owned()),
    ];
    let fixed = FixedAnswer {
        status: 503,
        fields: &fields,
        body: b"busy",
    };
    let mut out = Vec::new();
    assert!(fixed.write(&OPEN, &mut out));
    assert_eq!(
        out,
        b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"
    );
    out.clear();
    FixedAnswer {
        status: 204,
        fields: &[],
        body: b"x",
    }
    .write(&OPEN, &mut out);
    assert_eq!(out, b"HTTP/1.1 204 No Content\r\n\r\n");
}

#[test]
fn date_and_reason_are_told_where_they_are_asked_for() {
    let told = Rendering {
        date: b"Sun, 06 Nov 1994 08:49:37 GMT",
        explain: Some(Reason::RouteFull),
        ..OPEN
    };
    let (out, _) = text(Answer::RouteFull, &told);
    let head = "HTTP/1.1 503 Service Unavailable\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                X-Toron-Reason: route_full\r\nContent-Type: application/json\r\n";
    assert!(out.starts_with(head), "{out}");
    // A configured answer may have a date of its own.
    for (fields, dates) in [(vec![], 1), (vec![("date".to_owned(), "x".to_owned())], 1)] {
        let fixed = FixedAnswer {
            status: 200,
            fields: &fields,
            body: b"",
        };
        let mut out = Vec::new();
        fixed.write(&told, &mut out);
        let out = String::from_utf8(out).unwrap().to_lowercase();
        assert_eq!(out.matches("\r\ndate: ").count(), dates, "{out}");
        assert!(out.contains("\r\nx-toron-reason: route_full\r\n"), "{out}");
    }
}

/// What is answered in the place of somebody is said by the reason alone.
#[test]
fn reasons_that_are_answered_have_the_status_of_who_is_wrong() {
    for reason in Reason::ALL {
        match (reason.ended_by(), Answer::to(reason).map(|a| a.status())) {
            (Party::Client, answer) => assert_eq!(answer, None, "{reason}"),
            (Party::Upstream, answer) => assert!(matches!(answer, None | Some(502)), "{reason}"),
            (Party::Firewall, answer) => {
                assert!(matches!(answer, None | Some(403 | 429 | 503)), "{reason}");
            }
            (Party::Toron, _) => {}
        }
    }
}
