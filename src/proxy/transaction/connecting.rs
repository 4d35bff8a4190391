//! Getting a connection: which target is tried, what a failure means, and whether a request may be
//! sent again.

use toron_reactor::Time;

use crate::http::Reason;

use super::{after, ConnectFailure, Order, Orders, Transaction, Upload};

impl Transaction {
    pub(super) fn connected(&mut self, now: Time, reused: bool, out: &mut Orders) {
        self.connect_at = None;
        self.failure = Reason::ConnectFailed;
        self.other_address = false;
        // Body bytes that came with the head may be more than the upstream takes at once.
        self.upstream_idle_at = after(now, self.limits.upstream_idle_timeout);
        self.reused = reused;
        self.upload = Upload::Head;
        out.push(Order::SendHead);
    }

    pub(super) fn connect_failed(&mut self, now: Time, why: ConnectFailure, out: &mut Orders) {
        match why {
            ConnectFailure::Failed | ConnectFailure::NoResources if self.other_address => {
                self.dial_next(now, out);
            }
            ConnectFailure::Failed => {
                out.push(Order::Blame);
                if !self.connect_elsewhere(now, Reason::ConnectFailed, out) {
                    self.answer(now, Reason::ConnectFailed, out);
                }
            }
            // Nothing was tried, so it is no retry; other targets may be different in this.
            ConnectFailure::NoAddress => self.pass_over(now, Reason::NameNotResolved, out),
            ConnectFailure::NoResources => self.pass_over(now, Reason::LocalResources, out),
            ConnectFailure::TargetsFull => self.answer(now, Reason::TargetsFull, out),
            ConnectFailure::TargetsUnhealthy => self.answer(now, Reason::TargetsUnhealthy, out),
        }
    }

    /// Each address has its own time to connect: the first may be one that swallows everything.
    pub(super) fn dial_next(&mut self, now: Time, out: &mut Orders) {
        self.other_address = false;
        self.connect_at = after(now, self.limits.connect_timeout);
        out.push(Order::DialNext);
    }

    fn pass_over(&mut self, now: Time, failure: Reason, out: &mut Orders) {
        self.failure = failure;
        self.connect_again(now, false, true, out);
    }

    /// Tries another target, if retries are left (R21).
    pub(super) fn connect_elsewhere(
        &mut self,
        now: Time,
        failure: Reason,
        out: &mut Orders,
    ) -> bool {
        let may = self.retries_left > 0;
        if may {
            self.retries_left -= 1;
            self.pass_over(now, failure, out);
        }
        may
    }

    pub(super) fn connect_again(
        &mut self,
        now: Time,
        fresh: bool,
        other_target: bool,
        out: &mut Orders,
    ) {
        self.upload = Upload::Held;
        self.failed_in_head = false;
        self.other_address = false;
        self.response_header_at = None;
        self.upstream_idle_at = None;
        self.continue_at = None;
        self.connect_at = after(now, self.limits.connect_timeout);
        out.push(Order::Connect {
            fresh,
            other_target,
        });
    }

    /// The request can be sent again from what is kept, and doing so cannot execute it twice.
    /// (`HeadSent` not come means that bytes may have been written: they may have been executed.)
    pub(super) fn is_replayable(&self) -> bool {
        self.facts.idempotent
            && match self.upload {
                // Whatever of the body came later has not been read yet, or is gone.
                Upload::Held | Upload::Head => true,
                Upload::Done => self.came_whole,
                Upload::Stopped => self.failed_in_head,
                Upload::Collecting | Upload::Moving | Upload::Tunnel => false,
            }
    }

    pub(super) fn may_resend(&self) -> bool {
        (self.reused && !self.resent) || self.retries_left > 0
    }
}
