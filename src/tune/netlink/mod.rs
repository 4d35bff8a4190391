//! Questions to the kernel about network interfaces that /proc and /sys do not answer, by
//! `netlink(7)`: rings, channels and offloads as `ethtool(8)` shows them (ethtool.rs), queueing
//! disciplines as `tc(8)` does (qdisc.rs). Nothing is ever set.

pub(super) mod ethtool;
pub(super) mod qdisc;

use std::io::{self, Read, Write};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

const AF_NETLINK: i32 = 16;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const ONE: u16 = 0x1 | 0x4;
/// `NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH`.
const DUMP: u16 = 0x1 | 0x100 | 0x200;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// The kernel answers at once; this is for the case that it does not answer at all.
const PATIENCE: Duration = Duration::from_secs(2);
/// Messages of an answer; a machine has fewer interfaces.
const MOST: usize = 100_000;
/// Of an attribute's type: that it holds attributes, and its byte order.
const TYPE_FLAGS: u16 = 0xC000;

/// A socket to one part of the kernel.
struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    fn open(protocol: i32) -> io::Result<Self> {
        let protocol = Protocol::from(protocol);
        let socket = Socket::new(Domain::from(AF_NETLINK), Type::RAW, Some(protocol))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Netlink {
            socket,
            sequence: 0,
        })
    }

    /// Sends a request and returns the bodies of all messages of the answer.
    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.sequence += 1;
        let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
        let mut request = Vec::with_capacity(HEADER + body.len());
        request.extend(length.to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(flags.to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend(0u32.to_ne_bytes());
        request.extend(body);
        (&self.socket).write_all(&request)?;
        let mut bodies = Vec::new();
        let mut room = vec![0; 64 * 1024];
        while bodies.len() < MOST {
            let length = (&self.socket).read(&mut room)?;
            let received = room.get(..length).unwrap_or_default();
            for message in Messages(received) {
                if message.sequence != self.sequence {
                    continue;
                }
                match message.kind {
                    NLMSG_DONE => return Ok(bodies),
                    NLMSG_ERROR => {
                        let code = number::<4>(message.body).map_or(0, i32::from_ne_bytes);
                        return match code {
                            0 => Ok(bodies),
                            code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                        };
                    }
                    _ => bodies.push(message.body.to_vec()),
                }
            }
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel's answer does not end",
        ))
    }
}

struct Message<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

/// The messages of one receive.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let length = u32::from_ne_bytes(number(self.0)?) as usize;
        let message = self.0.get(..length)?;
        let body = message.get(HEADER..)?;
        let found = Message {
            kind: u16::from_ne_bytes(number(message.get(4..)?)?),
            sequence: u32::from_ne_bytes(number(message.get(8..)?)?),
            body,
        };
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        Some(found)
    }
}

/// The attributes of a message, or of an attribute: type and value.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let length = usize::from(u16::from_ne_bytes(number(self.0)?));
        let kind = u16::from_ne_bytes(number(self.0.get(2..)?)?) & !TYPE_FLAGS;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    }
}

impl<'a> Attributes<'a> {
    fn find(mut self, wanted: u16) -> Option<&'a [u8]> {
        self.find_map(|(kind, value)| (kind == wanted).then_some(value))
    }
}

/// Adds an attribute.
fn put(into: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    into.extend(length.to_ne_bytes());
    into.extend(kind.to_ne_bytes());
    into.extend(value);
    into.resize(aligned(into.len()), 0);
}

/// The next multiple of four.
fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

/// The first bytes.
fn number<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

/// A number of 32 bits as the value of an attribute.
fn word(value: &[u8]) -> Option<u32> {
    number(value).map(u32::from_ne_bytes)
}

/// A string that ends with a zero byte.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_cut_ones_end_the_list() {
        let mut bytes = Vec::new();
        put(&mut bytes, 1, b"abc\0");
        put(&mut bytes, 0x8002, b"x");
        put(&mut bytes, 3, &7u32.to_ne_bytes());
        assert_eq!(bytes.len(), 24);
        let all: Vec<_> = Attributes(&bytes).collect();
        assert_eq!(
            all,
            [(1, &b"abc\0"[..]), (2, b"x"), (3, &7u32.to_ne_bytes())]
        );
        assert_eq!(Attributes(&bytes).find(3).and_then(word), Some(7));
        assert_eq!(text(b"abc\0rest"), "abc");
        for end in 0..bytes.len() {
            assert!(Attributes(&bytes[..end]).count() < 3, "cut at {end}");
        }
        // Lengths that lead nowhere, or would lead on for ever.
        assert_eq!(Attributes(&[0, 0, 1, 0]).count(), 0);
        assert_eq!(Messages(&[0; 16]).count(), 0);
        assert_eq!(Messages(&[255; 16]).count(), 0);
    }
}
