//! Queueing disciplines, by the routing family (`rtnetlink(7)`).

use std::collections::BTreeMap;
use std::io;

use super::{number, text, Attributes, Netlink, DUMP};

const NETLINK_ROUTE: i32 = 0;
const RTM_GETLINK: u16 = 18;
const RTM_GETQDISC: u16 = 38;
/// Bytes of `struct ifinfomsg` and `struct tcmsg`.
const LINK: usize = 16;
const TRAFFIC: usize = 20;
const IFLA_IFNAME: u16 = 3;
const TCA_KIND: u16 = 1;
const TC_H_ROOT: u32 = u32::MAX;

/// The kinds of each interface of this network namespace: the root's first, then those below it
/// (a card of several queues has one for each), each once.
pub(in super::super) fn kinds() -> io::Result<BTreeMap<String, Vec<String>>> {
    let mut netlink = Netlink::open(NETLINK_ROUTE)?;
    let index_of = |message: &[u8]| Some(i32::from_ne_bytes(number(message.get(4..)?)?));
    let mut names = BTreeMap::new();
    for link in netlink.ask(RTM_GETLINK, DUMP, &[0; LINK])? {
        let attributes = Attributes(link.get(LINK..).unwrap_or_default());
        if let (Some(index), Some(name)) = (index_of(&link), attributes.find(IFLA_IFNAME)) {
            names.insert(index, text(name));
        }
    }
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for message in netlink.ask(RTM_GETQDISC, DUMP, &[0; TRAFFIC])? {
        let attributes = Attributes(message.get(TRAFFIC..).unwrap_or_default());
        let name = index_of(&message).and_then(|index| names.get(&index));
        let (Some(name), Some(kind)) = (name, attributes.find(TCA_KIND)) else {
            continue;
        };
        let parent = message.get(12..).and_then(number).map(u32::from_ne_bytes);
        let (kind, list) = (text(kind), kinds.entry(name.clone()).or_default());
        if list.contains(&kind) {
            continue;
        }
        match parent {
            Some(TC_H_ROOT) => list.insert(0, kind),
            _ => list.push(kind),
        }
    }
    Ok(kinds)
}
