//! What is known of a container, whichever engine runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How a container does by its own health check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// It has no check.
    Unchecked,
    /// Not known yet.
    Starting,
    /// Well.
    Healthy,
    /// Not well.
    Unhealthy,
}

/// Addresses on one network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Addresses {
    /// IPv4, if there is one.
    pub v4: Option<Ipv4Addr>,
    /// IPv6, if there is one.
    pub v6: Option<Ipv6Addr>,
}

impl Addresses {
    /// The one to use: IPv6 where there is no IPv4 (D7).
    #[must_use]
    pub fn first(self) -> Option<IpAddr> {
        self.v4.map(IpAddr::V4).or(self.v6.map(IpAddr::V6))
    }
}

/// A TCP port of the container that is also one of the machine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Published {
    /// In the container.
    pub container: u16,
    /// On the machine.
    pub host: u16,
    /// The machine's address that it is bound to; `None` is every one.
    pub address: Option<IpAddr>,
}

/// A container with the label `toron.enable`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Container {
    /// The engine's id, never used again.
    pub id: String,
    /// Its name, without a leading slash.
    pub name: String,
    /// `running`, `exited`, `paused`, …
    pub state: String,
    /// By its own check.
    pub health: Health,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// Addresses by the name of the network.
    pub networks: BTreeMap<String, Addresses>,
    /// Whether it uses the machine's network.
    pub host_network: bool,
    /// TCP ports that its image or its options name.
    pub exposed: BTreeSet<u16>,
    /// TCP ports of the machine that lead to it.
    pub published: BTreeSet<Published>,
    /// Whether the addresses on its networks can be reached from here: those of an engine without
    /// root are in a network namespace of its own.
    pub reachable: bool,
    /// What could not be found out about it, for people.
    pub unknown: Option<String>,
}

impl Container {
    /// Whether requests may go to it (D6); else why not.
    pub fn is_ready(&self) -> Result<(), String> {
        if self.state != "running" {
            return Err(format!("it is not running ({})", self.state));
        }
        match self.health {
            Health::Unchecked | Health::Healthy => Ok(()),
            Health::Starting => Err("its own health check has not passed yet".to_owned()),
            Health::Unhealthy => Err("its own health check fails".to_owned()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A running container on the network `bridge`.
    pub(crate) fn container(name: &str, ip: [u8; 4], labels: &[(&str, &str)]) -> Container {
        let addresses = Addresses {
            v4: Some(Ipv4Addr::from(ip)),
            v6: None,
        };
        let mut all = BTreeMap::from([("toron.enable".to_owned(), "true".to_owned())]);
        all.extend(
            labels
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
        );
        Container {
            id: format!("id-{name}"),
            name: name.to_owned(),
            state: "running".to_owned(),
            health: Health::Unchecked,
            labels: all,
            networks: BTreeMap::from([("bridge".to_owned(), addresses)]),
            host_network: false,
            exposed: BTreeSet::new(),
            published: BTreeSet::new(),
            reachable: true,
            unknown: None,
        }
    }

    #[test]
    fn d6_only_what_runs_and_is_well_is_ready() {
        let mut c = container("a", [10, 0, 0, 1], &[]);
        assert_eq!(c.is_ready(), Ok(()));
        for (health, ready) in [
            (Health::Healthy, true),
            (Health::Starting, false),
            (Health::Unhealthy, false),
        ] {
            c.health = health;
            assert_eq!(c.is_ready().is_ok(), ready, "{health:?}");
        }
        c.health = Health::Unchecked;
        for state in ["paused", "exited", "created", "restarting", ""] {
            c.state = state.to_owned();
            assert!(c.is_ready().is_err(), "{state}");
        }
    }
}
