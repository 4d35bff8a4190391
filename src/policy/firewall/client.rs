//! Who the client is (F4).

use std::net::IpAddr;

use super::super::cidr::CidrSet;
use crate::http::client_address::{hops_from_right, Syntax};

/// The client of a request, or of a connection before there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client {
    /// Its address.
    pub address: IpAddr,
    /// The address is a trusted proxy's: it stands for many clients, and is never blocked.
    pub is_proxy: bool,
}

impl Client {
    /// The other end of a connection.
    #[must_use]
    pub fn peer(address: IpAddr, proxies: &CidrSet) -> Client {
        Client {
            address: address.to_canonical(),
            is_proxy: proxies.contains(address),
        }
    }

    /// The client behind `self`, the other end of the connection. Only a trusted proxy is believed:
    /// `lines` are the values of all lines of the header `name`, in order, walked from right to
    /// left. Trusted hops are skipped; the first other one is the client. If all are trusted it is
    /// the leftmost. Something that is not an address ends the walk: the client is then the last
    /// good hop to its right, the peer if there is none, and never one that stands left of it,
    /// where anybody can write.
    pub fn behind<'v>(
        self,
        proxies: &CidrSet,
        name: &str,
        lines: impl DoubleEndedIterator<Item = &'v [u8]>,
    ) -> Client {
        if !self.is_proxy {
            return self;
        }
        let syntax = Syntax::of(name);
        let mut last = self;
        for hop in lines.rev().flat_map(|line| hops_from_right(syntax, line)) {
            let Some(address) = hop else { break };
            last = Client::peer(address, proxies);
            if !last.is_proxy {
                break;
            }
        }
        last
    }
}
