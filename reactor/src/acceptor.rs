//! Accepting: what runs on a reactor's listening sockets, and what happens when descriptors run
//! out.
//!
//! A failed accept stops accepting for [`FIRST_PAUSE`], doubling to [`LONGEST_PAUSE`], so that no
//! core spins on a queue that cannot be taken from. A few of those who wait are refused with a
//! canned answer on the spare descriptor; the others keep their place in the queue. Connections
//! that are open are not touched.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Close, Engine, Fd, Key, Op, OpId};
use crate::slab::Token;
use crate::time::Time;
use crate::wheel::{TimerId, Wheel};

/// How long accepting stops after a failure.
pub const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// How long it stops at most when it fails again and again.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Connections refused politely per failure.
const REFUSED_AT_ONCE: usize = 16;
/// Turns without a new connection after which, when draining, the queue counts as empty. An engine
/// may put off looking at listeners for a few turns while others have work.
const QUIET_TURNS: u32 = 16;
/// Turns after which draining stops accepting although connections still come.
const DRAIN_TURNS: u32 = 4096;

/// The index of tokens that belong to the reactor itself; no slab gets so large.
const OWN: u32 = u32::MAX;
const ACCEPT: u8 = 0;
const PAUSE: u8 = 1;

/// Lets one message of a kind through per second, over all reactors.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogGate(Arc<AtomicU64>);

impl LogGate {
    fn opens(&self, now: Time) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        let due = last == 0 || now.since(Time(last)) >= Duration::from_secs(1);
        due && self
            .0
            .compare_exchange(last, now.0.max(1), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Accepting,
    /// Accepting until the queue is empty.
    Draining {
        quiet: u32,
        turns: u32,
    },
    Stopping,
    Stopped,
}

#[derive(Debug)]
struct Listener {
    fd: Fd,
    accept: Option<OpId>,
}

/// The listening sockets of one reactor.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<Listener>,
    state: State,
    timer: Option<TimerId>,
    pause: Duration,
    refusal: Arc<[u8]>,
    log: LogGate,
    accepted: u64,
    accepted_this_turn: bool,
}

impl Acceptor {
    pub(crate) fn new(refusal: Arc<[u8]>, log: LogGate) -> Self {
        Acceptor {
            listeners: Vec::new(),
            state: State::Accepting,
            timer: None,
            pause: FIRST_PAUSE,
            refusal,
            log,
            accepted: 0,
            accepted_this_turn: false,
        }
    }

    /// Whether an event or deadline is for the acceptor.
    pub(crate) fn owns(key: Key) -> bool {
        key.token.index == OWN
    }

    /// Connections accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Starts accepting on one more socket, which the engine owns.
    pub(crate) fn listen<E: Engine>(&mut self, engine: &mut E, fd: Fd) {
        self.listeners.push(Listener { fd, accept: None });
        self.resume(engine);
    }

    /// Submits an accept for every listener that has none.
    fn resume<E: Engine>(&mut self, engine: &mut E) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            if listener.accept.is_none() {
                let op = Op::Accept {
                    listener: listener.fd,
                };
                listener.accept = Some(engine.submit(own_key(index, ACCEPT), op));
            }
        }
    }

    /// A connection came: which listener it came from.
    pub(crate) fn connection(&mut self, key: Key) -> u32 {
        self.accepted += 1;
        self.accepted_this_turn = true;
        self.pause = FIRST_PAUSE;
        key.token.generation
    }

    /// An accept ended. `errno`: it failed. Returns who was refused for want of a descriptor.
    pub(crate) fn accept_ended<E: Engine>(
        &mut self,
        engine: &mut E,
        wheel: &mut Wheel,
        key: Key,
        errno: Option<i32>,
    ) -> Vec<SocketAddr> {
        let Some(listener) = self.listeners.get_mut(key.token.generation as usize) else {
            return Vec::new();
        };
        listener.accept = None;
        if self.state == State::Stopping {
            return Vec::new();
        }
        let Some(errno) = errno else {
            self.resume(engine);
            return Vec::new();
        };
        let fd = listener.fd;
        let refused = if matches!(errno, libc::EMFILE | libc::ENFILE) {
            (0..REFUSED_AT_ONCE)
                .map_while(|_| engine.refuse_one(fd, &self.refusal))
                .collect()
        } else {
            Vec::new()
        };
        if self.log.opens(engine.now()) {
            log::error!(
                "cannot accept connections ({}); trying again in {:?}, {} refused",
                std::io::Error::from_raw_os_error(errno),
                self.pause,
                refused.len(),
            );
        }
        let timer = *self
            .timer
            .get_or_insert_with(|| wheel.insert(own_key(0, PAUSE)));
        wheel.arm(timer, Some(engine.now() + self.pause));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        refused
    }

    /// The pause is over.
    pub(crate) fn deadline<E: Engine>(&mut self, engine: &mut E) {
        if matches!(self.state, State::Accepting | State::Draining { .. }) {
            self.resume(engine);
        }
    }

    /// Stop accepting once the queue is empty.
    pub(crate) fn drain(&mut self) {
        if self.state == State::Accepting {
            self.state = State::Draining { quiet: 0, turns: 0 };
        }
    }

    /// Accepts have been cancelled and not all have ended.
    pub(crate) fn is_stopping(&self) -> bool {
        self.state == State::Stopping
    }

    /// Whether the next turn must not wait.
    pub(crate) fn is_hurried(&self) -> bool {
        matches!(self.state, State::Draining { .. })
    }

    /// Called at the end of every turn; `true` when the listeners have just been closed.
    pub(crate) fn turn_ended<E: Engine>(&mut self, engine: &mut E, wheel: &mut Wheel) -> bool {
        let accepted = std::mem::take(&mut self.accepted_this_turn);
        if let State::Draining { quiet, turns } = &mut self.state {
            *quiet = if accepted { 0 } else { *quiet + 1 };
            *turns += 1;
            if *quiet < QUIET_TURNS && *turns < DRAIN_TURNS && !self.listeners.is_empty() {
                return false;
            }
            self.state = State::Stopping;
            for accept in self.listeners.iter().filter_map(|l| l.accept) {
                engine.cancel(accept);
            }
        }
        if self.state == State::Stopping && self.listeners.iter().all(|l| l.accept.is_none()) {
            self.state = State::Stopped;
            for listener in self.listeners.drain(..) {
                engine.close(listener.fd, Close::Orderly);
            }
            if let Some(timer) = self.timer.take() {
                wheel.remove(timer);
            }
            return true;
        }
        false
    }
}

fn own_key(index: usize, lane: u8) -> Key {
    Key {
        token: Token {
            index: OWN,
            generation: index as u32,
        },
        lane,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_a_second_passes() {
        let gate = LogGate::default();
        let other_reactor = gate.clone();
        let start = Time(5);
        assert!(gate.opens(start));
        assert!(!other_reactor.opens(start + Duration::from_millis(999)));
        assert!(other_reactor.opens(start + Duration::from_secs(1)));
        assert!(!gate.opens(start + Duration::from_millis(1500)));
    }
}
