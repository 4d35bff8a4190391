//! What is to be done: the load on one target, as every thread needs it.

use std::net::SocketAddr;
use std::time::Duration;

use super::mix::Prepared;
use super::profile::{Arrivals, Profile};

/// How requests follow each other.
#[derive(Clone, PartialEq, Debug)]
pub enum Load {
    /// At times that do not depend on answers.
    Open {
        /// Rates over the measured time.
        profile: Profile,
        /// How starts are spread.
        arrivals: Arrivals,
    },
    /// Each after the answer to the one before.
    Closed {
        /// The measured time.
        duration: Duration,
    },
}

impl Load {
    /// The measured time.
    #[must_use]
    pub fn duration(&self) -> Duration {
        match self {
            Load::Open { profile, .. } => profile.length(),
            Load::Closed { duration } => *duration,
        }
    }

    /// `open` or `closed`.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        match self {
            Load::Open { .. } => "open",
            Load::Closed { .. } => "closed",
        }
    }
}

/// The load on one target.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to connect.
    pub addr: SocketAddr,
    /// The requests to choose from, at least one.
    pub requests: Vec<Prepared>,
    /// How requests follow each other.
    pub load: Load,
    /// Connections over all threads.
    pub connections: usize,
    /// Threads, at least 1.
    pub threads: usize,
    /// Requests that may be under way on a connection.
    pub pipeline: usize,
    /// Share of requests after which the connection goes on.
    pub keep_alive: f64,
    /// The load before the measured time.
    pub warmup: Duration,
    /// Requests are given up after this time, connects as well.
    pub timeout: Duration,
    /// What chance follows from.
    pub seed: u64,
    /// Length of the slices in which is reported.
    pub slice: Duration,
}

/// Most slices of a run.
const MOST_SLICES: u32 = 240;

/// The length of slices for a measured time: round, and not too many of them.
#[must_use]
pub fn slice_for(duration: Duration) -> Duration {
    [50, 100, 250, 500, 1_000, 2_000, 5_000, 10_000, 30_000]
        .into_iter()
        .map(Duration::from_millis)
        .find(|slice| *slice * MOST_SLICES >= duration)
        .unwrap_or(duration / MOST_SLICES)
}

impl Plan {
    /// Connections of one thread: as even as can be.
    #[must_use]
    pub fn connections_of(&self, thread: usize) -> usize {
        let threads = self.threads.max(1);
        self.connections / threads + usize::from(thread < self.connections % threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_few_and_round() {
        let ms = Duration::from_millis;
        for (duration, slice) in [(1_000, 50), (12_000, 50), (12_001, 100), (600_000, 5_000)] {
            assert_eq!(slice_for(ms(duration)), ms(slice));
        }
        let day = Duration::from_secs(86_400);
        assert_eq!(slice_for(day) * MOST_SLICES, day);
    }
}
