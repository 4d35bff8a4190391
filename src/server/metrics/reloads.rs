//! How reloads of the configuration ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Written by whoever reloads, read by `/metrics`.
#[derive(Debug)]
pub struct Reloads {
    started_at: f64,
    applied: AtomicU64,
    rejected: AtomicU64,
    last_was_applied: AtomicBool,
    /// Unix time in milliseconds.
    applied_at: AtomicU64,
}

impl Default for Reloads {
    /// The process starts now, with a configuration that is good.
    fn default() -> Self {
        Reloads {
            started_at: seconds(now()),
            applied: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            last_was_applied: AtomicBool::new(true),
            applied_at: AtomicU64::new(now()),
        }
    }
}

/// Unix time in milliseconds.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

impl Reloads {
    /// A new configuration is in force.
    pub fn count_applied(&self) {
        self.applied.fetch_add(1, Ordering::Relaxed);
        self.applied_at.store(now(), Ordering::Relaxed);
        self.last_was_applied.store(true, Ordering::Relaxed);
    }

    /// A new configuration was not good, and changed nothing.
    pub fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        self.last_was_applied.store(false, Ordering::Relaxed);
    }

    /// Reloads that changed the configuration.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }

    /// Reloads that changed nothing because of a fault.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Whether the last reload, if any, was applied.
    #[must_use]
    pub fn last_was_applied(&self) -> bool {
        self.last_was_applied.load(Ordering::Relaxed)
    }

    /// When the configuration in force was loaded, in seconds of Unix time.
    #[must_use]
    pub fn applied_at(&self) -> f64 {
        seconds(self.applied_at.load(Ordering::Relaxed))
    }

    /// When the process was started, in seconds of Unix time.
    #[must_use]
    pub fn started_at(&self) -> f64 {
        self.started_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reload_tells_whether_the_configuration_is_the_newest() {
        let reloads = Reloads::default();
        assert!(reloads.last_was_applied() && reloads.started_at() > 1e9);
        reloads.count_rejected();
        assert!(!reloads.last_was_applied());
        reloads.count_applied();
        assert!(reloads.last_was_applied());
        assert_eq!((reloads.applied(), reloads.rejected()), (1, 1));
        assert!(reloads.applied_at() >= reloads.started_at());
    }
}
