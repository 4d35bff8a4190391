//! By a hash of the client's address: highest random weight (Thaler and Ravishankar, 1998, with the
//! weights of Schindelhauer and Schomaker, 2005).
//!
//! Each target gets a number drawn by the hash of client and target, and the highest takes the
//! request. So when a target goes, only its own clients move, spread over the others by weight, and
//! when it comes back, they return; no table has to be built or agreed on. It costs a hash and a
//! logarithm for each target: 50 targets take about a microsecond.

use std::hash::Hasher;
use std::net::IpAddr;

use super::Candidate;
use crate::policy::hash::{mix, Fnv};

/// See the module text.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    targets: Vec<Target>,
}

#[derive(Clone, Copy, Debug)]
struct Target {
    hash: u64,
    weight: f64,
}

impl Rendezvous {
    /// Over these targets. The same names give the same choices in every process, in any order.
    #[must_use]
    pub fn new<'a>(targets: impl Iterator<Item = Candidate<'a>>) -> Self {
        let target = |candidate: Candidate<'a>| Target {
            hash: hash(candidate.name.as_bytes()),
            weight: f64::from(candidate.weight.max(1)),
        };
        Rendezvous {
            targets: targets.map(target).collect(),
        }
    }

    /// The target of a client among those for which `usable` holds; `None` if there is none.
    #[must_use]
    pub fn choose(&self, client: IpAddr, usable: impl Fn(usize) -> bool) -> Option<usize> {
        let client = match client.to_canonical() {
            IpAddr::V4(address) => hash(&address.octets()),
            IpAddr::V6(address) => hash(&address.octets()),
        };
        let scores = self.targets.iter().enumerate().filter(|(i, _)| usable(*i));
        let scores = scores.map(|(i, target)| (i, target.score(client)));
        scores.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
    }
}

impl Target {
    /// Its number for a client: -weight / ln(u), with u drawn evenly from between 0 and 1.
    fn score(self, client: u64) -> f64 {
        let drawn = mix(client ^ self.hash) >> 11;
        // 53 bits, and half a step so that neither end is met.
        let even = (drawn as f64 + 0.5) / (1u64 << 53) as f64;
        -self.weight / even.ln()
    }
}

/// Mixed: neighbouring addresses must not have neighbouring hashes.
fn hash(bytes: &[u8]) -> u64 {
    let mut hash = Fnv::default();
    hash.write(bytes);
    mix(hash.finish())
}
