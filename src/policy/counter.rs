//! Numbers that one thread writes and all may read: no lock, and no locked instruction either.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only goes up. One thread adds; nothing else is published by way of it, so that its
/// loads and stores need no ordering.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds. Only the thread that owns the counter may: what two add at the same time is lost.
    #[inline]
    pub fn add(&self, n: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(n);
        self.0.store(sum, Ordering::Relaxed);
    }

    /// What has been added so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The buckets of a histogram: the largest value of each but the last, which takes the rest.
#[derive(Debug)]
pub struct Buckets<const N: usize> {
    /// Rising, in the unit of the values.
    pub bounds: [u64; N],
    /// How many units make a second.
    pub per_second: u64,
}

/// How often values fell into each of some [`Buckets`], and their sum.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    counts: [Counter; N],
    beyond: Counter,
    sum: Counter,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Histogram {
            counts: std::array::from_fn(|_| Counter::default()),
            beyond: Counter::default(),
            sum: Counter::default(),
        }
    }
}

impl<const N: usize> Histogram<N> {
    /// Counts a value. Only the thread that owns the histogram may.
    #[inline]
    pub fn record(&self, buckets: &Buckets<N>, value: u64) {
        // Most values are small: from the front, the bucket is found sooner than by halving.
        let found = buckets.bounds.iter().zip(&self.counts);
        let found = found.into_iter().find(|(&bound, _)| value <= bound);
        found.map_or(&self.beyond, |(_, count)| count).add(1);
        self.sum.add(value);
    }
}

/// What several [`Histogram`]s hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distribution<const N: usize> {
    /// Values in each bucket, not cumulative.
    pub counts: [u64; N],
    /// Values beyond the last bound.
    pub beyond: u64,
    /// Sum of all values, in their unit.
    pub sum: u64,
}

impl<const N: usize> Default for Distribution<N> {
    fn default() -> Self {
        Distribution {
            counts: [0; N],
            beyond: 0,
            sum: 0,
        }
    }
}

impl<const N: usize> Distribution<N> {
    /// Adds what a histogram holds.
    pub fn add(&mut self, histogram: &Histogram<N>) {
        for (sum, count) in self.counts.iter_mut().zip(&histogram.counts) {
            *sum += count.get();
        }
        self.beyond += histogram.beyond.get();
        self.sum = self.sum.wrapping_add(histogram.sum.get());
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENS: Buckets<3> = Buckets {
        bounds: [10, 20, 30],
        per_second: 1,
    };

    #[test]
    fn a_value_falls_into_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::default();
        for value in [0, 10, 11, 20, 30, 31, 1_000] {
            histogram.record(&TENS, value);
        }
        let mut sum = Distribution::default();
        sum.add(&histogram);
        assert_eq!((sum.counts, sum.beyond), ([2, 2, 1], 2));
        assert_eq!((sum.count(), sum.sum), (7, 1_102));
        sum.add(&histogram);
        assert_eq!((sum.count(), sum.sum), (14, 2_204));
    }

    #[test]
    fn others_read_what_one_thread_adds() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..10_000).for_each(|_| counter.add(3)));
            let mut last = 0;
            while !writer.is_finished() {
                let now = counter.get();
                assert!(now >= last && now % 3 == 0);
                last = now;
            }
        });
        assert_eq!(counter.get(), 30_000);
    }
}
