//! Connections made, lost and made again.

use std::time::Duration;

use toron_reactor::{sys, Close, Engine, Op, Outcome};

use super::connection::{Connection, Lane, Phase, FIRST_WAIT};
use super::Kit;
use crate::bench::record::{record, Failure};

/// What an error of connect(2) or socket(2) means (errno values of Linux).
fn connect_failure(errno: i32) -> Failure {
    match errno {
        111 => Failure::Refused,           // ECONNREFUSED
        110 => Failure::ConnectTimeout,    // ETIMEDOUT
        101 | 113 => Failure::Unreachable, // ENETUNREACH, EHOSTUNREACH
        99 => Failure::NoPort,             // EADDRNOTAVAIL
        23 | 24 => Failure::NoDescriptor,  // ENFILE, EMFILE
        _ => Failure::Connect,
    }
}

impl<E: Engine> Kit<'_, '_, E> {
    pub(super) fn submit(&mut self, connection: &Connection, lane: Lane, op: Op) {
        self.cx.engine.submit(lane.key(connection.token), op);
    }

    /// Begins to connect.
    pub(super) fn dial(&mut self, connection: &mut Connection) {
        let addr = self.core.plan.addr;
        match self.cx.engine.socket(&addr) {
            Ok(fd) => {
                connection.fd = Some(fd);
                connection.phase = Phase::Connecting { since: self.cx.now };
                self.submit(connection, Lane::Connect, Op::Connect { fd, addr });
            }
            Err(error) => self.not_connected(connection, connect_failure(sys::errno(&error))),
        }
    }

    /// The kernel has connected, or not.
    pub(super) fn dialled(&mut self, connection: &mut Connection, outcome: &Outcome) {
        let Phase::Connecting { since } = connection.phase else {
            return;
        };
        match outcome {
            Outcome::Connected => {
                connection.phase = Phase::Open;
                self.core.open += 1;
                self.core.record.counts.connects += 1;
                record(&mut self.core.record.connect, self.cx.now.since(since));
                for _ in 0..self.core.plan.pipeline {
                    self.core.freed(connection.token, self.cx.now);
                }
                self.settle(connection);
                self.receive(connection);
            }
            Outcome::Failed { errno, .. } => {
                self.not_connected(connection, connect_failure(*errno));
            }
            _ => {}
        }
    }

    /// Waits for responses. There is no back-pressure, and none is needed: what comes is read at
    /// once.
    pub(super) fn receive(&mut self, connection: &mut Connection) {
        if let Some(fd) = connection.fd {
            self.submit(connection, Lane::Recv, Op::Recv { fd, many: true });
        }
    }

    fn settle(&mut self, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.settled, true) && self.core.untried > 0 {
            self.core.untried -= 1;
            self.core.tell_ready();
        }
    }

    fn not_connected(&mut self, connection: &mut Connection, kind: Failure) {
        self.core.record.counts.count(kind);
        self.settle(connection);
        self.close(connection, Close::Orderly);
    }

    /// The connection is of no more use. What is under way has failed, the oldest of it by `kind`.
    pub(super) fn lose(&mut self, connection: &mut Connection, kind: Failure, how: Close) {
        let mut kind = kind;
        while let Some(request) = connection.in_flight.pop_front() {
            self.failed(&request, kind);
            // Those behind it in the pipeline did not even have their turn.
            kind = Failure::ClosedBefore;
        }
        self.close(connection, how);
    }

    /// Closes, and has another connection made if there is a use for it. One that came to nothing
    /// is followed by a wait: a target that refuses must not be asked in a tight loop.
    pub(super) fn close(&mut self, connection: &mut Connection, how: Close) {
        if connection.phase == Phase::Gone {
            return;
        }
        self.core.open -= usize::from(matches!(connection.phase, Phase::Open | Phase::Last));
        connection.phase = Phase::Gone;
        if let Some(fd) = connection.fd.take() {
            self.cx.engine.close(fd, how);
        }
        self.cx.wheel.remove(connection.timer);
        if self.core.goes_on(self.cx.now) || self.core.next.is_some() {
            self.core.remake = Some(if connection.answered > 0 {
                (Duration::ZERO, FIRST_WAIT)
            } else {
                (connection.wait, connection.longer_wait())
            });
        }
    }

    /// Sets the connection's one timer.
    pub(super) fn arm(&mut self, connection: &Connection) {
        let deadline = connection.deadline(self.core.plan.timeout);
        self.cx.wheel.arm(connection.timer, deadline);
    }

    /// The connection's time has come.
    pub(super) fn deadline(&mut self, connection: &mut Connection) {
        let now = self.cx.now;
        match connection.phase {
            Phase::Waiting { until } if until <= now => self.dial(connection),
            Phase::Connecting { since } if since + self.core.plan.timeout <= now => {
                self.not_connected(connection, Failure::ConnectTimeout);
            }
            Phase::Open | Phase::Last => self.time_out(connection),
            Phase::Waiting { .. } | Phase::Connecting { .. } | Phase::Gone => {}
        }
    }

    fn time_out(&mut self, connection: &mut Connection) {
        let timeout = self.core.plan.timeout;
        let due = |intended: toron_reactor::Time| intended + timeout <= self.cx.now;
        let Some(request) = connection.in_flight.front().copied() else {
            return;
        };
        if due(request.intended) {
            connection.in_flight.pop_front();
            self.timed_out(&request);
            self.lose(connection, Failure::ClosedBefore, Close::Reset);
        }
    }
}
