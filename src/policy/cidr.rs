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
