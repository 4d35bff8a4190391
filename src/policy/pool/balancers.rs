//! Whose turn it is, for each route that a reactor serves.

use super::Pool;
use crate::policy::balance::{Balancer, Candidate};
use crate::policy::map::Map;
use crate::policy::settings::Upstream;

/// The balancers of one reactor, made when a route gets its first request there. One goes on as long
/// as its pool does: a change elsewhere in the configuration does not make the turns begin anew.
#[derive(Debug)]
pub struct Balancers {
    reactor: usize,
    random: fastrand::Rng,
    by_pool: Map<u64, Balancer>,
}

impl Balancers {
    /// For the reactor of this index. `seed` is for what is drawn by lot.
    #[must_use]
    pub fn new(reactor: usize, seed: u64) -> Self {
        Balancers {
            reactor,
            random: fastrand::Rng::with_seed(seed),
            by_pool: Map::default(),
        }
    }

    /// Forgets those whose pool does not hold any more.
    pub fn retain(&mut self, holds: impl Fn(u64) -> bool) {
        self.by_pool.retain(|&pool, _| holds(pool));
    }

    /// The balancer of a pool, which is that of `upstream`.
    pub fn of(&mut self, pool: &Pool, upstream: &Upstream) -> &mut Balancer {
        let (reactor, random) = (self.reactor, &mut self.random);
        self.by_pool.entry(pool.id).or_insert_with(|| {
            let names: Vec<String> = upstream.targets.iter().map(|t| t.url()).collect();
            let candidates = names.iter().zip(&upstream.targets);
            let candidates = candidates.map(|(name, target)| Candidate {
                weight: target.weight,
                name,
            });
            Balancer::new(upstream.algorithm, reactor, random.u64(..), candidates)
        })
    }
}
