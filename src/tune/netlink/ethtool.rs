//! The ethtool family of generic netlink (Documentation/networking/ethtool-netlink.rst).

use std::io;

use super::{number, put, text, word, Attributes, Netlink, ONE};

const NETLINK_GENERIC: i32 = 16;
/// Bytes of `struct genlmsghdr`.
const HEADER: usize = 4;
/// Of the family that tells the numbers of the others.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const FEATURES_GET: u8 = 11;
const RINGS_GET: u8 = 15;
const CHANNELS_GET: u8 = 17;

/// `ETHTOOL_A_*_HEADER` and `ETHTOOL_A_HEADER_DEV_NAME`.
const A_HEADER: u16 = 1;
const A_DEV_NAME: u16 = 2;
/// Marks an attribute that holds attributes.
const NESTED: u16 = 0x8000;

/// Sizes now and at most; `None` where the card has no such thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct Sizes {
    pub(in super::super) receive: Option<(u32, u32)>,
    pub(in super::super) send: Option<(u32, u32)>,
    pub(in super::super) combined: Option<(u32, u32)>,
}

/// What a card does by itself, by the kernel's names of it (`tx-tcp-segmentation`, …).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct Features {
    pub(in super::super) active: Vec<String>,
    /// Cannot be changed.
    pub(in super::super) fixed: Vec<String>,
}

/// The ethtool family.
pub(in super::super) struct Ethtool {
    netlink: Netlink,
    family: u16,
}

impl Ethtool {
    /// Fails where the kernel has no such family (before Linux 5.6) or netlink is forbidden.
    pub(in super::super) fn open() -> io::Result<Self> {
        let mut netlink = Netlink::open(NETLINK_GENERIC)?;
        let mut body = vec![CTRL_CMD_GETFAMILY, 1, 0, 0];
        put(&mut body, CTRL_ATTR_FAMILY_NAME, b"ethtool\0");
        let answers = netlink.ask(GENL_ID_CTRL, ONE, &body)?;
        let id = answers.iter().find_map(|answer| {
            let attributes = Attributes(answer.get(HEADER..)?);
            number(attributes.find(CTRL_ATTR_FAMILY_ID)?).map(u16::from_ne_bytes)
        });
        let family = id.ok_or_else(strange)?;
        Ok(Ethtool { netlink, family })
    }

    fn ask(&mut self, command: u8, card: &str) -> io::Result<Vec<u8>> {
        let mut name = card.as_bytes().to_vec();
        name.push(0);
        let mut header = Vec::new();
        put(&mut header, A_DEV_NAME, &name);
        let mut body = vec![command, 1, 0, 0];
        put(&mut body, A_HEADER | NESTED, &header);
        let answers = self.netlink.ask(self.family, ONE, &body)?;
        let answer = answers.into_iter().next().ok_or_else(strange)?;
        Ok(answer.get(HEADER..).unwrap_or_default().to_vec())
    }

    /// Places of a card's rings.
    pub(in super::super) fn rings(&mut self, card: &str) -> io::Result<Sizes> {
        let answer = self.ask(RINGS_GET, card)?;
        let pair = pairs(&answer);
        Ok(Sizes {
            receive: pair(6, 2),
            send: pair(9, 5),
            combined: None,
        })
    }

    /// Numbers of a card's queues.
    pub(in super::super) fn channels(&mut self, card: &str) -> io::Result<Sizes> {
        let answer = self.ask(CHANNELS_GET, card)?;
        let pair = pairs(&answer);
        Ok(Sizes {
            receive: pair(6, 2),
            send: pair(7, 3),
            combined: pair(9, 5),
        })
    }

    /// What a card does by itself.
    pub(in super::super) fn features(&mut self, card: &str) -> io::Result<Features> {
        const ACTIVE: u16 = 4;
        const NOCHANGE: u16 = 5;
        let answer = self.ask(FEATURES_GET, card)?;
        let names = |kind: u16| Attributes(&answer).find(kind).map_or(Vec::new(), set_bits);
        Ok(Features {
            active: names(ACTIVE),
            fixed: names(NOCHANGE),
        })
    }
}

fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an answer without its contents")
}

/// Two attributes that belong together: now, at most.
fn pairs(answer: &[u8]) -> impl Fn(u16, u16) -> Option<(u32, u32)> + '_ {
    |now, most| {
        let read = |kind| Attributes(answer).find(kind).and_then(word);
        Some((read(now)?, read(most)?)).filter(|(_, most)| *most > 0)
    }
}

/// The names in a list of set bits (a bit set without mask, in its long form).
fn set_bits(bits: &[u8]) -> Vec<String> {
    const BITS: u16 = 3;
    const BIT: u16 = 1;
    const BIT_NAME: u16 = 2;
    let list = Attributes(bits).find(BITS).unwrap_or_default();
    let bits = Attributes(list).filter(|(kind, _)| *kind == BIT);
    bits.filter_map(|(_, bit)| Attributes(bit).find(BIT_NAME).map(text))
        .collect()
}
