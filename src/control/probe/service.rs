//! The probes of all targets, as a service of a reactor.
//!
//! Each target has one timer: for its next probe, or for the end of the one under way. A probe dials
//! the addresses of the target in turn until one of them stands, sends a request and reads heads
//! until a final one is there. Its connection is closed as soon as the outcome is known.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use toron_reactor::sys::socket::is_local_shortage;
use toron_reactor::{
    Buf, Close, Context, Engine, Event, Fd, Incoming, Key, Op, Outcome, Service, Slab, Time,
    TimerId, Token,
};

use super::check::{Check, Finding};
use crate::http::response::{self, Asked, MAX_RESPONSE_HEAD};
use crate::http::{field_slots, HeadScanner, Scan, MOST_FIELDS};

/// What the service can be told.
#[derive(Debug)]
pub enum Message {
    /// Probe these from now on, and no others.
    Watch(Vec<Check>),
    /// End.
    Stop,
}

/// See the module text.
#[derive(Debug)]
pub struct Probes {
    targets: Slab<Probed>,
    attempts: Slab<Attempt>,
    by_key: HashMap<usize, Token>,
    random: fastrand::Rng,
    stopped: bool,
}

/// A target.
#[derive(Debug)]
struct Probed {
    check: Check,
    timer: TimerId,
    /// When the last probe began, or the first is to.
    begun: Time,
    /// The probe under way.
    attempt: Option<Token>,
    /// Counts dials: each begins with the next address.
    turn: usize,
    /// Addresses that have not been dialled in this probe.
    left: usize,
}

/// A connection to one address of a target.
#[derive(Debug)]
struct Attempt {
    of: Token,
    fd: Fd,
    scanner: HeadScanner,
}

#[derive(Clone, Copy)]
enum Lane {
    /// With the token of a target; the others have that of an attempt.
    Timer = 0,
    Connect,
    Buffer,
    Send,
    Receive,
}

impl Lane {
    fn key(self, token: Token) -> Key {
        Key {
            token,
            lane: self as u8,
        }
    }
}

impl Probes {
    /// Nothing is probed. `seed` spreads the first probes over an interval.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Probes {
            targets: Slab::new(),
            attempts: Slab::new(),
            by_key: HashMap::new(),
            random: fastrand::Rng::with_seed(seed),
            stopped: false,
        }
    }

    /// [`Message::Stop`] has come.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Targets that are probed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether nothing is probed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    fn watch<E: Engine>(&mut self, cx: &mut Context<'_, E>, checks: Vec<Check>) {
        let mut before = std::mem::take(&mut self.by_key);
        for check in checks {
            let key = check.key();
            let token = before
                .remove(&key)
                .filter(|&token| self.targets.contains(token));
            let token = token.unwrap_or_else(|| self.add(cx, check.clone()));
            if let Some(probed) = self.targets.get_mut(token) {
                probed.check = check;
                if probed.attempt.is_none() {
                    // The interval may be another one.
                    let next = probed.begun + probed.check.interval();
                    let filed = cx.wheel.deadline(probed.timer);
                    cx.wheel.arm(probed.timer, filed.map(|at| at.min(next)));
                }
            }
            self.by_key.insert(key, token);
        }
        for token in before.into_values() {
            self.end_attempt(cx, token);
            if let Some(probed) = self.targets.remove(token) {
                cx.wheel.remove(probed.timer);
            }
        }
    }

    /// The first probe comes at some moment of the first interval, so that not all come at once.
    fn add<E: Engine>(&mut self, cx: &mut Context<'_, E>, check: Check) -> Token {
        let interval = u64::try_from(check.interval().as_nanos()).unwrap_or(u64::MAX);
        let begin = cx.now + Duration::from_nanos(self.random.u64(0..interval.max(1)));
        let token = self.targets.insert_with(|token| Probed {
            check,
            timer: cx.wheel.insert(Lane::Timer.key(token)),
            begun: cx.now,
            attempt: None,
            turn: 0,
            left: 0,
        });
        if let Some(probed) = self.targets.get(token) {
            cx.wheel.arm(probed.timer, Some(begin));
        }
        token
    }

    /// It is time for the next probe.
    fn begin<E: Engine>(&mut self, cx: &mut Context<'_, E>, token: Token) {
        let Some(probed) = self.targets.get_mut(token) else {
            return;
        };
        probed.begun = cx.now;
        probed.left = probed.check.endpoint().addresses().len();
        if probed.left == 0 {
            // What requests get is the 502 of a name that does not resolve.
            return self.finish(cx, token, &Finding::Unknown);
        }
        let end = cx.now + probed.check.timeout();
        cx.wheel.arm(probed.timer, Some(end));
        self.dial(cx, token);
    }

    fn dial<E: Engine>(&mut self, cx: &mut Context<'_, E>, token: Token) {
        let Some(probed) = self.targets.get_mut(token) else {
            return;
        };
        let addresses = probed.check.endpoint().addresses();
        let address = match addresses.len() {
            0 => None,
            n => addresses.get(probed.turn % n).copied(),
        };
        drop(addresses);
        probed.turn = probed.turn.wrapping_add(1);
        probed.left = probed.left.saturating_sub(1);
        let socket = address.map(|address| (address, cx.engine.socket(&address)));
        let Some((addr, Ok(fd))) = socket else {
            return self.finish(cx, token, &Finding::Unknown);
        };
        let attempt = self.attempts.insert(Attempt {
            of: token,
            fd,
            scanner: HeadScanner::response(),
        });
        probed.attempt = Some(attempt);
        let op = Op::Connect { fd, addr };
        cx.engine.submit(Lane::Connect.key(attempt), op);
    }

    /// The address of an attempt cannot be reached.
    fn next_address<E: Engine>(&mut self, cx: &mut Context<'_, E>, token: Token, errno: i32) {
        let left = self.targets.get(token).map_or(0, |probed| probed.left);
        let finding = if is_local_shortage(errno) {
            Finding::Unknown
        } else if left > 0 {
            self.end_attempt(cx, token);
            return self.dial(cx, token);
        } else {
            let error = io::Error::from_raw_os_error(errno);
            Finding::Unhealthy(format!("cannot connect: {error}"))
        };
        self.finish(cx, token, &finding);
    }

    fn send<E: Engine>(&mut self, cx: &mut Context<'_, E>, attempt: Token, mut buf: Buf) {
        let Some(of) = self.attempts.get(attempt) else {
            return;
        };
        let (fd, of) = (of.fd, of.of);
        let request = self.targets.get(of).map(|probed| probed.check.request());
        let request = request.unwrap_or_default();
        if buf.extend(request.as_bytes()) < request.len() {
            let finding = Finding::Unhealthy("the request does not fit a buffer".to_owned());
            return self.finish(cx, of, &finding);
        }
        let more = false;
        let op = Op::Send { fd, buf, more };
        cx.engine.submit(Lane::Send.key(attempt), op);
    }

    /// Some of a response has come.
    fn received<E: Engine>(&mut self, cx: &mut Context<'_, E>, token: Token, mut buf: Buf) {
        loop {
            let Some(attempt) = self.attempts.get_mut(token) else {
                return;
            };
            let (of, fd) = (attempt.of, attempt.fd);
            match attempt.scanner.scan(&buf) {
                Scan::Complete { skip: 0, len } => {
                    let finding = judge(buf.get(..len).unwrap_or_default());
                    if let Some(finding) = finding {
                        return self.finish(cx, of, &finding);
                    }
                    // An interim response: the final one follows.
                    buf.consume(len);
                    buf.compact();
                    attempt.scanner.reset();
                }
                Scan::Incomplete if buf.len() < MAX_RESPONSE_HEAD && buf.receivable() > 0 => {
                    let op = Op::RecvInto { fd, buf };
                    cx.engine.submit(Lane::Receive.key(token), op);
                    return;
                }
                _ => {
                    let finding = Finding::Unhealthy("not a response head".to_owned());
                    return self.finish(cx, of, &finding);
                }
            }
        }
    }

    /// The outcome is known: on to the next probe.
    fn finish<E: Engine>(&mut self, cx: &mut Context<'_, E>, token: Token, finding: &Finding) {
        self.end_attempt(cx, token);
        let Some(probed) = self.targets.get_mut(token) else {
            return;
        };
        probed.check.settle(cx.now, finding);
        let next = probed.begun + probed.check.interval();
        cx.wheel.arm(probed.timer, Some(next));
    }

    fn end_attempt<E: Engine>(&mut self, cx: &mut Context<'_, E>, token: Token) {
        let attempt = self.targets.get_mut(token).and_then(|p| p.attempt.take());
        let attempt = attempt.and_then(|attempt| self.attempts.remove(attempt));
        if let Some(attempt) = attempt {
            cx.engine.close(attempt.fd, Close::Orderly);
        }
    }

    fn attempt_event<E: Engine>(&mut self, cx: &mut Context<'_, E>, event: Event) {
        let token = event.key.token;
        let Some(attempt) = self.attempts.get(token) else {
            return;
        };
        let (of, fd) = (attempt.of, attempt.fd);
        match event.outcome {
            Outcome::Connected => match cx.engine.buffers().take() {
                Some(buf) => self.send(cx, token, buf),
                None => {
                    cx.engine.submit(Lane::Buffer.key(token), Op::Buffer);
                }
            },
            Outcome::Buffer(buf) => self.send(cx, token, buf),
            Outcome::Sent { buf, .. } if !buf.is_empty() => {
                let more = false;
                let op = Op::Send { fd, buf, more };
                cx.engine.submit(Lane::Send.key(token), op);
            }
            Outcome::Sent { .. } => {
                let op = Op::Recv { fd, many: false };
                cx.engine.submit(Lane::Receive.key(token), op);
            }
            Outcome::Received { buf, .. } => self.received(cx, token, buf),
            Outcome::Failed { errno, .. } if event.key.lane == Lane::Connect as u8 => {
                self.next_address(cx, of, errno);
            }
            Outcome::Failed { errno, .. } => {
                let error = io::Error::from_raw_os_error(errno);
                self.finish(cx, of, &Finding::Unhealthy(error.to_string()));
            }
            Outcome::Eof { .. } => {
                let why = "closed the connection before a response";
                self.finish(cx, of, &Finding::Unhealthy(why.to_owned()));
            }
            Outcome::Ready | Outcome::Accepted { .. } | Outcome::Cancelled { .. } => {}
        }
    }
}

/// What a response head means; `None` if it is an interim one.
fn judge(head: &[u8]) -> Option<Finding> {
    let asked = Asked {
        head: false,
        upgrade: false,
    };
    let mut slots = field_slots::<MOST_FIELDS>();
    match response::parse(head, asked, &mut slots) {
        Ok(head) if head.facts.is_interim() => None,
        Ok(head) if (200..=299).contains(&head.facts.status) => Some(Finding::Healthy),
        Ok(head) => {
            let status = head.facts.status;
            Some(Finding::Unhealthy(format!("answers with status {status}")))
        }
        Err(invalid) => {
            let reason = invalid.code();
            Some(Finding::Unhealthy(format!("invalid response: {reason}")))
        }
    }
}

impl<E: Engine> Service<E> for Probes {
    type Message = Message;

    fn incoming(&mut self, cx: &mut Context<'_, E>, incoming: Incoming) {
        debug_assert!(false, "nothing is listened on");
        cx.engine.close(incoming.fd, Close::Orderly);
        cx.connection_ended();
    }

    fn event(&mut self, cx: &mut Context<'_, E>, event: Event) {
        self.attempt_event(cx, event);
    }

    fn deadline(&mut self, cx: &mut Context<'_, E>, key: Key) {
        let Some(probed) = self.targets.get(key.token) else {
            return;
        };
        if probed.attempt.is_none() {
            return self.begin(cx, key.token);
        }
        let limit = humantime::format_duration(probed.check.timeout());
        let finding = Finding::Unhealthy(format!("no response within {limit}"));
        self.finish(cx, key.token, &finding);
    }

    fn message(&mut self, cx: &mut Context<'_, E>, message: Message) {
        match message {
            Message::Watch(checks) => self.watch(cx, checks),
            Message::Stop => {
                self.watch(cx, Vec::new());
                self.stopped = true;
            }
        }
    }

    fn drain(&mut self, cx: &mut Context<'_, E>, _grace: Duration) {
        self.watch(cx, Vec::new());
        self.stopped = true;
    }

    fn is_finished(&self) -> bool {
        self.stopped
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
