//! A response was sent before the client had sent its whole request, and little of it is left: what
//! is owed is thrown away, so that the next request may follow it on the connection (I11). Not one
//! byte of it is read as a request. What does not come at once is not waited for.

use std::io::ErrorKind;
use std::time::Duration;

use toron_reactor::{Buf, Close, Engine, Outcome};

use super::ending::DISCARD_ROUNDS;
use super::session::{Phase, Session};
use super::Kit;

/// What is owed must come within this time (I11).
const SKIP_WITHIN: Duration = Duration::from_millis(100);

impl<E: Engine> Kit<'_, '_, E> {
    /// Begins to throw away the `owed` bytes that still belong to the request that has ended.
    pub(super) fn skip_owed(&mut self, session: &mut Session, owed: u64) {
        let until = self.now() + SKIP_WITHIN;
        session.phase = Phase::Skipping { owed, until };
        if let Some(input) = session.input.as_mut() {
            input.consume(std::mem::take(&mut session.request_len));
        }
        // What has come already, in the order in which it came.
        for buf in [session.input.take(), session.ahead.take()]
            .into_iter()
            .flatten()
        {
            skip_in(session, buf);
        }
        self.skip_on(session);
    }

    /// Throws away what has come of it, and turns to the next request when nothing is owed.
    pub(super) fn skip_on(&mut self, session: &mut Session) {
        for _ in 0..DISCARD_ROUNDS {
            let Phase::Skipping { owed, .. } = session.phase else {
                return;
            };
            if owed == 0 {
                return self.next_head(session);
            }
            if let Some(op) = session.recv {
                // Its event goes on; at most one receive may be under way.
                return self.cx.engine.cancel(op);
            }
            let most = usize::try_from(owed).unwrap_or(usize::MAX);
            match self.cx.engine.discard(session.fd, most) {
                Ok(n) if n > 0 => count_skipped(session, n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => return self.close(session, Close::Orderly),
            }
        }
        self.poll_readable(session);
    }

    /// A receive that began before has ended.
    pub(super) fn skip_received(&mut self, session: &mut Session, outcome: Outcome) {
        match outcome {
            Outcome::Received { buf, .. } => {
                skip_in(session, buf);
                self.skip_on(session);
            }
            Outcome::Cancelled { .. } => self.skip_on(session),
            _ => self.close(session, Close::Orderly),
        }
    }
}

/// Takes what is owed off the front of a buffer. What is behind it belongs to the next request.
fn skip_in(session: &mut Session, mut buf: Buf) {
    let Phase::Skipping { owed, .. } = session.phase else {
        return;
    };
    let taken = usize::try_from(owed).unwrap_or(usize::MAX).min(buf.len());
    buf.consume(taken);
    count_skipped(session, taken);
    if !buf.is_empty() {
        match session.input {
            None => session.input = Some(buf),
            Some(_) => session.ahead = Some(buf),
        }
    }
}

fn count_skipped(session: &mut Session, n: usize) {
    if let Phase::Skipping { owed, .. } = &mut session.phase {
        *owed = owed.saturating_sub(n as u64);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use toron_reactor::{BufferPool, Fd, Key, Time, Token, Wheel};

    use super::*;

    fn skipping(owed: u64) -> Session {
        let token = Token {
            index: 0,
            generation: 0,
        };
        let timer = Wheel::new(Time(0)).insert(Key { token, lane: 0 });
        let peer = "127.0.0.1".parse().unwrap();
        let mut session = Session::new(token, Fd(3), peer, timer, Time(0));
        let until = Time(0);
        session.phase = Phase::Skipping { owed, until };
        session
    }

    fn owed(session: &Session) -> Option<u64> {
        match session.phase {
            Phase::Skipping { owed, .. } => Some(owed),
            _ => None,
        }
    }

    #[test]
    fn i11_exactly_what_is_owed_is_taken_off_what_has_come() {
        let pool = BufferPool::new(4);
        let buf = |bytes: &[u8]| {
            let mut buf = pool.take().unwrap();
            buf.extend(bytes);
            buf
        };
        let mut session = skipping(10);
        skip_in(&mut session, buf(b"0123"));
        assert_eq!((owed(&session), session.has_leftover()), (Some(6), false));
        skip_in(&mut session, buf(b"456789GET /next"));
        assert_eq!(owed(&session), Some(0));
        assert_eq!(session.input.as_deref(), Some(&b"GET /next"[..]));
        // What comes behind it is not owed.
        skip_in(&mut session, buf(b" HTTP/1.1"));
        assert_eq!(session.ahead.as_deref(), Some(&b" HTTP/1.1"[..]));
        let mut session = skipping(3);
        skip_in(&mut session, buf(b"012"));
        assert_eq!((owed(&session), session.has_leftover()), (Some(0), false));
    }
}
