//! What is provoked, and what must be said of it.

pub const CONFIG: &str = "\
server:
  host: 127.0.0.1
  port: 0
  engine: ENGINE
  worker_pool_size: 2
  max_header_bytes: 1024
  read_timeout: 400ms
  max_body_bytes: 100000
  buffer_memory: 65536
  header_deadline: 20s
  explain_header: on
proxy:
  transport:
    response_header_timeout: 300ms
firewall:
  enabled: false
admin:
  key: k
  subnets: [127.0.0.0/8]
";

pub const ROUTES: &str = "\
routes:
  - {prefix: /plain, target: 'http://HANGS'}
  - prefix: /small
    max_body_bytes: 10
    target: http://HANGS
  - {prefix: /get, method: GET, target: 'http://HANGS'}
  - prefix: /reading
    read_timeout: 200ms
    target: http://HANGS
  - prefix: /drip
    read_timeout: 250ms
    min_progress_bytes: 64
    stream_request_body: true
    target: http://HANGS
  - {prefix: /pause, read_timeout: 250ms, stream_request_body: true, target: 'http://HANGS'}
  - prefix: /full
    target: http://HANGS
    response_header_timeout: 30s
    max_concurrency: 1
  - {prefix: /refuses, target: 'http://REFUSES', retries: 0}
  - {prefix: /garbage, target: 'http://GARBAGE'}
  - {prefix: /closes, target: 'http://CLOSES', retries: 0}
  - {prefix: /unknown, target: 'http://no-such-host.invalid:81'}
  - prefix: /head-late
    header_deadline: 200ms
    response_header_timeout: 30s
    target: http://HANGS
  - prefix: /late
    request_deadline: 200ms
    response_header_timeout: 30s
    target: http://HANGS
  - {prefix: /memory, stream_request_body: false, max_body_bytes: 1MB, target: 'http://HANGS'}
  - prefix: /reject
    inbound_chunked_mode: reject
    target: http://HANGS
  - {prefix: /bad-head, target: 'http://BAD-HEAD'}
  - {prefix: /bad-framing, target: 'http://BAD-FRAMING'}
  - {prefix: /bad-chunk, target: 'http://BAD-CHUNK'}
  - {prefix: /switches, target: 'http://SWITCHES'}
  - {prefix: /huge-head, target: 'http://HUGE-HEAD'}
  - {prefix: /ws, target: 'http://SWITCHES'}
  - prefix: /targets-full
    target: http://HANGS
    response_header_timeout: 30s
    max_concurrency: -1
    target_max_concurrency: 1
  - prefix: /targets-out
    target: http://REFUSES
    health_check_path: /
    health_check_interval: 50ms
    consecutive_failures: 1
  - {prefix: /fine, target: 'http://ANSWERS'}
  - {prefix: /guarded, response_header_timeout: 11s, target: 'http://HANGS'}
";

/// What the list must say about a limit.
#[derive(Clone, Copy)]
pub enum Limit {
    /// No setting is the reason.
    None,
    /// Setting, value, by whom it was set, and what stands on its line.
    Written(&'static str, Option<u64>, &'static str, &'static str),
    /// Setting and value; nothing is written.
    Default(&'static str, u64),
    /// Setting and value of a part of toron.
    BuiltIn(&'static str, u64),
}
use Limit::{BuiltIn, Default as Unwritten, None as NoLimit, Written};

pub struct Case {
    pub request: Vec<u8>,
    pub body: &'static str,
    pub reason: &'static str,
    pub limit: Limit,
    /// Least and most of what was observed; for times there is no most that a busy machine keeps.
    pub observed: Option<(u64, u64)>,
}

pub const LONG: u64 = 60_000;

pub fn case(request: impl Into<Vec<u8>>, body: &'static str, reason: &'static str) -> Case {
    Case {
        request: request.into(),
        body,
        reason,
        limit: NoLimit,
        observed: None,
    }
}

impl Case {
    pub fn by(self, limit: Limit) -> Case {
        Case { limit, ..self }
    }

    pub fn seen(self, least: u64, most: u64) -> Case {
        let observed = Some((least, most));
        Case { observed, ..self }
    }
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: t.example\r\n\r\n")
}

pub fn with(method: &str, path: &str, fields: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: t.example\r\n{fields}\r\n")
}

pub const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

/// Heads and bodies that no route has to do with.
pub fn of_heads() -> Vec<Case> {
    let head = "GET / HTTP/1.1\r\nHost: t.example\r\n";
    let long = format!("{head}X-Long: {}\r\n\r\n", "a".repeat(2000));
    let many = format!("{head}{}\r\n", "A:b\r\n".repeat(110));
    let bad = r#"{"error":"400 Bad Request"}"#;
    let too_large = r#"{"error":"431 Request Header Fields Too Large"}"#;
    let none = r#"{"error":"405 Method Not Allowed"}"#;
    let coding = r#"{"error":"501 Not Implemented: Unsupported Transfer-Encoding"}"#;
    let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
    vec![
        case("GET / HTTP/1.1\nHost: t\r\n\r\n", bad, "bare_lf"),
        case(with("POST", "/plain", both), bad, "length_and_coding"),
        case(get("/a/../../b"), bad, "path_above_root"),
        case(with("POST", "/plain", CHUNKED) + "x\r\n", bad, "chunk_size"),
        case(long, too_large, "head_too_large")
            .by(Written(
                "max_header_bytes",
                Some(1024),
                "server",
                "max_header_bytes: 1024",
            ))
            .seen(1025, 4096),
        case(many, too_large, "too_many_fields")
            .by(Unwritten("max_header_count", 100))
            .seen(111, 111),
        case(
            with("POST", "/plain", CHUNKED) + "0\r\nA: " + &"b".repeat(5000) + "\r\n\r\n",
            too_large,
            "trailers_too_large",
        )
        .by(BuiltIn("trailers", 4096)),
        case(head, r#"{"error":"408 Request Timeout"}"#, "header_timeout")
            .by(Written(
                "read_timeout",
                Some(400),
                "server",
                "read_timeout: 400ms",
            ))
            .seen(400, LONG),
        case(
            "CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n",
            none,
            "connect_method",
        ),
        case(
            with("POST", "/plain", "Expect: magic\r\nContent-Length: 1\r\n") + "x",
            r#"{"error":"417 Expectation Failed"}"#,
            "unknown_expectation",
        ),
        case(
            with("POST", "/plain", "Transfer-Encoding: gzip, chunked\r\n"),
            coding,
            "unsupported_coding",
        ),
        case(
            "GET / HTTP/3.0\r\nHost: t.example\r\n\r\n",
            r#"{"error":"505 HTTP Version Not Supported"}"#,
            "unsupported_version",
        ),
        case(get("/none"), r#"{"error":"404 Not Found"}"#, "no_route"),
        case(with("POST", "/get", ""), none, "method_not_allowed"),
        case(
            with("POST", "/none", "Content-Length: 200000\r\n"),
            DECLARED,
            "declared_too_large",
        )
        .by(Written(
            "max_body_bytes",
            Some(100_000),
            "server",
            "max_body_bytes: 100000",
        ))
        .seen(200_000, 200_000),
        case(
            with(
                "GET",
                "/internal/api/status",
                "X-Forwarded-For: 192.0.2.1\r\n",
            ),
            r#"{"error":"403 Forbidden: Access denied by administrative subnet policy"}"#,
            "admin_subnet",
        )
        .by(Written("subnets", None, "admin", "subnets:")),
        case(
            with("GET", "/internal/api/status", "X-Toron-Admin-Key: no\r\n"),
            r#"{"error":"401 Unauthorized"}"#,
            "admin_key",
        )
        .by(Written("key", None, "admin", "key: k")),
    ]
}

pub const DECLARED: &str =
    r#"{"error":"413 Payload Too Large: request Content-Length exceeds effective route limit"}"#;

/// What a route, or the upstream behind it, is the reason for.
pub fn of_routes() -> Vec<Case> {
    let length = |n: usize| format!("Content-Length: {n}\r\n");
    let failed = r#"{"error":"502 Bad Gateway: Upstream connection failed"}"#;
    vec![
        case(
            with("POST", "/small", &length(11)),
            DECLARED,
            "declared_too_large",
        )
        .by(Written(
            "max_body_bytes",
            Some(10),
            "route",
            "max_body_bytes: 10",
        ))
        .seen(11, 11),
        case(
            with("POST", "/small", CHUNKED) + "c\r\nhello, world\r\n",
            r#"{"error":"413 Payload Too Large"}"#,
            "body_too_large",
        )
        .by(Written(
            "max_body_bytes",
            Some(10),
            "route",
            "max_body_bytes: 10",
        ))
        .seen(12, 12),
        case(
            with("POST", "/reading", &length(100)) + "begin",
            r#"{"error":"408 Request Timeout"}"#,
            "read_timeout",
        )
        .by(Written(
            "read_timeout",
            Some(200),
            "route",
            "read_timeout: 200ms",
        ))
        .seen(200, LONG),
        case(
            with("POST", "/memory", &length(100_000)) + "begin",
            r#"{"error":"503 Service Unavailable: Buffer memory exhausted"}"#,
            "buffer_memory",
        )
        .by(Written(
            "buffer_memory",
            Some(65_536),
            "server",
            "buffer_memory: 65536",
        ))
        .seen(100_000, 110_000),
        case(
            with("POST", "/reject", CHUNKED),
            r#"{"error":"501 Not Implemented: Inbound chunked transfer encoding is disabled"}"#,
            "chunked_disabled",
        )
        .by(Written(
            "inbound_chunked_mode",
            None,
            "route",
            "inbound_chunked_mode: reject",
        )),
        case(get("/refuses"), failed, "connect_failed"),
        case(
            get("/garbage"),
            r#"{"error":"502 Bad Gateway: Invalid upstream response"}"#,
            "bad_status_line",
        ),
        case(
            get("/closes"),
            r#"{"error":"502 Bad Gateway: Upstream closed the connection"}"#,
            "upstream_closed",
        ),
        case(
            get("/unknown"),
            r#"{"error":"502 Bad Gateway: Upstream name does not resolve"}"#,
            "name_not_resolved",
        ),
        case(
            get("/plain"),
            r#"{"error":"504 Gateway Timeout: Upstream response header timeout expired"}"#,
            "response_header_timeout",
        )
        .by(Written(
            "response_header_timeout",
            Some(300),
            "transport",
            "response_header_timeout: 300ms",
        ))
        .seen(300, LONG),
        case(
            get("/head-late"),
            r#"{"error":"504 Gateway Timeout: Request timed out"}"#,
            "header_deadline",
        )
        .by(Written(
            "header_deadline",
            Some(200),
            "route",
            "header_deadline: 200ms",
        ))
        .seen(200, LONG),
        case(
            get("/late"),
            r#"{"error":"504 Gateway Timeout: Request deadline exceeded"}"#,
            "request_deadline",
        )
        .by(Written(
            "request_deadline",
            Some(200),
            "route",
            "request_deadline: 200ms",
        ))
        .seen(200, LONG),
    ]
}
