//! How simulated operations complete.

use std::collections::VecDeque;
use std::time::Duration;

use super::engine::SimEngine;
use super::faults::Faults;
use super::in_flight::{Held, Kind, Lane};
use super::net::{Description, Net};
use super::socket::{EndId, Readiness, State};
use crate::buffer::Buf;
use crate::engine::{Event, Fd, OpId, Outcome};
use crate::planted::{self, Bug};
use crate::slab::Token;
use crate::time::Time;

impl SimEngine {
    /// Now, or a little later if the faults say so.
    pub(super) fn soon(&mut self) -> Time {
        let mut net = self.net.borrow_mut();
        let (chance, most) = (net.faults.delay, net.faults.delay_for.as_nanos() as u64);
        if net.random.chance(chance) {
            net.now + Duration::from_nanos(net.random.below(most + 1))
        } else {
            net.now
        }
    }

    pub(super) fn chance(&mut self, which: impl Fn(&Faults) -> f64) -> bool {
        let mut net = self.net.borrow_mut();
        let probability = which(&net.faults);
        net.random.chance(probability)
    }

    /// Something happened: it will be reported, now or a little later.
    pub(super) fn hold(&mut self, token: Token, more: bool, outcome: Outcome) {
        let ready = self.soon();
        let Some(operation) = self.operations.get_mut(token) else {
            return;
        };
        operation.ended = !more;
        let mut net = self.net.borrow_mut();
        let outcome = match operation.fd.and_then(|fd| net.descriptor(fd.0)) {
            Some(descriptor) => descriptor.failure.outcome(outcome),
            None => outcome,
        };
        let held = Held {
            op: OpId::of(token),
            key: operation.key,
            ready,
            more,
            outcome,
        };
        self.held.entry(operation.lane).or_default().push_back(held);
    }

    /// Lets every operation that can complete do so.
    pub(super) fn perform_all(&mut self) {
        let now = self.net.borrow().now;
        let waiting = self.operations.iter().filter(|(_, o)| !o.ended);
        let mut tokens: Vec<(u64, Token)> = waiting.map(|(t, o)| (o.sequence, t)).collect();
        tokens.sort_unstable();
        self.net.borrow_mut().random.shuffle(&mut tokens);
        for (_, token) in tokens {
            let Some(operation) = self.operations.get(token) else {
                continue;
            };
            if operation.cancelled.is_some_and(|at| at <= now) {
                self.end_cancelled(token);
            } else if operation.from <= now {
                while self.perform(token) {}
            }
        }
    }

    /// A cancellation has arrived. The operation may win the race.
    pub(super) fn end_cancelled(&mut self, token: Token) {
        if self.chance(|f| f.cancel_race) {
            self.perform(token);
        }
        let Some(operation) = self.operations.get_mut(token) else {
            return;
        };
        if operation.ended {
            return;
        }
        let mut buf = operation.kind.take_buf();
        if planted::active(Bug::CancelLost) {
            operation.ended = true;
            return;
        }
        if planted::active(Bug::BufferKeptOnCancel) {
            buf = None;
        }
        self.hold(token, false, Outcome::Cancelled { buf });
    }

    /// Tries an operation once; `true` if it is a multishot one that may go on.
    pub(super) fn perform(&mut self, token: Token) -> bool {
        let Some(operation) = self.operations.get_mut(token) else {
            return false;
        };
        if operation.ended {
            return false;
        }
        let fd = operation.fd.unwrap_or(Fd(-1));
        let end = self
            .net
            .borrow()
            .descriptors
            .get(fd.0 as usize)
            .and_then(|d| match d.as_ref()?.what {
                Description::Socket(end) => Some(end),
                Description::Listener(_) => None,
            });
        let outcome = match (&mut operation.kind, end) {
            (Kind::Accept, _) => return self.perform_accept(token, fd),
            (Kind::Buffer, _) => self.pool.take().map(Outcome::Buffer),
            (Kind::Recv { many }, Some(end)) => {
                let many = *many;
                return self.perform_recv(token, end, many);
            }
            (Kind::RecvInto(buf), Some(end)) => recv_into(&mut self.net.borrow_mut(), end, buf),
            (Kind::Send { buf, more, parked }, Some(end)) => {
                let mut net = self.net.borrow_mut();
                let outcome = send(&mut net, end, buf, *more, parked);
                match outcome {
                    Some(Outcome::Sent { .. }) => net.send_moved(fd.0),
                    None => net.send_waits(fd.0, end),
                    Some(_) => {}
                }
                outcome
            }
            (Kind::Connect, Some(end)) => connected(&mut self.net.borrow_mut(), end),
            (Kind::Readable, Some(end)) => ready(self.net.borrow_mut().end(end).readable()),
            (Kind::Writable, Some(end)) => {
                let mut net = self.net.borrow_mut();
                let writable = net.end(end).writable();
                if !writable {
                    net.send_waits(fd.0, end);
                }
                ready(writable)
            }
            (Kind::Hangup, Some(end)) => ready(self.net.borrow_mut().end(end).hung_up()),
            (Kind::ReadHangup, Some(end)) => ready(self.net.borrow_mut().end(end).read_hung_up()),
            (_, None) => None,
        };
        if let Some(outcome) = outcome {
            self.hold(token, false, outcome);
        }
        false
    }

    pub(super) fn perform_recv(&mut self, token: Token, end: EndId, many: bool) -> bool {
        if !self.pool.has_free() {
            // Even an end of stream may be noticed only by trying, which takes a buffer.
            return false;
        }
        let mut buf = None;
        if !self.net.borrow_mut().end(end).recv.is_empty() {
            buf = self.pool.take();
        }
        let outcome = recv_into(&mut self.net.borrow_mut(), end, &mut buf);
        let Some(outcome) = outcome else { return false };
        let more = many && matches!(outcome, Outcome::Received { .. });
        self.hold(token, more, outcome);
        more
    }

    pub(super) fn perform_accept(&mut self, token: Token, listener: Fd) -> bool {
        let addr = self
            .net
            .borrow()
            .descriptors
            .get(listener.0 as usize)
            .and_then(|d| match d.as_ref()?.what {
                Description::Listener(addr) => Some(addr),
                Description::Socket(_) => None,
            });
        let accepted = match addr {
            Some(addr) => self.net.borrow_mut().accept(addr, self.id),
            None => return false,
        };
        match accepted {
            Ok(Some((fd, peer))) => {
                self.hold(token, true, Outcome::Accepted { fd: Fd(fd), peer });
                true
            }
            Ok(None) => false,
            Err(errno) => {
                self.hold(token, false, Outcome::Failed { errno, buf: None });
                false
            }
        }
    }

    /// Reports what is held and ready, in any order that keeps each lane's.
    pub(super) fn report(&mut self, events: &mut Vec<Event>) {
        let now = self.net.borrow().now;
        loop {
            let is_ready = |(_, lane): &(&Lane, &VecDeque<Held>)| {
                lane.front().is_some_and(|held| held.ready <= now)
            };
            let count = self.held.iter().filter(is_ready).count();
            let pick = self.net.borrow_mut().random.below(count as u64) as usize;
            let lane = self
                .held
                .iter()
                .filter(is_ready)
                .nth(pick)
                .map(|(lane, _)| *lane);
            let Some(lane) = lane else { return };
            let Some(queue) = self.held.get_mut(&lane) else {
                return;
            };
            let Some(held) = queue.pop_front() else {
                return;
            };
            if queue.is_empty() {
                self.held.remove(&lane);
            }
            self.finish(lane, &held);
            let Held {
                op,
                key,
                more,
                outcome,
                ..
            } = held;
            events.push(Event {
                key,
                op,
                more,
                outcome,
            });
        }
    }

    /// Forgets an operation whose final event is being returned.
    pub(super) fn finish(&mut self, lane: Lane, held: &Held) {
        if held.more {
            return;
        }
        let Some(operation) = self.operations.remove(held.op.token()) else {
            return;
        };
        if planted::active(Bug::EventAfterFinal) && matches!(operation.kind, Kind::Accept) {
            let ready = held.ready + Duration::from_millis(1);
            let outcome = Outcome::Cancelled { buf: None };
            let again = Held {
                op: held.op,
                key: held.key,
                ready,
                more: false,
                outcome,
            };
            self.held.entry(lane).or_default().push_back(again);
        }
        let Some(fd) = operation.fd else { return };
        let closable = {
            let mut net = self.net.borrow_mut();
            let descriptor = net
                .descriptors
                .get_mut(fd.0 as usize)
                .and_then(Option::as_mut);
            descriptor.is_some_and(|descriptor| {
                descriptor.operations -= 1;
                descriptor.closing.is_some() && descriptor.operations == 0
            })
        };
        if closable {
            self.net.borrow_mut().close_descriptor(fd.0);
        }
    }
}

fn ready(condition: bool) -> Option<Outcome> {
    condition.then_some(Outcome::Ready)
}

fn recv_into(net: &mut Net, end: EndId, buf: &mut Option<Buf>) -> Option<Outcome> {
    let room = buf.as_ref().map_or(0, Buf::receivable);
    let read = net.receive(end, room, |bytes| {
        if let Some(buf) = buf.as_mut() {
            buf.extend(bytes);
        }
    });
    match read {
        Readiness::Bytes(n) => Some(Outcome::Received {
            buf: buf.take()?,
            n,
        }),
        Readiness::Eof => Some(Outcome::Eof { buf: buf.take() }),
        Readiness::Failed(errno) => Some(Outcome::Failed {
            errno,
            buf: buf.take(),
        }),
        Readiness::WouldBlock => None,
    }
}

fn send(
    net: &mut Net,
    end: EndId,
    buf: &mut Option<Buf>,
    more: bool,
    parked: &mut bool,
) -> Option<Outcome> {
    let mut bytes = buf.take()?;
    if bytes.is_empty() {
        return Some(Outcome::Sent { buf: bytes, n: 0 });
    }
    let writable = !*parked || net.end(end).writable();
    match if writable { net.space(end) } else { Ok(0) } {
        Err(errno) => Some(Outcome::Failed {
            errno,
            buf: Some(bytes),
        }),
        Ok(0) => {
            *parked = true;
            *buf = Some(bytes);
            None
        }
        Ok(space) => {
            let n = space.min(bytes.len());
            net.send(end, &bytes[..n], more);
            bytes.consume(n);
            Some(Outcome::Sent { buf: bytes, n })
        }
    }
}

fn connected(net: &mut Net, end: EndId) -> Option<Outcome> {
    let end = net.end(end);
    match end.state {
        State::Connecting { .. } => None,
        State::Open => Some(Outcome::Connected),
        State::Fresh | State::Dead => {
            let errno = end.error.take().unwrap_or(libc::ECONNABORTED);
            Some(Outcome::Failed { errno, buf: None })
        }
    }
}
