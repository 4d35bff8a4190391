//! How much comes from an address: windows of a second, and their average (F3).

use std::time::Duration;

use toron_reactor::Time;

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(1);

/// Counts of the present window, and what the earlier ones come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meter {
    start: Time,
    admitted: u32,
    arrived: u32,
    arrived_before: u32,
    ewma: f64,
    /// What `ewma` allows, in whole requests: changes with it, once in a window.
    raised: u64,
}

impl Meter {
    /// With no history.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Meter {
            start: now,
            admitted: 0,
            arrived: 0,
            arrived_before: 0,
            ewma: 0.0,
            raised: 0,
        }
    }

    /// When the present window ends.
    #[must_use]
    pub fn window_end(&self) -> Time {
        self.start + WINDOW
    }

    /// Closes the windows that are over: `ewma = α·count + (1−α)·ewma` for each, idle ones with a
    /// count of 0.
    pub fn advance(&mut self, alpha_pct: u8, now: Time) {
        let over = now.since(self.start).as_secs();
        if over == 0 {
            return;
        }
        let alpha = f64::from(alpha_pct.min(100));
        self.ewma = (alpha * f64::from(self.admitted) + (100.0 - alpha) * self.ewma) / 100.0;
        if over > 1 {
            let idle = i32::try_from(over - 1).unwrap_or(i32::MAX);
            self.ewma *= ((100.0 - alpha) / 100.0).powi(idle);
        }
        self.raised = (self.ewma * 1.5).ceil() as u64;
        self.arrived_before = if over == 1 { self.arrived } else { 0 };
        self.admitted = 0;
        self.arrived = 0;
        self.start = self.start + Duration::from_secs(over);
    }

    /// Counts a request, and whether it was let in: only those raise the average, so that a flood
    /// cannot raise its own limit.
    pub fn count(&mut self, admitted: bool) {
        self.arrived = self.arrived.saturating_add(1);
        self.admitted = self.admitted.saturating_add(u32::from(admitted));
    }

    /// Requests that came in this window or the one before, whichever saw more.
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        u64::from(self.arrived.max(self.arrived_before))
    }

    /// The rate that the history allows: max(rps, ceil(1.5·ewma)), at most 4·rps.
    #[must_use]
    pub fn effective_rps(&self, rps: u32) -> u64 {
        let rps = u64::from(rps);
        self.raised.clamp(rps, rps * 4)
    }

    /// The average of admitted requests per window.
    #[cfg(test)]
    pub fn ewma(&self) -> f64 {
        self.ewma
    }
}
