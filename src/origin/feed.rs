//! Where the bytes of a response body come from, a buffer at a time.

use std::io::Write;
use std::time::Duration;

use toron_reactor::buffer::RECEIVE;
use toron_reactor::{Buf, Time};

use super::pattern;
use crate::http::chunk::{encode_size_line, CRLF, LAST_CHUNK};

/// Bytes that a chunk needs beside its data: size line and CRLF.
const FRAME: usize = 20;

/// What is still to be sent of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Feed {
    /// Nothing.
    #[default]
    Done,
    /// The pattern.
    Pattern {
        /// Position of the next byte.
        at: u64,
        /// Position behind the last one.
        end: u64,
    },
    /// The pattern in chunks.
    Chunks {
        /// Position of the next byte.
        at: u64,
        /// Position behind the last one.
        end: u64,
        /// Length of a chunk.
        chunk: u32,
    },
    /// The pattern up to `end`, and then nothing although more was announced.
    Stall {
        /// Position of the next byte.
        at: u64,
        /// Position behind the last one.
        end: u64,
    },
    /// The pattern, a byte at a time.
    Drip {
        /// Position of the next byte.
        at: u64,
        /// Position behind the last one.
        end: u64,
        /// Time between two.
        every: Duration,
        /// When the next is due.
        due: Time,
    },
    /// Events.
    Events(Events),
}

/// A `text/event-stream` (HTML, section 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Events {
    /// Events sent.
    pub(super) sent: u64,
    /// How many there will be.
    pub(super) count: Option<u64>,
    /// Time between two.
    pub(super) every: Duration,
    /// When the next is due.
    pub(super) due: Time,
    /// Each event is a chunk; else the close ends the body.
    pub(super) chunked: bool,
}

/// How a body goes on after what a buffer was filled with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// With more, at once.
    More,
    /// With more, then.
    Wait(Time),
    /// It is complete.
    Done,
    /// Not at all.
    Never,
}

impl Feed {
    /// Appends what comes next to `buf`, which has room for [`RECEIVE`] bytes and a head.
    pub(super) fn fill(&mut self, buf: &mut Buf) -> Progress {
        match self {
            Feed::Done => Progress::Done,
            Feed::Pattern { at, end } => {
                if push_pattern(at, *end, buf) {
                    Progress::Done
                } else {
                    Progress::More
                }
            }
            Feed::Stall { at, end } => {
                if push_pattern(at, *end, buf) {
                    Progress::Never
                } else {
                    Progress::More
                }
            }
            Feed::Chunks { at, end, chunk } => push_chunks(at, *end, *chunk, buf),
            Feed::Drip {
                at,
                end,
                every,
                due,
            } => {
                if at < end {
                    *at += pattern::append(*at, 1, buf) as u64;
                }
                *due = *due + *every;
                if at == end {
                    Progress::Done
                } else {
                    Progress::Wait(*due)
                }
            }
            Feed::Events(events) => events.fill(buf),
        }
    }
}

/// Appends a part of the pattern; whether it is complete.
fn push_pattern(at: &mut u64, end: u64, buf: &mut Buf) -> bool {
    let n = usize::try_from(end - *at).unwrap_or(RECEIVE).min(RECEIVE);
    *at += pattern::append(*at, n, buf) as u64;
    *at == end
}

fn push_chunks(at: &mut u64, end: u64, chunk: u32, buf: &mut Buf) -> Progress {
    while *at < end {
        let n = (end - *at).min(u64::from(chunk));
        if buf.room() < n as usize + FRAME {
            return Progress::More;
        }
        buf.extend(encode_size_line(n, &mut [0; 18]));
        *at += pattern::append(*at, n as usize, buf) as u64;
        buf.extend(CRLF);
    }
    if buf.room() < LAST_CHUNK.len() {
        return Progress::More;
    }
    buf.extend(LAST_CHUNK);
    Progress::Done
}

impl Events {
    fn fill(&mut self, buf: &mut Buf) -> Progress {
        if self.count != Some(self.sent) {
            self.sent += 1;
            let mut text = [0; 80];
            let mut left = &mut text[..];
            // Two numbers of 20 digits fit.
            let _ = write!(left, "id: {0}\ndata: event {0}\n\n", self.sent);
            let unused = left.len();
            self.push(text.get(..text.len() - unused).unwrap_or_default(), buf);
            self.due = self.due + self.every;
        }
        if self.count == Some(self.sent) {
            if self.chunked {
                buf.extend(LAST_CHUNK);
            }
            return Progress::Done;
        }
        Progress::Wait(self.due)
    }

    fn push(&self, text: &[u8], buf: &mut Buf) {
        if self.chunked {
            buf.extend(encode_size_line(text.len() as u64, &mut [0; 18]));
        }
        buf.extend(text);
        if self.chunked {
            buf.extend(CRLF);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::http::chunk::{Decoder, Event};
    use toron_reactor::BufferPool;

    /// All buffers of a feed, and how it ended.
    fn drain(mut feed: Feed) -> (Vec<Vec<u8>>, Vec<Progress>) {
        let pool = BufferPool::new(1);
        let (mut parts, mut steps) = (Vec::new(), Vec::new());
        for _ in 0..1000 {
            let mut buf = pool.take().unwrap();
            let step = feed.fill(&mut buf);
            parts.push(buf.to_vec());
            steps.push(step);
            if matches!(step, Progress::Done | Progress::Never) {
                return (parts, steps);
            }
        }
        panic!("{feed:?} does not end");
    }

    fn is_pattern(bytes: &[u8]) -> bool {
        (0..).zip(bytes).all(|(at, b)| *b == pattern::byte_at(at))
    }

    #[test]
    fn the_pattern_comes_whole_for_every_length() {
        for end in [0, 1, 65535, 65536, 65537, 1_000_003] {
            let (parts, steps) = drain(Feed::Pattern { at: 0, end });
            let body = parts.concat();
            assert!(body.len() as u64 == end && is_pattern(&body));
            assert_eq!(steps.last(), Some(&Progress::Done));
            assert_eq!(parts.len() as u64, end.div_ceil(65536).max(1));
        }
    }

    #[test]
    fn chunks_of_every_size_decode_to_the_pattern() {
        for (end, chunk) in [(0, 5), (1, 1), (70_000, 1), (70_000, 7), (300_000, 32_768)] {
            let (parts, _) = drain(Feed::Chunks { at: 0, end, chunk });
            let wire = parts.concat();
            let (mut decoder, mut trailers) = (Decoder::new(), Vec::new());
            let (mut read, mut body) = (0, Vec::new());
            while !decoder.is_done() {
                let step = decoder.feed(&wire[read..], &mut trailers);
                match step.event {
                    Event::Data { start, end } => body.extend(&wire[read + start..read + end]),
                    Event::Done => {}
                    other => panic!("{other:?}"),
                }
                read += step.consumed;
            }
            assert_eq!(read, wire.len());
            assert!(body.len() as u64 == end && is_pattern(&body));
        }
    }

    #[test]
    fn a_stall_sends_its_part_and_never_ends() {
        let (parts, steps) = drain(Feed::Stall { at: 0, end: 70_000 });
        assert_eq!(parts.concat().len(), 70_000);
        assert_eq!(steps, [Progress::More, Progress::Never]);
    }

    #[test]
    fn drops_and_events_keep_their_pace() {
        let every = Duration::from_millis(10);
        let start = Time(5);
        let (parts, steps) = drain(Feed::Drip {
            at: 0,
            end: 3,
            every,
            due: start,
        });
        assert!(parts.iter().all(|part| part.len() == 1) && is_pattern(&parts.concat()));
        let waits = [
            Progress::Wait(start + every),
            Progress::Wait(start + every * 2),
            Progress::Done,
        ];
        assert_eq!(steps, waits);
        let events = |chunked| {
            Feed::Events(Events {
                sent: 0,
                count: Some(3),
                every,
                due: start,
                chunked,
            })
        };
        let (parts, steps) = drain(events(false));
        assert_eq!(steps, waits);
        assert_eq!(
            String::from_utf8(parts.concat()).unwrap(),
            "id: 1\ndata: event 1\n\nid: 2\ndata: event 2\n\nid: 3\ndata: event 3\n\n"
        );
        let (parts, _) = drain(events(true));
        assert_eq!(parts[0], b"15\r\nid: 1\ndata: event 1\n\n\r\n");
        assert!(parts[2].ends_with(b"\r\n0\r\n\r\n"));
    }
}
