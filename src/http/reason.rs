//! Why toron refused something, or cut it off: one flat set of codes, the same in the access log,
//! in metrics, in `/internal/api/refusals` and in `X-Toron-Reason`.
//!
//! The text of each reason says who was wrong and which setting limits it; the table of them in the
//! documentation is made from it. A code never changes its meaning: operators match on it.

use std::fmt;

/// Who ended a request or a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Party {
    /// The client went away.
    Client,
    /// toron, by one of its checks, limits or deadlines.
    Toron,
    /// The upstream: it could not be reached, went away, or did not speak HTTP.
    Upstream,
    /// toron's connection firewall, because of who the client is or of how much it asks.
    Firewall,
}

impl Party {
    /// A stable name for logs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Party::Client => "client",
            Party::Toron => "toron",
            Party::Upstream => "upstream",
            Party::Firewall => "firewall",
        }
    }
}

macro_rules! reasons {
    ($($(#[doc = $text:literal])+ $name:ident = $code:literal by $party:ident,)+) => {
        /// Why a request or connection was refused or cut off.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Reason {
            $($(#[doc = $text])+ $name,)+
        }

        impl Reason {
            /// All of them, in the order of their [`index`](Reason::index).
            pub const ALL: [Reason; Reason::COUNT] = [$(Reason::$name),+];

            /// How many there are.
            pub const COUNT: usize = [$($code),+].len();

            /// The stable name.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self {
                    $(Reason::$name => $code,)+
                }
            }

            /// Who ended it.
            #[must_use]
            pub const fn ended_by(self) -> Party {
                match self {
                    $(Reason::$name => Party::$party,)+
                }
            }

            /// One or two sentences for operators.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self {
                    $(Reason::$name => concat!($($text),+).trim_start(),)+
                }
            }
        }
    };
}

reasons! {
    // ---- a request head that cannot be understood (I4) ----

    /// The client sent a CR that no LF follows.
    BareCr = "bare_cr" by Toron,
    /// The client sent a LF that no CR precedes.
    BareLf = "bare_lf" by Toron,
    /// The client sent more than two empty lines in front of a request.
    EmptyLines = "empty_lines" by Toron,
    /// The client's method is not a token.
    BadMethod = "bad_method" by Toron,
    /// The client's request line is not three tokens.
    BadRequestLine = "bad_request_line" by Toron,
    /// The client's request target is none.
    BadTarget = "bad_target" by Toron,
    /// The client's version is not one of HTTP.
    BadVersion = "bad_version" by Toron,
    /// The client speaks another version than HTTP/1.0 or HTTP/1.1.
    UnsupportedVersion = "unsupported_version" by Toron,
    /// The client asked for a tunnel with CONNECT.
    ConnectMethod = "connect_method" by Toron,
    /// The client's request target holds a fragment.
    FragmentInTarget = "fragment_in_target" by Toron,
    /// The client's request target holds a user name.
    UserinfoInTarget = "userinfo_in_target" by Toron,
    /// The authority in the client's request target is none.
    BadAuthority = "bad_authority" by Toron,
    /// The client folded a header line.
    ObsFold = "obs_fold" by Toron,
    /// The client sent white space in front of the first field.
    SpaceBeforeFirstField = "space_before_first_field" by Toron,
    /// The client sent a field without a name.
    EmptyFieldName = "empty_field_name" by Toron,
    /// The client sent white space between a field name and its colon.
    SpaceBeforeColon = "space_before_colon" by Toron,
    /// The client sent a field line without a colon.
    NoColon = "no_colon" by Toron,
    /// A field name of the client's is not a token.
    BadFieldName = "bad_field_name" by Toron,
    /// A field value of the client's holds a control byte.
    ControlByte = "control_byte" by Toron,
    /// The client's request head is malformed in another way.
    BadHead = "bad_head" by Toron,
    /// The client's `Connection` fields name more than 32 options.
    TooManyConnectionOptions = "too_many_connection_options" by Toron,
    /// The client named no host.
    MissingHost = "missing_host" by Toron,
    /// The client's `Host` is none.
    BadHost = "bad_host" by Toron,
    /// The client named its host more than once.
    RepeatedHost = "repeated_host" by Toron,
    /// The client's `Content-Length` is not a number that fits 64 bits.
    BadContentLength = "bad_content_length" by Toron,
    /// The client's `Content-Length` fields differ.
    ConflictingLengths = "conflicting_lengths" by Toron,
    /// The client sent both `Content-Length` and `Transfer-Encoding`.
    LengthAndCoding = "length_and_coding" by Toron,
    /// The client sent `Transfer-Encoding` with HTTP/1.0.
    CodingOnHttp10 = "coding_on_http10" by Toron,
    /// The client wrote a transfer coding so that not everybody would see it.
    ObfuscatedCoding = "obfuscated_coding" by Toron,
    /// The client's `chunked` is repeated, or not the last transfer coding.
    ChunkedNotLast = "chunked_not_last" by Toron,
    /// The client used a transfer coding other than `chunked`.
    UnsupportedCoding = "unsupported_coding" by Toron,
    /// The client expects something other than `100-continue`.
    UnknownExpectation = "unknown_expectation" by Toron,

    // ---- its path (I6) ----

    /// The client's path does not begin with `/`.
    PathNotRooted = "path_not_rooted" by Toron,
    /// The client's path climbs above `/`.
    PathAboveRoot = "path_above_root" by Toron,
    /// The client's path holds a backslash, a fragment or a byte that is not visible ASCII.
    BadPathByte = "bad_path_byte" by Toron,
    /// A `%` in the client's path is not followed by two hexadecimal digits.
    BadPathEscape = "bad_path_escape" by Toron,
    /// The client's path holds an encoded NUL.
    EncodedNul = "encoded_nul" by Toron,
    /// The client's path would climb if an encoded slash were decoded.
    EncodedDotSegment = "encoded_dot_segment" by Toron,
    /// The client's path is longer than the room for its normal form.
    PathTooLong = "path_too_long" by Toron,

    // ---- limits on heads ----

    /// The client's request head is larger than `max_header_bytes`.
    HeadTooLarge = "head_too_large" by Toron,
    /// The client's request head has more fields than `firewall.max_header_count`.
    TooManyFields = "too_many_fields" by Toron,
    /// The client's request head came slower than `server.read_timeout` or
    /// `firewall.header_timeout` allow.
    HeaderTimeout = "header_timeout" by Toron,
    /// The head for the upstream, with what toron adds, does not fit into one buffer.
    ForwardedHeadTooLarge = "forwarded_head_too_large" by Toron,

    // ---- the PROXY protocol header of a trusted proxy (F4) ----

    /// A trusted proxy sent no PROXY protocol header.
    ProxyHeaderMissing = "proxy_header_missing" by Toron,
    /// The PROXY protocol line of a trusted proxy does not end.
    ProxyLineTooLong = "proxy_line_too_long" by Toron,
    /// The PROXY protocol line of a trusted proxy is malformed.
    ProxyLineMalformed = "proxy_line_malformed" by Toron,
    /// The PROXY protocol header of a trusted proxy has an unknown version or command.
    ProxyVersionOrCommand = "proxy_version_or_command" by Toron,
    /// The PROXY protocol header of a trusted proxy is too long.
    ProxyHeaderTooLong = "proxy_header_too_long" by Toron,
    /// The addresses in the PROXY protocol header of a trusted proxy are malformed.
    ProxyAddresses = "proxy_addresses" by Toron,

    // ---- a chunked body that cannot be understood ----

    /// A chunk size of the client's is not a hexadecimal number.
    ChunkSize = "chunk_size" by Toron,
    /// A chunk size of the client's does not fit 64 bits.
    ChunkSizeTooLarge = "chunk_size_too_large" by Toron,
    /// A chunk extension of the client's holds a control byte.
    ChunkExtensionByte = "chunk_extension_byte" by Toron,
    /// The extensions of one of the client's chunks are longer than 256 bytes.
    ChunkExtensionTooLong = "chunk_extension_too_long" by Toron,
    /// A line of the client's chunked coding ends in a bare LF.
    ChunkBareLf = "chunk_bare_lf" by Toron,
    /// A line of the client's chunked coding ends in a bare CR.
    ChunkBareCr = "chunk_bare_cr" by Toron,
    /// The data of one of the client's chunks is longer than its size says.
    ChunkDataEnd = "chunk_data_end" by Toron,
    /// A trailer line of the client's is malformed.
    BadTrailer = "bad_trailer" by Toron,
    /// The client sent a trailer field that may not be one.
    ForbiddenTrailer = "forbidden_trailer" by Toron,
    /// The client's trailers are longer than 4096 bytes.
    TrailersTooLarge = "trailers_too_large" by Toron,

    // ---- routing (R4) and built-in endpoints ----

    /// No route takes the client's request.
    NoRoute = "no_route" by Toron,
    /// A route has the client's host and path, but not its method.
    MethodNotAllowed = "method_not_allowed" by Toron,
    /// The client is not in `admin.subnets`.
    AdminSubnet = "admin_subnet" by Toron,
    /// The client's admin key is wrong or missing (`admin.key`).
    AdminKey = "admin_key" by Toron,
    /// The client asked for `/internal/`, but no `admin.key` is set.
    AdminDisabled = "admin_disabled" by Toron,
    /// What the client sent to an endpoint under `/internal/` is not valid.
    AdminRequest = "admin_request" by Toron,

    // ---- limits on bodies and on what is in flight ----

    /// The client declared a body larger than `max_body_bytes`.
    DeclaredTooLarge = "declared_too_large" by Toron,
    /// The client's body grew larger than `max_body_bytes`.
    BodyTooLarge = "body_too_large" by Toron,
    /// The client sent a chunked body, and `inbound_chunked_mode` is `reject`.
    ChunkedDisabled = "chunked_disabled" by Toron,
    /// Collected bodies take all of `server.buffer_memory`.
    BufferMemory = "buffer_memory" by Toron,
    /// As many requests of the route as `max_concurrency` allows are in flight.
    RouteFull = "route_full" by Toron,

    // ---- the connection firewall ----

    /// The client's address is in `firewall.deny`.
    Denied = "denied" by Firewall,
    /// The client's address is blocked.
    Blocked = "blocked" by Firewall,
    /// The client's address was refused so often that it is blocked now
    /// (`firewall.auto_block_threshold`).
    AutoBlocked = "auto_blocked" by Firewall,
    /// The client's address asks more often than `firewall.rate_limit_rps` allows.
    RateLimit = "rate_limit" by Firewall,
    /// `firewall.max_connections_total` connections are open.
    ConnectionLimit = "connection_limit" by Firewall,
    /// The client's address has `firewall.max_connections_per_ip` connections open.
    AddressConnectionLimit = "address_connection_limit" by Firewall,
    /// toron has no descriptor left for the client's connection.
    OutOfDescriptors = "out_of_descriptors" by Toron,
    /// The client's address was blocked by hand, and its open connections with it.
    BlockedByHand = "blocked_by_hand" by Firewall,

    // ---- clients that are slow ----

    /// The client paused for `read_timeout` while it sent its body, or sent less than
    /// `min_progress_bytes` in it.
    ReadTimeout = "read_timeout" by Toron,
    /// The client sent its body slower than `min_body_rate`.
    MinBodyRate = "min_body_rate" by Toron,
    /// The client took longer than `body_timeout` for its body.
    BodyTimeout = "body_timeout" by Toron,
    /// The client took nothing of its response for `write_timeout`, or too little.
    WriteTimeout = "write_timeout" by Toron,

    // ---- deadlines of the whole ----

    /// No response head came within `header_deadline`.
    HeaderDeadline = "header_deadline" by Toron,
    /// The request was not over within `request_deadline`.
    RequestDeadline = "request_deadline" by Toron,
    /// Neither side of a tunnel sent anything for `upgrade_idle_timeout`.
    UpgradeIdleTimeout = "upgrade_idle_timeout" by Toron,
    /// The request was not over when `server.shutdown_grace` had passed.
    Shutdown = "shutdown" by Toron,

    // ---- upstreams ----

    /// No connection to an upstream within `connect_timeout`.
    ConnectTimeout = "connect_timeout" by Toron,
    /// The upstream refused the connection, or cannot be reached.
    ConnectFailed = "connect_failed" by Upstream,
    /// The name of the upstream has no address.
    NameNotResolved = "name_not_resolved" by Upstream,
    /// toron has no descriptor or local port left for a connection to the upstream.
    LocalResources = "local_resources" by Toron,
    /// Every target of the route is at its `target_max_concurrency`.
    TargetsFull = "targets_full" by Toron,
    /// Every target of the route is unhealthy.
    TargetsUnhealthy = "targets_unhealthy" by Toron,
    /// The upstream closed or reset the connection before its response.
    UpstreamClosed = "upstream_closed" by Upstream,
    /// The upstream sent no response head within `response_header_timeout`.
    ResponseHeaderTimeout = "response_header_timeout" by Toron,
    /// The upstream neither took nor sent a byte of a body for `upstream_idle_timeout`.
    UpstreamIdleTimeout = "upstream_idle_timeout" by Toron,
    /// The upstream's status line is malformed.
    BadStatusLine = "bad_status_line" by Upstream,
    /// The upstream's response head is malformed.
    ResponseHead = "response_head" by Upstream,
    /// The upstream's response head is larger than 64 KiB, or has too many fields.
    ResponseHeadTooLarge = "response_head_too_large" by Upstream,
    /// The upstream's response has no usable length.
    ResponseFraming = "response_framing" by Upstream,
    /// The upstream switched protocols though nobody asked for it, or to one that nobody asked for.
    UnaskedUpgrade = "unasked_upgrade" by Upstream,
    /// The upstream's response body is malformed. Where the response has begun, it is cut.
    ResponseBody = "response_body" by Upstream,
    /// The upstream went away in the middle of its response.
    ResponseTruncated = "response_truncated" by Upstream,
    /// The upstream's end of a tunnel broke.
    UpstreamLeftTunnel = "upstream_left_tunnel" by Upstream,

    // ---- clients that went away ----

    /// The client went away in the middle of its request head.
    ClientLeftHead = "client_left_head" by Client,
    /// The client went away before it had sent its whole body.
    ClientLeftBody = "client_left_body" by Client,
    /// The client went away while its response was awaited.
    ClientLeftWaiting = "client_left_waiting" by Client,
    /// The client went away in the middle of its response.
    ClientLeftResponse = "client_left_response" by Client,
    /// The client's end of a tunnel broke.
    ClientLeftTunnel = "client_left_tunnel" by Client,
    /// The client finished sending before its response, and `client_half_close` is `abort`.
    ClientHalfClosed = "client_half_closed" by Client,
}

impl Reason {
    /// Its place in [`ALL`](Reason::ALL): for arrays of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// What a fault of a head is called where the head is a response: there the upstream is wrong,
    /// and the client is told the same whatever it was.
    #[must_use]
    pub const fn in_response(self) -> Reason {
        match self {
            Reason::BadStatusLine
            | Reason::ResponseHead
            | Reason::ResponseHeadTooLarge
            | Reason::UnaskedUpgrade
            | Reason::ResponseBody => self,
            Reason::BadContentLength
            | Reason::ConflictingLengths
            | Reason::LengthAndCoding
            | Reason::CodingOnHttp10
            | Reason::ObfuscatedCoding
            | Reason::ChunkedNotLast
            | Reason::UnsupportedCoding => Reason::ResponseFraming,
            _ => Reason::ResponseHead,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_words_in_one_style() {
        let mut codes = Vec::new();
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            let code = reason.code();
            let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            assert!(code.bytes().all(word), "{code}");
            assert!(reason.about().ends_with('.'), "{code}: {}", reason.about());
            codes.push(code);
        }
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Reason::COUNT);
    }
}
