//! What the kernel says about processor time, from /proc.

use std::fs;
use std::time::Duration;

/// Processor time of one thread.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ThreadTime {
    /// On a processor.
    pub running: Duration,
    /// Ready, but waiting for a processor.
    pub waiting: Duration,
}

impl ThreadTime {
    /// Of the calling thread (proc_pid_schedstat); `None` where the kernel does not count it.
    #[must_use]
    pub fn now() -> Option<ThreadTime> {
        let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        let mut numbers = text.split_whitespace().map_while(|n| n.parse().ok());
        Some(ThreadTime {
            running: Duration::from_nanos(numbers.next()?),
            waiting: Duration::from_nanos(numbers.next()?),
        })
    }

    /// What has been added since.
    #[must_use]
    pub fn since(self, earlier: ThreadTime) -> ThreadTime {
        ThreadTime {
            running: self.running.saturating_sub(earlier.running),
            waiting: self.waiting.saturating_sub(earlier.waiting),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time() {
        let before = ThreadTime::now().unwrap();
        let mut spent = Duration::ZERO;
        for round in 0..10_000_u64 {
            let sum: u64 = (0..100_000).map(|n| std::hint::black_box(n ^ round)).sum();
            std::hint::black_box(sum);
            spent = ThreadTime::now().unwrap().since(before).running;
            if spent > Duration::from_millis(5) {
                break;
            }
        }
        assert!(spent > Duration::from_millis(5), "{spent:?}");
    }
}
