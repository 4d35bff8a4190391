//! How a request, and a client connection, ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use thin_vec::ThinVec;
use toron_reactor::{Close, Engine, Shutdown};

use super::metrics::cells::Deadline;
use super::session::{Phase, Session};
use super::Kit;
use crate::http::{HeadScanner, Reason};
use crate::policy::firewall::Client;
use crate::proxy::transaction::ClientEnd;

/// Lingering ends after so much silence (I9).
pub(super) const LINGER_SILENCE: Duration = Duration::from_secs(1);
/// Lingering ends after this time whatever comes (I9).
pub(super) const LINGER_TOTAL: Duration = Duration::from_secs(5);
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
