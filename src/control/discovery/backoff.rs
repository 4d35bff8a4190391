//! How long to wait before the next attempt.

use std::time::Duration;

/// The first wait (D3).
const FIRST: Duration = Duration::from_millis(100);

/// Waits that double up to a longest one.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    most: Duration,
}

impl Backoff {
    /// Waits of 100 ms to `most`.
    #[must_use]
    pub fn new(most: Duration) -> Self {
        Backoff {
            next: FIRST.min(most),
            most,
        }
    }

    /// The next wait, a quarter more or less by chance: instances that lost the same engine do not
    /// come back in step.
    pub fn wait(&mut self) -> Duration {
        let base = self.next;
        self.next = (base * 2).min(self.most);
        base.mul_f64(0.75 + fastrand::f64() / 2.0)
    }

    /// All is well: begin anew.
    pub fn reset(&mut self) {
        self.next = FIRST.min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d3_waits_double_up_to_the_poll_interval() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        for base in [100, 200, 400, 800, 1000, 1000] {
            let wait = backoff.wait().as_millis();
            assert!(
                wait * 4 >= base * 3 && wait * 4 <= base * 5,
                "{base}: {wait}"
            );
        }
        backoff.reset();
        assert!(backoff.wait() <= Duration::from_millis(125));
        assert!(Backoff::new(Duration::from_millis(10)).wait() <= Duration::from_millis(13));
    }
}
