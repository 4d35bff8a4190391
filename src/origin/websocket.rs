//! WebSocket, as much as an echo needs (RFC 6455): the handshake, and frames turned round in the
//! buffer they came in. A client's frame is longer than the server's answer by its mask, so frames
//! of any length are answered in constant memory.
//!
//! Text is not checked to be UTF-8: it is sent back before its end is known, and the client's own
//! check finds what was broken on the way.

use base64::prelude::{Engine as _, BASE64_STANDARD};
use sha1::{Digest, Sha1};

use crate::http::method::Method;
use crate::http::request::UpgradeAsked;
use crate::http::syntax::list;
use crate::http::RequestHead;

/// Appended to the client's key (RFC 6455 section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The longest header of a client's frame.
const LONGEST_HEADER: usize = 14;
/// The most payload of a control frame (section 5.5).
const LONGEST_CONTROL: u64 = 125;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FIN: u8 = 0x80;

/// Status code of a protocol error (section 7.4.1).
pub(super) const PROTOCOL_ERROR: u16 = 1002;
/// Status code of an endpoint that ends.
pub(super) const GOING_AWAY: u16 = 1001;

/// Why a request does not open a WebSocket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// It does not ask for one in version 13: 426.
    NotAsked,
    /// Its key is missing or broken: 400.
    BadKey,
}

/// Checks a handshake (section 4.2.1) and makes `Sec-WebSocket-Accept`.
pub(super) fn accept(request: &RequestHead<'_, '_>) -> Result<String, Refused> {
    let asked = request.facts.method == Method::Get
        && request.facts.body.is_empty()
        && request.facts.upgrade == UpgradeAsked::Yes
        && request
            .field("upgrade")
            .is_some_and(|value| list(value).any(|p| p.eq_ignore_ascii_case(b"websocket")));
    if !asked || request.field("sec-websocket-version") != Some(b"13") {
        return Err(Refused::NotAsked);
    }
    let key = request.field("sec-websocket-key").ok_or(Refused::BadKey)?;
    match BASE64_STANDARD.decode(key) {
        Ok(nonce) if nonce.len() == 16 => Ok(accept_of(key)),
        _ => Err(Refused::BadKey),
    }
}

fn accept_of(key: &[u8]) -> String {
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    BASE64_STANDARD.encode(digest)
}

/// A close frame with a status code.
pub(super) fn close_frame(code: u16) -> [u8; 4] {
    let [high, low] = code.to_be_bytes();
    [FIN | CLOSE, 2, high, low]
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The client's close frame has been answered.
    Closed,
    /// The client broke the protocol; a close frame with this code is to follow.
    Fault(u16),
}

/// What a buffer of frames has become.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Answer {
    front: [u8; 10],
    front_len: usize,
    /// Bytes of the buffer that are to be sent.
    pub(super) len: usize,
    /// Nothing follows.
    pub(super) end: Option<End>,
}

impl Answer {
    /// What is to be sent before the buffer: the header of a frame whose own header came with
    /// earlier bytes.
    pub(super) fn front(&self) -> &[u8] {
        self.front.get(..self.front_len).unwrap_or_default()
    }
}

/// One direction of a connection being turned round.
#[derive(Clone, Debug, Default)]
pub(super) struct Echo {
    header: [u8; LONGEST_HEADER],
    have: usize,
    frame: Option<Frame>,
    /// A fragmented message is under way.
    fragmented: bool,
}

/// A frame whose header has been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Frame {
    /// First byte of the answer.
    lead: u8,
    len: u64,
    /// Payload bytes still to come.
    left: u64,
    /// Rotated so that its first byte is for the next payload byte.
    mask: [u8; 4],
    /// Pongs are not answered.
    answered: bool,
    closes: bool,
}

impl Echo {
    /// Nothing of a frame has come without the rest.
    pub(super) fn is_between_frames(&self) -> bool {
        self.have == 0 && self.frame.is_none()
    }

    /// Turns what came into what goes back.
    pub(super) fn turn_round(&mut self, bytes: &mut [u8]) -> Answer {
        let mut answer = Answer::default();
        let mut read = 0;
        loop {
            if let Some(frame) = &mut self.frame {
                let rest = bytes.len() - read;
                let n = usize::try_from(frame.left).unwrap_or(rest).min(rest);
                frame.unmask(bytes.get_mut(read..read + n).unwrap_or_default());
                if frame.answered {
                    bytes.copy_within(read..read + n, answer.len);
                    answer.len += n;
                }
                read += n;
                if frame.left > 0 {
                    return answer;
                }
                if frame.closes {
                    answer.end = Some(End::Closed);
                    return answer;
                }
                self.frame = None;
            }
            match self.read_header(bytes, &mut read) {
                None => return answer,
                Some(Err(code)) => {
                    answer.end = Some(End::Fault(code));
                    return answer;
                }
                Some(Ok(frame)) => {
                    if frame.answered {
                        answer.push_header(&frame, bytes, read);
                    }
                    self.frame = Some(frame);
                }
            }
        }
    }

    /// `None`: it is not complete yet.
    fn read_header(&mut self, bytes: &[u8], read: &mut usize) -> Option<Result<Frame, u16>> {
        while self.have < header_len(&self.header, self.have) {
            *self.header.get_mut(self.have)? = *bytes.get(*read)?;
            self.have += 1;
            *read += 1;
        }
        self.have = 0;
        Some(self.judge())
    }

    /// What the header means (section 5.2), or the status code that it deserves.
    fn judge(&mut self) -> Result<Frame, u16> {
        let header = self.header;
        let [lead, second, ..] = header;
        let opcode = lead & 0x0f;
        let (len, mask_at) = match second & 0x7f {
            126 => (u64::from(u16::from_be_bytes([header[2], header[3]])), 4),
            127 => {
                let [_, _, len @ ..] = header;
                let [a, b, c, d, e, f, g, h, ..] = len;
                (u64::from_be_bytes([a, b, c, d, e, f, g, h]), 10)
            }
            short => (u64::from(short), 2),
        };
        let control = opcode >= CLOSE;
        let fragment = lead & FIN == 0;
        let faulty = lead & 0x70 != 0
            || second & 0x80 == 0
            || len >> 63 != 0
            || !matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG)
            || (control && (fragment || len > LONGEST_CONTROL))
            || (opcode == CLOSE && len == 1)
            || (!control && self.fragmented != (opcode == CONTINUATION));
        if faulty {
            return Err(PROTOCOL_ERROR);
        }
        if !control {
            self.fragmented = fragment;
        }
        let mut mask = [0; 4];
        mask.copy_from_slice(header.get(mask_at..mask_at + 4).ok_or(PROTOCOL_ERROR)?);
        Ok(Frame {
            lead: if opcode == PING { FIN | PONG } else { lead },
            len,
            left: len,
            mask,
            answered: opcode != PONG,
            closes: opcode == CLOSE,
        })
    }
}

/// Bytes of a client's header, as far as those that are there tell.
fn header_len(header: &[u8; LONGEST_HEADER], have: usize) -> usize {
    if have < 2 {
        return 2;
    }
    let extended = match header[1] & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    // A header without a mask is refused, and ends where the mask would begin.
    let mask = if header[1] & 0x80 == 0 { 0 } else { 4 };
    2 + extended + mask
}

impl Frame {
    fn unmask(&mut self, payload: &mut [u8]) {
        for part in payload.chunks_mut(4) {
            for (byte, mask) in part.iter_mut().zip(self.mask) {
                *byte ^= mask;
            }
        }
        self.mask.rotate_left(payload.len() % 4);
        self.left -= payload.len() as u64;
    }
}

impl Answer {
    fn push_header(&mut self, frame: &Frame, bytes: &mut [u8], read: usize) {
        let mut header = [0; 10];
        header[0] = frame.lead;
        let len = match frame.len {
            short @ 0..=125 => {
                header[1] = short as u8;
                2
            }
            medium @ 126..=0xffff => {
                header[1] = 126;
                header[2..4].copy_from_slice(&(medium as u16).to_be_bytes());
                4
            }
            long => {
                header[1] = 127;
                header[2..].copy_from_slice(&long.to_be_bytes());
                10
            }
        };
        if self.len + len <= read {
            bytes[self.len..self.len + len].copy_from_slice(&header[..len]);
            self.len += len;
        } else {
            // Only the first header of a buffer can have begun in an earlier one.
            debug_assert_eq!((self.len, self.front_len), (0, 0));
            self.front = header;
            self.front_len = len;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(lead: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
        let mut out = vec![lead];
        match payload.len() {
            n @ 0..=125 => out.push(0x80 | n as u8),
            n @ 126..=0xffff => {
                out.push(0x80 | 126);
                out.extend((n as u16).to_be_bytes());
            }
            n => {
                out.push(0x80 | 127);
                out.extend((n as u64).to_be_bytes());
            }
        }
        out.extend(mask);
        out.extend(payload.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m));
        out
    }

    fn plain(lead: u8, payload: &[u8]) -> Vec<u8> {
        let masked = frame(lead, payload, [0; 4]);
        let mask_at = masked.len() - payload.len() - 4;
        let mut out = [&masked[..mask_at], payload].concat();
        out[1] &= 0x7f;
        out
    }

    /// Feeds `wire` cut at every `cut` bytes.
    fn echo(wire: &[u8], cut: usize) -> (Vec<u8>, Option<End>) {
        let mut state = Echo::default();
        let mut out = Vec::new();
        for part in wire.chunks(cut) {
            let mut bytes = part.to_vec();
            let answer = state.turn_round(&mut bytes);
            out.extend(answer.front());
            out.extend(&bytes[..answer.len]);
            if answer.end.is_some() {
                return (out, answer.end);
            }
        }
        assert!(state.is_between_frames());
        (out, None)
    }

    #[test]
    fn the_accept_value_of_the_rfc() {
        assert_eq!(
            accept_of(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn frames_of_every_length_however_they_are_cut() {
        let mut wire = Vec::new();
        let mut expected = Vec::new();
        for (i, n) in [0, 1, 5, 125, 126, 127, 65535, 65536, 70_001]
            .into_iter()
            .enumerate()
        {
            let payload: Vec<u8> = (0..n).map(|b| b as u8).collect();
            wire.extend(frame(FIN | BINARY, &payload, [i as u8, 2, 0x83, 0xff]));
            expected.extend(plain(FIN | BINARY, &payload));
        }
        for cut in [1, 2, 3, 7, 13, 14, 15, 4096, 65536, usize::MAX] {
            assert_eq!(echo(&wire, cut), (expected.clone(), None), "cut at {cut}");
        }
    }

    #[test]
    fn control_frames_between_fragments() {
        let mask = [9, 8, 7, 6];
        let wire = [
            frame(TEXT, b"Hel", mask),
            frame(FIN | PING, b"?", mask),
            frame(FIN | PONG, b"nobody asked", mask),
            frame(FIN | CONTINUATION, b"lo", mask),
            frame(FIN | CLOSE, &[3, 232, b'x'], mask),
            frame(FIN | TEXT, b"too late", mask),
        ]
        .concat();
        let expected = [
            plain(TEXT, b"Hel"),
            plain(FIN | PONG, b"?"),
            plain(FIN | CONTINUATION, b"lo"),
            plain(FIN | CLOSE, &[3, 232, b'x']),
        ]
        .concat();
        for cut in 1..wire.len() {
            assert_eq!(echo(&wire, cut), (expected.clone(), Some(End::Closed)));
        }
    }

    #[test]
    fn what_breaks_the_protocol() {
        let mask = [1, 2, 3, 4];
        let unmasked = plain(FIN | TEXT, b"x");
        let mut endless = frame(FIN | BINARY, &[0; 65536], mask);
        endless[2] = 0x80;
        for wire in [
            unmasked,
            endless,
            frame(FIN | 0x40 | TEXT, b"x", mask),
            frame(FIN | 3, b"x", mask),
            frame(FIN | 11, b"x", mask),
            frame(PING, b"x", mask),
            frame(FIN | PING, &[0; 126], mask),
            frame(FIN | CLOSE, b"x", mask),
            frame(FIN | CONTINUATION, b"x", mask),
            [frame(TEXT, b"x", mask), frame(FIN | TEXT, b"y", mask)].concat(),
        ] {
            let (_, end) = echo(&wire, usize::MAX);
            assert_eq!(end, Some(End::Fault(PROTOCOL_ERROR)), "{:x?}", &wire[..2]);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(wire: Vec<u8>, cut in 1usize..20) {
            let mut state = Echo::default();
            for part in wire.chunks(cut) {
                let mut bytes = part.to_vec();
                let answer = state.turn_round(&mut bytes);
                prop_assert!(answer.len <= bytes.len());
                if answer.end.is_some() {
                    break;
                }
            }
        }
    }
}
