//! Requests written, responses read.

use toron_reactor::{Buf, Close, Engine, Op, Outcome};

use super::connection::{Connection, InFlight, Lane, Phase};
use super::pace::Start;
use super::Kit;
use crate::bench::mix::{choose, Written};
use crate::bench::record::{record, Failure, Times};
use crate::bench::reply::{Progress, Reply};

/// What an error of send or receive means (errno values of Linux).
fn io_failure(errno: i32) -> Failure {
    match errno {
        104 => Failure::Reset,       // ECONNRESET
        32 => Failure::ClosedBefore, // EPIPE
        _ => Failure::Other,
    }
}

impl<E: Engine> Kit<'_, '_, E> {
    /// Begins a request, if the connection has room for it.
    pub(super) fn begin(&mut self, connection: &mut Connection, start: Start) {
        let plan = &self.core.plan;
        if !connection.has_room(plan.pipeline) {
            return;
        }
        let request = choose(&plan.requests, &mut self.core.random);
        let close = plan.keep_alive < 1.0 && self.core.random.f64() >= plan.keep_alive;
        connection.in_flight.push_back(InFlight {
            intended: start.intended,
            begun: self.cx.now,
            first_byte: None,
            request,
            stage: start.stage,
            close,
        });
        if close {
            connection.phase = Phase::Last;
        }
        self.core.begun(start, self.cx.now);
        if !connection.sending && !connection.awaits_buffer {
            self.write(connection);
        }
    }

    /// Sends what is to be sent.
    fn write(&mut self, connection: &mut Connection) {
        match self.cx.engine.buffers().take() {
            Some(buf) => self.write_into(connection, buf),
            None => {
                connection.awaits_buffer = true;
                self.submit(connection, Lane::Buffer, Op::Buffer);
            }
        }
    }

    /// Fills a buffer from the requests that are not written yet, and sends it.
    pub(super) fn write_into(&mut self, connection: &mut Connection, mut buf: Buf) {
        while let Some(entry) = connection.in_flight.get(connection.written) {
            let Some(request) = self.core.plan.requests.get(entry.request) else {
                return;
            };
            if connection.writing == Written::All {
                connection.writing = Written::Head(0);
            }
            request.write(entry.close, &mut connection.writing, &mut buf);
            if connection.writing != Written::All {
                break;
            }
            connection.written += 1;
        }
        if let (Some(fd), false) = (connection.fd, buf.is_empty()) {
            connection.sending = true;
            let op = Op::Send {
                fd,
                buf,
                more: false,
            };
            self.submit(connection, Lane::Send, op);
        }
    }

    /// The kernel took bytes, or the connection is broken (which the receive tells).
    pub(super) fn sent(&mut self, connection: &mut Connection, outcome: Outcome) {
        connection.sending = false;
        match outcome {
            Outcome::Sent { buf, n } => {
                if self.core.is_measured(self.cx.now) {
                    self.core.record.counts.sent += n as u64;
                }
                if buf.is_empty() {
                    self.write_into(connection, buf);
                } else if let Some(fd) = connection.fd {
                    connection.sending = true;
                    let op = Op::Send {
                        fd,
                        buf,
                        more: false,
                    };
                    self.submit(connection, Lane::Send, op);
                }
            }
            // A refusal may stand in the receive buffer still: the receive decides.
            Outcome::Failed { .. } => connection.phase = Phase::Last,
            _ => {}
        }
    }

    /// Bytes or the end of the stream have come, or the connection is broken.
    pub(super) fn received(&mut self, connection: &mut Connection, outcome: Outcome, more: bool) {
        match outcome {
            Outcome::Received { buf, n } => {
                if self.core.is_measured(self.cx.now) {
                    self.core.record.counts.received += n as u64;
                }
                self.read(connection, &buf);
                if !more && connection.phase != Phase::Gone {
                    self.receive(connection);
                }
            }
            Outcome::Eof { .. } => self.ended(connection, None),
            Outcome::Failed { errno, .. } => self.ended(connection, Some(io_failure(errno))),
            _ => {}
        }
    }

    fn read(&mut self, connection: &mut Connection, mut bytes: &[u8]) {
        while !bytes.is_empty() && connection.phase != Phase::Gone {
            let Some(front) = connection.in_flight.front_mut() else {
                // Nothing was asked for: whatever it is, the connection cannot be trusted.
                self.core.record.counts.count(Failure::Unasked);
                return self.close(connection, Close::Orderly);
            };
            front.first_byte.get_or_insert(self.cx.now);
            let is_head = (self.core.plan.requests.get(front.request)).is_some_and(|r| r.is_head);
            match connection.reader.feed(bytes, is_head) {
                Progress::More => return,
                Progress::Done { consumed, reply } => {
                    bytes = bytes.get(consumed..).unwrap_or_default();
                    self.answered(connection, reply);
                }
                Progress::Bad(reason) => {
                    log::debug!("bad response: {reason}");
                    return self.lose(connection, Failure::BadResponse, Close::Reset);
                }
            }
        }
    }

    /// A response has come whole.
    fn answered(&mut self, connection: &mut Connection, reply: Reply) {
        let Some(request) = connection.in_flight.pop_front() else {
            return;
        };
        connection.answered += 1;
        // An answer that came before its request was whole leaves the rest to be sent: the
        // connection is of no more use.
        let early = connection.written == 0;
        connection.written = connection.written.saturating_sub(1);
        self.tell_answer(&request, reply);
        if early || !reply.keep_alive {
            let how = if early { Close::Reset } else { Close::Orderly };
            return self.lose(connection, Failure::ClosedBefore, how);
        }
        if connection.phase == Phase::Open {
            self.core.freed(connection.token, self.cx.now);
        }
    }

    fn tell_answer(&mut self, request: &InFlight, reply: Reply) {
        let now = self.cx.now;
        self.core.under_way -= 1;
        self.core.record.counts.completed += u64::from(self.core.is_measured(now));
        if !self.core.is_measured(request.intended) {
            return;
        }
        self.core.record.answer(reply.status);
        self.core.record.times(&Times {
            intended: request.intended,
            begun: request.begun,
            first_byte: request.first_byte,
            ended: now,
        });
        let latency = now.since(request.intended);
        if let Some(part) = self.core.last.stages.get_mut(request.stage) {
            part.answered += 1;
            record(&mut part.latency, latency);
        }
        if let Some(part) = self.core.last.requests.get_mut(request.request) {
            part.started += 1;
            part.answered += 1;
            record(&mut part.latency, latency);
        }
    }

    /// A request had no answer in its time: a sample, with the time it took.
    pub(super) fn timed_out(&mut self, request: &InFlight) {
        let now = self.cx.now;
        self.core.under_way -= 1;
        if !self.core.is_measured(request.intended) {
            return;
        }
        self.core.record.counts.timed_out += 1;
        self.core.record.times(&Times {
            intended: request.intended,
            begun: request.begun,
            first_byte: None,
            ended: now,
        });
        self.lost(request, Some(now.since(request.intended)));
    }

    /// A request failed: counted, but no sample, as there is no answer to take the time of.
    pub(super) fn failed(&mut self, request: &InFlight, kind: Failure) {
        self.core.under_way -= 1;
        if self.core.is_measured(request.intended) {
            self.core.record.counts.failed += 1;
            self.core.record.counts.count(kind);
            self.lost(request, None);
        }
    }

    fn lost(&mut self, request: &InFlight, sample: Option<std::time::Duration>) {
        let last = &mut self.core.last;
        let stage = last.stages.get_mut(request.stage);
        let mut kind = last.requests.get_mut(request.request);
        if let Some(part) = &mut kind {
            part.started += 1;
        }
        for part in [stage, kind].into_iter().flatten() {
            part.lost += 1;
            if let Some(time) = sample {
                record(&mut part.latency, time);
            }
        }
    }

    /// The connection has ended: by the peer's close (`None`) or broken.
    fn ended(&mut self, connection: &mut Connection, kind: Option<Failure>) {
        if kind.is_none() {
            if let Some(reply) = connection.reader.end() {
                if let Some(request) = connection.in_flight.pop_front() {
                    connection.answered += 1;
                    self.tell_answer(&request, reply);
                }
                return self.lose(connection, Failure::ClosedBefore, Close::Orderly);
            }
        }
        if connection.in_flight.is_empty() {
            self.core.record.counts.closed_idle += 1;
            return self.close(connection, Close::Orderly);
        }
        let within = !connection.reader.is_fresh();
        let kind = kind.unwrap_or(match within {
            true => Failure::ClosedWithin,
            false => Failure::ClosedBefore,
        });
        self.lose(connection, kind, Close::Orderly);
    }
}
