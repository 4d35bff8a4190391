//! When refusals are worth a text.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use toron_reactor::Time;

/// Refused connections of one second that are told why; the rest are reset. At this rate a text
/// each would cost more than the connections that are served.
pub const POLITE_PER_SECOND: u32 = 1000;

/// Refused connections that may be open at once, for the client to read why.
pub const POLITE_AT_ONCE: u32 = 1000;

/// Counts refusals, by the second and those that are open, over all reactors.
#[derive(Debug, Default)]
pub struct Flood {
    open: AtomicU32,
    /// The second (upper half) and the refusals in it (lower half).
    seconds: AtomicU64,
}

/// A refused connection that is told why, until this is dropped.
#[derive(Debug)]
pub struct Told(Arc<Flood>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Flood {
    /// Counts a refusal at `now`. `None`: it is to be a plain reset, as there are too many.
    pub fn tell(self: &Arc<Self>, now: Time) -> Option<Told> {
        let count = |open: u32| (open < POLITE_AT_ONCE).then(|| open + 1);
        let polite = self.is_among_first(now)
            && self
                .open
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count)
                .is_ok();
        polite.then(|| Told(Arc::clone(self)))
    }

    fn is_among_first(&self, now: Time) -> bool {
        let second = (now.0 / 1_000_000_000) & u64::from(u32::MAX);
        let next = |seen: u64| {
            // Another reactor's turn may be a second ahead.
            Some(if seen >> 32 >= second {
                seen & !u64::from(u32::MAX) | u64::from((seen as u32).saturating_add(1))
            } else {
                second << 32 | 1
            })
        };
        let seen = self
            .seconds
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .unwrap_or_default();
        next(seen).is_some_and(|now| now as u32 <= POLITE_PER_SECOND)
    }
}
