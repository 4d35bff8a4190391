//! Addresses to listen on and blocks of addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::policy::cidr::{Cidr, CidrError};

use super::section::Section;
use super::yaml::Value;

/// `address:port`; `:port` or a port alone, which are that port on every IPv4 address; or an address
/// alone, which has the default port.
pub fn parse_listen(text: &str, default_port: u16) -> Option<SocketAddr> {
    if let Some(address) = parse_ip(text) {
        return Some(SocketAddr::new(address, default_port));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port = port.parse().ok().filter(|_| digits)?;
    let bracketed = host.starts_with('[');
    let address = match host {
        "" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        host => parse_ip(host).filter(|address| address.is_ipv4() || bracketed)?,
    };
    Some(SocketAddr::new(address, port))
}

/// An address, with or without brackets, or `localhost`.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if text == "localhost" {
        return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    match bare {
        Some(inside) => inside.parse().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

/// Address blocks of a list.
pub fn read_cidrs(section: &Section<'_>, key: &'static str) -> Option<Vec<Cidr>> {
    let list = section.list(key)?;
    let mut blocks = Vec::new();
    for node in list {
        let (text, problem) = match &node.value {
            Value::Scalar { text, .. } => match text.parse() {
                Ok(block) => {
                    blocks.push(block);
                    continue;
                }
                Err(CidrError::Address) => (text.as_str(), "is not an address or address block"),
                Err(CidrError::Bits) => (text.as_str(), "has a bad number of bits"),
            },
            value => (value.kind(), "is not an address or address block"),
        };
        let hint = "(allowed: 10.0.0.0/8, 192.0.2.1, 2001:db8::/32)";
        section.report.fault(
            node.mark,
            format!("{}.{key}: \"{text}\" {problem} {hint}", section.name),
        );
    }
    Some(blocks)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn listening_addresses() {
        for (text, expected) in [
            ("127.0.0.1:8080", Some("127.0.0.1:8080")),
            (":9000", Some("0.0.0.0:9000")),
            ("[::1]:80", Some("[::1]:80")),
            ("::1", Some("[::1]:7")),
            ("[::]", Some("[::]:7")),
            ("localhost", Some("127.0.0.1:7")),
            ("localhost:1", Some("127.0.0.1:1")),
            ("10.0.0.1", Some("10.0.0.1:7")),
            ("", None),
            ("example.com:80", None),
            ("127.0.0.1:99999", None),
            ("127.0.0.1:+80", None),
            ("127.0.0.1:", None),
            ("8080", Some("0.0.0.0:8080")),
            ("70000", None),
            ("example.com", None),
        ] {
            let expected = expected.map(|e| e.parse().unwrap());
            assert_eq!(parse_listen(text, 7), expected, "{text}");
        }
    }
}
