//! The deadline of a client that receives (I29).
//!
//! That the kernel takes bytes for a client says too little about the client: a socket can be written
//! again only when a third of its send buffer is free, which may be a megabyte. A client that
//! steadily takes 50 KB/s would seem to take nothing for 16 s. So the server is asked now and then
//! what the client has acknowledged, but only while a window runs, and not for responses that are
//! taken at once.

use std::time::Duration;

use toron_reactor::Time;

use super::window::Window;

/// A window must move so many bytes (I29).
pub const QUOTA: u64 = 1024;
/// How often in a window the client is looked at. What it takes before the first look is not seen.
const LOOKS: u32 = 8;

/// See the module text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    window: Window,
    between_looks: Duration,
    look_at: Option<Time>,
    /// There was a look in the present run, to compare the next one with.
    looked: bool,
}

impl Writing {
    /// A window of this length that has not begun; zero is off.
    #[must_use]
    pub fn new(write_timeout: Duration) -> Self {
        Writing {
            window: Window::new(write_timeout, QUOTA),
            between_looks: write_timeout / LOOKS,
            look_at: None,
            looked: false,
        }
    }

    /// The client has bytes to take. Nothing happens when it had already.
    pub fn run(&mut self, now: Time) {
        self.window.run(now);
        if self.look_at.is_none() && self.window.deadline().is_some() {
            self.look_at = Some(now + self.between_looks);
            self.looked = false;
        }
    }

    /// There is nothing for the client to take.
    pub fn stop(&mut self) {
        self.window.stop();
        self.look_at = None;
    }

    /// The kernel has taken `bytes`; `pending` are at hand behind them.
    pub fn progress(&mut self, now: Time, bytes: u64, pending: u64) {
        self.window.progress(now, bytes, pending);
    }

    /// When the client is to be looked at next.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let all = [self.look_at, self.window.deadline()];
        all.into_iter().flatten().min()
    }

    /// Whether the client is to be looked at now: then [`Writing::taken`] must be told. `Some(true)`
    /// for the first look, with which nothing can be compared.
    pub fn look(&mut self, now: Time) -> Option<bool> {
        self.deadline().filter(|at| *at <= now)?;
        self.look_at = Some(now + self.between_looks);
        Some(!std::mem::replace(&mut self.looked, true))
    }

    /// How long its present window has lasted.
    #[must_use]
    pub fn spent(&self, now: Time) -> Duration {
        self.window.spent(now)
    }

    /// The client has acknowledged `bytes` since the last look, and not yet `queued`. `true` when
    /// its window is over.
    pub fn taken(&mut self, now: Time, bytes: u64, queued: u64) -> bool {
        self.window.progress(now, bytes, queued);
        self.window.deadline().is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Time = Time(1_000_000_000_000);

    fn at(millis: u64) -> Time {
        BEGIN + Duration::from_millis(millis)
    }

    #[test]
    fn i29_what_the_client_takes_counts_though_the_kernel_takes_nothing() {
        let mut writing = Writing::new(Duration::from_secs(8));
        writing.run(at(0));
        assert_eq!(writing.deadline(), Some(at(1_000)));
        assert_eq!(writing.look(at(999)), None);
        assert_eq!(writing.look(at(1_000)), Some(true));
        assert!(!writing.taken(at(1_000), 0, 1 << 20));
        for second in 2..100 {
            assert_eq!(writing.look(at(second * 1_000)), Some(false));
            assert!(!writing.taken(at(second * 1_000), 200, 1 << 20), "{second}");
        }
        // 100 bytes in each eighth are too little: the window that began last is not met.
        let mut severed = 0;
        for second in 100..120 {
            assert!(writing.look(at(second * 1_000)).is_some());
            if writing.taken(at(second * 1_000), 100, 1 << 20) {
                severed = second;
                break;
            }
        }
        assert!(severed > 100, "{severed}");
    }

    #[test]
    fn i29_a_client_that_takes_nothing_is_over_with_its_window() {
        let mut writing = Writing::new(Duration::from_secs(8));
        writing.run(at(0));
        // Looks come late by a little.
        for second in 1..8 {
            assert!(writing.look(at(second * 1_004)).is_some());
            assert!(!writing.taken(at(second * 1_004), 0, 1 << 20));
        }
        assert_eq!(writing.deadline(), Some(at(8_000)));
        assert_eq!(writing.look(at(8_000)), Some(false));
        assert!(writing.taken(at(8_000), 0, 1 << 20));
    }

    #[test]
    fn a_new_run_has_looks_of_its_own_and_zero_has_none() {
        let mut writing = Writing::new(Duration::from_secs(8));
        writing.run(at(0));
        assert_eq!(writing.look(at(1_000)), Some(true));
        writing.stop();
        assert_eq!(writing.deadline(), None);
        writing.run(at(5_000));
        assert_eq!(writing.look(at(6_000)), Some(true));

        let mut off = Writing::new(Duration::ZERO);
        off.run(at(0));
        assert_eq!(off.deadline(), None);
    }
}
