//! What an endpoint answers: the head, and where its body comes from.

use std::time::Duration;

use toron_reactor::Time;

use super::endpoint::{Endpoint, LISTING};
use super::feed::{Events, Feed};
use crate::http::answer::reason_phrase;
use crate::http::framing::never_has_body;
use crate::http::write::{push_field, push_length, push_persistence, push_status_line};
use crate::http::{RequestBody, ResponseBody, Version};

const TEXT: &str = "text/plain; charset=utf-8";
const BINARY: &str = "application/octet-stream";

/// What a response depends on beside its endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// The client's version.
    pub(super) version: Version,
    /// The method is HEAD.
    pub(super) head_only: bool,
    /// The connection may go on.
    pub(super) keep_alive: bool,
    /// How the request body was framed.
    pub(super) body: RequestBody,
    /// The request head as it came; only needed where no body followed it.
    pub(super) head: &'a [u8],
    /// Length of the request body.
    pub(super) received: u64,
    /// CRC-32 of the request body.
    pub(super) crc: u32,
    /// The value of `Date`.
    pub(super) date: &'a str,
    /// When it is answered.
    pub(super) now: Time,
}

/// What follows a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prepared {
    /// The body.
    pub(super) feed: Feed,
    /// Whether the connection goes on afterwards.
    pub(super) keep_alive: bool,
    /// How long the answer is held back.
    pub(super) delay: Option<Duration>,
}

/// A head to be written.
struct Opening<'a> {
    status: u16,
    content_type: &'a str,
    body: ResponseBody,
    extra: &'a [(&'a str, &'a str)],
}

/// Appends the head (and a short body) of the answer to `out`.
pub(super) fn prepare(endpoint: Endpoint, asked: &Asked<'_>, out: &mut Vec<u8>) -> Prepared {
    match endpoint {
        Endpoint::Listing => text(asked, 200, LISTING.as_bytes(), &[], out),
        Endpoint::Unknown => text(asked, 404, b"no such endpoint; / lists them\n", &[], out),
        Endpoint::BadParameter => text(asked, 400, b"bad parameter; see /\n", &[], out),
        Endpoint::Status(status) => self::status(asked, status, out),
        Endpoint::CloseEarly { .. } => {
            let asked = Asked {
                keep_alive: false,
                ..*asked
            };
            text(&asked, 413, b"closed early\n", &[], out)
        }
        Endpoint::Delay(delay) => {
            let body = format!("after {} ms\n", delay.as_millis());
            Prepared {
                delay: Some(delay),
                ..text(asked, 200, body.as_bytes(), &[], out)
            }
        }
        Endpoint::Discard => tally(asked, out),
        Endpoint::Echo => echo(asked, out),
        // The handshake has answered already, unless it was refused.
        Endpoint::WebSocket => upgrade_required(asked, out),
        Endpoint::Bytes(end) => {
            let feed = Feed::Pattern { at: 0, end };
            stream(asked, BINARY, ResponseBody::Length(end), feed, out)
        }
        Endpoint::Stall(announced) => {
            let feed = Feed::Stall {
                at: 0,
                end: announced / 2,
            };
            stream(asked, BINARY, ResponseBody::Length(announced), feed, out)
        }
        Endpoint::Drip { bytes, every } => {
            let feed = Feed::Drip {
                at: 0,
                end: bytes,
                every,
                due: asked.now,
            };
            stream(asked, BINARY, ResponseBody::Length(bytes), feed, out)
        }
        Endpoint::Chunked { bytes, chunk } => chunked(asked, bytes, chunk, out),
        Endpoint::Events { count, every } => events(asked, count, every, out),
    }
}

/// What came of a request body.
fn tally(asked: &Asked<'_>, out: &mut Vec<u8>) -> Prepared {
    let body = format!(
        "{{\"bytes\":{},\"crc32\":\"{:08x}\"}}\n",
        asked.received, asked.crc
    );
    let body = body.as_bytes();
    short(asked, 200, "application/json", body, &[], out)
}

/// A body in chunks of `chunk` bytes, which HTTP/1.0 does not know.
fn chunked(asked: &Asked<'_>, bytes: u64, chunk: u32, out: &mut Vec<u8>) -> Prepared {
    let feed = match asked.version {
        Version::Http11 => Feed::Chunks {
            at: 0,
            end: bytes,
            chunk,
        },
        Version::Http10 => Feed::Pattern { at: 0, end: bytes },
    };
    stream(asked, BINARY, unknown_length(asked.version), feed, out)
}

/// A stream of `count` server-sent events.
fn events(asked: &Asked<'_>, count: Option<u64>, every: Duration, out: &mut Vec<u8>) -> Prepared {
    let feed = Feed::Events(Events {
        sent: 0,
        count,
        every,
        due: asked.now,
        chunked: asked.version == Version::Http11,
    });
    let body = unknown_length(asked.version);
    stream(asked, "text/event-stream", body, feed, out)
}

/// Appends the head of an echo whose body follows as it arrives.
pub(super) fn prepare_echo(asked: &Asked<'_>, out: &mut Vec<u8>) {
    let opening = Opening {
        status: 200,
        content_type: BINARY,
        body: echoed(asked),
        extra: &[],
    };
    opening.push(asked, out);
}

/// Appends the 101 that opens a WebSocket (RFC 6455 section 4.2.2).
pub(super) fn prepare_switch(accept: &str, date: &str, out: &mut Vec<u8>) {
    push_status_line(out, 101, b"");
    push_field(out, b"Date", date.as_bytes());
    push_field(out, b"Upgrade", b"websocket");
    push_field(out, b"Connection", b"Upgrade");
    push_field(out, b"Sec-WebSocket-Accept", accept.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// An unknown length is framed by chunks, or by the close for HTTP/1.0.
fn unknown_length(version: Version) -> ResponseBody {
    match version {
        Version::Http11 => ResponseBody::Chunked,
        Version::Http10 => ResponseBody::UntilClose,
    }
}

fn echoed(asked: &Asked<'_>) -> ResponseBody {
    match asked.body {
        RequestBody::Length(n) => ResponseBody::Length(n),
        RequestBody::None => ResponseBody::Length(0),
        RequestBody::Chunked => unknown_length(asked.version),
    }
}

fn echo(asked: &Asked<'_>, out: &mut Vec<u8>) -> Prepared {
    if asked.body == RequestBody::None {
        return text(asked, 200, asked.head, &[], out);
    }
    stream(asked, BINARY, echoed(asked), Feed::Done, out)
}

fn upgrade_required(asked: &Asked<'_>, out: &mut Vec<u8>) -> Prepared {
    let extra = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
    ];
    text(asked, 426, b"this is a WebSocket\n", &extra, out)
}

fn status(asked: &Asked<'_>, status: u16, out: &mut Vec<u8>) -> Prepared {
    if status < 200 {
        // RFC 9110 section 15.2: not to an HTTP/1.0 client.
        if asked.version == Version::Http11 {
            push_status_line(out, status, b"");
            push_field(out, b"Link", b"</>; rel=preload");
            out.extend_from_slice(b"\r\n");
        }
        return self::status(asked, 200, out);
    }
    let companion = match status {
        301 | 302 | 303 | 307 | 308 => &[("Location", "/")][..],
        401 => &[("WWW-Authenticate", "Basic realm=\"toron upstream\"")],
        405 => &[("Allow", "GET")],
        407 => &[("Proxy-Authenticate", "Basic realm=\"toron upstream\"")],
        426 => &[("Upgrade", "websocket"), ("Connection", "Upgrade")],
        _ => &[],
    };
    let body = match status {
        205 => String::new(),
        _ => format!("{status} {}\n", reason_phrase(status)),
    };
    text(asked, status, body.as_bytes(), companion, out)
}

fn text(
    asked: &Asked<'_>,
    status: u16,
    body: &[u8],
    extra: &[(&str, &str)],
    out: &mut Vec<u8>,
) -> Prepared {
    short(asked, status, TEXT, body, extra, out)
}

fn short(
    asked: &Asked<'_>,
    status: u16,
    content_type: &str,
    body: &[u8],
    extra: &[(&str, &str)],
    out: &mut Vec<u8>,
) -> Prepared {
    let bare = never_has_body(status);
    let opening = Opening {
        status,
        content_type,
        body: if bare {
            ResponseBody::None
        } else {
            ResponseBody::Length(body.len() as u64)
        },
        extra,
    };
    opening.push(asked, out);
    if !bare && !asked.head_only {
        out.extend_from_slice(body);
    }
    Prepared {
        feed: Feed::Done,
        keep_alive: asked.keep_alive,
        delay: None,
    }
}

fn stream(
    asked: &Asked<'_>,
    content_type: &str,
    body: ResponseBody,
    feed: Feed,
    out: &mut Vec<u8>,
) -> Prepared {
    let opening = Opening {
        status: 200,
        content_type,
        body,
        extra: &[],
    };
    opening.push(asked, out);
    let feed = if asked.head_only { Feed::Done } else { feed };
    Prepared {
        feed,
        keep_alive: asked.keep_alive && body != ResponseBody::UntilClose,
        delay: None,
    }
}

impl Opening<'_> {
    fn push(&self, asked: &Asked<'_>, out: &mut Vec<u8>) {
        push_status_line(out, self.status, b"");
        push_field(out, b"Date", asked.date.as_bytes());
        push_field(out, b"Server", b"toron-upstream");
        if self.body != ResponseBody::None {
            push_field(out, b"Content-Type", self.content_type.as_bytes());
        }
        if self.content_type == "text/event-stream" {
            push_field(out, b"Cache-Control", b"no-cache");
        }
        for (name, value) in self.extra {
            push_field(out, name.as_bytes(), value.as_bytes());
        }
        match self.body {
            ResponseBody::Length(n) => push_length(out, b"Content-Length", n),
            ResponseBody::Chunked => push_field(out, b"Transfer-Encoding", b"chunked"),
            ResponseBody::None | ResponseBody::UntilClose => {}
        }
        let keep_alive = asked.keep_alive && self.body != ResponseBody::UntilClose;
        push_persistence(out, asked.version, keep_alive);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ASKED: Asked<'static> = Asked {
        version: Version::Http11,
        head_only: false,
        keep_alive: true,
        body: RequestBody::None,
        head: b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n",
        received: 0,
        crc: 0,
        date: "Sun, 06 Nov 1994 08:49:37 GMT",
        now: Time(0),
    };

    fn written(endpoint: Endpoint, asked: &Asked<'_>) -> (String, Prepared) {
        let mut out = Vec::new();
        let prepared = prepare(endpoint, asked, &mut out);
        (String::from_utf8(out).unwrap(), prepared)
    }

    #[test]
    fn a_whole_answer() {
        let (text, prepared) = written(Endpoint::Echo, &ASKED);
        assert_eq!(
            text,
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: toron-upstream\r\n\
             Content-Type: text/plain; charset=utf-8\r\nContent-Length: 31\r\n\r\n\
             GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"
        );
        assert!(prepared.keep_alive && prepared.feed == Feed::Done);
    }

    #[test]
    fn head_tells_the_length_and_sends_nothing() {
        let asked = Asked {
            head_only: true,
            ..ASKED
        };
        for (endpoint, field) in [
            (
                Endpoint::Listing,
                format!("Content-Length: {}", LISTING.len()),
            ),
            (Endpoint::Bytes(7), "Content-Length: 7".to_owned()),
            (Endpoint::Stall(7), "Content-Length: 7".to_owned()),
            (
                Endpoint::Chunked { bytes: 7, chunk: 1 },
                "Transfer-Encoding: chunked".to_owned(),
            ),
        ] {
            let (text, prepared) = written(endpoint, &asked);
            assert!(
                text.contains(&field) && text.ends_with("\r\n\r\n"),
                "{text}"
            );
            assert_eq!((prepared.feed, prepared.keep_alive), (Feed::Done, true));
        }
    }

    #[test]
    fn statuses_have_the_fields_and_the_body_they_need() {
        for (status, with, without) in [
            (204, "204 No Content\r\n", "Content-"),
            (304, "304 Not Modified\r\n", "Content-"),
            (205, "Content-Length: 0\r\n", "205 Reset Content\n"),
            (302, "Location: /\r\n", "chunked"),
            (401, "WWW-Authenticate: ", "chunked"),
            (599, "599 \r\n", "close"),
        ] {
            let (text, prepared) = written(Endpoint::Status(status), &ASKED);
            assert!(text.contains(with) && !text.contains(without), "{text}");
            assert!(prepared.keep_alive);
        }
        let (text, _) = written(Endpoint::Status(103), &ASKED);
        assert!(text.starts_with("HTTP/1.1 103 Early Hints\r\nLink: "));
        assert!(text.contains("\r\n\r\nHTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn http10_gets_no_chunks_and_no_interim_response() {
        let asked = Asked {
            version: Version::Http10,
            ..ASKED
        };
        let (text, prepared) = written(Endpoint::Chunked { bytes: 7, chunk: 1 }, &asked);
        assert!(text.contains("Connection: close") && !text.contains("chunked"));
        assert_eq!(prepared.feed, Feed::Pattern { at: 0, end: 7 });
        assert!(!prepared.keep_alive);
        let (text, prepared) = written(Endpoint::Bytes(7), &asked);
        assert!(text.contains("Connection: keep-alive") && prepared.keep_alive);
        let (text, _) = written(Endpoint::Status(103), &asked);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"));
    }
}
