//! From the bytes of a client to a response.

use std::time::{Duration, SystemTime};

use toron_reactor::{Buf, Close, Engine, Op, Outcome};

use super::endpoint::{self, Endpoint};
use super::feed::{Feed, Progress};
use super::lane::Lane;
use super::response::{self, Asked};
use super::session::{Phase, Request, Session};
use super::{websocket, Core, Kit};
use crate::http::answer::{Answer, Rendering, CONTINUE};
use crate::http::method::Method;
use crate::http::request;
use crate::http::{
    field_slots, Expect, HeadLimits, RequestBody, RequestFacts, RequestHead, Scan, Target, Version,
    MOST_FIELDS,
};
use crate::server::body::{self, Chunked, Framing, Source};

/// Most bytes of a head: more than proxies pass on.
const MOST_HEAD: usize = 32 * 1024;
/// How a request begins.
enum Start {
    /// It cannot be understood.
    Refuse(Answer),
    /// With the response, which stands in `head`.
    Respond(response::Prepared),
    /// With its body; an invitation is sent first if the client waits for one.
    Body { invite: bool },
    /// With frames, after the 101 in `head`.
    Switch,
}

impl Core {
    /// The value of `Date` (RFC 9110 section 6.6.1), renewed once a second.
    fn renew_date(&mut self, now: toron_reactor::Time) {
        let fresh = |at: toron_reactor::Time| now.since(at) < Duration::from_secs(1);
        if !self.dated.is_some_and(fresh) {
            self.dated = Some(now);
            self.date = httpdate::fmt_http_date(SystemTime::now());
        }
    }
}

impl<E: Engine> Kit<'_, '_, E> {
    /// Bytes or the end of stream have come, or the connection is broken.
    pub(super) fn received(&mut self, session: &mut Session, outcome: Outcome) {
        // After the end of stream nothing can come that this waits for. (In a stall nothing is
        // waited for, but a client that has gone shows in no other way.)
        let Outcome::Received { buf, .. } = outcome else {
            return self.close(session, Close::Orderly);
        };
        match session.phase {
            Phase::Idle | Phase::Head => {
                session.input = Some(buf);
                self.advance_head(session);
            }
            Phase::Body => self.body_received(session, buf),
            Phase::WebSocket if !session.frames_end => self.frames_received(session, buf),
            // Only a stall receives while it responds; nothing will be answered behind it.
            Phase::WebSocket | Phase::Responding | Phase::Lingering { .. } => {
                let n = buf.len();
                drop(buf);
                self.discard(session, n);
            }
            Phase::Gone => {}
        }
    }

    /// Looks for the end of the head, and begins the request when it is there.
    pub(super) fn advance_head(&mut self, session: &mut Session) {
        session.phase = Phase::Head;
        let Some(mut input) = session.input.take() else {
            return;
        };
        match session.scanner.scan(&input) {
            Scan::Incomplete if input.len() < MOST_HEAD => {
                input.compact();
                session.receiving = true;
                let op = Op::RecvInto {
                    fd: session.fd,
                    buf: input,
                };
                self.submit(session, Lane::Recv, op);
            }
            Scan::Complete { skip, len } if len <= MOST_HEAD => {
                input.consume(skip);
                self.begin(session, input, len);
            }
            Scan::Incomplete | Scan::Complete { .. } => {
                session.input = Some(input);
                self.refuse(session, Answer::HeadTooLarge);
            }
            Scan::Bad(reason) => {
                log::debug!("bad head: {reason}");
                session.input = Some(input);
                self.refuse(session, Answer::BadRequest);
            }
        }
    }

    fn begin(&mut self, session: &mut Session, mut input: Buf, len: usize) {
        let head = input.get(..len).unwrap_or_default();
        let mut slots = field_slots::<MOST_FIELDS>();
        let limits = HeadLimits {
            max_fields: MOST_FIELDS,
        };
        let start = match request::parse(head, &limits, &mut slots) {
            Ok(request) => self.plan(session, &request, head),
            Err(fault) => {
                log::debug!("refused: {fault}");
                Start::Refuse(Answer::to(fault).unwrap_or(Answer::BadRequest))
            }
        };
        input.consume(len);
        if input.is_empty() {
            session.spare = Some(input);
        } else {
            session.input = Some(input);
        }
        match start {
            Start::Refuse(answer) => self.refuse(session, answer),
            Start::Respond(prepared) => self.respond(session, prepared),
            Start::Body { invite } => {
                session.phase = Phase::Body;
                if invite && !session.has_leftover() {
                    self.invite(session);
                } else {
                    self.receive_body(session);
                }
            }
            Start::Switch => {
                session.phase = Phase::WebSocket;
                session.frames = websocket::Echo::default();
                self.send_head(session);
            }
        }
    }

    /// Decides how a request is served, and writes what can be written of the answer.
    fn plan(&mut self, session: &mut Session, request: &RequestHead<'_, '_>, head: &[u8]) -> Start {
        let facts = &request.facts;
        if facts.expect == Expect::Other {
            return Start::Refuse(Answer::ExpectationFailed);
        }
        if request.target == Target::Asterisk {
            return Start::Refuse(Answer::Options);
        }
        let endpoint = endpoint::find(request.path, request.query);
        let keep_alive = facts.keep_alive && self.core.drain_until.is_none();
        session.request = begun(endpoint, facts, keep_alive);
        session.head.clear();
        if endpoint == Endpoint::WebSocket {
            match websocket::accept(request) {
                Ok(accept) => {
                    self.core.renew_date(self.cx.now);
                    response::prepare_switch(&accept, &self.core.date, &mut session.head);
                    return Start::Switch;
                }
                Err(websocket::Refused::BadKey) => {
                    session.request.endpoint = Endpoint::BadParameter;
                }
                Err(websocket::Refused::NotAsked) => {}
            }
        }
        let early = matches!(endpoint, Endpoint::CloseEarly { .. });
        if !early && !session.request.complete {
            let invite = facts.expect == Expect::Continue;
            return Start::Body { invite };
        }
        Start::Respond(self.prepare(session, head))
    }

    /// Writes the head of the response.
    fn prepare(&mut self, session: &mut Session, head: &[u8]) -> response::Prepared {
        self.core.renew_date(self.cx.now);
        let request = &session.request;
        let asked = Asked {
            version: request.version,
            head_only: request.head_only,
            keep_alive: request.keep_alive,
            body: request.framing,
            head,
            received: request.received,
            crc: request.crc.clone().finalize(),
            date: &self.core.date,
            now: self.cx.now,
        };
        if request.echo.is_some() {
            response::prepare_echo(&asked, &mut session.head);
            let keep_alive = asked.keep_alive && request.echo != Some(Framing::UntilClose);
            return response::Prepared {
                feed: Feed::Done,
                keep_alive,
                delay: None,
            };
        }
        response::prepare(request.endpoint, &asked, &mut session.head)
    }

    fn respond(&mut self, session: &mut Session, prepared: response::Prepared) {
        let response::Prepared {
            feed,
            keep_alive,
            delay,
        } = prepared;
        session.phase = Phase::Responding;
        session.feed = feed;
        session.request.keep_alive = keep_alive;
        match delay {
            Some(delay) if !delay.is_zero() => {
                session.progress = Progress::Done;
                session.wake = Some(self.cx.now + delay);
                self.watch_hangup(session);
            }
            _ => {
                session.wake = None;
                self.pump(session);
            }
        }
    }

    /// Answers a request that is not served, and ends the connection unless the answer keeps it.
    fn refuse(&mut self, session: &mut Session, answer: Answer) {
        session.request = Request {
            // Whatever else has come or comes is not understood.
            complete: false,
            ..Request::default()
        };
        session.head.clear();
        answer.write(&Rendering::CLOSE, &mut session.head);
        let prepared = response::Prepared {
            feed: Feed::Done,
            keep_alive: false,
            delay: None,
        };
        self.respond(session, prepared);
    }

    // ---- request bodies ----

    /// Tells the client to send the body that it holds back (RFC 9110 section 10.1.1).
    pub(super) fn invite(&mut self, session: &mut Session) {
        if let Some(mut buf) = self.take_buffer(session) {
            buf.extend(CONTINUE);
            self.send(session, buf);
        }
    }

    /// Goes on with the body: what is here first.
    pub(super) fn receive_body(&mut self, session: &mut Session) {
        match session.input.take() {
            Some(buf) => self.body_received(session, buf),
            None => self.receive(session),
        }
    }

    fn body_received(&mut self, session: &mut Session, mut buf: Buf) {
        let request = &mut session.request;
        let framing = request.echo.unwrap_or_default();
        let portion = match request.body.take(&mut buf, 0, framing, &mut session.spill) {
            Ok(portion) => portion,
            Err(fault) => {
                log::debug!("bad chunks: {fault}");
                // An echo that has begun can only be cut.
                if request.echo.is_some() && request.received > 0 {
                    self.linger(session);
                } else {
                    self.refuse(session, Answer::BadRequest);
                }
                return;
            }
        };
        let begins = request.received == 0;
        request.received += portion.bytes as u64;
        request.complete = portion.last;
        let Some(framing) = request.echo else {
            if request.endpoint == Endpoint::Discard {
                request.crc.update(&buf);
            }
            buf.clear();
            session.spare = Some(buf);
            if portion.last {
                let prepared = self.prepare(session, &[]);
                return self.respond(session, prepared);
            }
            return self.receive(session);
        };
        if portion.bytes == 0 && !portion.last {
            return self.receive(session);
        }
        if begins {
            let prepared = self.prepare(session, &[]);
            session.request.keep_alive = prepared.keep_alive;
        }
        let trailers: &[u8] = match &session.request.body {
            Source::Chunked(Chunked { trailers, .. }) => trailers,
            Source::None | Source::Length(_) | Source::UntilClose => &[],
        };
        let scratch = &mut self.core.scratch;
        // The headroom takes a head and a size line, the room behind a receive takes the trailers.
        let fits = body::frame(framing, portion, trailers, scratch, &mut buf)
            && buf.replace_front(0, &session.head);
        session.head.clear();
        if !fits {
            return self.close(session, Close::Reset);
        }
        if buf.is_empty() {
            session.spare = Some(buf);
            return self.finish(session);
        }
        self.send(session, buf);
    }

    // ---- frames ----

    /// Goes on with frames: what is here first.
    pub(super) fn receive_frames(&mut self, session: &mut Session) {
        match session.input.take() {
            Some(buf) => self.frames_received(session, buf),
            None => self.receive(session),
        }
    }

    fn frames_received(&mut self, session: &mut Session, mut buf: Buf) {
        let answer = session.frames.turn_round(buf.filled_mut());
        buf.truncate(answer.len);
        let mut fits = buf.replace_front(0, answer.front());
        if let Some(end) = answer.end {
            session.frames_end = true;
            if let websocket::End::Fault(code) = end {
                let frame = websocket::close_frame(code);
                fits &= buf.extend(&frame) == frame.len();
            }
        }
        if !fits {
            self.close(session, Close::Reset);
        } else if !buf.is_empty() {
            self.send(session, buf);
        } else {
            // Every end has bytes to send.
            self.receive(session);
        }
    }
}

/// The state of a request whose head has come.
fn begun(endpoint: Endpoint, facts: &RequestFacts, keep_alive: bool) -> Request {
    let head_only = facts.method == Method::Head;
    let body = match facts.body {
        RequestBody::None => Source::None,
        RequestBody::Length(n) => Source::Length(n),
        RequestBody::Chunked => Source::Chunked(Chunked::default()),
    };
    let echoes = endpoint == Endpoint::Echo && !head_only && !facts.body.is_empty();
    let framing = match (facts.body, facts.version) {
        (RequestBody::None | RequestBody::Length(_), _) => Framing::Plain,
        (RequestBody::Chunked, Version::Http11) => Framing::Chunked,
        (RequestBody::Chunked, Version::Http10) => Framing::UntilClose,
    };
    Request {
        endpoint,
        version: facts.version,
        head_only,
        keep_alive,
        framing: facts.body,
        body,
        complete: facts.body.is_empty(),
        echo: echoes.then_some(framing),
        received: 0,
        crc: crc32fast::Hasher::new(),
    }
}
