//! The few calls of the Docker API that discovery needs (D3), which Podman answers alike.
//!
//! A list has one entry for each container. Docker's tells all there is to know; Podman's (4.3)
//! leaves out ports that are not published, the kind of network, and health, so that a container is
//! asked for by itself where these count.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::Instant;

use serde::Deserialize;

use super::connection::{Answer, Connection};

/// `{"label":["toron.enable"]}`, percent-encoded. Containers that do not run are listed too, so that
/// it can be said why they have no route.
const LIST: &str = "/containers/json?all=1&filters=%7B%22label%22%3A%5B%22toron.enable%22%5D%7D";
/// `{"type":["container","network"]}`: that a container joins a network is told as an event of the
/// network.
pub const EVENTS: &str = "/events?filters=%7B%22type%22%3A%5B%22container%22%2C%22network%22%5D%7D";

/// Largest answer to `/_ping` and to a question about one container.
const MOST_OF_ONE: usize = 4 << 20;
/// Largest list. An entry has 1 to 3 KiB.
const MOST_OF_ALL: usize = 64 << 20;

/// Who answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Engine {
    /// `podman` or `docker`.
    pub name: &'static str,
    /// Its version, as it says.
    pub version: String,
}

/// An entry of the list.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Listed {
    /// Unique for ever.
    pub id: String,
    /// Each with a slash in front; those of links have several.
    #[serde(default)]
    pub names: Option<Vec<String>>,
    /// `running`, …
    #[serde(default)]
    pub state: Option<String>,
    /// For people; the only place where a list tells of health: `Up 5 minutes (healthy)`.
    #[serde(default)]
    pub status: Option<String>,
    /// All labels.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// Exposed (Docker) and published ports.
    #[serde(default)]
    pub ports: Option<Vec<Port>>,
    /// Not with Podman.
    #[serde(default)]
    pub host_config: Option<HostConfig>,
    /// Addresses.
    #[serde(default)]
    pub network_settings: Option<NetworkSettings>,
}

/// A port of a container.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Port {
    /// Address of the machine, if it is published.
    #[serde(default, rename = "IP")]
    pub ip: Option<String>,
    /// In the container.
    #[serde(default)]
    pub private_port: u32,
    /// On the machine.
    #[serde(default)]
    pub public_port: Option<u32>,
    /// `tcp`, …
    #[serde(default, rename = "Type")]
    pub protocol: Option<String>,
}

/// How it was started.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostConfig {
    /// `bridge`, `host`, `none`, `container:ID`, the name of a network, …
    #[serde(default)]
    pub network_mode: Option<String>,
}

/// Its networks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NetworkSettings {
    /// By name.
    #[serde(default)]
    pub networks: Option<BTreeMap<String, Option<Network>>>,
}

/// Its addresses on a network; empty texts are none.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Network {
    /// IPv4.
    #[serde(default, rename = "IPAddress")]
    pub v4: Option<String>,
    /// IPv6.
    #[serde(default, rename = "GlobalIPv6Address")]
    pub v6: Option<String>,
}

/// What is told about one container.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Inspected {
    /// How it does.
    #[serde(default)]
    pub state: Option<State>,
    /// How it was made.
    #[serde(default)]
    pub config: Option<Config>,
    /// How it was started.
    #[serde(default)]
    pub host_config: Option<HostConfig>,
    /// Addresses.
    #[serde(default)]
    pub network_settings: Option<NetworkSettings>,
}

/// How a container does.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct State {
    /// By its own check.
    #[serde(default)]
    pub health: Option<HealthState>,
}

/// What its own check says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct HealthState {
    /// `starting`, `healthy`, `unhealthy`; empty or `none` without a check.
    #[serde(default)]
    pub status: Option<String>,
}

/// How a container was made.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Config {
    /// `8080/tcp`, …
    #[serde(default)]
    pub exposed_ports: Option<BTreeMap<String, serde::de::IgnoredAny>>,
}

/// Asks who is there.
pub fn ping(connection: &mut Connection, deadline: Instant) -> io::Result<Engine> {
    let answer = connection.get("/_ping", MOST_OF_ONE, deadline)?;
    expect_200("/_ping", &answer)?;
    if let Some(version) = answer.field("Libpod-Api-Version") {
        return Ok(Engine {
            name: "podman",
            version: short(version),
        });
    }
    // `Server: Docker/24.0.7 (linux)`
    let server = answer.field("Server").unwrap_or_default();
    let version = server.split_once('/').map_or("", |(_, rest)| rest);
    Ok(Engine {
        name: "docker",
        version: short(version.split(' ').next().unwrap_or_default()),
    })
}

/// All containers with the label `toron.enable`.
pub fn list(connection: &mut Connection, deadline: Instant) -> io::Result<Vec<Listed>> {
    let answer = connection.get(LIST, MOST_OF_ALL, deadline)?;
    expect_200("/containers/json", &answer)?;
    parse("/containers/json", &answer.body)
}

/// One container; `None` when it is gone. The outer error is the connection's, the inner one that of
/// this container alone.
pub fn inspect(
    connection: &mut Connection,
    id: &str,
    deadline: Instant,
) -> io::Result<Result<Option<Inspected>, String>> {
    let is_id = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    if id.is_empty() || id.len() > 128 || !id.bytes().all(is_id) {
        return Ok(Err("its id is not one".to_owned()));
    }
    let target = format!("/containers/{id}/json");
    let answer = connection.get(&target, MOST_OF_ONE, deadline)?;
    Ok(match answer.status {
        404 => Ok(None),
        200 => parse(&target, &answer.body)
            .map(Some)
            .map_err(|e| e.to_string()),
        status => Err(format!(
            "asked about it, the engine answers with status {status}"
        )),
    })
}

fn expect_200(target: &str, answer: &Answer) -> io::Result<()> {
    if answer.status == 200 {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{target}: status {}",
        answer.status
    )))
}

/// Bytes that are not UTF-8 must not cost the whole list: labels can hold anything.
fn parse<T: for<'de> Deserialize<'de>>(target: &str, body: &[u8]) -> io::Result<T> {
    serde_json::from_str(&String::from_utf8_lossy(body)).map_err(|error| {
        let text = format!("{target}: not the JSON that was expected ({error})");
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// A version, not a novel.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

impl Network {
    /// Addresses as the engine writes them; a mask behind them does not count.
    #[must_use]
    pub fn address<T: std::str::FromStr>(text: Option<&String>) -> Option<T> {
        text?.split('/').next()?.parse().ok()
    }
}

impl Port {
    /// The port in the container, and on the machine, if it is TCP.
    #[must_use]
    pub fn tcp(&self) -> Option<(u16, Option<u16>)> {
        let good = |port: u32| u16::try_from(port).ok().filter(|&port| port > 0);
        let is_tcp = self.protocol.as_deref().is_none_or(|p| p == "tcp");
        let private = good(self.private_port).filter(|_| is_tcp)?;
        Some((private, self.public_port.and_then(good)))
    }

    /// The machine's address; `None` is every one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        let address: Option<IpAddr> = self.ip.as_ref()?.parse().ok();
        address.filter(|address| !address.is_unspecified())
    }
}

impl Config {
    /// TCP ports of the image and the options.
    pub fn tcp_ports(&self) -> impl Iterator<Item = u16> + '_ {
        let names = self.exposed_ports.iter().flat_map(BTreeMap::keys);
        names.filter_map(|name| {
            let (port, protocol) = name.split_once('/').unwrap_or((name, "tcp"));
            let port: Option<u16> = port.parse().ok().filter(|&port| port > 0);
            port.filter(|_| protocol == "tcp")
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_null_or_absent_is_nothing() {
        let nothing = r#"[{"Id":"a"},{"Id":"b","Names":null,"State":null,"Status":null,"Labels":null,
            "Ports":null,"HostConfig":null,"NetworkSettings":{"Networks":null}},{"Id":"c",
            "NetworkSettings":{"Networks":{"n":null}},"Ports":[{"Type":"tcp"}],"Unheard":1}]"#;
        let listed: Vec<Listed> = parse("x", nothing.as_bytes()).unwrap();
        assert_eq!(listed.len(), 3);
        assert_eq!(listed[2].ports.as_ref().unwrap()[0].tcp(), None);
        for broken in [
            "",
            "[",
            "{}",
            "[null]",
            "[{}]",
            r#"[{"Id":1}]"#,
            "[{\"Id\":\"a\"}",
        ] {
            assert!(
                parse::<Vec<Listed>>("x", broken.as_bytes()).is_err(),
                "{broken}"
            );
        }
        let invalid: Vec<Listed> = parse(
            "x",
            b"[{\"Id\":\"a\",\"Labels\":{\"toron.enable\":\"\xff\"}}]",
        )
        .unwrap();
        assert_eq!(
            invalid[0].labels.as_ref().unwrap()["toron.enable"],
            "\u{fffd}"
        );
    }

    #[test]
    fn ports_are_tcp_and_in_range() {
        let text = r#"{"ExposedPorts":{"53/udp":{},"8080/tcp":{},"90":{},"0/tcp":{},"99999/tcp":{},"x":{}}}"#;
        let config: Config = parse("x", text.as_bytes()).unwrap();
        assert_eq!(config.tcp_ports().collect::<Vec<_>>(), [8080, 90]);
        let port = |text: &str| parse::<Port>("x", text.as_bytes()).unwrap();
        let published = port(r#"{"IP":"0.0.0.0","PrivatePort":80,"PublicPort":8000,"Type":"tcp"}"#);
        assert_eq!(
            (published.tcp(), published.address()),
            (Some((80, Some(8000))), None)
        );
        assert_eq!(port(r#"{"PrivatePort":53,"Type":"udp"}"#).tcp(), None);
        assert_eq!(port(r#"{"PrivatePort":70000,"Type":"tcp"}"#).tcp(), None);
        let bound = port(r#"{"IP":"127.0.0.1","PrivatePort":80}"#);
        assert_eq!(bound.address(), Some([127, 0, 0, 1].into()));
    }
}
