//! How a request, and a client connection, ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use thin_vec::ThinVec;
use toron_reactor::{Buf, Close, Engine, Op, OpId, Outcome, Shutdown, Time};

use super::admin::visit::Visit;
use super::lane::Lane;
use super::metrics::cells::Deadline;
use super::session::{Phase, Session, Tag};
use super::{Kit, IDLE_WHILE_DRAINING};
use crate::http::{HeadScanner, Reason};
use crate::policy::firewall::Client;
use crate::proxy::clock::earliest;
use crate::proxy::transaction::{ClientEnd, Input};
use crate::proxy::writing::Writing;

/// Lingering ends after so much silence (I9).
const LINGER_SILENCE: Duration = Duration::from_secs(1);
/// Lingering ends after this time whatever comes (I9).
const LINGER_TOTAL: Duration = Duration::from_secs(5);
/// Lingering ends when so much has been thrown away (I9).
const LINGER_BYTES: u64 = 16 * 1024 * 1024;
/// For how long a connection that was refused before it was read may hold on, for its answer and
/// what it sends.
pub(super) const TOLD_TOTAL: Duration = Duration::from_millis(100);
/// How much of what it sends is thrown away.
const TOLD_BYTES: usize = 4096;
/// Bytes thrown away by one system call. They are not copied, so the size only bounds the turn.
const DISCARD: usize = 1024 * 1024;
/// Requests cut at the end of a shutdown's grace that the log names; the others it counts.
const CUT_NAMED: u64 = 20;
/// Memory for spilled bytes that a connection keeps.
const SPILL_KEPT: usize = 4096;
/// System calls of one handler before others get their turn.
pub(super) const DISCARD_ROUNDS: usize = 4;

impl<E: Engine> Kit<'_, '_, E> {
    // ---- small steps that all parts share ----

    pub(crate) fn now(&self) -> Time {
        self.cx.now
    }

    pub(crate) fn submit(&mut self, session: &Session, lane: Lane, op: Op) -> OpId {
        self.cx.engine.submit(lane.key(session.token), op)
    }

    /// Waits for bytes from the client, if nothing waits for them already.
    pub(crate) fn receive(&mut self, session: &mut Session) {
        if session.recv.is_none() && !session.eof {
            let op = Op::Recv {
                fd: session.fd,
                many: false,
            };
            session.recv = Some(self.submit(session, Lane::ClientRecv, op));
        }
    }

    /// An empty buffer, or `None`: then [`Kit::resume`] is called when there is one.
    pub(crate) fn take_buffer(&mut self, session: &mut Session) -> Option<Buf> {
        if let Some(buf) = session
            .spare
            .take()
            .or_else(|| self.cx.engine.buffers().take())
        {
            return Some(buf);
        }
        if !session.awaits_buffer {
            session.awaits_buffer = true;
            self.submit(session, Lane::Buffer, Op::Buffer);
        }
        None
    }

    /// Goes on with what waited for a buffer.
    pub(crate) fn resume(&mut self, session: &mut Session) {
        if session.unsent().is_some() {
            self.send_rest(session);
        } else {
            match session.phase {
                Phase::Idle => self.next_head(session),
                Phase::Head => self.advance_head(session),
                Phase::Exchange => self.resume_exchange(session),
                Phase::Taking
                | Phase::Asking
                | Phase::Answering { .. }
                | Phase::Skipping { .. }
                | Phase::Lingering { .. }
                | Phase::Gone => {}
            }
        }
        // Whoever still needs the buffer has taken it.
        session.spare = None;
    }

    // ---- sending ----

    /// Sends a buffer to the client behind what is on its way already.
    pub(crate) fn send(&mut self, session: &mut Session, buf: Buf, tag: Tag) {
        // A 100 or interim response that still waits for a buffer comes too late now.
        session.take_unsent();
        if session.output.in_flight.is_some() {
            session.output.push(buf, tag);
            return;
        }
        self.transmit(session, buf, tag);
    }

    fn transmit(&mut self, session: &mut Session, buf: Buf, tag: Tag) {
        session.output.in_flight = Some(tag);
        self.submit(
            session,
            Lane::ClientSend,
            Op::Send {
                fd: session.fd,
                buf,
                more: false,
            },
        );
    }

    /// Sends a short text, as soon as there is a buffer for it, behind one that waits for a buffer
    /// already. An answer takes the place of interim responses that wait.
    pub(crate) fn send_text(&mut self, session: &mut Session, text: &[u8], tag: Tag) {
        let waiting = session.take_unsent().filter(|_| tag != Tag::Answer);
        if let Some(mut buf) = self.take_buffer(session) {
            if let Some(waiting) = &waiting {
                // Interim heads and a 100 or two: they fit.
                buf.extend(waiting.rest());
            }
            let taken = buf.extend(text);
            self.send(session, buf, tag);
            // The answer of a route may be longer than a buffer.
            let rest = text.get(taken..).unwrap_or_default();
            session.keep_unsent(rest.to_vec(), tag);
        } else {
            let mut all = waiting.map_or(Vec::new(), |waiting| waiting.rest().to_vec());
            all.extend_from_slice(text);
            session.keep_unsent(all, tag);
        }
    }

    /// Sends the head of an answer and a body behind it, which may be of any length.
    pub(super) fn send_long(&mut self, session: &mut Session, head: &[u8], body: Vec<u8>) {
        let Some(mut buf) = self.take_buffer(session) else {
            let mut all = head.to_vec();
            all.extend_from_slice(&body);
            return session.keep_unsent(all, Tag::Answer);
        };
        buf.extend(head);
        let at = buf.extend(&body);
        self.send(session, buf, Tag::Answer);
        session.keep_rest(body, at, Tag::Answer);
    }

    /// Sends as much of what is unsent as a buffer takes: an answer may be much longer, and is not
    /// copied for each.
    fn send_rest(&mut self, session: &mut Session) {
        let Some(mut unsent) = session.take_unsent() else {
            return;
        };
        if let Some(mut buf) = self.take_buffer(session) {
            unsent.at += buf.extend(unsent.rest());
            self.send(session, buf, unsent.tag);
        }
        if !unsent.rest().is_empty() {
            session.own().unsent = Some(unsent);
        }
    }

    /// The client took bytes, or does not.
    pub(crate) fn client_sent(&mut self, session: &mut Session, outcome: Outcome) {
        let Some(tag) = session.output.in_flight else {
            return;
        };
        let Outcome::Sent { buf, n } = outcome else {
            return self.client_lost(session);
        };
        let unsent = session.unsent().map_or(0, |u| u.rest().len());
        if let (Phase::Answering { .. }, Some(writing)) = (session.phase, session.writing_mut()) {
            writing.progress(self.cx.now, n as u64, (buf.len() + unsent) as u64);
        }
        if let Some(exchange) = session.exchange.as_mut() {
            exchange.bytes_out += n as u64;
            if !matches!(tag, Tag::Continue | Tag::Tunnel) {
                let pending = buf.len() as u64;
                if !self.step(
                    session,
                    Input::Sent {
                        bytes: n as u64,
                        pending,
                    },
                ) {
                    return;
                }
            }
        }
        if !buf.is_empty() {
            let op = Op::Send {
                fd: session.fd,
                buf,
                more: false,
            };
            self.submit(session, Lane::ClientSend, op);
            return;
        }
        drop(buf);
        session.output.in_flight = None;
        if let Some((next, next_tag)) = session.output.pop() {
            // What is unsent now is the rest of what was queued.
            self.transmit(session, next, next_tag);
            if next_tag == tag {
                return;
            }
        } else if session.unsent().is_some_and(|unsent| unsent.tag == tag) {
            // The rest of a text that did not fit.
            return self.send_rest(session);
        }
        match (tag, session.phase) {
            // A 100 may have been on its way when the answer came.
            (Tag::Answer, Phase::Answering { then, .. }) => self.answer_taken(session, then),
            (_, Phase::Exchange) => self.exchange_sent(session, tag),
            (
                _,
                Phase::Idle
                | Phase::Head
                | Phase::Taking
                | Phase::Asking
                | Phase::Answering { .. }
                | Phase::Skipping { .. }
                | Phase::Lingering { .. }
                | Phase::Gone,
            ) => {}
        }
    }

    /// The client's connection is broken.
    pub(crate) fn client_lost(&mut self, session: &mut Session) {
        match session.phase {
            Phase::Exchange => self.client_broke(session),
            Phase::Idle | Phase::Head => self.head_abandoned(session),
            Phase::Taking | Phase::Asking => self.visit_abandoned(session),
            Phase::Answering { .. } | Phase::Skipping { .. } | Phase::Lingering { .. } => {
                self.close(session, Close::Orderly);
            }
            Phase::Gone => {}
        }
    }

    // ---- endings ----

    /// Goes on with the client connection after everything was sent.
    pub(crate) fn end_client(&mut self, session: &mut Session, end: ClientEnd) {
        session.release_permit();
        match end {
            ClientEnd::Keep if !session.eof || session.has_leftover() => self.next_head(session),
            ClientEnd::Keep | ClientEnd::Close if !session.has_leftover() => {
                self.close(session, Close::Orderly);
            }
            ClientEnd::Keep | ClientEnd::Close | ClientEnd::Linger => self.linger(session),
            ClientEnd::Drain { owed } => self.skip_owed(session, owed),
            ClientEnd::Sever => self.close(session, Close::Orderly),
        }
    }

    /// Turns to the next request on the connection.
    pub(crate) fn next_head(&mut self, session: &mut Session) {
        session.phase = Phase::Idle;
        session.admitted = false;
        let proxies = &self.core.snapshot.settings.trusted_proxies;
        session.client = Client::peer(session.peer, proxies);
        session.scanner = HeadScanner::request();
        session.since = self.now();
        if let Some(input) = session.input.as_mut() {
            input.consume(std::mem::take(&mut session.request_len));
            if input.is_empty() {
                session.input = None;
            }
        }
        session.request_len = 0;
        if session.input.is_none() {
            session.input = session.ahead.take();
        }
        if session.input.is_none() && !session.spill.is_empty() {
            let Some(mut buf) = self.take_buffer(session) else {
                return;
            };
            // At most one receive was spilled, and a buffer holds more than that.
            buf.extend(&session.spill);
            session.spill.clear();
            // What a long body spilled is not kept for an idle connection.
            if session.spill.capacity() > SPILL_KEPT {
                session.spill = ThinVec::new();
            }
            session.input = Some(buf);
        }
        if session.input.is_some() {
            session.phase = Phase::Head;
            self.advance_head(session);
        } else if session.eof {
            self.close(session, Close::Orderly);
        } else {
            self.receive(session);
        }
    }

    /// The common ending of refusals: the client may still be sending, and must be able to read
    /// what was sent to it (I9).
    pub(crate) fn linger(&mut self, session: &mut Session) {
        let now = self.now();
        session.phase = Phase::Lingering {
            started: now,
            last: now,
            discarded: 0,
        };
        session.input = None;
        session.ahead = None;
        session.spill = ThinVec::new();
        self.cx.engine.shutdown(session.fd, Shutdown::Write);
        if session.eof {
            return self.close(session, Close::Orderly);
        }
        match session.recv {
            // Its event goes on with discarding.
            Some(op) => self.cx.engine.cancel(op),
            None => self.discard(session),
        }
    }

    /// Throws away what has come.
    pub(crate) fn discard(&mut self, session: &mut Session) {
        let most = match session.told {
            Some(_) => TOLD_BYTES,
            None => DISCARD,
        };
        for _ in 0..DISCARD_ROUNDS {
            match self.cx.engine.discard(session.fd, most) {
                Ok(n) if n > 0 && self.count_discarded(session, n) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => return self.close(session, Close::Orderly),
            }
        }
        self.poll_readable(session);
    }

    /// Waits until the client's socket can be read, if nothing waits for that already.
    pub(super) fn poll_readable(&mut self, session: &mut Session) {
        if !session.polls_readable {
            session.polls_readable = true;
            self.submit(
                session,
                Lane::ClientReadable,
                Op::Readable { fd: session.fd },
            );
        }
    }

    /// Counts; `false` when enough has been thrown away.
    pub(crate) fn count_discarded(&mut self, session: &mut Session, n: usize) -> bool {
        let now = self.now();
        let Phase::Lingering {
            last, discarded, ..
        } = &mut session.phase
        else {
            return true;
        };
        *last = now;
        *discarded += n as u64;
        let most = match session.told {
            Some(_) => TOLD_BYTES as u64,
            None => LINGER_BYTES,
        };
        *discarded < most
    }

    /// Closes the client connection and what belongs to it.
    pub(crate) fn close(&mut self, session: &mut Session, how: Close) {
        if matches!(session.phase, Phase::Gone) {
            return;
        }
        self.end_exchange(session, false);
        session.release_permit();
        session.take_visit();
        session.phase = Phase::Gone;
        self.cx.engine.close(session.fd, how);
        self.cx.wheel.remove(session.timer);
        self.cx.connection_ended();
        self.core.sessions -= 1;
    }

    /// Ends the client connection whatever it is doing, and says why to the logs.
    pub(super) fn break_off(&mut self, session: &mut Session, reason: Reason) {
        self.log_cut_head(session, reason);
        self.note_cut_visit(session, reason);
        self.note_cause(session, reason);
        self.cut(session);
    }

    /// The grace of a shutdown is over for this connection: who is cut is counted, and the first few
    /// are named.
    fn tell_grace_is_over(&mut self, session: &Session) {
        let shared = &self.core.shared;
        let exchange = session.exchange.as_deref();
        let asked = exchange.map(|exchange| &exchange.asked);
        let Some(asked) = asked.or(session.visit().map(|visit| &visit.asked)) else {
            shared.cut_connections.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if shared.cut_requests.fetch_add(1, Ordering::Relaxed) >= CUT_NAMED {
            return;
        }
        let text = String::from_utf8_lossy;
        let since = exchange.map_or(session.since, |exchange| exchange.started);
        let lasted = self.cx.now.since(since).as_millis();
        log::warn!(
            "shutdown_grace is over: cut {} {} {}{} of {} after {lasted} ms",
            exchange
                .and_then(|exchange| exchange.route())
                .map_or("-", |route| route.name.as_str()),
            text(asked.method()),
            text(asked.host()),
            text(asked.path()),
            session.client.address,
        );
    }

    // ---- deadlines ----

    /// Arms the session's one timer for the earliest thing that must happen.
    pub(crate) fn arm(&mut self, session: &Session) {
        let settings = &self.core.snapshot.settings;
        let drain = self.core.drain;
        let after = |since: Time, length: Duration| (!length.is_zero()).then(|| since + length);
        let deadline = match session.phase {
            // A request is here, and toron has no buffer for it: the client is not the slow one.
            Phase::Idle | Phase::Head if session.awaits_buffer && session.recv.is_none() => None,
            Phase::Idle => {
                let length = if session.served == 0 {
                    settings.header_timeout
                } else {
                    settings.idle_timeout
                };
                earliest([
                    after(session.since, length),
                    drain.map(|d| d.idle_until.max(session.since + IDLE_WHILE_DRAINING)),
                ])
            }
            Phase::Head => after(session.since, settings.header_timeout),
            Phase::Exchange => session
                .exchange
                .as_ref()
                .and_then(|exchange| exchange.transaction.deadline()),
            Phase::Taking => session.visit().and_then(Visit::deadline),
            // toron is the one who is slow.
            Phase::Asking => None,
            Phase::Answering { .. } => session.writing().and_then(Writing::deadline),
            Phase::Skipping { until, .. } => Some(until),
            Phase::Lingering { .. } if session.told.is_some() => Some(session.since + TOLD_TOTAL),
            Phase::Lingering { started, last, .. } => {
                Some((last + LINGER_SILENCE).min(started + LINGER_TOTAL))
            }
            Phase::Gone => None,
        };
        self.cx
            .wheel
            .arm(session.timer, earliest([deadline, drain.map(|d| d.until)]));
    }

    /// The session's timer fired.
    pub(crate) fn deadline(&mut self, session: &mut Session) {
        if self
            .core
            .drain
            .is_some_and(|drain| drain.until <= self.now())
        {
            self.tell_grace_is_over(session);
            return self.break_off(session, Reason::Shutdown);
        }
        match session.phase {
            Phase::Head => self.head_too_slow(session),
            Phase::Exchange => self.exchange_deadline(session),
            Phase::Taking => self.body_too_slow(session),
            Phase::Asking => {}
            Phase::Answering { .. } => {
                if !self.answer_is_taken(session) {
                    if session.told.is_none() {
                        self.core.cells.deadline(Deadline::Write);
                    }
                    self.close(session, Close::Orderly);
                }
            }
            Phase::Skipping { .. } => self.linger(session),
            Phase::Idle => {
                if self.core.drain.is_none() {
                    self.core.cells.deadline(Deadline::Idle);
                }
                self.close(session, Close::Orderly);
            }
            Phase::Lingering { .. } => self.close(session, Close::Orderly),
            Phase::Gone => {}
        }
    }
}
