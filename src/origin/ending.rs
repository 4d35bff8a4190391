//! What every part of a connection's life shares: buffers, sending, waiting, closing.

use std::time::Duration;

use toron_reactor::{Buf, Close, Engine, Op, Outcome, Shutdown};

use super::endpoint::Endpoint;
use super::feed::Progress;
use super::lane::Lane;
use super::session::{Phase, Session};
use super::{websocket, Kit};
use crate::http::HeadScanner;

/// A connection without a request is closed after this time: longer than proxies keep theirs.
const IDLE: Duration = Duration::from_secs(300);
/// Lingering ends after this time.
const LINGER: Duration = Duration::from_secs(5);
/// Lingering ends after so many bytes.
const LINGER_BYTES: usize = 16 * 1024 * 1024;

impl<E: Engine> Kit<'_, '_, E> {
    pub(super) fn submit(&mut self, session: &Session, lane: Lane, op: Op) {
        self.cx.engine.submit(lane.key(session.token), op);
    }

    /// Waits for bytes from the client.
    pub(super) fn receive(&mut self, session: &mut Session) {
        if !session.receiving {
            session.receiving = true;
            let op = Op::Recv {
                fd: session.fd,
                many: false,
            };
            self.submit(session, Lane::Recv, op);
        }
    }

    /// Watches for the end of the connection while nothing else would tell it.
    pub(super) fn watch_hangup(&mut self, session: &mut Session) {
        if !session.watches_hangup {
            session.watches_hangup = true;
            self.submit(session, Lane::Hangup, Op::Hangup { fd: session.fd });
        }
    }

    /// An empty buffer, or `None`: then [`Kit::resume`] is called when there is one.
    pub(super) fn take_buffer(&mut self, session: &mut Session) -> Option<Buf> {
        let buf = session
            .spare
            .take()
            .or_else(|| self.cx.engine.buffers().take());
        if buf.is_none() && !session.awaits_buffer {
            session.awaits_buffer = true;
            self.submit(session, Lane::Buffer, Op::Buffer);
        }
        buf
    }

    /// Goes on with what waited for a buffer.
    pub(super) fn resume(&mut self, session: &mut Session) {
        match session.phase {
            Phase::Idle => self.next_head(session),
            Phase::Body => self.invite(session),
            Phase::Responding => self.pump(session),
            Phase::WebSocket => self.send_head(session),
            Phase::Head | Phase::Lingering { .. } | Phase::Gone => {}
        }
    }

    /// Sends a buffer. Nothing else is in flight: each part waits for [`Kit::sent`].
    pub(super) fn send(&mut self, session: &mut Session, buf: Buf) {
        debug_assert!(!session.sending, "two sends at a time");
        session.sending = true;
        let op = Op::Send {
            fd: session.fd,
            buf,
            more: false,
        };
        self.submit(session, Lane::Send, op);
    }

    /// Sends what stands in `head`, as soon as there is a buffer.
    pub(super) fn send_head(&mut self, session: &mut Session) {
        if let Some(mut buf) = self.take_buffer(session) {
            buf.extend(&session.head);
            session.head.clear();
            self.send(session, buf);
        }
    }

    /// The client took bytes, or does not.
    pub(super) fn sent(&mut self, session: &mut Session, outcome: Outcome) {
        session.sending = false;
        let Outcome::Sent { buf, .. } = outcome else {
            return self.close(session, Close::Orderly);
        };
        if !buf.is_empty() {
            return self.send(session, buf);
        }
        session.spare = Some(buf);
        match session.phase {
            Phase::Body if session.request.complete => self.finish(session),
            Phase::Body => self.receive_body(session),
            Phase::Responding => self.go_on(session),
            Phase::WebSocket if session.frames_end => self.linger(session),
            Phase::WebSocket => self.receive_frames(session),
            Phase::Idle | Phase::Head | Phase::Lingering { .. } | Phase::Gone => {}
        }
    }

    /// Sends the next part of the response.
    pub(super) fn pump(&mut self, session: &mut Session) {
        let Some(mut buf) = self.take_buffer(session) else {
            return;
        };
        buf.extend(&session.head);
        session.head.clear();
        session.progress = session.feed.fill(&mut buf);
        if buf.is_empty() {
            session.spare = Some(buf);
            self.go_on(session);
        } else {
            self.send(session, buf);
        }
    }

    fn go_on(&mut self, session: &mut Session) {
        match session.progress {
            Progress::More => self.pump(session),
            Progress::Wait(then) if then <= self.cx.now => self.pump(session),
            Progress::Wait(then) => {
                session.wake = Some(then);
                self.watch_hangup(session);
            }
            Progress::Done => self.finish(session),
            Progress::Never => {
                // The end of a client that just closes comes as end of stream.
                self.watch_hangup(session);
                self.receive(session);
            }
        }
    }

    /// The response is out.
    pub(super) fn finish(&mut self, session: &mut Session) {
        let unread = !session.request.complete || session.has_leftover();
        let abrupt = session.request.endpoint == Endpoint::CloseEarly { abrupt: true };
        if session.request.keep_alive {
            self.next_head(session);
        } else if abrupt || !unread {
            self.close(session, Close::Orderly);
        } else {
            self.linger(session);
        }
    }

    /// Turns to the next request.
    pub(super) fn next_head(&mut self, session: &mut Session) {
        session.phase = Phase::Idle;
        session.since = self.cx.now;
        session.scanner = HeadScanner::request();
        if session.input.is_none() && !session.spill.is_empty() {
            let Some(mut buf) = self.take_buffer(session) else {
                return;
            };
            // At most one receive was spilled, and a buffer holds more than that.
            buf.extend(&session.spill);
            session.spill.clear();
            session.input = Some(buf);
        }
        if session.input.is_some() {
            self.advance_head(session);
        } else if self.core.drain_until.is_some() {
            self.close(session, Close::Orderly);
        } else {
            self.receive(session);
        }
    }

    /// Ends the connection so that what was sent arrives: closing with unread bytes would send
    /// RST, which makes the client's kernel throw away what it has not read yet.
    pub(super) fn linger(&mut self, session: &mut Session) {
        session.phase = Phase::Lingering {
            until: self.cx.now + LINGER,
            left: LINGER_BYTES,
        };
        session.input = None;
        session.spill = Vec::new();
        self.cx.engine.shutdown(session.fd, Shutdown::Write);
        self.receive(session);
    }

    /// Bytes came that are thrown away.
    pub(super) fn discard(&mut self, session: &mut Session, n: usize) {
        if let Phase::Lingering { left, .. } = &mut session.phase {
            *left = left.saturating_sub(n);
            if *left == 0 {
                return self.close(session, Close::Orderly);
            }
        }
        self.receive(session);
    }

    /// Closes the connection.
    pub(super) fn close(&mut self, session: &mut Session, how: Close) {
        if session.phase == Phase::Gone {
            return;
        }
        session.phase = Phase::Gone;
        self.cx.engine.close(session.fd, how);
        self.cx.wheel.remove(session.timer);
        self.cx.connection_ended();
    }

    /// The service ends: what would never end by itself is ended now.
    pub(super) fn drain(&mut self, session: &mut Session) {
        session.request.keep_alive = false;
        if !session.is_endless() {
            return;
        }
        let tells = session.phase == Phase::WebSocket
            && !session.sending
            && session.head.is_empty()
            && session.frames.is_between_frames();
        if tells {
            session.frames_end = true;
            session
                .head
                .extend_from_slice(&websocket::close_frame(websocket::GOING_AWAY));
            self.send_head(session);
        } else {
            self.close(session, Close::Orderly);
        }
    }

    /// Arms the session's one timer.
    pub(super) fn arm(&mut self, session: &Session) {
        let own = match session.phase {
            Phase::Idle | Phase::Head => Some(session.since + IDLE),
            Phase::Responding => session.wake,
            Phase::Lingering { until, .. } => Some(until),
            Phase::Body | Phase::WebSocket | Phase::Gone => None,
        };
        let deadline = [own, self.core.drain_until].into_iter().flatten().min();
        self.cx.wheel.arm(session.timer, deadline);
    }

    /// The session's timer fired.
    pub(super) fn deadline(&mut self, session: &mut Session) {
        let now = self.cx.now;
        if self.core.drain_until.is_some_and(|until| until <= now) {
            return self.close(session, Close::Orderly);
        }
        match session.phase {
            Phase::Responding if session.wake.is_some_and(|wake| wake <= now) => {
                session.wake = None;
                self.pump(session);
            }
            Phase::Responding | Phase::Body | Phase::WebSocket | Phase::Gone => {}
            Phase::Idle | Phase::Head | Phase::Lingering { .. } => {
                self.close(session, Close::Orderly);
            }
        }
    }
}
