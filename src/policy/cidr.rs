//! Address blocks in CIDR notation (RFC 4632).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address block: an address and the number of leading bits that count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cidr {
    network: IpAddr,
    bits: u8,
}

/// Why a text is not a [`Cidr`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CidrError {
    /// The part before the slash is not an IPv4 or IPv6 address.
    Address,
    /// The part behind the slash is not a number of bits, or more than the address has.
    Bits,
}

impl Cidr {
    /// The block of the first `bits` bits of `address`; no more than it has.
    #[must_use]
    pub fn around(address: IpAddr, bits: u8) -> Cidr {
        let width = if address.is_ipv4() { 32 } else { 128 };
        Cidr {
            network: address,
            bits: bits.min(width),
        }
    }

    /// The address as it was given; bits behind the first [`Cidr::bits`] may be set.
    #[must_use]
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// How many leading bits count.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether the block holds `address`. An IPv4-mapped IPv6 address counts as its IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.bits);
                network.to_bits().checked_shr(shift).unwrap_or(0)
                    == address.to_bits().checked_shr(shift).unwrap_or(0)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.bits);
                network.to_bits().checked_shr(shift).unwrap_or(0)
                    == address.to_bits().checked_shr(shift).unwrap_or(0)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// Many blocks, of which one look-up finds the one that holds an address: a list of countries has
/// thousands, and every connection is asked about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CidrSet {
    blocks: Vec<Cidr>,
    /// First and last address of runs that neither touch nor overlap, in order.
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl CidrSet {
    /// The blocks as they were written.
    #[must_use]
    pub fn blocks(&self) -> &[Cidr] {
        &self.blocks
    }

    /// Whether a block holds `address`. An IPv4-mapped IPv6 address counts as its IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(v4) => holds(&self.v4, v4.to_bits()),
            IpAddr::V6(v6) => holds(&self.v6, v6.to_bits()),
        }
    }
}

fn holds<N: Copy + Ord>(runs: &[(N, N)], n: N) -> bool {
    let after = runs.partition_point(|(first, _)| *first <= n);
    let run = after.checked_sub(1).and_then(|at| runs.get(at));
    run.is_some_and(|(_, last)| n <= *last)
}

fn merge<N: Copy + Ord>(mut runs: Vec<(N, N)>) -> Vec<(N, N)> {
    runs.sort_unstable();
    let mut merged: Vec<(N, N)> = Vec::new();
    for (first, last) in runs {
        match merged.last_mut() {
            Some((_, end)) if first <= *end => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    merged
}

impl FromIterator<Cidr> for CidrSet {
    fn from_iter<I: IntoIterator<Item = Cidr>>(blocks: I) -> Self {
        let blocks: Vec<Cidr> = blocks.into_iter().collect();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for block in &blocks {
            // What is written as a mapped block means its IPv4 addresses.
            let (network, bits) = match block.network {
                IpAddr::V6(v6) if block.bits >= 96 => match v6.to_ipv4_mapped() {
                    Some(v4) => (IpAddr::V4(v4), block.bits - 96),
                    None => (IpAddr::V6(v6), block.bits),
                },
                network => (network, block.bits),
            };
            match network {
                IpAddr::V4(network) => {
                    let hosts = u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
                    v4.push((network.to_bits() & !hosts, network.to_bits() | hosts));
                }
                IpAddr::V6(network) => {
                    let hosts = u128::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
                    v6.push((network.to_bits() & !hosts, network.to_bits() | hosts));
                }
            }
        }
        CidrSet {
            blocks,
            v4: merge(v4),
            v6: merge(v6),
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    /// Reads `10.0.0.0/8`, `::1/128`, or a bare address (a block of one). Host bits may be set.
    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let network: IpAddr = address.parse().map_err(|_| CidrError::Address)?;
        let width = if network.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => {
                bits.parse().map_err(|_| CidrError::Bits)?
            }
            Some(_) => return Err(CidrError::Bits),
        };
        if bits > width {
            return Err(CidrError::Bits);
        }
        Ok(Cidr { network, bits })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn contains_what_shares_the_leading_bits() {
        let block: Cidr = "10.1.0.0/16".parse().unwrap();
        assert!(block.contains("10.1.255.3".parse().unwrap()));
        assert!(block.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!block.contains("10.2.0.0".parse().unwrap()));
        assert!(!block.contains("::1".parse().unwrap()));
        let all: Cidr = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("255.255.255.255".parse().unwrap()));
        assert!(!all.contains("2001:db8::1".parse().unwrap()));
        let six: Cidr = "2001:db8::/32".parse().unwrap();
        assert!(six.contains("2001:db8:ffff::1".parse().unwrap()));
        assert!(!six.contains("2001:db9::1".parse().unwrap()));
        let one: Cidr = "127.0.0.1".parse().unwrap();
        assert!(one.contains("127.0.0.1".parse().unwrap()));
        assert!(!one.contains("127.0.0.2".parse().unwrap()));
    }

    #[test]
    fn a_set_holds_what_one_of_its_blocks_holds() {
        let texts = [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "192.0.2.7",
            "192.0.2.8/31",
            "255.255.255.0/24",
            "2001:db8::/32",
            "2001:db8:1::/48",
            "ffff::/16",
            "::ffff:198.51.100.0/120",
        ];
        let set: CidrSet = texts.iter().map(|t| t.parse().unwrap()).collect();
        for (address, held) in [
            ("9.255.255.255", false),
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("192.0.2.6", false),
            ("192.0.2.7", true),
            ("192.0.2.9", true),
            ("192.0.2.10", false),
            ("255.255.255.255", true),
            ("::ffff:10.9.9.9", true),
            ("198.51.100.255", true),
            ("198.51.101.0", false),
            ("2001:db7:ffff::", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("ffff::1", true),
            ("::1", false),
        ] {
            assert_eq!(set.contains(address.parse().unwrap()), held, "{address}");
        }
        assert_eq!(set.blocks().len(), texts.len());
        let none = CidrSet::default();
        assert!(
            !none.contains("0.0.0.0".parse().unwrap()) && !none.contains("::".parse().unwrap())
        );
        let all: CidrSet = ["0.0.0.0/0", "::/0"]
            .iter()
            .map(|t| t.parse().unwrap())
            .collect();
        assert!(
            all.contains("255.255.255.255".parse().unwrap()) && all.contains("::".parse().unwrap())
        );
    }

    #[test]
    fn refuses_what_is_no_block() {
        for text in ["", "10.0.0/8", "example.com", "10.0.0.0.0/8"] {
            assert_eq!(text.parse::<Cidr>(), Err(CidrError::Address), "{text}");
        }
        for text in [
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/x",
        ] {
            assert_eq!(text.parse::<Cidr>(), Err(CidrError::Bits), "{text}");
        }
    }
}
