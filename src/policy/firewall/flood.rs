//! When refusals are worth a text.

use std::sync::atomic::{AtomicU64, Ordering};

use toron_reactor::Time;

/// Refused connections of one second that are told why; the rest are reset. At this rate a text
/// each would cost more than the connections that are served.
pub const POLITE_PER_SECOND: u32 = 1000;

/// Counts refusals by the second, over all reactors.
#[derive(Debug, Default)]
pub struct Flood {
    /// The second (upper half) and the refusals in it (lower half).
    seconds: AtomicU64,
}

impl Flood {
    /// Counts a refusal at `now`; whether it is among the first of its second.
    pub fn is_polite(&self, now: Time) -> bool {
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
