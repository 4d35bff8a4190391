//! Body bytes in the buffer they came in: cut to the message, decoded and framed in place.

use toron_reactor::Buf;

pub use super::chunked::{Chunked, Portion};
use crate::http::chunk::{encode_size_line, CRLF, LAST_CHUNK, LAST_CHUNK_LINE};
use crate::http::Reason;

/// How a body ends on the side it comes from.
#[derive(Debug, Default)]
pub enum Source {
    /// There is none.
    #[default]
    None,
    /// After so many more bytes.
    Length(u64),
    /// With its last chunk.
    Chunked(Chunked),
    /// With the connection.
    UntilClose,
}

/// How a body is framed on the side it goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framing {
    /// As it is; its length was announced.
    #[default]
    Plain,
    /// In chunks, one per buffer.
    Chunked,
    /// In the chunks that it comes in, for which it must be chunked there.
    Passed,
    /// As it is; the end of the connection ends it.
    UntilClose,
}

impl Source {
    /// Bytes still to come: `u64::MAX` when unknown.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        match self {
            Source::None => 0,
            Source::Length(n) => *n,
            Source::Chunked(_) | Source::UntilClose => u64::MAX,
        }
    }

    /// Bytes that must still come at least, on the wire, for the body to be whole.
    #[must_use]
    pub fn least_to_come(&self) -> u64 {
        match self {
            Source::None | Source::UntilClose => 0,
            Source::Length(n) => *n,
            Source::Chunked(chunked) => chunked.least_to_come(),
        }
    }

    /// Body bytes taken so far, where that is counted here.
    #[must_use]
    pub fn decoded(&self) -> u64 {
        match self {
            Source::Chunked(chunked) => chunked.decoded(),
            Source::None | Source::Length(_) | Source::UntilClose => 0,
        }
    }

    /// Reduces what stands behind the first `skip` bytes of `buf` to body bytes, or what
    /// `framing` passes on of the framing that they have. What follows the body is moved to `rest`.
    pub fn take(
        &mut self,
        buf: &mut Buf,
        skip: usize,
        framing: Framing,
        rest: &mut impl Extend<u8>,
    ) -> Result<Portion, Reason> {
        let have = buf.len().saturating_sub(skip);
        let portion = match self {
            Source::None => Portion::plain(0, true),
            Source::UntilClose => Portion::plain(have, false),
            Source::Length(remaining) => {
                let bytes = usize::try_from(*remaining).unwrap_or(usize::MAX).min(have);
                *remaining -= bytes as u64;
                Portion::plain(bytes, *remaining == 0)
            }
            Source::Chunked(chunked) if framing == Framing::Passed => {
                return chunked.pass(buf, skip, rest)
            }
            Source::Chunked(chunked) => return chunked.take(buf, skip, rest),
        };
        let behind = buf.get(skip + portion.bytes..).unwrap_or_default();
        rest.extend(behind.iter().copied());
        buf.truncate(skip + portion.bytes);
        Ok(portion)
    }

    /// Nothing more is to come.
    pub fn end(&mut self) {
        *self = Source::Length(0);
    }
}

/// Appends what opens a portion: the size line of its chunk.
pub fn push_opening(framing: Framing, portion: Portion, head: &mut Vec<u8>) {
    if framing == Framing::Chunked && portion.bytes > 0 {
        head.extend_from_slice(encode_size_line(portion.bytes as u64, &mut [0; 18]));
    }
}

/// Appends what closes a portion: the end of its chunk, and of the body. `trailers` are whole
/// lines. `false` if there is no room, which the limits on receives and trailers rule out.
#[must_use]
pub fn push_closing(framing: Framing, portion: Portion, trailers: &[u8], buf: &mut Buf) -> bool {
    let ends_chunk = match framing {
        Framing::Plain | Framing::UntilClose => return true,
        Framing::Chunked => portion.bytes > 0,
        Framing::Passed => portion.ends_chunk,
    };
    let mut fits = true;
    let mut push = |bytes: &[u8]| fits &= buf.extend(bytes) == bytes.len();
    if ends_chunk {
        push(CRLF);
    }
    match (portion.last, trailers.is_empty()) {
        (false, _) => {}
        (true, true) => push(LAST_CHUNK),
        (true, false) => {
            push(LAST_CHUNK_LINE);
            push(trailers);
            push(CRLF);
        }
    }
    fits
}

/// Frames a buffer that holds nothing but a portion.
#[must_use]
pub fn frame(
    framing: Framing,
    portion: Portion,
    trailers: &[u8],
    scratch: &mut Vec<u8>,
    buf: &mut Buf,
) -> bool {
    scratch.clear();
    push_opening(framing, portion, scratch);
    buf.replace_front(0, scratch) && push_closing(framing, portion, trailers, buf)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use toron_reactor::BufferPool;

    fn buf(bytes: &[u8]) -> Buf {
        let mut buf = BufferPool::new(1).take().unwrap();
        buf.extend(bytes);
        buf
    }

    #[test]
    fn a_length_is_cut_and_the_rest_kept() {
        let mut source = Source::Length(3);
        let mut b = buf(b"headabcGET /");
        let mut rest = Vec::new();
        let portion = source.take(&mut b, 4, Framing::Plain, &mut rest).unwrap();
        assert_eq!(portion, Portion::plain(3, true));
        assert_eq!(&*b, b"headabc");
        assert_eq!(rest, b"GET /");
    }

    #[test]
    fn chunks_are_decoded_and_framed_anew_in_place() {
        let mut source = Source::Chunked(Chunked::default());
        let (mut rest, mut scratch) = (Vec::new(), Vec::new());
        let mut b = buf(b"2;x=y\r\nab\r\n3\r\ncd");
        let portion = source.take(&mut b, 0, Framing::Chunked, &mut rest).unwrap();
        assert_eq!(portion, Portion::plain(4, false));
        assert!(frame(Framing::Chunked, portion, b"", &mut scratch, &mut b));
        assert_eq!(&*b, b"4\r\nabcd\r\n");

        let mut b = buf(b"e\r\n0\r\nX-Sum: 1\r\n\r\nGET /");
        let portion = source.take(&mut b, 0, Framing::Chunked, &mut rest).unwrap();
        assert_eq!(portion, Portion::plain(1, true));
        let Source::Chunked(chunked) = &source else {
            panic!()
        };
        assert!(frame(
            Framing::Chunked,
            portion,
            &chunked.trailers,
            &mut scratch,
            &mut b
        ));
        assert_eq!(&*b, b"1\r\ne\r\n0\r\nX-Sum: 1\r\n\r\n");
        assert_eq!(rest, b"GET /");
    }

    #[test]
    fn a_fault_in_the_chunks_is_told() {
        let mut source = Source::Chunked(Chunked::default());
        assert!(source
            .take(
                &mut buf(b"+2\r\nab\r\n"),
                0,
                Framing::Chunked,
                &mut Vec::new()
            )
            .is_err());
    }
}
