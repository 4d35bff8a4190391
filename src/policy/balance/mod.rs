//! Which target takes a request (R18). State of one reactor and one route; what reactors share about
//! a target (its requests in flight, its health) is asked for by way of closures.
//!
//! | algorithm | file |
//! | --- | --- |
//! | `round_robin` | [`round_robin`] |
//! | `least_conn` | here: the least loaded, round robin among equals |
//! | `random_two` | [`random_two`] |
//! | `ip_hash` | [`rendezvous`] |

pub mod random_two;
pub mod rendezvous;
pub mod round_robin;

use std::net::IpAddr;

use self::random_two::RandomTwo;
use self::rendezvous::Rendezvous;
use self::round_robin::RoundRobin;
use super::settings::Algorithm;

/// Chooses among the targets of a route for one reactor.
#[derive(Clone, Debug)]
pub struct Balancer {
    weights: Vec<u32>,
    method: Method,
}

#[derive(Clone, Debug)]
enum Method {
    RoundRobin(RoundRobin),
    LeastConn(RoundRobin),
    RandomTwo(RandomTwo),
    IpHash(Rendezvous),
}

/// A target, as far as balancing knows it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its share compared with the others (0 counts as 1).
    pub weight: u32,
    /// What tells it from others, the same in every process: clients stay with it by this name.
    pub name: &'a str,
}

impl Balancer {
    /// For the reactor of this index. `seed` is for what is drawn by lot.
    #[must_use]
    pub fn new<'a>(
        algorithm: Algorithm,
        reactor: usize,
        seed: u64,
        targets: impl Iterator<Item = Candidate<'a>> + Clone,
    ) -> Self {
        let weights: Vec<u32> = targets.clone().map(|t| t.weight.max(1)).collect();
        let in_turn = || RoundRobin::new(reactor, weights.iter().copied());
        let method = match algorithm {
            Algorithm::RoundRobin => Method::RoundRobin(in_turn()),
            Algorithm::LeastConn => Method::LeastConn(in_turn()),
            Algorithm::RandomTwo => Method::RandomTwo(RandomTwo::new(seed, &weights)),
            Algorithm::IpHash => Method::IpHash(Rendezvous::new(targets)),
        };
        Balancer { weights, method }
    }

    /// The target for a request of `client`, among those for which `usable` holds; `None` if there
    /// is none. `load` tells how many requests a target has in flight.
    pub fn choose(
        &mut self,
        client: IpAddr,
        usable: impl Fn(usize) -> bool,
        load: impl Fn(usize) -> u32,
    ) -> Option<usize> {
        let weights = &self.weights;
        let share = |i: usize| Load {
            in_flight: load(i),
            weight: weights.get(i).copied().unwrap_or(1),
        };
        match &mut self.method {
            Method::RoundRobin(turns) => turns.next(usable),
            Method::LeastConn(turns) => least_loaded(turns, weights.len(), usable, share),
            Method::RandomTwo(lots) => lots.choose(usable, share),
            Method::IpHash(hash) => hash.choose(client, usable),
        }
    }
}

/// Requests in flight compared with the weight.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    in_flight: u32,
    weight: u32,
}

impl Load {
    /// Whether this is less than `other`.
    fn is_below(self, other: Load) -> bool {
        u64::from(self.in_flight) * u64::from(other.weight)
            < u64::from(other.in_flight) * u64::from(self.weight)
    }
}

fn least_loaded(
    turns: &mut RoundRobin,
    targets: usize,
    usable: impl Fn(usize) -> bool,
    load: impl Fn(usize) -> Load,
) -> Option<usize> {
    let least = |least: Option<(usize, Load)>, i: usize| {
        let own = load(i);
        match least {
            Some((_, other)) if !own.is_below(other) => least,
            _ => Some((i, own)),
        }
    };
    let (first, least) = (0..targets).filter(|&i| usable(i)).fold(None, least)?;
    // The loads go on changing while they are looked at: then there may be none like it any more.
    let equal = |i: usize| usable(i) && !least.is_below(load(i));
    Some(turns.next(equal).unwrap_or(first))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
