//! The targets of a route: what reactors share of them (R19, R20), and how one is taken.
//!
//! ```text
//!   Snapshot ── one per route ──▶ Pool ── one per target ──▶ TargetState (atomics)
//!   reactor  ── Balancers: whose turn it is ──▶ Pool::take ──▶ Lease, given back by dropping it
//!   Pools: what is known of the targets of all routes, kept over changes of the configuration
//! ```
//!
//! State belongs to a route and a target: two routes to the same server each have their own.

mod balancers;
mod known;
mod target;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use toron_reactor::Time;

pub use self::balancers::Balancers;
pub use self::known::Pools;
pub use self::target::{Change, Lease, Standing, TargetState};
use super::balance::Balancer;
use super::settings::{Health, Upstream};

/// The targets of one route, in the order of its configuration. The same value as long as neither
/// they nor their weights nor the algorithm change.
#[derive(Debug)]
pub struct Pool {
    id: u64,
    targets: Vec<Arc<TargetState>>,
    /// Held while failures of requests take a target out: of two that fail at the same time one must
    /// see that it is the last. Shared by all pools that the route has had.
    going: Arc<Mutex<()>>,
}

/// Who asks for a target, and when.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The client's address, as resolved (F4).
    pub client: IpAddr,
    /// The present time.
    pub now: Time,
    /// Targets that have been tried for the request.
    pub tried: &'a Tried,
}

/// Why there is no target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unavailable {
    /// Those that are up are at their cap.
    Full,
    /// None is up.
    Unhealthy,
}

/// Targets that have been tried for a request, by their index.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    list: [u32; Tried::MOST],
    len: u8,
}

impl Tried {
    /// More are not tried for one request; `retries` allows 10 besides the first.
    pub const MOST: usize = 11;

    /// No target has been tried.
    #[must_use]
    pub fn none() -> Self {
        Tried::default()
    }

    /// Notes a target. `false` if there is no room for more: then the request has had its tries.
    #[must_use]
    pub fn add(&mut self, target: usize) -> bool {
        let Ok(target) = u32::try_from(target) else {
            return false;
        };
        match self.list.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = target;
                self.len += 1;
                true
            }
            None => false,
        }
    }

    fn contains(&self, target: usize) -> bool {
        let tried = self.list.get(..usize::from(self.len)).unwrap_or_default();
        tried.iter().any(|&t| t as usize == target)
    }
}

/// How often a target that was lost to another request is replaced by the balancer's next choice.
const CHOICES: usize = 4;

impl Pool {
    /// Unique in the process, and never used again.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The targets, in the order of the route's configuration.
    #[must_use]
    pub fn targets(&self) -> &[Arc<TargetState>] {
        &self.targets
    }

    /// A target for a request: the balancer's choice among those that are up, below their cap, and
    /// not tried.
    ///
    /// # Errors
    /// If there is none, why.
    pub fn take(
        &self,
        balancer: &mut Balancer,
        upstream: &Upstream,
        call: &Call<'_>,
    ) -> Result<(usize, Lease), Unavailable> {
        let anyway = self.tries_anyway(upstream, call.now);
        let usable = |i: usize| self.is_usable(i, upstream, call, anyway);
        let load = |i: usize| self.targets.get(i).map_or(u32::MAX, |t| t.in_flight());
        for _ in 0..CHOICES {
            let Some(chosen) = balancer.choose(call.client, usable, load) else {
                break;
            };
            if let Some(lease) = self.lease(chosen, upstream, call.now, anyway) {
                return Ok((chosen, lease));
            }
        }
        // What the balancer chose was lost to others each time: any is good enough now.
        let found = (0..self.targets.len()).filter(|&i| usable(i));
        let mut found = found.filter_map(|i| Some((i, self.lease(i, upstream, call.now, anyway)?)));
        found.next().ok_or_else(|| self.why(upstream, call.now))
    }

    /// Whether a request that came now would find a target.
    ///
    /// # Errors
    /// If not, why.
    pub fn check(&self, upstream: &Upstream, call: &Call<'_>) -> Result<(), Unavailable> {
        let anyway = self.tries_anyway(upstream, call.now);
        let any = (0..self.targets.len()).any(|i| self.is_usable(i, upstream, call, anyway));
        any.then_some(())
            .ok_or_else(|| self.why(upstream, call.now))
    }

    /// The target with this index has failed a request: not its connection was bad, but the target
    /// itself, as far as one can tell (R20). Without a lease on one that is up nothing is counted.
    ///
    /// The last target that is up is not taken out for it: requests to it fail, but those that
    /// would not are not refused.
    pub fn failed(
        &self,
        target: usize,
        lease: &mut Lease,
        health: &Health,
        now: Time,
    ) -> Option<Change> {
        let (told, change) = lease.stays_out(now, health);
        if told {
            // The others may have been removed from the configuration meanwhile.
            self.revive(health);
            return change;
        }
        let state = lease.state();
        if !state.count_failure(health) {
            return None;
        }
        let _going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        let mut others = self.targets.iter().enumerate();
        let is_last = !others.any(|(i, t)| i != target && t.standing() == Standing::Up);
        if is_last {
            return None;
        }
        state.take_out(now, health)
    }

    /// Where failures of requests have taken out all targets that are left, they are up again: such
    /// failures never leave a route without any (R20).
    fn revive(&self, health: &Health) {
        if health.is_probed() || self.targets.iter().any(|t| t.standing() == Standing::Up) {
            return;
        }
        for target in &self.targets {
            target.revive();
        }
    }

    fn is_usable(&self, i: usize, upstream: &Upstream, call: &Call<'_>, anyway: bool) -> bool {
        self.targets.get(i).is_some_and(|target| {
            target.has_room(upstream.target_max_concurrency)
                && (anyway || target.is_available(call.now, &upstream.health))
                && !call.tried.contains(i)
        })
    }

    fn lease(&self, i: usize, upstream: &Upstream, now: Time, anyway: bool) -> Option<Lease> {
        self.targets.get(i)?.acquire(now, upstream, anyway)
    }

    /// All are out, and the route says to try.
    fn tries_anyway(&self, upstream: &Upstream, now: Time) -> bool {
        upstream.health.try_when_all_down && !self.any_available(upstream, now)
    }

    fn any_available(&self, upstream: &Upstream, now: Time) -> bool {
        let health = &upstream.health;
        self.targets.iter().any(|t| t.is_available(now, health))
    }

    fn why(&self, upstream: &Upstream, now: Time) -> Unavailable {
        if upstream.health.try_when_all_down || self.any_available(upstream, now) {
            Unavailable::Full
        } else {
            Unavailable::Unhealthy
        }
    }
}

#[cfg(test)]
mod tests;
