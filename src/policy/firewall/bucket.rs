//! The token bucket (F1), in whole numbers: what it holds does not depend on how often it is asked.

use toron_reactor::Time;

/// A token. Credit is counted in thousand-millionths of one, so that a nanosecond at a rate of `n`
/// per second is worth exactly `n`.
const TOKEN: u64 = 1_000_000_000;

/// What an address may still spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    credit: u64,
    /// Up to when it has been refilled.
    at: Time,
}

impl Bucket {
    /// A full one.
    #[must_use]
    pub fn full(burst: u32, now: Time) -> Self {
        Bucket {
            credit: u64::from(burst) * TOKEN,
            at: now,
        }
    }

    /// Adds what `rate` tokens per second are worth since the last refill, up to `burst` tokens. A
    /// clock that stands behind the last refill (another reactor's turn) adds nothing.
    pub fn refill(&mut self, rate: u64, burst: u32, now: Time) {
        let elapsed = now.0.saturating_sub(self.at.0);
        let gained = elapsed.saturating_mul(rate);
        let most = u64::from(burst) * TOKEN;
        self.credit = self.credit.saturating_add(gained).min(most);
        self.at = self.at.max(now);
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self) -> bool {
        match self.credit.checked_sub(TOKEN) {
            Some(left) => {
                self.credit = left;
                true
            }
            None => false,
        }
    }

    /// Whole seconds until there is a token at `rate` tokens per second, at least 1.
    #[must_use]
    pub fn wait(&self, rate: u64) -> u32 {
        let missing = TOKEN.saturating_sub(self.credit);
        let seconds = missing.div_ceil(rate.max(1).saturating_mul(TOKEN)).max(1);
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }

    /// Whole tokens in it.
    #[cfg(test)]
    pub fn tokens(&self) -> u64 {
        self.credit / TOKEN
    }
}
