//! Before a deadline is held against a peer: what it took meanwhile, and which deadline it is.

use toron_reactor::Time;

use super::{after, Side, Transaction};

impl Transaction {
    /// Whether the connection that was ordered does not come about in time: the next
    /// [`super::Input::Tick`] gives it up.
    #[must_use]
    pub fn connect_is_overdue(&self, now: Time) -> bool {
        self.connect_at.is_some_and(|at| at <= now)
    }

    /// A side that waits for room in the kernel's buffer is not idle while its bytes are taken.
    pub(super) fn acknowledged(&mut self, now: Time, by: Side, bytes: u64, left: u64) {
        if by == Side::Client {
            self.writing.acknowledged(now, bytes, left);
        }
        if bytes == 0 {
            return;
        }
        if self.tunnel_idle_at.is_some() {
            self.tunnel_idle_at = after(now, self.limits.upgrade_idle_timeout);
        }
        if by == Side::Upstream {
            self.passed(now);
        }
    }
}
