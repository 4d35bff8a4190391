//! What has been collected of a request body, and which bodies are (I37).

use std::sync::Arc;

use toron_reactor::Buf;

use crate::http::chunk::{encode_size_line, CRLF};
use crate::http::{RequestBody, UpstreamFraming};
use crate::policy::memory::{BufferMemory, Charge};
use crate::policy::settings::{ChunkedMode, Limits, DEFAULT_MAX_BODY_BYTES};

/// Longer bodies are streamed unless the route says otherwise; of a chunked body on a route with
/// a high ceiling this much is collected (I37).
const COLLECTED_MOST: u64 = 65_536;
/// Memory for bodies of unknown length grows from here, and is kept for the next.
pub(super) const ROOM: usize = COLLECTED_MOST as usize;

/// How a request body is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// Passed on as it comes.
    Stream,
    /// Collected whole.
    Whole,
    /// Collected whole if it is short, else streamed from there on.
    Beginning,
}

/// How the body of a request is taken in. One that came whole with its head, of known length, need
/// not be collected.
#[must_use]
pub fn intake(body: RequestBody, limits: &Limits, came_whole: bool) -> Intake {
    let (whole, long) = match body {
        RequestBody::None => return Intake::Stream,
        RequestBody::Length(_) if came_whole => return Intake::Stream,
        RequestBody::Length(n) => (Intake::Whole, n > COLLECTED_MOST),
        RequestBody::Chunked if limits.chunked_mode != ChunkedMode::Normalize => {
            return Intake::Stream
        }
        RequestBody::Chunked if limits.max_body_bytes > DEFAULT_MAX_BODY_BYTES => {
            (Intake::Beginning, false)
        }
        RequestBody::Chunked => (Intake::Whole, false),
    };
    match limits.stream_request_body {
        Some(true) => Intake::Stream,
        Some(false) => Intake::Whole,
        None if long => Intake::Stream,
        None => whole,
    }
}

/// What has been collected of a body.
#[derive(Debug)]
pub struct Collected {
    bytes: Vec<u8>,
    /// How many of them have been put on their way to the upstream.
    sent: usize,
    /// Where collecting ends though the body does not.
    most: u64,
    /// No more can come.
    length: usize,
    charge: Option<Charge>,
    framing: UpstreamFraming,
}

impl Collected {
    /// For a body that is announced with this length. Memory is charged for what comes, not for
    /// what is announced: else heads alone could use all of it up.
    #[must_use]
    pub fn with_length(length: u64) -> Self {
        Collected {
            length: usize::try_from(length).unwrap_or(usize::MAX),
            ..Collected::in_room(Vec::new(), Intake::Whole)
        }
    }

    /// For a body of unknown length.
    #[must_use]
    pub fn in_room(room: Vec<u8>, intake: Intake) -> Self {
        Collected {
            bytes: room,
            sent: 0,
            most: if intake == Intake::Beginning {
                COLLECTED_MOST
            } else {
                u64::MAX
            },
            length: usize::MAX,
            charge: None,
            framing: UpstreamFraming::AsReceived,
        }
    }

    /// How the head has to announce the body.
    #[must_use]
    pub fn framing(&self) -> UpstreamFraming {
        self.framing
    }

    /// Begins to send from the first byte.
    pub fn rewind(&mut self) {
        self.sent = 0;
    }

    /// Appends what comes next to `buf`, as much as fits. `false` if there is nothing.
    pub fn fill(&mut self, buf: &mut Buf) -> bool {
        let taken = buf.extend(self.bytes.get(self.sent..).unwrap_or_default());
        self.sent += taken;
        taken > 0
    }

    /// Whether no more is to be collected.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.bytes.len() as u64 >= self.most
    }

    /// Keeps body bytes. `false` if there is no memory for them within `limit`.
    #[must_use]
    pub fn keep(&mut self, bytes: &[u8], memory: &Arc<BufferMemory>, limit: u64) -> bool {
        let wanted = self.bytes.len() + bytes.len();
        let room = if wanted <= self.bytes.capacity() {
            self.bytes.capacity()
        } else {
            let room = wanted.next_power_of_two().max(ROOM);
            room.min(self.length).max(wanted)
        };
        let charged = match self.charge.as_mut() {
            Some(charge) => charge.grow_to(room as u64, limit),
            None => {
                self.charge = memory.charge(room as u64, limit);
                self.charge.is_some()
            }
        };
        let more = room - self.bytes.len();
        let has_room = charged && self.bytes.try_reserve_exact(more).is_ok();
        if has_room {
            self.bytes.extend_from_slice(bytes);
        }
        has_room
    }

    /// No more is kept: says how the body, `whole` or a beginning, goes on.
    pub fn close(&mut self, whole: bool, chunked: bool) {
        if !whole {
            self.frame_beginning();
        } else if chunked {
            self.framing = UpstreamFraming::Collected(self.bytes.len() as u64);
        }
    }

    /// Frames a beginning as the first chunk.
    fn frame_beginning(&mut self) {
        let mut line = [0; 18];
        let line = encode_size_line(self.bytes.len() as u64, &mut line);
        // Left to itself the vector would double, which nobody has charged.
        let _ = self.bytes.try_reserve_exact(line.len() + CRLF.len());
        self.bytes.splice(..0, line.iter().copied());
        self.bytes.extend_from_slice(CRLF);
    }

    /// Its memory, if it is fit to be used again.
    pub fn into_room(mut self) -> Option<Vec<u8>> {
        self.bytes.clear();
        (self.bytes.capacity() == ROOM).then_some(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::RequestBody::{Chunked, Length, None as NoBody};

    #[test]
    fn i37_a_beginning_takes_no_more_memory_than_it_is_charged_for() {
        let memory = BufferMemory::new();
        let mut collected = Collected::in_room(Vec::new(), Intake::Beginning);
        assert!(collected.keep(&[b'x'; ROOM], &memory, u64::MAX));
        assert!(collected.is_enough());
        collected.close(false, true);
        assert!(collected.bytes.ends_with(b"xx\r\n"));
        assert!(collected.bytes.capacity() as u64 <= memory.used() + 20);
    }

    #[test]
    fn i37_what_is_announced_takes_no_memory_before_it_comes() {
        let memory = BufferMemory::new();
        let mut collected = Collected::with_length(1 << 20);
        assert_eq!((memory.used(), collected.bytes.capacity()), (0, 0));
        assert!(collected.keep(&[b'x'; 1000], &memory, u64::MAX));
        assert_eq!(memory.used(), ROOM as u64);
        // Of a short body not more than there will be.
        let mut short = Collected::with_length(2_000);
        assert!(short.keep(&[b'x'; 1000], &memory, u64::MAX));
        assert_eq!(memory.used(), ROOM as u64 + 2_000);
        assert!(!collected.keep(&[b'x'; ROOM], &memory, 100_000));
    }

    #[test]
    fn i37_which_bodies_are_collected() {
        use ChunkedMode::{Normalize, Passthrough};
        use Intake::{Beginning, Stream, Whole};
        let low = DEFAULT_MAX_BODY_BYTES;
        let high = low + 1;
        for (body, ceiling, mode, stream, expected) in [
            (NoBody, low, Normalize, None, Stream),
            (Length(65_536), low, Normalize, None, Whole),
            (Length(65_537), low, Normalize, None, Stream),
            (Length(1), low, Normalize, Some(true), Stream),
            (Length(4_000_000), low, Normalize, Some(false), Whole),
            (Length(65_536), high, Passthrough, None, Whole),
            (Chunked, low, Normalize, None, Whole),
            (Chunked, high, Normalize, None, Beginning),
            (Chunked, u64::MAX, Normalize, None, Beginning),
            (Chunked, low, Normalize, Some(true), Stream),
            (Chunked, high, Normalize, Some(false), Whole),
            (Chunked, low, Passthrough, None, Stream),
        ] {
            let limits = Limits {
                max_body_bytes: ceiling,
                chunked_mode: mode,
                stream_request_body: stream,
                ..crate::policy::settings::tests::limits()
            };
            let context = format!("{body:?} {ceiling} {mode:?} {stream:?}");
            assert_eq!(intake(body, &limits, false), expected, "{context}");
            if matches!(body, Length(_)) {
                assert_eq!(intake(body, &limits, true), Stream, "{context}");
            }
        }
    }
}
