//! One look at all containers: the list, and what it leaves out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::time::{Duration, Instant};

use super::api::{self, Inspected, Listed, Network, NetworkSettings};
use super::connection::Connection;
use super::container::{Addresses, Container, Health, Published};

/// Limit on a question about one container.
const ONE: Duration = Duration::from_secs(5);

/// What never changes in the life of a container.
#[derive(Clone, Debug, Default)]
struct Fixed {
    exposed: BTreeSet<u16>,
    network_mode: Option<String>,
    /// It has a check of its own, whose outcome the list may not tell.
    checked: bool,
}

/// Looks at containers, and remembers what it need not ask for again.
#[derive(Debug, Default)]
pub struct Looker {
    fixed: HashMap<String, Fixed>,
}

impl Looker {
    /// All containers with `toron.enable`, by their ids. `rootless`: their networks are not the
    /// machine's. An error means that nothing is known.
    pub fn look(
        &mut self,
        connection: &mut Connection,
        rootless: bool,
        deadline: Instant,
    ) -> io::Result<Vec<Container>> {
        let listed = api::list(connection, deadline)?;
        let mut containers = BTreeMap::new();
        for entry in listed {
            let id = entry.id.clone();
            if let Some(container) = self.complete(connection, entry, rootless)? {
                containers.insert(id, container);
            }
        }
        self.fixed.retain(|id, _| containers.contains_key(id));
        Ok(containers.into_values().collect())
    }

    /// `None` when it has gone meanwhile.
    fn complete(
        &mut self,
        connection: &mut Connection,
        entry: Listed,
        rootless: bool,
    ) -> io::Result<Option<Container>> {
        let mut container = listed(entry);
        container.container.reachable = !rootless;
        if container.container.state != "running" {
            return Ok(Some(container.container));
        }
        let mut inspected = None;
        if container.needs_fixed() && !self.fixed.contains_key(&container.container.id) {
            match ask(connection, &mut container.container)? {
                Asked::Gone => return Ok(None),
                Asked::Unknown => {}
                Asked::Told(told) => {
                    let fixed = fixed(&told);
                    self.fixed.insert(container.container.id.clone(), fixed);
                    inspected = Some(told);
                }
            }
        }
        let fixed = self.fixed.get(&container.container.id);
        let checked = fixed.is_some_and(|fixed| fixed.checked);
        container.add(fixed);
        if checked && container.container.health == Health::Unchecked && inspected.is_none() {
            match ask(connection, &mut container.container)? {
                Asked::Gone => return Ok(None),
                Asked::Unknown => {}
                Asked::Told(told) => inspected = Some(told),
            }
        }
        if let Some(told) = &inspected {
            container.refine(told);
        }
        if !container.share_network(connection)? {
            return Ok(None);
        }
        Ok(Some(container.container))
    }
}

/// What came of a question about one container.
enum Asked {
    Told(Box<Inspected>),
    Gone,
    /// An answer that says nothing; noted with the container.
    Unknown,
}

fn ask(connection: &mut Connection, container: &mut Container) -> io::Result<Asked> {
    let told = api::inspect(connection, &container.id, Instant::now() + ONE)?;
    Ok(match told {
        Ok(Some(told)) => Asked::Told(Box::new(told)),
        Ok(None) => Asked::Gone,
        Err(problem) => {
            container.unknown = Some(problem);
            Asked::Unknown
        }
    })
}

/// A container as far as it is known.
struct Partial {
    container: Container,
    network_mode: Option<String>,
}

fn listed(entry: Listed) -> Partial {
    let ports: Vec<_> = entry.ports.unwrap_or_default();
    let tcp = || ports.iter().filter_map(|port| Some((port, port.tcp()?)));
    let published = tcp().filter_map(|(port, (private, public))| {
        Some(Published {
            container: private,
            host: public?,
            address: port.address(),
        })
    });
    // Those of links name another container in front of the last slash.
    let names = entry.names.unwrap_or_default();
    let name = names
        .iter()
        .map(|name| name.trim_start_matches('/'))
        .filter(|name| !name.is_empty())
        .min_by_key(|name| (name.matches('/').count(), *name));
    let status = entry.status.unwrap_or_default();
    let container = Container {
        name: name.unwrap_or(&entry.id).to_owned(),
        state: entry.state.unwrap_or_default().to_ascii_lowercase(),
        health: health_in(&status),
        labels: entry.labels.unwrap_or_default(),
        networks: networks(entry.network_settings.as_ref()),
        host_network: false,
        exposed: tcp().map(|(_, (private, _))| private).collect(),
        published: published.collect(),
        reachable: true,
        unknown: None,
        id: entry.id,
    };
    Partial {
        container,
        network_mode: entry.host_config.and_then(|config| config.network_mode),
    }
}

/// `Up 5 minutes (healthy)`
fn health_in(status: &str) -> Health {
    match status {
        s if s.contains("(healthy)") => Health::Healthy,
        s if s.contains("(unhealthy)") => Health::Unhealthy,
        s if s.contains("(health: starting)") || s.contains("(starting)") => Health::Starting,
        _ => Health::Unchecked,
    }
}

fn networks(settings: Option<&NetworkSettings>) -> BTreeMap<String, Addresses> {
    let all = settings.and_then(|settings| settings.networks.as_ref());
    let addresses = |network: &Option<Network>| match network {
        Some(network) => Addresses {
            v4: Network::address(network.v4.as_ref()),
            v6: Network::address(network.v6.as_ref()),
        },
        None => Addresses::default(),
    };
    all.into_iter()
        .flatten()
        .map(|(name, network)| (name.clone(), addresses(network)))
        .collect()
}

fn fixed(told: &Inspected) -> Fixed {
    let mode = told.host_config.as_ref();
    Fixed {
        exposed: told
            .config
            .iter()
            .flat_map(api::Config::tcp_ports)
            .collect(),
        network_mode: mode.and_then(|config| config.network_mode.clone()),
        checked: health_of(told) != Health::Unchecked,
    }
}

fn health_of(told: &Inspected) -> Health {
    let health = told.state.as_ref().and_then(|state| state.health.as_ref());
    match health.and_then(|health| health.status.as_deref()) {
        None | Some("" | "none") => Health::Unchecked,
        Some("healthy") => Health::Healthy,
        Some("starting") => Health::Starting,
        Some(_) => Health::Unhealthy,
    }
}

impl Partial {
    /// Whether the list leaves something out that counts.
    fn needs_fixed(&self) -> bool {
        let names_port = self.container.labels.contains_key("toron.port");
        self.network_mode.is_none() || (self.container.exposed.is_empty() && !names_port)
    }

    fn add(&mut self, fixed: Option<&Fixed>) {
        if let Some(fixed) = fixed {
            self.container.exposed.extend(&fixed.exposed);
            if self.network_mode.is_none() {
                self.network_mode.clone_from(&fixed.network_mode);
            }
        }
        self.container.host_network = self.network_mode.as_deref() == Some("host");
    }

    /// What may have changed since the list was made.
    fn refine(&mut self, told: &Inspected) {
        let health = health_of(told);
        if health != Health::Unchecked {
            self.container.health = health;
        }
        let without = |a: &Addresses| a.first().is_none();
        if self.container.networks.values().all(without) {
            let networks = networks(told.network_settings.as_ref());
            if !networks.is_empty() {
                self.container.networks = networks;
            }
        }
    }

    /// A container that shares another's network has the addresses of that one. `false` when the
    /// other one has gone, and this one with it.
    fn share_network(&mut self, connection: &mut Connection) -> io::Result<bool> {
        let mode = self.network_mode.as_deref().unwrap_or_default();
        let Some(other) = mode.strip_prefix("container:") else {
            return Ok(true);
        };
        match api::inspect(connection, other, Instant::now() + ONE)? {
            Ok(None) => return Ok(false),
            Ok(Some(told)) => {
                self.container.networks = networks(told.network_settings.as_ref());
                self.container.host_network = fixed(&told).network_mode.as_deref() == Some("host");
            }
            Err(problem) => self.container.unknown = Some(problem),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn entry(json: &str) -> Partial {
        listed(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn what_docker_lists_is_enough() {
        let partial = entry(
            r#"{"Id":"a1","Names":["/other/alias","/web"],"State":"running",
            "Status":"Up 2 minutes (health: starting)","Labels":{"toron.enable":"1"},
            "Ports":[{"PrivatePort":8080,"Type":"tcp"},{"PrivatePort":53,"Type":"udp"},
            {"IP":"0.0.0.0","PrivatePort":80,"PublicPort":8000,"Type":"tcp"}],
            "HostConfig":{"NetworkMode":"edge"},"NetworkSettings":{"Networks":{"edge":
            {"IPAddress":"172.18.0.2","GlobalIPv6Address":"fd00::2"}}}}"#,
        );
        assert!(!partial.needs_fixed());
        let c = partial.container;
        assert_eq!((c.name.as_str(), c.state.as_str()), ("web", "running"));
        assert_eq!(c.health, Health::Starting);
        assert_eq!(c.exposed, [80, 8080].into());
        assert_eq!(c.published.len(), 1);
        let addresses = c.networks["edge"];
        assert_eq!(addresses.v4, Some([172, 18, 0, 2].into()));
        assert_eq!(addresses.v6, Some("fd00::2".parse().unwrap()));
    }

    #[test]
    fn health_is_told_in_brackets() {
        for (status, health) in [
            ("Up 5 seconds", Health::Unchecked),
            ("Up 5 seconds (healthy)", Health::Healthy),
            ("Up 5 seconds (unhealthy)", Health::Unhealthy),
            ("Up 5 seconds (health: starting)", Health::Starting),
            ("Up 5 seconds (Paused)", Health::Unchecked),
            ("", Health::Unchecked),
        ] {
            assert_eq!(health_in(status), health, "{status}");
        }
    }

    #[test]
    fn what_podman_leaves_out_is_asked_for_and_added() {
        let mut partial = entry(
            r#"{"Id":"a1","Names":["/web"],"State":"running","Status":"Up 2 minutes",
            "Labels":{"toron.port":"1"},"Ports":[],"NetworkSettings":{"Networks":null}}"#,
        );
        assert!(partial.needs_fixed());
        let told: Inspected = serde_json::from_str(
            r#"{"State":{"Health":{"Status":"healthy"}},"HostConfig":{"NetworkMode":"host"},
            "Config":{"ExposedPorts":{"8080/tcp":{},"53/udp":{}}},"NetworkSettings":{"Networks":{}}}"#,
        )
        .unwrap();
        let fixed = fixed(&told);
        assert!(fixed.checked);
        partial.add(Some(&fixed));
        partial.refine(&told);
        assert!(partial.container.host_network);
        assert_eq!(partial.container.exposed, [8080].into());
        assert_eq!(partial.container.health, Health::Healthy);
    }
}
