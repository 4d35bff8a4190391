//! Where the requests for a container go: address and port (D7, D8).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::container::Container;

/// Port of a container that names none and exposes none (D8).
const DEFAULT_PORT: u16 = 80;

/// What was said about it, by labels and settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// `toron.address`: for a container in the machine's network.
    pub address: Option<IpAddr>,
    /// `toron.port`.
    pub port: Option<u16>,
    /// `toron.network`, else `discovery.network`.
    pub network: Option<&'a str>,
}

/// Where requests go, and what the operator should know about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located {
    /// Address and port.
    pub at: SocketAddr,
    /// Something that was asked for and is not so.
    pub note: Option<String>,
}

/// Finds the address. `Err` says why there is none, which may change a moment after the start.
pub fn locate(container: &Container, wanted: Wanted<'_>) -> Result<Located, String> {
    let port = wanted
        .port
        .or_else(|| container.exposed.first().copied())
        .or_else(|| container.published.first().map(|p| p.container))
        .unwrap_or(DEFAULT_PORT);
    let at = |address: IpAddr, note| Located {
        at: SocketAddr::new(address, port),
        note,
    };
    if container.host_network {
        let address = wanted.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        return Ok(at(address, None));
    }
    let unused = wanted.address.map(|_| {
        "toron.address is for containers in the host network and is not used here".to_owned()
    });
    if container.reachable {
        let named = wanted.network.and_then(|name| {
            let addresses = container.networks.get(name)?;
            addresses.first()
        });
        if let Some(address) = named {
            return Ok(at(address, unused));
        }
        // In the order of their names.
        let first = container
            .networks
            .iter()
            .find_map(|(name, addresses)| Some((name, addresses.first()?)));
        if let Some((used, address)) = first {
            let elsewhere = wanted.network.map(|name| {
                format!("it has no address on network \"{name}\"; that on \"{used}\" is used")
            });
            return Ok(at(address, elsewhere.or(unused)));
        }
    }
    // A range of ports or both families may be published: the order of the set decides.
    let published = container.published.iter().find(|p| p.container == port);
    match published {
        Some(published) => {
            let address = published.address.unwrap_or(Ipv4Addr::LOCALHOST.into());
            Ok(Located {
                at: SocketAddr::new(address, published.host),
                note: unused,
            })
        }
        None if container.reachable => Err(format!(
            "it has no address on any network, and its port {port} is not published"
        )),
        None => Err(format!(
            "addresses of containers without root cannot be reached from here, and its port {port} \
             is not published"
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::container::tests::container;
    use super::super::container::{Addresses, Published};
    use super::*;

    fn at(container: &Container, wanted: Wanted<'_>) -> String {
        locate(container, wanted).unwrap().at.to_string()
    }

    const NOTHING: Wanted<'static> = Wanted {
        address: None,
        port: None,
        network: None,
    };

    #[test]
    fn d7_the_named_network_else_the_first_with_an_address() {
        let mut c = container("a", [10, 0, 0, 1], &[]);
        let v4 = |ip: [u8; 4]| Addresses {
            v4: Some(ip.into()),
            v6: None,
        };
        c.networks.insert("alpha".to_owned(), Addresses::default());
        c.networks.insert("edge".to_owned(), v4([10, 9, 0, 1]));
        assert_eq!(at(&c, NOTHING), "10.0.0.1:80");
        let edge = Wanted {
            network: Some("edge"),
            ..NOTHING
        };
        assert_eq!(at(&c, edge), "10.9.0.1:80");
        for name in ["alpha", "elsewhere"] {
            let wanted = Wanted {
                network: Some(name),
                ..NOTHING
            };
            let located = locate(&c, wanted).unwrap();
            assert_eq!(located.at.to_string(), "10.0.0.1:80");
            assert!(located.note.unwrap().contains(name));
        }
    }

    #[test]
    fn d7_ipv6_where_there_is_no_ipv4() {
        let mut c = container("a", [10, 0, 0, 1], &[]);
        let v6 = Some("fd00::7".parse().unwrap());
        let only = Addresses { v4: None, v6 };
        c.networks.insert("bridge".to_owned(), only);
        assert_eq!(at(&c, NOTHING), "[fd00::7]:80");
        let both = Addresses {
            v4: Some([10, 0, 0, 9].into()),
            v6,
        };
        c.networks.insert("bridge".to_owned(), both);
        assert_eq!(at(&c, NOTHING), "10.0.0.9:80");
    }

    #[test]
    fn d7_the_host_network_is_loopback_or_what_the_label_says() {
        let mut c = container("a", [10, 0, 0, 1], &[]);
        c.host_network = true;
        c.exposed.insert(7000);
        assert_eq!(at(&c, NOTHING), "127.0.0.1:7000");
        let wanted = Wanted {
            address: Some([127, 0, 0, 9].into()),
            port: Some(81),
            network: Some("bridge"),
        };
        assert_eq!(at(&c, wanted), "127.0.0.9:81");
        c.host_network = false;
        let located = locate(&c, wanted).unwrap();
        assert_eq!(located.at.to_string(), "10.0.0.1:81");
        assert!(located.note.unwrap().contains("toron.address"));
    }

    #[test]
    fn d7_published_ports_only_where_no_address_can_be_reached() {
        let mut c = container("a", [10, 0, 0, 1], &[]);
        let publish = |container, host, address| Published {
            container,
            host,
            address,
        };
        c.published = [
            publish(8080, 32_000, None),
            publish(9090, 32_001, Some([192, 0, 2, 1].into())),
        ]
        .into();
        assert_eq!(at(&c, NOTHING), "10.0.0.1:8080");
        c.reachable = false;
        assert_eq!(at(&c, NOTHING), "127.0.0.1:32000");
        let other = Wanted {
            port: Some(9090),
            ..NOTHING
        };
        assert_eq!(at(&c, other), "192.0.2.1:32001");
        let none = Wanted {
            port: Some(1),
            ..NOTHING
        };
        assert!(locate(&c, none).unwrap_err().contains("port 1 "));
        c.reachable = true;
        c.networks.clear();
        assert_eq!(at(&c, other), "192.0.2.1:32001");
        c.published.clear();
        assert!(locate(&c, NOTHING).is_err());
    }

    #[test]
    fn d8_the_label_else_the_lowest_exposed_port_else_80() {
        let mut c = container("a", [10, 0, 0, 1], &[]);
        assert_eq!(at(&c, NOTHING), "10.0.0.1:80");
        c.exposed = [9000, 443, 8080].into();
        assert_eq!(at(&c, NOTHING), "10.0.0.1:443");
        let wanted = Wanted {
            port: Some(9000),
            ..NOTHING
        };
        assert_eq!(at(&c, wanted), "10.0.0.1:9000");
    }
}
