//! The response head that the client sees (R8 to R11, R13, R14).

use super::field::{is_nominated, Name};
use super::framing::{never_has_body, towards_client, ResponseBody};
use super::response::ResponseHead;
use super::rewrite::Rewrite;
use super::syntax::Version;
use super::write::{push_field, push_persistence, push_status_line, Lines};

/// What a relayed head depends on beside the response itself.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The client's version.
    pub client: Version,
    /// Whether the client connection goes on after this response.
    pub keep_alive: bool,
    /// The mapping of a stripped prefix, if one was stripped.
    pub rewrite: Option<Rewrite<'a>>,
    /// Whether `Via` is added.
    pub via: bool,
}

/// What has been promised to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promised {
    /// How the body must be sent.
    pub body: ResponseBody,
    /// Whether the connection goes on; never when the close ends the body.
    pub keep_alive: bool,
}

/// Appends the head for the client to `out`, its final empty line included. Also
/// for interim responses and for a 101 (then the connection is a tunnel).
pub fn write_response_head(
    response: &ResponseHead<'_, '_>,
    reply: &Reply<'_>,
    out: &mut Vec<u8>,
) -> Promised {
    let facts = &response.facts;
    let body = towards_client(facts.body, reply.client);
    let keep_alive = reply.keep_alive && body != ResponseBody::UntilClose;
    let length = announced_length(response);
    let mut length_written = false;
    let taken = status_line_len(response);
    if taken == 0 {
        push_status_line(out, facts.status, response.reason.as_bytes());
    }
    let mut lines = Lines::of(response.head, taken);
    for (at, f) in response.fields.iter().enumerate() {
        if response.plain.holds(at) && !response.nominates {
            lines.push(out, f);
            continue;
        }
        let name = Name::of(f.name);
        match name {
            Name::Upgrade if facts.is_switch() => lines.push(out, f),
            Name::ContentLength => {
                if let (Some(n), false) = (length, length_written) {
                    lines.push_length(out, f, n);
                    length_written = true;
                }
            }
            name if name.is_hop_by_hop() => {}
            _ if response.nominates && is_nominated(response.fields, f.name) => {}
            Name::Location | Name::SetCookie if reply.rewrite.is_some() => {
                lines.flush(out);
                push_rewritten(facts.status, f, name, reply, out);
            }
            _ => lines.push(out, f),
        }
    }
    lines.flush(out);
    if reply.via {
        let via: &[u8] = match facts.version {
            Version::Http11 => b"1.1 toron",
            Version::Http10 => b"1.0 toron",
        };
        push_field(out, b"Via", via);
    }
    if body == ResponseBody::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if facts.is_switch() {
        out.extend_from_slice(b"Connection: Upgrade\r\n");
    } else if !facts.is_interim() {
        push_persistence(out, reply.client, keep_alive);
    }
    out.extend_from_slice(b"\r\n");
    Promised { body, keep_alive }
}

/// The length of the status line where it stands as toron writes it, so that it can be copied; else 0.
fn status_line_len(response: &ResponseHead<'_, '_>) -> usize {
    const BEHIND_CODE: usize = b"HTTP/1.1 200 ".len();
    let end = BEHIND_CODE + response.reason.len();
    let is_exact = !response.reason.is_empty()
        && response.head.starts_with(b"HTTP/1.1 ")
        && response.head.get(BEHIND_CODE..end) == Some(response.reason.as_bytes())
        && response.head.get(end..end + 2) == Some(b"\r\n");
    if is_exact {
        end + 2
    } else {
        0
    }
}

/// The `Content-Length` that goes along: the body's own, or for HEAD and 304 the
/// one that a GET would have had; never with 1xx and 204 (RFC 9110 section 8.6).
fn announced_length(response: &ResponseHead<'_, '_>) -> Option<u64> {
    let facts = &response.facts;
    if never_has_body(facts.status) && facts.status != 304 {
        return None;
    }
    facts.declared_length
}

fn push_rewritten(
    status: u16,
    field: &httparse::Header<'_>,
    name: Name,
    reply: &Reply<'_>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(field.name.as_bytes());
    out.extend_from_slice(b": ");
    match (&reply.rewrite, name) {
        (Some(r), Name::Location) if r.redirects && (300..400).contains(&status) => {
            r.push_location(field.value, out);
        }
        (Some(r), Name::SetCookie) if r.cookie_path => r.push_cookie(field.value, out),
        _ => out.extend_from_slice(field.value),
    }
    out.extend_from_slice(b"\r\n");
}
