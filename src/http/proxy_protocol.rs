//! The header that a proxy writes in front of everything else on a connection, to say for whom it
//! is: the PROXY protocol, versions 1 and 2 (haproxy.org, proxy-protocol.txt).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::reason::Reason;
use super::syntax::decimal;

/// The longest line of version 1, its line end included (section 2.1).
const LONGEST_LINE: usize = 107;

/// Most bytes of a header of version 2. Its length field allows 65,551; addresses take 52, and
/// what proxies add (names, TLS facts) some hundreds.
pub const MOST_BYTES: usize = 4096;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// What stands at the front of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyHeader {
    /// The beginning of a header; more has to come.
    Incomplete,
    /// A whole header.
    Complete {
        /// Its length in bytes; what follows is the client's.
        len: usize,
        /// The client. `None` where the proxy speaks for itself (`LOCAL`) or does not know
        /// (`UNKNOWN`, `UNSPEC`, UNIX sockets): then it is the peer.
        source: Option<SocketAddr>,
    },
    /// No header, and why.
    Invalid(Reason),
}

/// Reads the header at the front of `bytes`, strictly: what is not exactly of the one or the other
/// form is invalid, as early as that shows.
#[must_use]
pub fn parse(bytes: &[u8]) -> ProxyHeader {
    let begins = |with: &[u8]| {
        let n = with.len().min(bytes.len());
        bytes.get(..n) == with.get(..n)
    };
    if begins(SIGNATURE) {
        version_2(bytes)
    } else if begins(b"PROXY ") {
        version_1(bytes)
    } else {
        ProxyHeader::Invalid(Reason::ProxyHeaderMissing)
    }
}

fn version_1(bytes: &[u8]) -> ProxyHeader {
    let within = bytes.get(..LONGEST_LINE).unwrap_or(bytes);
    let Some(end) = within.iter().position(|&b| b == b'\n') else {
        return if within.len() == LONGEST_LINE {
            ProxyHeader::Invalid(Reason::ProxyLineTooLong)
        } else {
            ProxyHeader::Incomplete
        };
    };
    let line = within.get(..end).and_then(|line| line.strip_suffix(b"\r"));
    match line.and_then(source_in_line) {
        Some(source) => ProxyHeader::Complete {
            len: end + 1,
            source,
        },
        None => ProxyHeader::Invalid(Reason::ProxyLineMalformed),
    }
}

/// The source in a line of version 1 without its line end. `None` is a malformed line.
fn source_in_line(line: &[u8]) -> Option<Option<SocketAddr>> {
    let mut words = line.split(|&b| b == b' ');
    words.next().filter(|&word| word == b"PROXY")?;
    let family = words.next()?;
    if family == b"UNKNOWN" {
        // The rest of the line is to be ignored, but it is a line.
        return line
            .iter()
            .all(|b| (0x20..0x7f).contains(b))
            .then_some(None);
    }
    let (source, destination) = (words.next()?, words.next()?);
    let (source_port, destination_port) = (words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let ip = |text: &[u8]| -> Option<IpAddr> {
        let text = std::str::from_utf8(text).ok()?;
        match family {
            b"TCP4" => text.parse().ok().map(IpAddr::V4),
            b"TCP6" => text.parse().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    ip(destination)?;
    port(destination_port)?;
    Some(Some(SocketAddr::new(ip(source)?, port(source_port)?)))
}

/// Decimal, without leading zeros.
fn port(text: &[u8]) -> Option<u16> {
    if text.len() > 1 && text.starts_with(b"0") {
        return None;
    }
    u16::try_from(decimal(text)?).ok()
}

fn version_2(bytes: &[u8]) -> ProxyHeader {
    let Some(&[version_and_command, family, high, low]) = bytes
        .get(SIGNATURE.len()..)
        .and_then(<[u8]>::first_chunk::<4>)
    else {
        // What is there already may show that it is none.
        return match bytes.get(SIGNATURE.len()) {
            Some(&command) if !matches!(command, 0x20 | 0x21) => {
                ProxyHeader::Invalid(Reason::ProxyVersionOrCommand)
            }
            _ => ProxyHeader::Incomplete,
        };
    };
    if !matches!(version_and_command, 0x20 | 0x21) {
        return ProxyHeader::Invalid(Reason::ProxyVersionOrCommand);
    }
    let start = SIGNATURE.len() + 4;
    let len = start + usize::from(u16::from_be_bytes([high, low]));
    if len > MOST_BYTES {
        return ProxyHeader::Invalid(Reason::ProxyHeaderTooLong);
    }
    let Some(content) = bytes.get(start..len) else {
        return ProxyHeader::Incomplete;
    };
    let local = version_and_command == 0x20;
    match source_in_block(family, content) {
        Some(source) => ProxyHeader::Complete {
            len,
            source: source.filter(|_| !local),
        },
        // A health check of the proxy's own: its addresses are to be ignored.
        None if local => ProxyHeader::Complete { len, source: None },
        None => ProxyHeader::Invalid(Reason::ProxyAddresses),
    }
}

/// The source in the addresses of version 2. `None` where they are malformed or of a kind that
/// cannot be on a TCP connection.
fn source_in_block(family: u8, content: &[u8]) -> Option<Option<SocketAddr>> {
    let (source, rest) = match family {
        // UNSPEC: whatever follows is to be ignored.
        0x00 => return Some(None),
        0x11 => {
            let (block, rest) = content.split_first_chunk::<12>()?;
            let &[a, b, c, d, _, _, _, _, high, low, _, _] = block;
            let address = Ipv4Addr::new(a, b, c, d);
            let port = u16::from_be_bytes([high, low]);
            (Some(SocketAddr::from((address, port))), rest)
        }
        0x21 => {
            let (address, rest) = content.split_first_chunk::<16>()?;
            let (_, rest) = rest.split_first_chunk::<16>()?;
            let (&[high, low, _, _], rest) = rest.split_first_chunk::<4>()?;
            let address = Ipv6Addr::from(*address);
            let port = u16::from_be_bytes([high, low]);
            (Some(SocketAddr::from((address, port))), rest)
        }
        // UNIX stream sockets: two paths of 108 bytes.
        0x31 => (None, content.get(216..)?),
        _ => return None,
    };
    are_tlvs(rest).then_some(source)
}

/// Whether `rest` is whole type-length-value vectors (section 2.2.1).
fn are_tlvs(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        let Some((&[_, high, low], behind)) = rest.split_first_chunk::<3>() else {
            return false;
        };
        match behind.get(usize::from(u16::from_be_bytes([high, low]))..) {
            Some(next) => rest = next,
            None => return false,
        }
    }
    true
}
