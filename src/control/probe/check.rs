//! What is to be probed, and how.

use std::sync::Arc;
use std::time::Duration;

use toron_reactor::Time;

use crate::policy::pool::{Change, TargetState};
use crate::policy::settings::{Endpoint, Health, Route, Target};
use crate::policy::snapshot::Snapshot;
use crate::server::target::tell_change;

/// A target of a route, with the probe of the route.
#[derive(Clone, Debug)]
pub struct Check {
    route: Arc<Route>,
    target: Arc<Target>,
    state: Arc<TargetState>,
}

/// What a probe found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// A 2xx.
    Healthy,
    /// Why it is not healthy.
    Unhealthy(String),
    /// Nothing, for want of something on this machine.
    Unknown,
}

/// All targets that are to be probed.
#[must_use]
pub fn checks_of(snapshot: &Snapshot) -> Vec<Check> {
    let checks = snapshot.targets().map(|(route, target, state)| Check {
        route: Arc::clone(route),
        target: Arc::clone(target),
        state: Arc::clone(state),
    });
    checks
        .filter(|check| check.health().is_some_and(Health::is_probed))
        .collect()
}

impl Check {
    fn health(&self) -> Option<&Health> {
        self.route.upstream().map(|upstream| &upstream.health)
    }

    /// What tells it from others.
    pub(super) fn key(&self) -> usize {
        Arc::as_ptr(&self.state) as usize
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.target.endpoint
    }

    pub(super) fn interval(&self) -> Duration {
        self.health().map_or(Duration::MAX, |h| h.check_interval)
    }

    pub(super) fn timeout(&self) -> Duration {
        let timeout = self.health().map(|health| health.check_timeout);
        // Zero is no limit of its own: the next probe is.
        timeout
            .filter(|timeout| !timeout.is_zero())
            .unwrap_or_else(|| self.interval())
    }

    /// What is asked for.
    fn path(&self) -> &str {
        let path = self
            .health()
            .and_then(|health| health.check_path.as_deref());
        path.unwrap_or("/")
    }

    /// The bytes to send.
    pub(super) fn request(&self) -> String {
        let path = self.path();
        let host = &self.target.authority;
        format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: toron/health\r\nAccept: */*\r\n\
             Connection: close\r\n\r\n"
        )
    }

    /// Takes note of what a probe found.
    pub(super) fn settle(&self, now: Time, finding: &Finding) {
        let Some(health) = self.health() else { return };
        let (route, url) = (&self.route.name, self.target.url());
        let path = self.path();
        let change = match finding {
            Finding::Healthy => self.state.probe_succeeded(),
            Finding::Unhealthy(why) => {
                log::debug!("route {route}: target {url} is not healthy: GET {path}: {why}");
                let change = self.state.probe_failed(now, health);
                if let Some(Change::Out(_)) = change {
                    log::warn!("route {route}: the last probe of target {url}, GET {path}: {why}");
                }
                change
            }
            Finding::Unknown => None,
        };
        if let Some(change) = change {
            tell_change(change, route, &url, health);
        }
    }
}
