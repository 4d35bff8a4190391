//! Phase 1: from the first byte of a head to a transaction, or a refusal.

use toron_reactor::{Buf, Close, Engine, Op, Outcome};

use super::blame::Blame;
use super::judge::Verdict;
use super::lane::Lane;
use super::refuse::Refusal;
use super::session::{Phase, Session};
use super::Kit;
use crate::http::request;
use crate::http::{field_slots, HeadLimits, HeadScanner, Reason, Scan, MOST_FIELDS};
use crate::proxy::clock::millis;

/// The beginning of a head up to this length is kept as its own few bytes until more of it comes, so
/// that slow heads hold no buffers. It must fit into the headroom of the next receive's buffer.
const PARTIAL_MOST: usize = toron_reactor::buffer::HEADROOM;

impl<E: Engine> Kit<'_, '_, E> {
    /// Bytes of a head have come.
    pub(crate) fn head_received(&mut self, session: &mut Session, outcome: Outcome) {
        match outcome {
            Outcome::Received { buf, .. } => {
                if matches!(session.phase, Phase::Idle) {
                    session.phase = Phase::Head;
                    session.since = self.now();
                }
                session.input = Some(with_partial(session, buf));
                self.advance_head(session);
            }
            // It was cancelled for a request that has ended.
            Outcome::Cancelled { buf: None } => self.receive(session),
            // EOF in the middle of a head is closed without a response (I4).
            _ => self.head_abandoned(session),
        }
    }

    /// The client has gone before its head was whole.
    pub(super) fn head_abandoned(&mut self, session: &mut Session) {
        self.log_cut_head(session, Reason::ClientLeftHead);
        self.close(session, Close::Orderly);
    }

    /// A line about the head that is being received, if one is: a request that ends without an answer.
    pub(super) fn log_cut_head(&mut self, session: &Session, reason: Reason) {
        if !matches!(session.phase, Phase::Head) {
            return;
        }
        self.core.asked.clear();
        self.core.header_took = self.now().since(session.since);
        self.note_cut(session, reason);
    }

    /// Looks for the end of the head, and begins the request when it is there.
    pub(crate) fn advance_head(&mut self, session: &mut Session) {
        let Some(mut input) = session.input.take() else {
            return;
        };
        let most = self.core.snapshot.settings.max_header_bytes;
        self.core.asked.clear();
        if session.awaits_proxy_header {
            return self.proxy_header_received(session, input);
        }
        match session.scanner.find(&input, most) {
            Scan::Incomplete if input.len() >= most || input.receivable() == 0 => {
                let blame = Blame::with(Reason::HeadTooLarge, input.len() as u64);
                session.input = Some(input);
                self.refuse(session, Refusal::unread(blame));
            }
            Scan::Incomplete if session.eof => self.head_abandoned(session),
            Scan::Incomplete => {
                if !session.scanner.started() {
                    // Empty lines only (I5): still idle.
                    session.phase = Phase::Idle;
                }
                self.await_more(session, input);
            }
            Scan::Complete { len, .. } if len > most => {
                session.input = Some(input);
                let blame = Blame::with(Reason::HeadTooLarge, len as u64);
                self.refuse(session, Refusal::unread(blame));
            }
            Scan::Complete { skip, len } => {
                input.consume(skip);
                self.begin_request(session, input, len);
            }
            Scan::Bad(reason) => {
                session.input = Some(input);
                self.refuse(session, Refusal::unread(reason));
            }
        }
    }

    /// Keeps the beginning of a head and waits for the rest.
    pub(super) fn await_more(&mut self, session: &mut Session, mut input: Buf) {
        if input.len() <= PARTIAL_MOST {
            session.partial.extend_from_slice(&input);
            return self.receive(session);
        }
        input.compact();
        let op = Op::RecvInto {
            fd: session.fd,
            buf: input,
        };
        session.recv = Some(self.submit(session, Lane::ClientRecv, op));
    }

    /// The header deadline has passed (I3).
    pub(crate) fn head_too_slow(&mut self, session: &mut Session) {
        self.core.asked.clear();
        if let Some(op) = session.recv {
            self.cx.engine.cancel(op);
        }
        self.note_slowness(session);
        self.core.header_took = self.now().since(session.since);
        let blame = Blame::with(Reason::HeaderTimeout, millis(self.core.header_took));
        self.refuse(session, Refusal::unread(blame));
    }

    fn begin_request(&mut self, session: &mut Session, input: Buf, head_len: usize) {
        let snapshot = self.core.pin();
        self.core.header_took = self.now().since(session.since);
        let head = input.get(..head_len).unwrap_or_default();
        let mut slots = field_slots::<MOST_FIELDS>();
        let limits = HeadLimits {
            max_fields: snapshot.settings.max_header_count,
        };
        let mut room = std::mem::take(&mut self.core.path_room);
        room.resize(input.len().max(room.len()), 0);
        self.core.asked.clear();
        let verdict = match request::parse(head, &limits, &mut slots) {
            Ok(request) => self.arrive(session, &snapshot, request, &input, head_len, &mut room),
            Err(Reason::TooManyFields) => {
                // All lines but the first and the empty one.
                let lines = head.iter().filter(|&&b| b == b'\n').count();
                let fields = lines.saturating_sub(2) as u64;
                Verdict::Answer(Refusal::unread(Blame::with(Reason::TooManyFields, fields)))
            }
            Err(fault) => Verdict::Answer(Refusal::unread(fault)),
        };
        self.core.path_room = room;
        session.input = Some(input);
        match verdict {
            Verdict::Proxy(exchange, orders) => {
                self.begin_exchange(session, exchange, &orders);
            }
            // The scan is done again when there is a buffer.
            Verdict::Wait => {
                // The client is not the one that is slow.
                session.since = self.now();
                session.scanner = HeadScanner::request();
            }
            Verdict::Answer(refusal) => self.refuse(session, refusal),
            Verdict::Visit { visit, invited } => {
                self.begin_visit(session, visit, head_len, invited);
            }
            Verdict::Written {
                whole,
                keep_alive,
                told,
                permit,
            } => {
                if permit.is_some() {
                    session.own().permit = permit;
                }
                self.answer_written(session, whole, keep_alive, &told);
            }
        }
    }
}

/// Puts what is kept of the head in front of what has come.
fn with_partial(session: &mut Session, mut buf: Buf) -> Buf {
    if session.partial.is_empty() {
        return buf;
    }
    let partial = std::mem::take(&mut session.partial);
    // An empty buffer's headroom takes it, as its length is limited to that.
    let fits = buf.replace_front(0, &partial);
    debug_assert!(fits, "the beginning of a head outgrew the headroom");
    buf
}
