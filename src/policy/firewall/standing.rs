//! What is known of one address, and the rules about it (F1 to F3). A value: no table, no clock.

use std::time::Duration;

use toron_reactor::Time;

use super::bucket::Bucket;
use super::decision::Cause;
use super::meter::Meter;
use super::rules::{Mode, Rules};
use crate::http::Reason;

/// Strikes are counted up to here (F2): 2^15 times the base is beyond any `max_block_duration`.
pub const MOST_STRIKES: u8 = 16;

/// Who or what blocked an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockedFor {
    /// Requests beyond the rate.
    Rate,
    /// Connections that had to be cut for slowness.
    Slowness,
    /// An operator did it by hand.
    Hand,
}

impl BlockedFor {
    /// The name in logs and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BlockedFor::Rate => "rate",
            BlockedFor::Slowness => "slowness",
            BlockedFor::Hand => "manual",
        }
    }
}

/// A block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// When it began.
    pub since: Time,
    /// When it ends.
    pub until: Time,
    /// Why.
    pub reason: BlockedFor,
}

impl Block {
    fn cause(&self, now: Time) -> Cause {
        Cause {
            reason: Reason::Blocked,
            limit: self.until.since(self.since).as_secs(),
            observed: now.since(self.since).as_secs(),
            retry_after: Some(seconds_up(self.until.since(now))),
        }
    }
}

/// Seconds, a begun one counting as whole.
fn seconds_up(duration: Duration) -> u32 {
    let whole = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    u32::try_from(whole).unwrap_or(u32::MAX)
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    mode: Mode,
    strikes: u8,
    violations: u32,
    bucket: Bucket,
    meter: Meter,
    /// Means something where there are strikes.
    last_auto_block: Time,
    block: Option<Block>,
}

impl Standing {
    /// Of an address of which nothing is known yet.
    #[must_use]
    pub fn new(rules: &Rules, now: Time) -> Self {
        Standing {
            mode: rules.mode,
            strikes: 0,
            violations: 0,
            bucket: Bucket::full(rules.rate_limit_burst, now),
            meter: Meter::new(now),
            last_auto_block: now,
            block: None,
        }
    }

    /// Forgets what was learned in the other mode.
    pub fn turn_to(&mut self, rules: &Rules, now: Time) {
        if self.mode != rules.mode {
            *self = Standing::new(rules, now);
        }
    }

    /// The mode in which this was learned.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The block in force.
    #[must_use]
    pub fn block(&self, now: Time) -> Option<&Block> {
        self.block.as_ref().filter(|block| now < block.until)
    }

    /// Why a connection or request is refused on account of a block. That is no violation: who
    /// shares the address does not prolong the block by asking.
    #[must_use]
    pub fn blocked(&self, now: Time) -> Option<Cause> {
        self.block(now).map(|block| block.cause(now))
    }

    /// Violations that are not yet made up for.
    #[cfg(test)]
    pub fn violations(&self) -> u32 {
        self.violations
    }

    /// Automatic blocks that are not forgotten.
    #[must_use]
    pub fn strikes(&self, rules: &Rules, now: Time) -> u8 {
        if now.since(self.last_auto_block) >= rules.strike_decay {
            0
        } else {
            self.strikes
        }
    }

    /// A request: takes a token, or says why it is refused. `may_block` is false for a trusted
    /// proxy, whose address stands for many clients.
    pub fn request(&mut self, rules: &Rules, may_block: bool, now: Time) -> Option<Cause> {
        if may_block {
            if let Some(cause) = self.blocked(now) {
                return Some(cause);
            }
        }
        if rules.rate_limit_rps == 0 {
            self.violations = self.violations.saturating_sub(1);
            return None;
        }
        let rate = self.refill(rules, now);
        let admitted = self.bucket.take();
        self.meter.count(admitted);
        if admitted {
            self.violations = self.violations.saturating_sub(1);
            return None;
        }
        let blocked = may_block.then(|| self.violate(rules, BlockedFor::Rate, now));
        blocked.flatten().or_else(|| {
            Some(Cause {
                reason: Reason::RateLimit,
                limit: rate,
                observed: self.meter.arrivals(),
                retry_after: Some(self.bucket.wait(rate)),
            })
        })
    }

    /// Brings bucket and meter up to `now`; returns the rate in force. What was gained before the
    /// present window began is gained at the rate of that time.
    fn refill(&mut self, rules: &Rules, now: Time) -> u64 {
        let (rps, burst) = (rules.rate_limit_rps, rules.rate_limit_burst);
        let rate = |meter: &Meter| match rules.adaptive_rate_limit {
            true => meter.effective_rps(rps),
            false => u64::from(rps),
        };
        let end = self.meter.window_end();
        if now >= end {
            self.bucket.refill(rate(&self.meter), burst, end);
            self.meter.advance(rules.ewma_alpha_pct, now);
        }
        let rate = rate(&self.meter);
        self.bucket.refill(rate, burst, now);
        rate
    }

    /// Something that must not become a habit. Returns the cause if this one led to a block.
    pub fn violate(&mut self, rules: &Rules, reason: BlockedFor, now: Time) -> Option<Cause> {
        if self.block(now).is_some() {
            return None;
        }
        self.violations = self.violations.saturating_add(1);
        let threshold = rules.auto_block_threshold;
        if threshold == 0 || self.violations < threshold {
            return None;
        }
        let observed = u64::from(self.violations);
        self.violations = 0;
        let strikes = self.strikes(rules, now).saturating_add(1).min(MOST_STRIKES);
        let length = block_length(rules, strikes);
        if length.is_zero() {
            return None;
        }
        self.strikes = strikes;
        self.last_auto_block = now;
        self.put_under_block(reason, length, now);
        Some(Cause {
            reason: Reason::AutoBlocked,
            limit: u64::from(threshold),
            observed,
            retry_after: Some(seconds_up(length)),
        })
    }

    /// Blocks for `length` from now, whatever holds already.
    pub fn put_under_block(&mut self, reason: BlockedFor, length: Duration, now: Time) {
        self.block = Some(Block {
            since: now,
            until: now + length,
            reason,
        });
    }

    /// Ends the block. Strikes stay, as they do when a block ends by itself.
    pub fn lift_block(&mut self) {
        self.block = None;
    }
}

/// Length of the block that comes with this many strikes (F2).
#[must_use]
pub fn block_length(rules: &Rules, strikes: u8) -> Duration {
    let base = rules.block_duration;
    let factor = rules.block_escalation_factor.max(1);
    let mut length = base;
    for _ in 1..strikes.min(MOST_STRIKES) {
        length = length.saturating_mul(factor);
    }
    length.min(rules.max_block_duration).max(base)
}
