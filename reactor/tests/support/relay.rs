//! An L4 relay: every accepted connection is joined with one to the upstream address. Bytes go by
//! copy or by splice, ends of stream are passed on, everything else cuts both sides with RST.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use toron_reactor::planted::{self, Bug};
use toron_reactor::{
    Buf, Close, Context, Engine, Event, Fd, Incoming, Key, Op, OpId, Outcome, Pipe, Service,
    Shutdown, Slab, Time, TimerId, Token,
};

pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);
pub const IDLE_LIMIT: Duration = Duration::from_secs(30);
/// Once one direction has ended, the other has to hurry.
pub const HALF_LIMIT: Duration = Duration::from_secs(5);
/// Bytes that are gathered before they are sent on.
const GATHER: usize = 300;
const SPLICE_MAX: usize = 64 * 1024;

const CONNECT: u8 = 2;
const HANGUP: u8 = 3;

/// How the bytes of a direction are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Receive, send.
    Copy,
    /// Receive until some are together, send.
    Gather,
    /// Through a pipe.
    Splice,
}

/// What a script may ask for.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Cancel whatever the n-th session waits for; it must go on as if nothing had happened.
    Nudge(usize),
    /// Cut the n-th session.
    Abort(usize),
}

/// Why sessions ended.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Counts {
    pub completed: usize,
    pub failed: usize,
    pub timed_out: usize,
    pub refused: usize,
    pub nudged: usize,
    pub stale: usize,
}

#[derive(Debug)]
pub struct Relay {
    upstream: SocketAddr,
    modes: [Mode; 2],
    sessions: Slab<Session>,
    pub counts: Counts,
    /// Everything is to be over by then.
    drain_by: Option<Time>,
}

#[derive(Debug)]
pub struct Session {
    client: Fd,
    upstream: Fd,
    connecting: bool,
    hangup: Option<OpId>,
    timer: TimerId,
    pub deadline: Time,
    /// Client to upstream, and back.
    flows: [Flow; 2],
}

#[derive(Debug)]
struct Flow {
    from: Fd,
    to: Fd,
    mode: Mode,
    /// The one operation in flight.
    busy: Option<OpId>,
    pipe: Option<Pipe>,
    /// The source has ended.
    eof: bool,
    /// … and the target has been told.
    done: bool,
}

/// What a session does next.
enum Verdict {
    GoOn,
    Failed,
}

impl Relay {
    pub fn new(upstream: SocketAddr, modes: [Mode; 2]) -> Relay {
        Relay {
            upstream,
            modes,
            sessions: Slab::new(),
            counts: Counts::default(),
            drain_by: None,
        }
    }

    pub fn sessions(&self) -> impl Iterator<Item = (Token, &Session)> {
        self.sessions.iter()
    }

    fn nudge<E: Engine>(&mut self, cx: &mut Context<'_, E>, n: usize) {
        let Some((_, session)) = self.sessions.iter().nth(n) else {
            return;
        };
        for op in session.flows.iter().filter_map(|flow| flow.busy) {
            cx.engine.cancel(op);
            self.counts.nudged += 1;
        }
    }

    fn abort<E: Engine>(&mut self, cx: &mut Context<'_, E>, n: usize) {
        let token = self.sessions.iter().nth(n).map(|(token, _)| token);
        if let Some(token) = token {
            self.counts.failed += 1;
            self.end(cx, token, Close::Reset);
        }
    }

    fn end<E: Engine>(&mut self, cx: &mut Context<'_, E>, token: Token, how: Close) {
        let Some(session) = self.sessions.remove(token) else {
            return;
        };
        cx.wheel.remove(session.timer);
        cx.engine.close(session.client, how);
        cx.engine.close(session.upstream, how);
        for pipe in session.flows.into_iter().filter_map(|flow| flow.pipe) {
            cx.engine.return_pipe(pipe);
        }
        cx.connection_ended();
        if planted::active(Bug::ConnectionEndedTwice) && how == Close::Reset {
            cx.connection_ended();
        }
    }

    fn connected<E: Engine>(&mut self, cx: &mut Context<'_, E>, token: Token) {
        let Some(session) = self.sessions.get_mut(token) else {
            return;
        };
        session.connecting = false;
        if let Some(op) = session.hangup {
            cx.engine.cancel(op);
        }
        for lane in 0..2 {
            let flow = &mut session.flows[lane];
            let verdict = flow.next(
                cx,
                Key {
                    token,
                    lane: lane as u8,
                },
            );
            if matches!(verdict, Verdict::Failed) {
                self.counts.failed += 1;
                return self.end(cx, token, Close::Reset);
            }
        }
        self.progressed(cx, token);
    }

    /// Moves the deadline, and ends the session when both directions have.
    fn progressed<E: Engine>(&mut self, cx: &mut Context<'_, E>, token: Token) {
        let Some(session) = self.sessions.get_mut(token) else {
            return;
        };
        if session.flows.iter().all(|flow| flow.done) {
            self.counts.completed += 1;
            return self.end(cx, token, Close::Orderly);
        }
        let half = session.flows.iter().any(|flow| flow.done);
        let limit = cx.now + if half { HALF_LIMIT } else { IDLE_LIMIT };
        session.deadline = self.drain_by.map_or(limit, |by| by.min(limit));
        cx.wheel.arm(session.timer, Some(session.deadline));
    }
}

impl Flow {
    fn new(from: Fd, to: Fd, mode: Mode) -> Flow {
        Flow {
            from,
            to,
            mode,
            busy: None,
            pipe: None,
            eof: false,
            done: false,
        }
    }

    fn submit<E: Engine>(&mut self, cx: &mut Context<'_, E>, key: Key, op: Op) -> Verdict {
        assert!(
            self.busy.is_none(),
            "relay: a flow does two things at a time"
        );
        self.busy = Some(cx.engine.submit(key, op));
        Verdict::GoOn
    }

    /// Nothing is in flight and nothing held: goes on.
    fn next<E: Engine>(&mut self, cx: &mut Context<'_, E>, key: Key) -> Verdict {
        if self.eof {
            if planted::active(Bug::FinBehindBytesLost) {
                return Verdict::GoOn;
            }
            return self.finish(cx);
        }
        match self.mode {
            Mode::Splice => self.splice(cx, key),
            Mode::Copy | Mode::Gather => self.submit(
                cx,
                key,
                Op::Recv {
                    fd: self.from,
                    many: false,
                },
            ),
        }
    }

    fn finish<E: Engine>(&mut self, cx: &mut Context<'_, E>) -> Verdict {
        cx.engine.shutdown(self.to, Shutdown::Write);
        self.done = true;
        Verdict::GoOn
    }

    fn send<E: Engine>(&mut self, cx: &mut Context<'_, E>, key: Key, buf: Buf) -> Verdict {
        self.submit(
            cx,
            key,
            Op::Send {
                fd: self.to,
                buf,
                more: false,
            },
        )
    }

    fn received<E: Engine>(&mut self, cx: &mut Context<'_, E>, key: Key, buf: Buf) -> Verdict {
        if self.mode == Mode::Gather && buf.len() < GATHER {
            return self.submit(cx, key, Op::RecvInto { fd: self.from, buf });
        }
        self.send(cx, key, buf)
    }

    /// Fills the pipe and empties it, until one side would block.
    fn splice<E: Engine>(&mut self, cx: &mut Context<'_, E>, key: Key) -> Verdict {
        let Ok(mut pipe) = self.pipe.take().map_or_else(|| cx.engine.pipe(), Ok) else {
            // Without a pipe, one round by copy.
            return self.submit(
                cx,
                key,
                Op::Recv {
                    fd: self.from,
                    many: false,
                },
            );
        };
        while !self.eof {
            match cx.engine.splice_in(self.from, &mut pipe, SPLICE_MAX) {
                Ok(0) => self.eof = true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.pipe = Some(pipe);
                    return Verdict::Failed;
                }
            }
        }
        while pipe.held() > 0 {
            let held = pipe.held();
            match cx.engine.splice_out(&mut pipe, self.to, held, false) {
                Ok(_) => {}
                Err(error) => {
                    // A dirty pipe: goes on later, or is closed with the session.
                    self.pipe = Some(pipe);
                    if error.kind() == ErrorKind::WouldBlock {
                        return self.submit(cx, key, Op::Writable { fd: self.to });
                    }
                    return Verdict::Failed;
                }
            }
        }
        cx.engine.return_pipe(pipe);
        if self.eof {
            return self.next(cx, key);
        }
        // The pipe may have been full, not the socket dry: a readable socket says so at once.
        self.submit(cx, key, Op::Readable { fd: self.from })
    }

    fn event<E: Engine>(&mut self, cx: &mut Context<'_, E>, event: Event) -> Verdict {
        let key = event.key;
        assert_eq!(
            self.busy.take(),
            Some(event.op),
            "relay: not what this flow waits for"
        );
        match event.outcome {
            Outcome::Received { buf, .. } => self.received(cx, key, buf),
            Outcome::Eof { buf } => {
                self.eof = true;
                match buf {
                    Some(buf) if !buf.is_empty() => self.send(cx, key, buf),
                    _ => self.finish(cx),
                }
            }
            Outcome::Sent { buf, .. } => {
                if buf.is_empty() || planted::active(Bug::PartialSendTakenAsWhole) {
                    drop(buf);
                    self.next(cx, key)
                } else {
                    self.send(cx, key, buf)
                }
            }
            Outcome::Ready if planted::active(Bug::WakeUpLost) && self.pipe.is_some() => {
                Verdict::GoOn
            }
            Outcome::Ready => self.splice(cx, key),
            Outcome::Failed { .. } => Verdict::Failed,
            // A nudge: go on where the operation left off.
            Outcome::Cancelled { buf: Some(buf) } => {
                if self.eof || self.mode != Mode::Gather || buf.len() >= GATHER {
                    self.send(cx, key, buf)
                } else {
                    self.received(cx, key, buf)
                }
            }
            Outcome::Cancelled { buf: None } => {
                if self.pipe.is_some() {
                    self.splice(cx, key)
                } else {
                    self.next(cx, key)
                }
            }
            other => panic!("relay: not for a flow: {other:?}"),
        }
    }
}

impl<E: Engine> Service<E> for Relay {
    type Message = Order;

    fn incoming(&mut self, cx: &mut Context<'_, E>, incoming: Incoming) {
        let client = incoming.fd;
        let upstream = match cx.engine.socket(&self.upstream) {
            Ok(fd) if self.drain_by.is_none() => fd,
            refused => {
                self.counts.refused += 1;
                if let Ok(fd) = refused {
                    cx.engine.close(fd, Close::Orderly);
                }
                cx.engine.close(client, Close::Reset);
                return cx.connection_ended();
            }
        };
        let deadline = cx.now + CONNECT_LIMIT;
        let [up, down] = self.modes;
        let (wheel, engine) = (&mut *cx.wheel, &mut *cx.engine);
        let token = self.sessions.insert_with(|token| Session {
            client,
            upstream,
            connecting: true,
            hangup: None,
            timer: wheel.insert(Key { token, lane: 0 }),
            deadline,
            flows: [
                Flow::new(client, upstream, up),
                Flow::new(upstream, client, down),
            ],
        });
        let Some(session) = self.sessions.get_mut(token) else {
            return;
        };
        wheel.arm(session.timer, Some(deadline));
        session.hangup = Some(engine.submit(
            Key {
                token,
                lane: HANGUP,
            },
            Op::Hangup { fd: client },
        ));
        let connect = Op::Connect {
            fd: upstream,
            addr: self.upstream,
        };
        engine.submit(
            Key {
                token,
                lane: CONNECT,
            },
            connect,
        );
    }

    fn event(&mut self, cx: &mut Context<'_, E>, event: Event) {
        let token = event.key.token;
        let Some(session) = self.sessions.get_mut(token) else {
            // The session ended with this in flight; a buffer goes back with the event.
            self.counts.stale += 1;
            return;
        };
        let verdict = match (event.key.lane, &event.outcome) {
            (CONNECT, Outcome::Connected) => return self.connected(cx, token),
            (CONNECT, _) => Verdict::Failed,
            (HANGUP, outcome) => {
                assert_eq!(
                    session.hangup.take(),
                    Some(event.op),
                    "relay: not its hangup"
                );
                match outcome {
                    Outcome::Ready if session.connecting => Verdict::Failed,
                    _ => return,
                }
            }
            (lane, _) => session.flows[usize::from(lane)].event(cx, event),
        };
        match verdict {
            Verdict::GoOn => self.progressed(cx, token),
            Verdict::Failed => {
                self.counts.failed += 1;
                self.end(cx, token, Close::Reset);
            }
        }
    }

    fn deadline(&mut self, cx: &mut Context<'_, E>, key: Key) {
        let Some(session) = self.sessions.get(key.token) else {
            panic!("relay: a deadline of a session that has ended: {key:?}")
        };
        assert!(
            session.deadline <= cx.now,
            "relay: {:?} fired early",
            session.deadline
        );
        self.counts.timed_out += 1;
        self.end(cx, key.token, Close::Reset);
    }

    fn message(&mut self, cx: &mut Context<'_, E>, order: Order) {
        match order {
            Order::Nudge(n) => self.nudge(cx, n),
            Order::Abort(n) => self.abort(cx, n),
        }
    }

    fn drain(&mut self, cx: &mut Context<'_, E>, grace: Duration) {
        let by = cx.now + grace;
        self.drain_by = Some(by);
        for token in self.sessions.tokens() {
            let Some(session) = self.sessions.get_mut(token) else {
                continue;
            };
            session.deadline = session.deadline.min(by);
            cx.wheel.arm(session.timer, Some(session.deadline));
        }
    }

    fn is_finished(&self) -> bool {
        self.sessions.is_empty()
    }
}
