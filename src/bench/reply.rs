//! Reads the responses of one connection, however the bytes are cut.

use crate::http::chunk::{Decoder, Event};
use crate::http::response::{self, MAX_RESPONSE_HEAD};
use crate::http::{
    field_slots, Asked, HeadScanner, Reason, ResponseBody, ResponseFacts, Scan, MOST_FIELDS,
};

/// A response that has come whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// Decoded bytes of the body.
    pub body: u64,
    /// Whether another request may be sent on the connection.
    pub keep_alive: bool,
}

/// What the bytes given were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// All taken; the response is not complete.
    More,
    /// The response is complete with the first `consumed` bytes.
    Done {
        /// Bytes of the input that belong to it.
        consumed: usize,
        /// The response.
        reply: Reply,
    },
    /// This is no valid response; the reason code says why.
    Bad(&'static str),
}

#[derive(Debug)]
enum State {
    Head,
    Body(Body),
}

#[derive(Debug)]
enum Body {
    Length(u64),
    Chunked(Box<Decoder>),
    UntilClose,
}

/// Incremental reader of responses.
#[derive(Debug)]
pub struct Reader {
    scanner: HeadScanner,
    /// The beginning of a head that came in pieces.
    carry: Vec<u8>,
    trailers: Vec<u8>,
    state: State,
    reply: Reply,
}

impl Default for Reader {
    fn default() -> Self {
        Reader {
            scanner: HeadScanner::response(),
            carry: Vec::new(),
            trailers: Vec::new(),
            state: State::Head,
            reply: Reply {
                status: 0,
                body: 0,
                keep_alive: false,
            },
        }
    }
}

impl Reader {
    /// Whether nothing of a response has come.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        matches!(self.state, State::Head) && !self.scanner.started()
    }

    /// Takes bytes up to the end of a response. `head`: the request was HEAD.
    pub fn feed(&mut self, bytes: &[u8], head: bool) -> Progress {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let step = match &mut self.state {
                State::Head => self.feed_head(rest, head),
                State::Body(_) => self.feed_body(rest),
            };
            match step {
                Ok(Some((n, true))) => {
                    let reply = self.finish();
                    return Progress::Done {
                        consumed: at + n,
                        reply,
                    };
                }
                Ok(Some((n, false))) => at += n,
                Ok(None) => return Progress::More,
                Err(reason) => return Progress::Bad(reason),
            }
        }
    }

    /// The connection has ended: the response, if that is what completes it.
    pub fn end(&mut self) -> Option<Reply> {
        matches!(self.state, State::Body(Body::UntilClose)).then(|| self.finish())
    }

    /// Bytes taken and whether the response is complete; `None` if more are needed.
    fn feed_head(
        &mut self,
        bytes: &[u8],
        to_head: bool,
    ) -> Result<Option<(usize, bool)>, &'static str> {
        let before = self.carry.len();
        let scan = if before == 0 {
            self.scanner.scan(bytes)
        } else {
            self.carry.extend_from_slice(bytes);
            self.scanner.scan(&self.carry)
        };
        let len = match scan {
            Scan::Complete { len, .. } if len <= MAX_RESPONSE_HEAD => len,
            Scan::Incomplete if before.max(bytes.len()) <= MAX_RESPONSE_HEAD => {
                if before == 0 {
                    self.carry.extend_from_slice(bytes);
                }
                return Ok(None);
            }
            Scan::Complete { .. } | Scan::Incomplete => return Err("head_too_large"),
            Scan::Bad(reason) => return Err(reason.code()),
        };
        let whole = if before == 0 { bytes } else { &self.carry };
        let facts = parse(whole.get(..len).unwrap_or_default(), to_head)?;
        self.carry.clear();
        self.scanner.reset();
        let consumed = len - before;
        if facts.is_interim() {
            return Ok(Some((consumed, false)));
        }
        Ok(Some((consumed, self.begin(&facts))))
    }

    /// Whether the response ends with its head.
    fn begin(&mut self, facts: &ResponseFacts) -> bool {
        self.reply = Reply {
            status: facts.status,
            body: 0,
            keep_alive: facts.keep_alive,
        };
        self.state = State::Body(match facts.body {
            ResponseBody::None | ResponseBody::Length(0) => return true,
            ResponseBody::Length(n) => Body::Length(n),
            ResponseBody::Chunked => Body::Chunked(Box::default()),
            ResponseBody::UntilClose => Body::UntilClose,
        });
        false
    }

    fn feed_body(&mut self, bytes: &[u8]) -> Result<Option<(usize, bool)>, &'static str> {
        let State::Body(body) = &mut self.state else {
            return Ok(None);
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        match body {
            Body::Length(left) => {
                let n = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                *left -= n as u64;
                self.reply.body += n as u64;
                Ok(Some((n, *left == 0)))
            }
            Body::UntilClose => {
                self.reply.body += bytes.len() as u64;
                Ok(None)
            }
            Body::Chunked(decoder) => {
                let step = decoder.feed(bytes, &mut self.trailers);
                match step.event {
                    Event::Data { start, end } => {
                        self.reply.body += (end - start) as u64;
                        Ok(Some((step.consumed, false)))
                    }
                    Event::NeedMore => Ok(None),
                    Event::Done => Ok(Some((step.consumed, true))),
                    Event::Fault(fault) => Err(fault.code()),
                }
            }
        }
    }

    fn finish(&mut self) -> Reply {
        self.state = State::Head;
        self.trailers.clear();
        self.reply
    }
}

fn parse(head: &[u8], to_head: bool) -> Result<ResponseFacts, &'static str> {
    let mut slots = field_slots::<MOST_FIELDS>();
    let asked = Asked {
        head: to_head,
        upgrade: false,
    };
    let parsed = response::parse(head, asked, &mut slots);
    parsed.map(|r| r.facts).map_err(Reason::code)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIRE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
        HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n\
        HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n\
        HTTP/1.0 200 OK\r\n\r\nuntil the end";

    fn read(cuts: &[usize]) -> Vec<Reply> {
        let mut reader = Reader::default();
        let mut replies = Vec::new();
        let mut from = 0;
        for to in cuts.iter().copied().chain([WIRE.len()]) {
            let mut part = &WIRE[from..to];
            loop {
                match reader.feed(part, false) {
                    Progress::More => break,
                    Progress::Done { consumed, reply } => {
                        replies.push(reply);
                        part = &part[consumed..];
                    }
                    Progress::Bad(reason) => panic!("{reason}"),
                }
                if part.is_empty() {
                    break;
                }
            }
            from = to;
        }
        replies.extend(reader.end());
        replies
    }

    fn reply(status: u16, body: u64, keep_alive: bool) -> Reply {
        Reply {
            status,
            body,
            keep_alive,
        }
    }

    proptest! {
        #[test]
        fn however_the_bytes_are_cut(mut cuts in proptest::collection::vec(0..WIRE.len(), 0..20)) {
            cuts.sort_unstable();
            prop_assert_eq!(read(&cuts), vec![
                reply(200, 5, true),
                reply(204, 0, true),
                reply(200, 5, true),
                reply(503, 0, false),
                reply(200, 13, false),
            ]);
        }
    }

    #[test]
    fn an_answer_to_head_has_no_body() {
        let mut reader = Reader::default();
        let wire = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let Progress::Done { consumed, reply } = reader.feed(wire, true) else {
            panic!()
        };
        assert_eq!((consumed, reply.body), (wire.len(), 0));
        assert!(reader.is_fresh());
    }

    #[test]
    fn what_is_no_response_is_told() {
        for wire in [
            &b"SSH-2.0-x\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        ] {
            let fed = Reader::default().feed(wire, false);
            assert!(matches!(fed, Progress::Bad(_)), "{fed:?}");
        }
    }
}
