//! `toron upstream`: a small HTTP/1.1 server whose behaviour is chosen by the path, for tests, the
//! demo and benchmarks. It runs on the same reactor as the proxy.
//!
//! ```text
//!  incoming ─▶ serve.rs ─▶ endpoint.rs   which endpoint, which parameters
//!              │ head      response.rs   its head, and where the body comes from
//!              │ body      feed.rs       a buffer at a time: pattern.rs, chunks, drops, events
//!              │ frames    websocket.rs
//!              └▶ ending.rs              send, wait, keep, linger, close
//! ```
//!
//! A request body is read whole before the answer, except by `/echo`, which sends each receive back
//! before it takes the next (so a client that does not read is not read from), and by
//! `/close-early`. A connection holds at most two buffers, and none while nothing is on its way and
//! no pipelined request waits, whatever the length of a body.
//!
//! The end of the client's sending ends a connection once it is noticed, which is when more is
//! waited for: a request that has come whole is answered behind it, a stall ends with it.

mod ending;
mod endpoint;
mod feed;
mod lane;
pub mod pattern;
mod response;
mod run;
mod serve;
mod session;
mod websocket;

use std::convert::Infallible;
use std::time::Duration;

use toron_reactor::{
    Close, Context, Engine, Event, Incoming, Key, Outcome, Service, Slab, Time, Token,
};

use lane::Lane;
use session::{Phase, Session};

pub use run::{run, Upstream, UpstreamArgs};

/// The test origin of one reactor.
#[derive(Debug, Default)]
pub struct Origin {
    core: Core,
    sessions: Slab<Session>,
}

/// Everything of an origin but its sessions.
#[derive(Debug, Default)]
struct Core {
    /// The value of `Date`.
    date: String,
    /// When that was made.
    dated: Option<Time>,
    scratch: Vec<u8>,
    /// The service ends: everything is closed then.
    drain_until: Option<Time>,
}

/// A handler's view: this reactor, and everything but the session at hand.
struct Kit<'k, 'c, E: Engine> {
    core: &'k mut Core,
    cx: &'k mut Context<'c, E>,
}

impl Origin {
    /// An origin without connections.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with_session<E: Engine>(
        &mut self,
        cx: &mut Context<'_, E>,
        token: Token,
        handle: impl FnOnce(&mut Kit<'_, '_, E>, &mut Session),
    ) {
        let Some(session) = self.sessions.get_mut(token) else {
            return;
        };
        let mut kit = Kit {
            core: &mut self.core,
            cx,
        };
        handle(&mut kit, session);
        session.spare = None;
        if session.phase == Phase::Gone {
            self.sessions.remove(token);
        } else {
            kit.arm(session);
        }
    }
}

impl<E: Engine> Service<E> for Origin {
    type Message = Infallible;

    fn incoming(&mut self, cx: &mut Context<'_, E>, incoming: Incoming) {
        let now = cx.now;
        let wheel = &mut *cx.wheel;
        let token = self.sessions.insert_with(|token| {
            let timer = wheel.insert(Lane::Deadline.key(token));
            Session::new(token, incoming.fd, timer, now)
        });
        self.with_session(cx, token, |kit, session| {
            kit.receive(session);
        });
    }

    fn event(&mut self, cx: &mut Context<'_, E>, event: Event) {
        let Event { key, outcome, .. } = event;
        let Some(lane) = Lane::of(key) else { return };
        self.with_session(cx, key.token, |kit, session| match lane {
            Lane::Recv => {
                session.receiving = false;
                kit.received(session, outcome);
            }
            Lane::Send => kit.sent(session, outcome),
            Lane::Hangup => {
                session.watches_hangup = false;
                if !matches!(outcome, Outcome::Cancelled { .. }) {
                    kit.close(session, Close::Orderly);
                }
            }
            Lane::Buffer => {
                session.awaits_buffer = false;
                if let Outcome::Buffer(buf) = outcome {
                    session.spare = Some(buf);
                    kit.resume(session);
                }
            }
            Lane::Deadline => {}
        });
    }

    fn deadline(&mut self, cx: &mut Context<'_, E>, key: Key) {
        self.with_session(cx, key.token, |kit, session| {
            kit.deadline(session);
        });
    }

    fn message(&mut self, _cx: &mut Context<'_, E>, message: Infallible) {
        match message {}
    }

    fn drain(&mut self, cx: &mut Context<'_, E>, grace: Duration) {
        self.core.drain_until = Some(cx.now + grace);
        for token in self.sessions.tokens() {
            self.with_session(cx, token, |kit, session| {
                kit.drain(session);
            });
        }
    }

    fn is_finished(&self) -> bool {
        self.sessions.is_empty()
    }
}
