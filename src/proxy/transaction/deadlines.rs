//! What the time that has passed means to a transaction.

use toron_reactor::Time;

use super::{Download, Order, Orders, Transaction, Upload, Verdict, CONTINUE_AFTER};

impl Transaction {
    /// The earliest deadline in force.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.finished {
            return None;
        }
        [
            self.connect_at,
            self.continue_at,
            self.response_header_at,
            self.upstream_idle_at,
            self.tunnel_idle_at,
            self.header_deadline_at,
            self.request_deadline_at,
            self.reading.deadline(),
            self.writing.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(super) fn tick(&mut self, now: Time, out: &mut Orders) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if due(self.request_deadline_at) {
            self.answer(now, Verdict::RequestDeadline, out);
        } else if due(self.header_deadline_at) {
            self.answer(now, Verdict::HeaderDeadline, out);
        } else if due(self.connect_at) {
            out.push(Order::CloseUpstream);
            self.connect_at = None;
            self.connect_failed_by_time(now, out);
        } else if due(self.response_header_at) {
            out.push(Order::Blame);
            self.answer(now, Verdict::ResponseHeaderTimeout, out);
        } else if due(self.reading.deadline()) {
            self.client_too_slow = true;
            self.answer(now, Verdict::ClientTooSlow, out);
        } else if due(self.tunnel_idle_at) {
            self.sever(out);
        } else if let Some(first) = self.writing.look(now) {
            out.push(Order::Look { first });
        } else if due(self.upstream_idle_at) {
            self.answer(now, Verdict::UpstreamIdle, out);
        } else if due(self.continue_at) {
            self.send_continue(now, out);
        }
    }

    fn connect_failed_by_time(&mut self, now: Time, out: &mut Orders) {
        if self.other_address {
            return self.dial_next(now, out);
        }
        out.push(Order::Blame);
        if !self.connect_elsewhere(now, Verdict::ConnectFailed, out) {
            self.answer_without_close(now, Verdict::ConnectFailed, out);
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
