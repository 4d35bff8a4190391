//! What the time that has passed means to a transaction.

use toron_reactor::Time;

use std::time::Duration;

use super::{Download, Order, Orders, Transaction, Upload, CONTINUE_AFTER};
use crate::http::Reason;
use crate::proxy::clock::{self, millis};

impl Transaction {
    /// The earliest deadline in force.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.finished {
            return None;
        }
        clock::earliest([
            self.connect_at,
            self.continue_at,
            self.response_header_at,
            self.upstream_idle_at,
            self.tunnel_idle_at,
            self.header_deadline_at,
            self.request_deadline_at,
            self.reading.deadline(),
            self.writing.deadline(),
        ])
    }

    pub(super) fn tick(&mut self, now: Time, out: &mut Orders) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let limits = self.limits;
        if due(self.request_deadline_at) {
            self.note_time(now, self.request_deadline_at, limits.request_deadline);
            self.answer(now, Reason::RequestDeadline, out);
        } else if due(self.header_deadline_at) {
            self.note_time(now, self.header_deadline_at, limits.header_deadline);
            self.answer(now, Reason::HeaderDeadline, out);
        } else if due(self.connect_at) {
            out.push(Order::CloseUpstream);
            self.note_time(now, self.connect_at, limits.connect_timeout);
            self.connect_at = None;
            self.connect_failed_by_time(now, out);
        } else if due(self.response_header_at) {
            self.note_time(now, self.response_header_at, limits.response_header_timeout);
            out.push(Order::Blame);
            self.answer(now, Reason::ResponseHeaderTimeout, out);
        } else if let Some((reason, observed)) = self.reading.overdue(now) {
            self.client_too_slow = true;
            self.observed = observed;
            self.shortfall = (reason == Reason::ReadTimeout)
                .then(|| self.reading.shortfall(self.facts.outstanding));
            self.answer(now, reason, out);
        } else if due(self.tunnel_idle_at) {
            self.note_time(now, self.tunnel_idle_at, limits.upgrade_idle_timeout);
            self.sever(Reason::UpgradeIdleTimeout, out);
        } else if self.writing.is_over(now) {
            self.client_too_slow = true;
            if self.cause.is_none() {
                self.observed = millis(self.writing.spent(now));
            }
            self.sever(Reason::WriteTimeout, out);
        } else if due(self.upstream_idle_at) {
            self.note_time(now, self.upstream_idle_at, limits.upstream_idle_timeout);
            self.answer(now, Reason::UpstreamIdleTimeout, out);
        } else if due(self.continue_at) {
            self.send_continue(now, out);
        }
    }

    /// Notes how long was waited until now, in milliseconds, of a `limit` that ended at `at`.
    fn note_time(&mut self, now: Time, at: Option<Time>, limit: Duration) {
        let late = at.map_or(Duration::ZERO, |at| now.since(at));
        self.observed = millis(limit.saturating_add(late));
    }

    fn connect_failed_by_time(&mut self, now: Time, out: &mut Orders) {
        if self.other_address {
            return self.dial_next(now, out);
        }
        out.push(Order::Blame);
        if !self.connect_elsewhere(now, Reason::ConnectTimeout, out) {
            self.answer_without_close(now, Reason::ConnectTimeout, out);
        }
    }

    pub(super) fn send_continue(&mut self, now: Time, out: &mut Orders) {
        if self.download == Download::Interim {
            // Another interim response is on its way to the client.
            self.continue_at = Some(now + CONTINUE_AFTER);
            return;
        }
        self.continue_at = None;
        if self.continued || self.download != Download::Waiting {
            return;
        }
        self.continued = true;
        self.reading.run(now);
        out.push(Order::SendContinue);
    }

    pub(super) fn check(&self) {
        if cfg!(debug_assertions) {
            let Transaction {
                upload, download, ..
            } = *self;
            assert!(
                self.finished
                    || upload != Upload::Held
                    || self.connect_at.is_some()
                    || self.limits.connect_timeout.is_zero()
                    || download == Download::Answering,
                "held without a deadline: {self:?}"
            );
            assert!(
                self.finished
                    || (upload == Upload::Tunnel && download != Download::Done)
                        == (download == Download::Tunnel && upload != Upload::Done),
                "half a tunnel: {self:?}"
            );
            assert!(
                !(download == Download::Answering && upload == Upload::Moving),
                "answering while the body moves: {self:?}"
            );
        }
    }
}
