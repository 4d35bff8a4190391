//! Every answer that toron gives itself. The bodies are literal: operators match
//! on them, tests compare them byte for byte.

use super::field::Name;
use super::framing::never_has_body;
use super::reason::Reason;
use super::syntax::Version;
use super::write::{push_field, push_length, push_persistence, push_status_line};

pub use super::write::reason_phrase;

/// The methods named in `Allow` where no route says otherwise.
pub const ALLOW_ALL: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// An answer from the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 400: syntax, framing, path (I4, I6).
    BadRequest,
    /// 401: wrong or missing admin key.
    Unauthorized,
    /// 403: outside `admin.subnets`.
    AdminSubnet,
    /// 403: deny list or block.
    AddressBlocked {
        /// Seconds left; none for the deny list.
        retry_after: Option<u32>,
    },
    /// 404: no route (R4).
    NotFound,
    /// 405: a route, but not for this method (R4). [`Rendering::allow`] names
    /// the methods.
    MethodNotAllowed,
    /// 405 to CONNECT (I4).
    ConnectRefused,
    /// 408: header deadline, sliding read deadline, rate (I3, I18, I20).
    RequestTimeout,
    /// 413 by the declared length (I8).
    DeclaredTooLarge,
    /// 413 by the bytes that came (I10).
    BodyTooLarge,
    /// 417: an expectation other than 100-continue (I11).
    ExpectationFailed,
    /// 429: no token left.
    RateLimited {
        /// Whole seconds until there is a token, at least 1.
        retry_after: u32,
    },
    /// 431: too many bytes or fields in a head (I2), or in trailers.
    HeadTooLarge,
    /// 501: a transfer coding that toron does not have (I4).
    UnsupportedCoding,
    /// 501: `inbound_chunked_mode: reject`.
    ChunkedDisabled,
    /// 502: no connection (I23).
    ConnectFailed,
    /// 502: a response that cannot be passed on (I27).
    InvalidResponse,
    /// 502: closed before a response (I28).
    UpstreamClosed,
    /// 502: no address (R16).
    NameNotResolved,
    /// 503: bulkhead (I13).
    RouteFull,
    /// 503: `server.buffer_memory` (I37).
    BufferMemory,
    /// 503: every target at its cap (R19).
    TargetsFull,
    /// 503: every target open (R20).
    TargetsUnhealthy,
    /// 503: no local port or descriptor (R21).
    LocalResources,
    /// 503: nobody answers for the admin API: toron is about to end.
    AdminUnavailable,
    /// 503: `max_connections_total`.
    ConnectionLimit,
    /// 503: `max_connections_per_ip`.
    AddressConnectionLimit,
    /// 504: `response_header_timeout` (I24).
    HeaderTimeout,
    /// 504: `upstream_idle_timeout` before a response (I26).
    UpstreamIdle,
    /// 504: `header_deadline` (I32).
    HeaderDeadline,
    /// 504: `request_deadline` (I33).
    RequestDeadline,
    /// 505 (I4).
    VersionNotSupported,
    /// 200 to `GET /health`.
    Healthy,
    /// 503 to `GET /health` while draining.
    Draining,
    /// 200 to `OPTIONS *`.
    Options,
}

/// How an answer is put on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Rendering<'a> {
    /// The client's version; HTTP/1.1 when its head could not be read.
    pub client: Version,
    /// The request was HEAD: no body, its length all the same.
    pub head_only: bool,
    /// Whether the client connection goes on. An answer that
    /// [closes](Answer::closes) closes in any case.
    pub keep_alive: bool,
    /// The methods for `Allow`; [`ALLOW_ALL`] when empty.
    pub allow: &'a str,
    /// The value of `Date` (RFC 9110 section 6.6.1); none when empty.
    pub date: &'a [u8],
    /// The refusal that `X-Toron-Reason` is to name.
    pub explain: Option<Reason>,
}

impl Rendering<'_> {
    /// For a request that could not be read: close, body included.
    pub const CLOSE: Rendering<'static> = Rendering {
        client: Version::Http11,
        head_only: false,
        keep_alive: false,
        allow: "",
        date: b"",
        explain: None,
    };
}

struct Entry {
    status: u16,
    body: &'static str,
    closes: bool,
}

const fn keeps(status: u16, body: &'static str) -> Entry {
    Entry {
        status,
        body,
        closes: false,
    }
}

const fn closes(status: u16, body: &'static str) -> Entry {
    Entry {
        status,
        body,
        closes: true,
    }
}

impl Answer {
    #[rustfmt::skip]
    fn entry(&self) -> Entry {
        match self {
            Answer::BadRequest => closes(400, r#"{"error":"400 Bad Request"}"#),
            Answer::Unauthorized => keeps(401, r#"{"error":"401 Unauthorized"}"#),
            Answer::AdminSubnet => keeps(403, r#"{"error":"403 Forbidden: Access denied by administrative subnet policy"}"#),
            Answer::AddressBlocked { .. } => keeps(403, r#"{"error":"403 Forbidden: Address is blocked"}"#),
            Answer::NotFound => keeps(404, r#"{"error":"404 Not Found"}"#),
            Answer::MethodNotAllowed => keeps(405, r#"{"error":"405 Method Not Allowed"}"#),
            Answer::ConnectRefused => closes(405, r#"{"error":"405 Method Not Allowed"}"#),
            Answer::RequestTimeout => closes(408, r#"{"error":"408 Request Timeout"}"#),
            Answer::DeclaredTooLarge => closes(413, r#"{"error":"413 Payload Too Large: request Content-Length exceeds effective route limit"}"#),
            Answer::BodyTooLarge => closes(413, r#"{"error":"413 Payload Too Large"}"#),
            Answer::ExpectationFailed => closes(417, r#"{"error":"417 Expectation Failed"}"#),
            Answer::RateLimited { .. } => keeps(429, r#"{"error":"429 Too Many Requests: Rate limit exceeded"}"#),
            Answer::HeadTooLarge => closes(431, r#"{"error":"431 Request Header Fields Too Large"}"#),
            Answer::UnsupportedCoding => closes(501, r#"{"error":"501 Not Implemented: Unsupported Transfer-Encoding"}"#),
            Answer::ChunkedDisabled => closes(501, r#"{"error":"501 Not Implemented: Inbound chunked transfer encoding is disabled"}"#),
            Answer::ConnectFailed => keeps(502, r#"{"error":"502 Bad Gateway: Upstream connection failed"}"#),
            Answer::InvalidResponse => keeps(502, r#"{"error":"502 Bad Gateway: Invalid upstream response"}"#),
            Answer::UpstreamClosed => keeps(502, r#"{"error":"502 Bad Gateway: Upstream closed the connection"}"#),
            Answer::NameNotResolved => keeps(502, r#"{"error":"502 Bad Gateway: Upstream name does not resolve"}"#),
            Answer::RouteFull => keeps(503, r#"{"error":"503 Service Unavailable: Route concurrency limit reached"}"#),
            Answer::BufferMemory => keeps(503, r#"{"error":"503 Service Unavailable: Buffer memory exhausted"}"#),
            Answer::TargetsFull => keeps(503, r#"{"error":"503 Service Unavailable: All upstream targets are at capacity"}"#),
            Answer::TargetsUnhealthy => keeps(503, r#"{"error":"503 Service Unavailable: All upstream targets are unhealthy"}"#),
            Answer::LocalResources => keeps(503, r#"{"error":"503 Service Unavailable: Out of local resources"}"#),
            Answer::AdminUnavailable => keeps(503, r#"{"error":"503 Service Unavailable: Admin API is not available"}"#),
            Answer::ConnectionLimit => closes(503, r#"{"error":"503 Service Unavailable: Connection limit reached"}"#),
            Answer::AddressConnectionLimit => closes(503, r#"{"error":"503 Service Unavailable: Per-address connection limit reached"}"#),
            Answer::HeaderTimeout => keeps(504, r#"{"error":"504 Gateway Timeout: Upstream response header timeout expired"}"#),
            Answer::UpstreamIdle => keeps(504, r#"{"error":"504 Gateway Timeout: Upstream idle timeout expired"}"#),
            Answer::HeaderDeadline => keeps(504, r#"{"error":"504 Gateway Timeout: Request timed out"}"#),
            Answer::RequestDeadline => keeps(504, r#"{"error":"504 Gateway Timeout: Request deadline exceeded"}"#),
            Answer::VersionNotSupported => closes(505, r#"{"error":"505 HTTP Version Not Supported"}"#),
            Answer::Healthy => keeps(200, r#"{"status":"ok"}"#),
            Answer::Draining => keeps(503, r#"{"status":"draining"}"#),
            Answer::Options => keeps(200, ""),
        }
    }

    /// What the client is told about `reason`; `None` where it is told nothing, because it has gone
    /// or its response has begun.
    #[rustfmt::skip]
    pub fn to(reason: Reason) -> Option<Answer> {
        use Reason as R;
        Some(match reason {
            R::BareCr | R::BareLf | R::EmptyLines | R::BadMethod | R::BadRequestLine | R::BadTarget
            | R::BadVersion | R::FragmentInTarget | R::UserinfoInTarget | R::BadAuthority
            | R::ObsFold | R::SpaceBeforeFirstField | R::EmptyFieldName | R::SpaceBeforeColon
            | R::NoColon | R::BadFieldName | R::ControlByte | R::BadHead
            | R::TooManyConnectionOptions | R::MissingHost | R::BadHost | R::RepeatedHost
            | R::BadContentLength | R::ConflictingLengths | R::LengthAndCoding | R::CodingOnHttp10
            | R::ObfuscatedCoding | R::ChunkedNotLast
            | R::PathNotRooted | R::PathAboveRoot | R::BadPathByte | R::BadPathEscape
            | R::EncodedNul | R::EncodedDotSegment | R::PathTooLong
            | R::ProxyHeaderMissing | R::ProxyLineTooLong | R::ProxyLineMalformed
            | R::ProxyVersionOrCommand | R::ProxyHeaderTooLong | R::ProxyAddresses
            | R::ChunkSize | R::ChunkSizeTooLarge | R::ChunkExtensionByte
            | R::ChunkExtensionTooLong | R::ChunkBareLf | R::ChunkBareCr | R::ChunkDataEnd
            | R::BadTrailer | R::ForbiddenTrailer
            | R::AdminRequest => Answer::BadRequest,
            R::UnsupportedVersion => Answer::VersionNotSupported,
            R::ConnectMethod => Answer::ConnectRefused,
            R::UnsupportedCoding => Answer::UnsupportedCoding,
            R::UnknownExpectation => Answer::ExpectationFailed,
            R::HeadTooLarge | R::TooManyFields | R::ForwardedHeadTooLarge
            | R::TrailersTooLarge => Answer::HeadTooLarge,
            R::HeaderTimeout | R::ReadTimeout | R::MinBodyRate
            | R::BodyTimeout => Answer::RequestTimeout,
            R::NoRoute | R::AdminDisabled => Answer::NotFound,
            R::MethodNotAllowed => Answer::MethodNotAllowed,
            R::AdminSubnet => Answer::AdminSubnet,
            R::AdminKey => Answer::Unauthorized,
            R::DeclaredTooLarge => Answer::DeclaredTooLarge,
            R::BodyTooLarge => Answer::BodyTooLarge,
            R::ChunkedDisabled => Answer::ChunkedDisabled,
            R::BufferMemory => Answer::BufferMemory,
            R::RouteFull => Answer::RouteFull,
            R::Denied | R::Blocked | R::AutoBlocked => Answer::AddressBlocked { retry_after: None },
            R::RateLimit => Answer::RateLimited { retry_after: 1 },
            R::ConnectionLimit | R::OutOfDescriptors => Answer::ConnectionLimit,
            R::AddressConnectionLimit => Answer::AddressConnectionLimit,
            R::HeaderDeadline => Answer::HeaderDeadline,
            R::RequestDeadline => Answer::RequestDeadline,
            R::ConnectFailed | R::ConnectTimeout => Answer::ConnectFailed,
            R::NameNotResolved => Answer::NameNotResolved,
            R::LocalResources => Answer::LocalResources,
            R::TargetsFull => Answer::TargetsFull,
            R::TargetsUnhealthy => Answer::TargetsUnhealthy,
            R::UpstreamClosed => Answer::UpstreamClosed,
            R::ResponseHeaderTimeout => Answer::HeaderTimeout,
            R::UpstreamIdleTimeout => Answer::UpstreamIdle,
            R::BadStatusLine | R::ResponseHead | R::ResponseHeadTooLarge | R::ResponseFraming
            | R::UnaskedUpgrade | R::ResponseBody => Answer::InvalidResponse,
            R::BlockedByHand | R::WriteTimeout | R::UpgradeIdleTimeout | R::Shutdown
            | R::ResponseTruncated | R::UpstreamLeftTunnel
            | R::ClientLeftHead | R::ClientLeftBody | R::ClientLeftWaiting
            | R::ClientLeftResponse | R::ClientLeftTunnel | R::ClientHalfClosed => return None,
        })
    }

    /// The status code.
    pub fn status(&self) -> u16 {
        self.entry().status
    }

    /// The literal body.
    pub fn body(&self) -> &'static str {
        self.entry().body
    }

    /// Whether the client connection ends with this answer in any case. Where
    /// this is false the caller decides: a body that is still owed, or (for
    /// [`Answer::AddressBlocked`]) whose connection it is.
    pub fn closes(&self) -> bool {
        self.entry().closes
    }

    /// Whether the close behind this answer waits until the client has read it
    /// (I9). A 408 does not: its client has had its time.
    pub fn lingers(&self) -> bool {
        *self != Answer::RequestTimeout
    }

    fn retry_after(&self) -> Option<u32> {
        match self {
            Answer::AddressBlocked { retry_after } => *retry_after,
            Answer::RateLimited { retry_after } => Some((*retry_after).max(1)),
            Answer::RouteFull | Answer::TargetsFull => Some(5),
            Answer::BufferMemory | Answer::ConnectionLimit | Answer::AddressConnectionLimit => {
                Some(1)
            }
            _ => None,
        }
    }

    /// Appends the whole answer to `out`; returns whether the client connection
    /// goes on.
    pub fn write(&self, rendering: &Rendering<'_>, out: &mut Vec<u8>) -> bool {
        let entry = self.entry();
        let keep_alive = rendering.keep_alive && !entry.closes;
        push_status_line(out, entry.status, b"");
        push_common(rendering, out);
        if !entry.body.is_empty() {
            push_field(out, b"Content-Type", b"application/json");
        }
        push_length(out, b"Content-Length", entry.body.len() as u64);
        if let Some(seconds) = self.retry_after() {
            push_length(out, b"Retry-After", u64::from(seconds));
        }
        match self {
            Answer::MethodNotAllowed | Answer::ConnectRefused | Answer::Options => {
                let named = if rendering.allow.is_empty() {
                    ALLOW_ALL
                } else {
                    rendering.allow
                };
                push_field(out, b"Allow", named.as_bytes());
            }
            Answer::Unauthorized => push_field(out, b"WWW-Authenticate", b"Bearer"),
            _ => {}
        }
        finish(rendering, keep_alive, entry.body.as_bytes(), out);
        keep_alive
    }
}

/// What answers of every kind may have.
fn push_common(rendering: &Rendering<'_>, out: &mut Vec<u8>) {
    if !rendering.date.is_empty() {
        push_field(out, b"Date", rendering.date);
    }
    if let Some(reason) = rendering.explain {
        push_field(out, b"X-Toron-Reason", reason.code().as_bytes());
    }
}

fn finish(rendering: &Rendering<'_>, keep_alive: bool, body: &[u8], out: &mut Vec<u8>) {
    push_persistence(out, rendering.client, keep_alive);
    out.extend_from_slice(b"\r\n");
    if !rendering.head_only {
        out.extend_from_slice(body);
    }
}

/// An answer that the configuration spells out: a `respond` route, or
/// `header_deadline_response`.
#[derive(Clone, Copy, Debug)]
pub struct FixedAnswer<'a> {
    /// The status code.
    pub status: u16,
    /// Its fields. Those that frame the message or speak about the connection
    /// are left out: toron writes them itself.
    pub fields: &'a [(String, String)],
    /// Its body.
    pub body: &'a [u8],
}

impl FixedAnswer<'_> {
    /// Appends the whole answer to `out`; returns whether the client connection
    /// goes on. The configuration has checked that names are tokens and values
    /// hold no control bytes.
    pub fn write(&self, rendering: &Rendering<'_>, out: &mut Vec<u8>) -> bool {
        push_status_line(out, self.status, b"");
        let dated = |(name, _): &(String, String)| name.eq_ignore_ascii_case("date");
        let date = match self.fields.iter().any(dated) {
            true => b"",
            false => rendering.date,
        };
        push_common(&Rendering { date, ..*rendering }, out);
        for (name, value) in self.fields {
            let kind = Name::of(name);
            if !kind.is_hop_by_hop() && kind != Name::ContentLength {
                push_field(out, name.as_bytes(), value.as_bytes());
            }
        }
        let bare = never_has_body(self.status);
        if !bare {
            push_length(out, b"Content-Length", self.body.len() as u64);
        }
        let body = if bare { &[] } else { self.body };
        finish(rendering, rendering.keep_alive, body, out);
        rendering.keep_alive
    }
}

/// Appends the head of a 200 whose body follows piece by piece: chunked, or up to the close to
/// HTTP/1.0. Returns whether the client connection goes on.
pub fn write_piecewise_head(
    media_type: &str,
    rendering: &Rendering<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let chunked = rendering.client == Version::Http11;
    let keep_alive = rendering.keep_alive && chunked;
    push_status_line(out, 200, b"");
    push_field(out, b"Content-Type", media_type.as_bytes());
    if chunked {
        push_field(out, b"Transfer-Encoding", b"chunked");
    }
    push_common(rendering, out);
    finish(rendering, keep_alive, &[], out);
    keep_alive
}

/// The interim response that invites a body (I11).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
