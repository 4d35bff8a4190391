//! The small steps that all parts share: to receive, to get a buffer, to send, to arm the timer.

use std::time::Duration;

use toron_reactor::{Buf, Close, Engine, Op, OpId, Outcome, Time};

use super::admin::visit::Visit;
use super::ending::{LINGER_SILENCE, LINGER_TOTAL, TOLD_TOTAL};
use super::lane::Lane;
use super::session::{Phase, Session, Tag};
use super::{Kit, IDLE_WHILE_DRAINING};
use crate::proxy::clock::earliest;
use crate::proxy::transaction::Input;
use crate::proxy::writing::Writing;

impl<E: Engine> Kit<'_, '_, E> {
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
        if !self.count_sent(session, tag, n as u64, buf.len() as u64) {
            return;
        }
        if !buf.is_empty() {
            return self.transmit(session, buf, tag);
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

    /// The client took `n` bytes, and `pending` of the same buffer are still to go. `false` when the
    /// exchange is over.
    fn count_sent(&mut self, session: &mut Session, tag: Tag, n: u64, pending: u64) -> bool {
        let unsent = session.unsent().map_or(0, |u| u.rest().len());
        if let (Phase::Answering { .. }, Some(writing)) = (session.phase, session.writing_mut()) {
            writing.progress(self.cx.now, n, pending + unsent as u64);
        }
        let Some(exchange) = session.exchange.as_mut() else {
            return true;
        };
        exchange.bytes_out += n;
        let bytes = n;
        matches!(tag, Tag::Continue | Tag::Tunnel)
            || self.step(session, Input::Sent { bytes, pending })
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
}
