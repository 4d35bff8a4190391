//! How much collected request bodies may hold in the whole process (`server.buffer_memory`, I37).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Bytes held by collected bodies, over all reactors.
#[derive(Debug, Default)]
pub struct BufferMemory {
    used: AtomicU64,
}

impl BufferMemory {
    /// Nothing is held.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sets `bytes` aside, unless more than `limit` would then be held.
    #[must_use]
    pub fn charge(self: &Arc<Self>, bytes: u64, limit: u64) -> Option<Charge> {
        self.add(bytes, limit).then(|| Charge {
            memory: Arc::clone(self),
            bytes,
        })
    }

    /// Whether `bytes` could be set aside at this moment.
    #[must_use]
    pub fn has_room(&self, bytes: u64, limit: u64) -> bool {
        bytes <= limit.saturating_sub(self.used())
    }

    /// Bytes held now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64, limit: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }
}

/// Bytes set aside, until it is dropped.
#[derive(Debug)]
pub struct Charge {
    memory: Arc<BufferMemory>,
    bytes: u64,
}

impl Charge {
    /// Sets so many bytes aside in all, if that is not fewer than now. `false`, and nothing
    /// changed, if the process would hold more than `limit` then.
    #[must_use]
    pub fn grow_to(&mut self, bytes: u64, limit: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let fits = more == 0 || self.memory.add(more, limit);
        if fits {
            self.bytes += more;
        }
        fits
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn i37_no_more_than_the_limit_is_ever_set_aside_and_all_of_it_comes_back() {
        let memory = BufferMemory::new();
        let a = memory.charge(60, 100).unwrap();
        assert!(memory.charge(41, 100).is_none());
        let mut b = memory.charge(30, 100).unwrap();
        assert!(!b.grow_to(41, 100));
        assert!(b.grow_to(40, 100));
        assert!(b.grow_to(5, 100), "less than it has");
        assert!(memory.has_room(0, 100) && !memory.has_room(1, 100));
        assert_eq!(memory.used(), 100);
        drop(a);
        assert_eq!(memory.used(), 40);
        drop(b);
        assert_eq!(memory.used(), 0);
        assert!(memory.charge(u64::MAX, u64::MAX).is_some());
    }

    #[test]
    fn i37_many_threads_do_not_go_beyond_the_limit() {
        let memory = BufferMemory::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let charge = memory.charge(40, 100);
                        assert!(memory.used() <= 100);
                        drop(charge);
                    }
                });
            }
        });
        assert_eq!(memory.used(), 0);
    }
}
