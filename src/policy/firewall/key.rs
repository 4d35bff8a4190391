//! What an address is filed under.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};

use super::super::cidr::Cidr;

/// An IPv4 address, or as much of an IPv6 address as makes out its owner. The two do not meet: an
/// IPv4 address is filed as its IPv4-mapped address, and no other address is in that block. Octets, as
/// a `u128` is aligned to 16 bytes, and each connection holds a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    octets: [u8; 16],
    prefix: u8,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from_ne_bytes(self.octets));
        state.write_u8(self.prefix);
    }
}

impl Key {
    /// Of `address`, with `ipv6_prefix` leading bits of an IPv6 address.
    #[must_use]
    pub fn of(address: IpAddr, ipv6_prefix: u8) -> Key {
        match address.to_canonical() {
            IpAddr::V4(v4) => Key {
                octets: v4.to_ipv6_mapped().octets(),
                prefix: 128,
            },
            IpAddr::V6(v6) => {
                let rest = u128::MAX.checked_shr(u32::from(ipv6_prefix)).unwrap_or(0);
                Key {
                    octets: (v6.to_bits() & !rest).to_be_bytes(),
                    prefix: ipv6_prefix.min(128),
                }
            }
        }
    }

    /// The addresses filed under it.
    #[must_use]
    pub fn block(self) -> Cidr {
        match IpAddr::V6(Ipv6Addr::from(self.octets)).to_canonical() {
            v4 @ IpAddr::V4(_) => Cidr::around(v4, 32),
            v6 @ IpAddr::V6(_) => Cidr::around(v6, self.prefix),
        }
    }
}
