//! The request head that the upstream sees (R7, R11, R12, R14).

use super::field::{is_nominated, Name};
use super::framing::RequestBody;
use super::path::{push_joined, trim_trailing_slashes};
use super::request::{Expect, RequestHead, UpgradeAsked};
use super::syntax::Version;
use super::write::{push_field, push_length, Lines};

/// How the body goes on to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamFraming {
    /// As it came: no body, its length, or chunks (encoded anew).
    AsReceived,
    /// A chunked body that has been collected: with its length, without its
    /// trailers.
    Collected(u64),
}

/// Everything that a forwarded head depends on beside the request itself.
#[derive(Clone, Copy, Debug)]
pub struct Forward<'a> {
    /// The normalised path, without the prefix if that is stripped
    /// ([`super::path::strip_prefix`]).
    pub path: &'a [u8],
    /// The prefix that was stripped, for `X-Forwarded-Prefix`.
    pub stripped: Option<&'a [u8]>,
    /// The target URL's own path; may be empty.
    pub target_path: &'a [u8],
    /// The target URL's authority.
    pub target_authority: &'a [u8],
    /// Whether the client's `Host` is kept (else the target's authority).
    pub preserve_host: bool,
    /// Whether the peer is a trusted proxy.
    pub trusted: bool,
    /// The peer's address, appended to `X-Forwarded-For`.
    pub peer_ip: &'a [u8],
    /// The resolved client's address, for `X-Real-IP`.
    pub client_ip: &'a [u8],
    /// The scheme of the connection on which the request came.
    pub scheme: &'a [u8],
    /// The request's identifier: [`sane_request_id`] or a new one.
    pub request_id: &'a [u8],
    /// Whether `Via` is added.
    pub via: bool,
    /// Whether `Expect: 100-continue` goes along (I11).
    pub expect: bool,
    /// Whether the upstream connection may be used again.
    pub keep_alive: bool,
    /// How the body goes on.
    pub framing: UpstreamFraming,
}

/// The `X-Request-Id` of a request from a trusted proxy, if it is fit to go
/// into logs: 1 to 128 bytes of letters, digits and `-_.:+/=@` (R12).
pub fn sane_request_id<'b>(request: &RequestHead<'b, '_>, trusted: bool) -> Option<&'b [u8]> {
    let id = trusted.then(|| request.field("x-request-id")).flatten()?;
    let fits = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:+/=@".contains(b);
    ((1..=128).contains(&id.len()) && id.iter().all(fits)).then_some(id)
}

/// Scheme and authority under which the client knows this server: what a
/// trusted proxy says, else what the request itself says (R9, R12). The
/// authority is empty for an HTTP/1.0 request without `Host`.
pub fn public_origin<'a>(
    request: &RequestHead<'a, '_>,
    trusted: bool,
    scheme: &'a [u8],
) -> (&'a [u8], &'a [u8]) {
    let given = |name: &str| {
        trusted
            .then(|| request.field(name))
            .flatten()
            .filter(|value| !value.is_empty())
    };
    let host = request.host.map(|h| h.as_bytes()).unwrap_or_default();
    (
        given("x-forwarded-proto").unwrap_or(scheme),
        given("x-forwarded-host").unwrap_or(host),
    )
}

/// Appends the head for the upstream to `out`, its final empty line included.
pub fn write_request_head(request: &RequestHead<'_, '_>, forward: &Forward<'_>, out: &mut Vec<u8>) {
    push_request_line(request, forward, out);
    let upgrade = request.facts.upgrade == UpgradeAsked::Yes;
    let mut length_written = false;
    let mut lines = Lines::of(request.head, 0);
    for (at, f) in request.fields.iter().enumerate() {
        if request.plain.holds(at) && !request.nominates {
            lines.push(out, f);
            continue;
        }
        match Name::of(f.name) {
            Name::Host => {}
            Name::Upgrade if upgrade => lines.push(out, f),
            Name::ContentLength => {
                if let (Some(n), false) = (length(request, forward), length_written) {
                    lines.push_length(out, f, n);
                    length_written = true;
                }
            }
            Name::Expect if !(forward.expect && request.facts.expect == Expect::Continue) => {}
            Name::Trailer if forward.framing != UpstreamFraming::AsReceived => {}
            Name::Forwarded if !forward.trusted => {}
            Name::XToronAdminKey => {}
            Name::Http2Settings if request.facts.upgrade == UpgradeAsked::H2c => {}
            name if name.is_hop_by_hop() || name.is_set_by_toron() => {}
            _ if f.name.contains('_') => {}
            _ if request.nominates && is_nominated(request.fields, f.name) => {}
            _ => lines.push(out, f),
        }
    }
    lines.flush(out);
    push_own_fields(request, forward, out);
    if request.facts.body == RequestBody::Chunked && forward.framing == UpstreamFraming::AsReceived
    {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if let (Some(n), false) = (length(request, forward), length_written) {
        push_length(out, b"Content-Length", n);
    }
    push_connection(request, forward, out);
    out.extend_from_slice(b"\r\n");
}

fn length(request: &RequestHead<'_, '_>, forward: &Forward<'_>) -> Option<u64> {
    match (forward.framing, request.facts.body) {
        (UpstreamFraming::Collected(n), _)
        | (UpstreamFraming::AsReceived, RequestBody::Length(n)) => Some(n),
        (UpstreamFraming::AsReceived, RequestBody::None | RequestBody::Chunked) => None,
    }
}

fn push_request_line(request: &RequestHead<'_, '_>, forward: &Forward<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(request.method);
    out.push(b' ');
    push_joined(out, forward.target_path, forward.path);
    if let Some(query) = request.query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    let host = match request.host {
        Some(authority) if forward.preserve_host => authority.as_bytes(),
        _ => forward.target_authority,
    };
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(host);
    out.extend_from_slice(b"\r\n");
}

/// The fields of R12: one line each, with what a trusted proxy said where that
/// counts.
fn push_own_fields(request: &RequestHead<'_, '_>, forward: &Forward<'_>, out: &mut Vec<u8>) {
    let given = |name: &str| forward.trusted.then(|| request.field(name)).flatten();
    out.extend_from_slice(b"X-Forwarded-For: ");
    if forward.trusted {
        for f in request
            .fields
            .iter()
            .filter(|f| Name::of(f.name) == Name::XForwardedFor)
        {
            if !f.value.is_empty() {
                out.extend_from_slice(f.value);
                out.extend_from_slice(b", ");
            }
        }
    }
    // Each piece ends the line before it.
    out.extend_from_slice(forward.peer_ip);
    out.extend_from_slice(b"\r\nX-Real-IP: ");
    out.extend_from_slice(forward.client_ip);
    let (scheme, host) = public_origin(request, forward.trusted, forward.scheme);
    if !host.is_empty() {
        out.extend_from_slice(b"\r\nX-Forwarded-Host: ");
        out.extend_from_slice(host);
    }
    out.extend_from_slice(b"\r\nX-Forwarded-Proto: ");
    out.extend_from_slice(scheme);
    push_prefix(given("x-forwarded-prefix"), forward.stripped, out);
    out.extend_from_slice(b"\r\nX-Request-Id: ");
    out.extend_from_slice(forward.request_id);
    out.extend_from_slice(b"\r\n");
    if forward.via {
        let version: &[u8] = match request.facts.version {
            Version::Http11 => b"1.1 toron",
            Version::Http10 => b"1.0 toron",
        };
        push_field(out, b"Via", version);
    }
}

/// Ends a line and begins that of the prefix, if there is one. What a trusted proxy has stripped before
/// stands in front of ours.
fn push_prefix(outer: Option<&[u8]>, stripped: Option<&[u8]>, out: &mut Vec<u8>) {
    if outer.is_none() && stripped.is_none() {
        return;
    }
    out.extend_from_slice(b"\r\nX-Forwarded-Prefix: ");
    match (outer, stripped) {
        (Some(outer), Some(own)) => {
            out.extend_from_slice(trim_trailing_slashes(outer));
            out.extend_from_slice(own);
        }
        (outer, own) => out.extend_from_slice(outer.or(own).unwrap_or_default()),
    }
}

fn push_connection(request: &RequestHead<'_, '_>, forward: &Forward<'_>, out: &mut Vec<u8>) {
    if request.facts.te_trailers {
        out.extend_from_slice(b"TE: trailers\r\n");
    }
    let options = [
        (request.facts.upgrade == UpgradeAsked::Yes, &b"Upgrade"[..]),
        (request.facts.te_trailers, b"TE"),
        (
            !forward.keep_alive && request.facts.upgrade != UpgradeAsked::Yes,
            b"close",
        ),
    ];
    let mut separator: &[u8] = b"Connection: ";
    for (_, option) in options.into_iter().filter(|(wanted, _)| *wanted) {
        out.extend_from_slice(separator);
        out.extend_from_slice(option);
        separator = b", ";
    }
    if separator == b", " {
        out.extend_from_slice(b"\r\n");
    }
}
