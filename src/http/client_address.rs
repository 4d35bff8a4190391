//! The addresses that proxies write down: `X-Forwarded-For`, headers with one address, and
//! `Forwarded` (RFC 7239), read from right to left, since only what stands at the right comes from
//! a proxy that is known.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::syntax::{decimal, is_token, trim_ows};

/// How a header names addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syntax {
    /// A list of addresses, of which a single one is the shortest.
    List,
    /// RFC 7239.
    Forwarded,
}

impl Syntax {
    /// Of the header called `name`.
    #[must_use]
    pub fn of(name: &str) -> Syntax {
        if name.eq_ignore_ascii_case("forwarded") {
            Syntax::Forwarded
        } else {
            Syntax::List
        }
    }
}

/// The hops in a line, the last first; `None` is something that is not an address. Empty elements
/// are left out (RFC 9110 section 5.6.1).
pub fn hops_from_right(syntax: Syntax, line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> + '_ {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let whole = rest?;
        let comma = match syntax {
            Syntax::List => whole.iter().rposition(|&b| b == b','),
            Syntax::Forwarded => last_comma(whole),
        };
        let (left, element) = match comma {
            Some(at) => (whole.get(..at), whole.get(at + 1..).unwrap_or_default()),
            None => (None, whole),
        };
        rest = left;
        Some(trim_ows(element))
    })
    .filter(|element| !element.is_empty())
    .map(move |element| match syntax {
        Syntax::List => address(element),
        Syntax::Forwarded => forwarded_for(element),
    })
}

/// The address of a list element: alone or with a port; IPv6 with brackets or, when there is no
/// port, without.
#[must_use]
pub fn address(text: &[u8]) -> Option<IpAddr> {
    match text.strip_prefix(b"[") {
        Some(_) => node(text),
        None => ipv6(text).map(IpAddr::V6).or_else(|| node(text)),
    }
}

/// The `node` of RFC 7239 section 6, if it is an address: `192.0.2.1`, `192.0.2.1:80`,
/// `[2001:db8::1]`, `[2001:db8::1]:80`; a port may be obfuscated (`_x`).
fn node(text: &[u8]) -> Option<IpAddr> {
    let (address, rest) = match text.strip_prefix(b"[") {
        Some(inside) => {
            let close = inside.iter().position(|&b| b == b']')?;
            let (address, rest) = inside.split_at_checked(close)?;
            (IpAddr::V6(ipv6(address)?), rest.get(1..)?)
        }
        None => {
            let end = text.iter().position(|&b| b == b':').unwrap_or(text.len());
            let (address, rest) = text.split_at_checked(end)?;
            let address: Ipv4Addr = std::str::from_utf8(address).ok()?.parse().ok()?;
            (IpAddr::V4(address), rest)
        }
    };
    let port_is_good = match rest.split_first() {
        None => true,
        Some((b':', port)) => is_port(port),
        Some(_) => false,
    };
    port_is_good.then(|| address.to_canonical())
}

fn ipv6(text: &[u8]) -> Option<Ipv6Addr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn is_port(port: &[u8]) -> bool {
    let obfuscated = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
    match port.strip_prefix(b"_") {
        Some(name) => !name.is_empty() && name.iter().all(obfuscated),
        None => port.len() <= 5 && decimal(port).is_some_and(|port| port <= 65_535),
    }
}

/// Where the last comma outside of quotes is. Read from the right: a quote that something in front
/// leaves open does not swallow what a proxy has appended.
fn last_comma(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    for (at, &b) in line.iter().enumerate().rev() {
        match b {
            b',' if !quoted => return Some(at),
            // Inside, a quote may be escaped; the one at the beginning never is.
            b'"' if !(quoted && is_escaped(line, at)) => quoted = !quoted,
            _ => {}
        }
    }
    None
}

fn is_escaped(line: &[u8], at: usize) -> bool {
    let before = line.get(..at).unwrap_or_default();
    let backslashes = before.iter().rev().take_while(|&&b| b == b'\\').count();
    backslashes % 2 == 1
}

/// The address that a `forwarded-element` gives in `for`. `None` where it gives none (`unknown`, an
/// obfuscated name, no `for`) or the element is malformed. White space around `;` is let pass:
/// proxies write it.
#[must_use]
pub fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = element;
    loop {
        let (pair, behind) = first_pair(rest)?;
        if let Some((name, value)) = pair {
            if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
                return None;
            }
        }
        match behind {
            Some(behind) => rest = behind,
            None => break,
        }
    }
    // An escape is never needed for an address.
    node(found?)
}

type Pair<'b> = Option<(&'b [u8], &'b [u8])>;

/// The first `name=value` (empty is allowed), quotes of the value taken off, and what follows its
/// `;`.
fn first_pair(text: &[u8]) -> Option<(Pair<'_>, Option<&[u8]>)> {
    let text = trim_ows(text);
    let end_of_name = text.iter().position(|&b| b == b'=' || b == b';');
    let (name, rest) = match end_of_name {
        Some(at) if text.get(at) == Some(&b'=') => (text.get(..at)?, text.get(at + 1..)?),
        // An empty pair in front of a `;`.
        Some(0) => return Some((None, text.get(1..))),
        Some(_) => return None,
        None => return text.is_empty().then_some((None, None)),
    };
    let (value, behind) = match rest.strip_prefix(b"\"") {
        Some(quoted) => {
            let end = quoted_end(quoted)?;
            (quoted.get(..end)?, trim_ows(quoted.get(end + 1..)?))
        }
        None => {
            let end = rest.iter().position(|&b| b == b';').unwrap_or(rest.len());
            let value = trim_ows(rest.get(..end)?);
            // RFC 7239 wants quotes around what is no token; ports without them are common.
            let bare = |&b: &u8| is_token(&[b]) || b == b':';
            if value.is_empty() || !value.iter().all(bare) {
                return None;
            }
            (value, rest.get(end..)?)
        }
    };
    if !is_token(name) {
        return None;
    }
    match behind.split_first() {
        None => Some((Some((name, value)), None)),
        Some((b';', behind)) => Some((Some((name, value)), Some(behind))),
        Some(_) => None,
    }
}

/// Where the closing quote is.
fn quoted_end(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    for (at, &b) in text.iter().enumerate() {
        match b {
            b'"' if !escaped => return Some(at),
            _ => escaped = b == b'\\' && !escaped,
        }
    }
    None
}

/// Room for the text of any address: the longest has 45 bytes.
pub const IP_ROOM: usize = 48;

/// The text of an address; one of IPv4 in the clothes of IPv6 is shown as what it is.
pub fn ip_text(ip: IpAddr, room: &mut [u8; IP_ROOM]) -> &[u8] {
    let used = match ip.to_canonical() {
        IpAddr::V4(ip) => put_ipv4(ip, room),
        IpAddr::V6(ip) => {
            let mut left = &mut room[..];
            let _ = write!(left, "{ip}");
            IP_ROOM - left.len()
        }
    };
    room.get(..used).unwrap_or_default()
}

/// Writes at the front and returns the length. By hand: the two addresses of a forwarded head took
/// 2,200 of its 23,400 instructions by way of `Display`.
fn put_ipv4(ip: Ipv4Addr, room: &mut [u8; IP_ROOM]) -> usize {
    let mut places = room.iter_mut();
    let mut used = 0;
    let mut put = |byte| {
        if let Some(place) = places.next() {
            *place = byte;
            used += 1;
        }
    };
    for (i, octet) in ip.octets().into_iter().enumerate() {
        if i > 0 {
            put(b'.');
        }
        if octet >= 100 {
            put(b'0' + octet / 100);
        }
        if octet >= 10 {
            put(b'0' + octet / 10 % 10);
        }
        put(b'0' + octet % 10);
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_rust_shows_them() {
        for octet in 0..=255u8 {
            for ip in [[octet, 0, 255, 1], [1, octet, 10, 99], [9, 100, 199, octet]] {
                let ip = IpAddr::from(ip);
                assert_eq!(ip_text(ip, &mut [0; IP_ROOM]), ip.to_string().as_bytes());
            }
        }
        for ip in [
            "::",
            "2001:db8::1",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
        ] {
            let parsed = ip.parse().unwrap_or(IpAddr::from([0; 4]));
            assert_eq!(ip_text(parsed, &mut [0; IP_ROOM]), ip.as_bytes());
        }
    }

    #[test]
    fn a_mapped_address_is_shown_as_ipv4() {
        let mapped = "::ffff:192.0.2.1".parse().unwrap_or(IpAddr::from([0; 4]));
        assert_eq!(ip_text(mapped, &mut [0; IP_ROOM]), b"192.0.2.1");
    }
}
