//! The chunked coding (RFC 9112 section 7.1), stricter than the RFC where its
//! freedom has been used for smuggling: exact CRLF, no white space around the
//! size, bounded extensions and trailers.

use super::field::Name;
use super::reason::Reason;
use super::syntax::{is_tchar, text_run};

/// Most bytes of extensions behind one chunk size.
pub const MAX_EXTENSION: u16 = 256;
/// Most bytes of a trailer section, line ends included.
pub const MAX_TRAILERS: usize = 4096;
/// Most digits of a chunk size, leading zeros included: zeros without end would
/// be a way to keep a reader busy for ever.
const MAX_SIZE_DIGITS: u8 = 32;

/// The chunk that ends a body without trailers, and the empty line behind it.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// The last chunk alone; trailers and [`CRLF`] follow.
pub const LAST_CHUNK_LINE: &[u8] = b"0\r\n";
/// Ends the data of a chunk, and a trailer section.
pub const CRLF: &[u8] = b"\r\n";

/// The line in front of `size` bytes of chunk data. `size` 0 would end the body:
/// use [`LAST_CHUNK`] for that.
pub fn encode_size_line(size: u64, buffer: &mut [u8; 18]) -> &[u8] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let [digits @ .., cr, lf] = buffer;
    (*cr, *lf) = (b'\r', b'\n');
    let mut n = size;
    let mut start = digits.len();
    for slot in digits.iter_mut().rev() {
        *slot = DIGITS[(n & 15) as usize];
        start -= 1;
        n >>= 4;
        if n == 0 {
            break;
        }
    }
    buffer.get(start..).unwrap_or_default()
}

/// What a step has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Body bytes: `input[start..end]`, never empty.
    Data {
        /// First byte.
        start: usize,
        /// Behind the last byte.
        end: usize,
    },
    /// The whole input has been taken.
    NeedMore,
    /// The body is complete; what is left of the input is the next message.
    Done,
    /// The coding is broken.
    Fault(Reason),
}

/// The outcome of one call of [`Decoder::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// How many bytes of the input are dealt with.
    pub consumed: usize,
    /// What they were.
    pub event: Event,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
    Failed(Reason),
}

/// Incremental decoder of one chunked body.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    /// The size being read, then the data bytes still to come of this chunk.
    left: u64,
    total: u64,
    digits: u8,
    extension: u16,
    line_start: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder at the first byte of a body.
    pub fn new() -> Self {
        Self {
            state: State::Size,
            left: 0,
            total: 0,
            digits: 0,
            extension: 0,
            line_start: 0,
        }
    }

    /// Decoded bytes so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The fewest bytes with which the body can still end: the rest of the chunk under way and the
    /// shortest last chunk behind it.
    #[must_use]
    pub fn least_to_come(&self) -> u64 {
        const LINE_END: u64 = CRLF.len() as u64;
        const LAST: u64 = LAST_CHUNK.len() as u64;
        // Behind the line feed of a size line.
        let behind_size = match self.left {
            0 => LINE_END,
            data => data.saturating_add(LINE_END + LAST),
        };
        match self.state {
            State::Size if self.digits == 0 => LAST,
            State::Size | State::Extension => behind_size.saturating_add(LINE_END),
            State::SizeLf => behind_size.saturating_add(1),
            State::Data => behind_size,
            State::DataCr => LINE_END + LAST,
            State::DataLf => 1 + LAST,
            State::TrailerName => 1 + 2 * LINE_END,
            State::TrailerValue => 2 * LINE_END,
            State::TrailerLf => 1 + LINE_END,
            State::TrailerStart => LINE_END,
            State::EndLf => 1,
            State::Done | State::Failed(_) => 0,
        }
    }

    /// Data bytes still to come of the chunk that is under way; `None` between
    /// chunks.
    pub fn data_left(&self) -> Option<u64> {
        (self.state == State::Data).then_some(self.left)
    }

    /// Whether the line end behind the data of a chunk is still to come, or the second half of it.
    pub fn awaits_end_of_data(&self) -> bool {
        matches!(self.state, State::DataCr | State::DataLf)
    }

    /// Takes bytes up to the next event. Call again with what is left until
    /// `NeedMore`, `Done` or `Fault`. Trailer lines, each with its CRLF, are
    /// appended to `trailers`, which must be the same, first empty, buffer
    /// throughout and is complete at `Done`; it stays untouched (so an empty
    /// vector allocates nothing) when there are none.
    pub fn feed(&mut self, input: &[u8], trailers: &mut Vec<u8>) -> Step {
        let mut at = 0;
        loop {
            match self.state {
                State::Done => {
                    return Step {
                        consumed: at,
                        event: Event::Done,
                    }
                }
                State::Failed(fault) => {
                    return Step {
                        consumed: at,
                        event: Event::Fault(fault),
                    }
                }
                State::Data => {
                    let rest = (input.len() - at) as u64;
                    let taken = usize::try_from(self.left.min(rest)).unwrap_or(input.len() - at);
                    if taken > 0 {
                        return self.data(at, taken);
                    }
                }
                State::TrailerValue => {
                    let rest = input.get(at..).unwrap_or_default();
                    let room = (MAX_TRAILERS + 1).saturating_sub(trailers.len());
                    let run = text_run(rest.get(..room).unwrap_or(rest));
                    trailers.extend_from_slice(rest.get(..run).unwrap_or_default());
                    at += run;
                }
                _ => {}
            }
            let Some(&b) = input.get(at) else {
                return Step {
                    consumed: at,
                    event: Event::NeedMore,
                };
            };
            self.state = match self.next(b, trailers) {
                Ok(state) => {
                    at += 1;
                    state
                }
                Err(fault) => State::Failed(fault),
            };
        }
    }

    fn data(&mut self, start: usize, len: usize) -> Step {
        self.left -= len as u64;
        if self.left == 0 {
            self.state = State::DataCr;
        }
        self.total = self.total.saturating_add(len as u64);
        let end = start + len;
        Step {
            consumed: end,
            event: Event::Data { start, end },
        }
    }

    fn next(&mut self, b: u8, trailers: &mut Vec<u8>) -> Result<State, Reason> {
        match (self.state, b) {
            (State::Size, b';') if self.digits > 0 => self.extension(),
            (State::Size, b'\r') if self.digits > 0 => Ok(State::SizeLf),
            (State::Size, b) => self.size_digit(b),
            (State::Extension, b'\r') => Ok(State::SizeLf),
            (State::Extension, b'\n') => Err(Reason::ChunkBareLf),
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => self.extension(),
            (State::Extension, _) => Err(Reason::ChunkExtensionByte),
            (State::SizeLf, b'\n') => Ok(self.begin_chunk()),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size),
            (State::DataCr | State::DataLf, _) => Err(Reason::ChunkDataEnd),
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::EndLf, b'\n') => Ok(State::Done),
            (State::SizeLf | State::EndLf, _) => Err(Reason::ChunkBareCr),
            (_, b) => self.trailer(b, trailers),
        }
    }

    fn size_digit(&mut self, b: u8) -> Result<State, Reason> {
        let digit = char::from(b).to_digit(16).ok_or(Reason::ChunkSize)?;
        if self.left >> 60 != 0 || self.digits >= MAX_SIZE_DIGITS {
            return Err(Reason::ChunkSizeTooLarge);
        }
        self.left = self.left << 4 | u64::from(digit);
        self.digits += 1;
        Ok(State::Size)
    }

    fn extension(&mut self) -> Result<State, Reason> {
        self.extension += 1;
        if self.extension > MAX_EXTENSION {
            return Err(Reason::ChunkExtensionTooLong);
        }
        Ok(State::Extension)
    }

    fn begin_chunk(&mut self) -> State {
        self.digits = 0;
        self.extension = 0;
        if self.left == 0 {
            State::TrailerStart
        } else {
            State::Data
        }
    }

    fn trailer(&mut self, b: u8, trailers: &mut Vec<u8>) -> Result<State, Reason> {
        let state = match (self.state, b) {
            (State::TrailerStart, b) if is_tchar(b) => {
                self.line_start = trailers.len();
                State::TrailerName
            }
            (State::TrailerName, b) if is_tchar(b) => State::TrailerName,
            (State::TrailerName, b':') => {
                let name = trailers.get(self.line_start..).unwrap_or_default();
                if is_forbidden(name) {
                    return Err(Reason::ForbiddenTrailer);
                }
                State::TrailerValue
            }
            (State::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => State::TrailerValue,
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::TrailerLf, _) => return Err(Reason::ChunkBareCr),
            (_, b'\n') => return Err(Reason::ChunkBareLf),
            (_, _) => return Err(Reason::BadTrailer),
        };
        if trailers.len() >= MAX_TRAILERS {
            return Err(Reason::TrailersTooLarge);
        }
        trailers.push(b);
        Ok(state)
    }
}

/// Fields that change how a message is read, or who is asking: forbidden in
/// trailers (`:`-names are refused by the grammar already).
fn is_forbidden(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else {
        return true;
    };
    matches!(
        Name::of(name),
        Name::TransferEncoding
            | Name::ContentLength
            | Name::Connection
            | Name::Host
            | Name::KeepAlive
            | Name::Te
            | Name::Trailer
            | Name::Upgrade
            | Name::SetCookie
    ) || name.eq_ignore_ascii_case("authorization")
}

/// Appends the trailer lines of `trailers` (as collected by [`Decoder`]) that
/// may be passed on to an upstream. Left out, as in a head: fields of one
/// connection, fields that toron sets itself, names with an underscore (R11,
/// R12, I4).
pub fn push_request_trailers(trailers: &[u8], out: &mut Vec<u8>) {
    push_trailers(trailers, out, |name| {
        !name.contains('_')
            && !Name::of(name).is_set_by_toron()
            && !matches!(Name::of(name), Name::Forwarded | Name::XToronAdminKey)
    });
}

/// Appends the trailer lines of a response that may be passed on to a client.
pub fn push_response_trailers(trailers: &[u8], out: &mut Vec<u8>) {
    push_trailers(trailers, out, |_| true);
}

fn push_trailers(trailers: &[u8], out: &mut Vec<u8>, passes: impl Fn(&str) -> bool) {
    for line in trailers.split_inclusive(|&b| b == b'\n') {
        let name = line.split(|&b| b == b':').next().unwrap_or_default();
        let name = std::str::from_utf8(name).unwrap_or("_");
        if !Name::of(name).is_hop_by_hop() && passes(name) {
            out.extend_from_slice(line);
        }
    }
}
