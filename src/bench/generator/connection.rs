//! One connection to the target: what it is doing and what it holds.

use std::collections::VecDeque;
use std::time::Duration;

use toron_reactor::{Fd, Key, Time, TimerId, Token};

use crate::bench::mix::Written;
use crate::bench::reply::Reader;

/// The first wait after a connection that came to nothing; doubled each time.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(10);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The lane of a [`Key`]; the token is a connection's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Lane {
    Connect = 0,
    Recv,
    Send,
    Buffer,
    Deadline,
}

impl Lane {
    const ALL: [Lane; 5] = [
        Lane::Connect,
        Lane::Recv,
        Lane::Send,
        Lane::Buffer,
        Lane::Deadline,
    ];

    pub(super) fn key(self, token: Token) -> Key {
        Key {
            token,
            lane: self as u8,
        }
    }

    pub(super) fn of(key: Key) -> Option<Lane> {
        Lane::ALL.get(usize::from(key.lane)).copied()
    }
}

/// Where a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// It waits before it tries (again).
    Waiting { until: Time },
    /// The kernel connects.
    Connecting { since: Time },
    /// It can be used.
    Open,
    /// It carries the last requests that it will.
    Last,
    /// Closed; the entry goes at the end of the handler.
    Gone,
}

/// A request that has begun and is not over.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) intended: Time,
    pub(super) begun: Time,
    pub(super) first_byte: Option<Time>,
    /// Index of the request.
    pub(super) request: usize,
    /// Stage of the profile.
    pub(super) stage: usize,
    /// It says `Connection: close`.
    pub(super) close: bool,
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) token: Token,
    pub(super) fd: Option<Fd>,
    pub(super) timer: TimerId,
    pub(super) phase: Phase,
    /// Begun and not over, oldest first.
    pub(super) in_flight: VecDeque<InFlight>,
    /// How many of them, from the front, have been written whole.
    pub(super) written: usize,
    /// How far the next one has been written.
    pub(super) writing: Written,
    /// A send is in flight.
    pub(super) sending: bool,
    /// A buffer is waited for.
    pub(super) awaits_buffer: bool,
    pub(super) reader: Reader,
    /// Requests answered.
    pub(super) answered: u64,
    /// The wait before the next attempt, should this one come to nothing.
    pub(super) wait: Duration,
    /// It has been reported as opened or failed.
    pub(super) settled: bool,
}

impl Connection {
    pub(super) fn new(token: Token, timer: TimerId, until: Time) -> Connection {
        Connection {
            token,
            fd: None,
            timer,
            phase: Phase::Waiting { until },
            in_flight: VecDeque::new(),
            written: 0,
            writing: Written::All,
            sending: false,
            awaits_buffer: false,
            reader: Reader::default(),
            answered: 0,
            wait: FIRST_WAIT,
            settled: false,
        }
    }

    /// The wait before the next attempt, longer each time.
    pub(super) fn longer_wait(&self) -> Duration {
        (self.wait * 2).min(LONGEST_WAIT)
    }

    /// Whether a request may begin.
    pub(super) fn has_room(&self, pipeline: usize) -> bool {
        self.phase == Phase::Open && self.in_flight.len() < pipeline
    }

    /// When it must be looked at.
    pub(super) fn deadline(&self, timeout: Duration) -> Option<Time> {
        match self.phase {
            Phase::Waiting { until } => Some(until),
            Phase::Connecting { since } => Some(since + timeout),
            Phase::Open | Phase::Last => self.in_flight.front().map(|r| r.intended + timeout),
            Phase::Gone => None,
        }
    }
}
