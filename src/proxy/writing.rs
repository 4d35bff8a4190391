//! The deadline of a client that receives (I29).
//!
//! That the kernel takes bytes for a client says too little about the client: a socket can be written
//! again only when a third of its send buffer is free, which may be a megabyte. A client that
//! steadily takes 50 KB/s would seem to take nothing for 16 s. So while a window runs the server
//! counts now and then what the client has acknowledged; responses that are taken at once are not
//! looked at.

use std::time::Duration;

use toron_reactor::Time;

use super::clock;
use super::window::Window;

/// A window must move so many bytes (I29).
const QUOTA: u64 = 1024;
/// How often in a window the client is looked at.
const LOOKS: u32 = 8;

/// See the module text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    window: Window,
    between_looks: Duration,
    look_at: Option<Time>,
    /// The client was looked at since the kernel took bytes last.
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
        self.looked = false;
    }

    /// When the client is to be looked at next: then [`Writing::is_over`] must be asked, and before it
    /// [`Writing::acknowledged`] told.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        clock::earliest([self.look_at, self.window.deadline()])
    }

    /// The kernel takes no more, and of what it has the client has acknowledged `bytes` since this was
    /// last told, or since then; `left` are not acknowledged yet. What is told first was on its way
    /// when the kernel took the last bytes, and belongs to that moment.
    pub fn acknowledged(&mut self, now: Time, bytes: u64, left: u64) {
        if std::mem::replace(&mut self.looked, true) {
            self.window.progress(now, bytes, left);
        }
    }

    /// How long its present window has lasted.
    #[must_use]
    pub fn spent(&self, now: Time) -> Duration {
        self.window.spent(now)
    }

    /// Whether a window has ended without its quota.
    pub fn is_over(&mut self, now: Time) -> bool {
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = Some(now + self.between_looks);
        }
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

    fn eight_seconds() -> Writing {
        let mut writing = Writing::new(Duration::from_secs(8));
        writing.run(at(0));
        writing
    }

    /// A look at this moment, which finds so many bytes acknowledged.
    fn look(writing: &mut Writing, millis: u64, bytes: u64) -> bool {
        assert!(writing.deadline().is_some_and(|due| due <= at(millis)));
        writing.acknowledged(at(millis), bytes, 1 << 20);
        writing.is_over(at(millis))
    }

    #[test]
    fn i29_what_the_client_takes_counts_though_the_kernel_takes_nothing() {
        let mut writing = eight_seconds();
        assert_eq!(writing.deadline(), Some(at(1_000)));
        for second in 1..100 {
            assert!(!look(&mut writing, second * 1_000, 200), "{second}");
        }
        // 100 bytes in each eighth are too little: the window that began last is not met.
        let severed = (100..120).find(|second| look(&mut writing, second * 1_000, 100));
        assert!(severed.is_some_and(|second| second > 100), "{severed:?}");
    }

    #[test]
    fn i29_a_client_that_takes_nothing_is_over_with_its_window() {
        let mut writing = eight_seconds();
        // What was on its way when the kernel took the last bytes; and looks come late by a little.
        assert!(!look(&mut writing, 1_004, 1 << 20));
        for second in 2..8 {
            assert!(!look(&mut writing, second * 1_004, 0));
        }
        assert_eq!(writing.deadline(), Some(at(8_000)));
        assert!(look(&mut writing, 8_000, 0));
    }

    #[test]
    fn i29_the_first_look_behind_each_send_tells_of_that_send() {
        let mut writing = eight_seconds();
        for second in 1..5 {
            assert!(!look(&mut writing, second * 1_000, 0));
        }
        writing.progress(at(4_500), 2_000, 1 << 20);
        for second in 5..12 {
            let bytes = if second == 5 { 1 << 20 } else { 0 };
            assert!(!look(&mut writing, second * 1_000, bytes));
        }
        assert!(!look(&mut writing, 12_000, 0));
        assert_eq!(writing.deadline(), Some(at(12_500)));
        assert!(look(&mut writing, 12_500, 0));
    }

    #[test]
    fn a_new_run_has_looks_of_its_own_and_zero_has_none() {
        let mut writing = eight_seconds();
        assert!(!look(&mut writing, 1_000, 0));
        writing.stop();
        assert_eq!(writing.deadline(), None);
        writing.run(at(5_000));
        assert_eq!(writing.deadline(), Some(at(6_000)));
        assert!(!look(&mut writing, 6_000, 1 << 20));

        let mut off = Writing::new(Duration::ZERO);
        off.run(at(0));
        assert_eq!(off.deadline(), None);
    }
}
