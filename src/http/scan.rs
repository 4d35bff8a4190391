//! Finds the end of a head in a buffer that is still growing.
//!
//! Every byte is looked at once, however the bytes are cut, and a fault that is
//! certain is reported at the byte that makes it so: a bad head is answered at
//! once instead of running into the header deadline. What passes here has exact
//! line ends, names that are tokens and values without control bytes, so the
//! tolerance of the parser behind it (which would take a bare LF) is never met.

use super::reason::Reason;
use super::syntax::{is_tchar, text_run, token_run, visible_run};

/// What is known of a head so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// More bytes are needed.
    Incomplete,
    /// The head is `bytes[skip..skip + len]`, its final empty line included.
    Complete {
        /// Bytes of empty lines in front of a request line (I5).
        skip: usize,
        /// Length of the head in bytes.
        len: usize,
    },
    /// The head can no longer become valid; and why.
    Bad(Reason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    StartLf,
    Method,
    RequestLine,
    Protocol(u8),
    StatusLine,
    LineLf,
    LineStart,
    Name,
    Value,
    EndLf,
    Done,
    Failed(Reason),
}

/// Scanner of one head. Give it the whole buffer from the same first byte each
/// time; `reset` before the next head.
#[derive(Clone, Debug)]
pub struct HeadScanner {
    first: State,
    state: State,
    pos: usize,
    start: usize,
    empty_lines: u8,
    spaces: u8,
    fields: bool,
}

const PROTOCOL: &[u8] = b"HTTP/";

/// Empty lines tolerated before a request line (I5).
const MAX_EMPTY_LINES: u8 = 2;

impl HeadScanner {
    /// A scanner of request heads: strict CRLF, up to two empty lines in front.
    pub fn request() -> Self {
        Self::new(State::Start)
    }

    /// A scanner of response heads: a bare LF ends a line as well (RFC 9112
    /// section 2.2 leaves it to the recipient, and the head is written anew for
    /// the client), a bare CR is a fault (I27).
    pub fn response() -> Self {
        Self::new(State::Protocol(0))
    }

    fn new(first: State) -> Self {
        Self {
            first,
            state: first,
            pos: 0,
            start: 0,
            empty_lines: 0,
            spaces: 0,
            fields: false,
        }
    }

    /// Forgets everything, ready for the next head.
    pub fn reset(&mut self) {
        *self = Self::new(self.first);
    }

    /// Whether a byte of the head itself has been seen; empty lines in front of
    /// a request do not count.
    pub fn started(&self) -> bool {
        !matches!(
            self.state,
            State::Start | State::StartLf | State::Protocol(0)
        )
    }

    /// Looks at the bytes that are new since the last call.
    pub fn scan(&mut self, bytes: &[u8]) -> Scan {
        loop {
            match self.state {
                State::Done => {
                    return Scan::Complete {
                        skip: self.start,
                        len: self.pos - self.start,
                    }
                }
                State::Failed(reason) => return Scan::Bad(reason),
                _ => {}
            }
            let rest = bytes.get(self.pos..).unwrap_or_default();
            self.pos += match self.state {
                State::Method | State::Name => token_run(rest),
                State::RequestLine => visible_run(rest),
                State::StatusLine | State::Value => text_run(rest),
                _ => 0,
            };
            let Some(&b) = bytes.get(self.pos) else {
                return Scan::Incomplete;
            };
            self.state = match self.next(b) {
                Ok(state) => {
                    self.pos += 1;
                    state
                }
                Err(reason) => State::Failed(reason),
            };
        }
    }

    /// The same for a caller that parses what is complete: a head of at most `most` bytes that has
    /// come whole at first sight is only looked for its end. The parsers let nothing pass that
    /// `scan` refuses, and then give the reason that it has. Scanning as well took a seventh of all
    /// instructions of a small request.
    pub fn find(&mut self, bytes: &[u8], most: usize) -> Scan {
        // Empty lines in front of a request are for `scan`.
        if self.pos == 0 && bytes.first().is_some_and(|&b| is_tchar(b)) {
            if let Some(len) = end(bytes).filter(|&len| len <= most) {
                return Scan::Complete { skip: 0, len };
            }
        }
        self.scan(bytes)
    }

    fn lenient(&self) -> bool {
        self.first != State::Start
    }

    /// The state behind byte `b`, or the reason why `b` cannot stand there.
    fn next(&mut self, b: u8) -> Result<State, Reason> {
        match (self.state, b) {
            (State::Start, b'\r') if self.empty_lines < MAX_EMPTY_LINES => Ok(State::StartLf),
            (State::Start, b'\r') => Err(Reason::EmptyLines),
            (State::StartLf, b'\n') => {
                self.empty_lines += 1;
                Ok(State::Start)
            }
            (State::Start, b) if is_tchar(b) => {
                self.start = self.pos;
                Ok(State::Method)
            }
            (State::Method, b' ') => {
                self.spaces = 1;
                Ok(State::RequestLine)
            }
            (State::RequestLine, b' ') if self.spaces < 2 => {
                self.spaces += 1;
                Ok(State::RequestLine)
            }
            (State::RequestLine, b'\r') if self.spaces == 2 => Ok(State::LineLf),
            (State::Protocol(i), b) => protocol(i, b),
            (State::StatusLine | State::Value, b'\t') => Ok(self.state),
            (State::StatusLine | State::Value, b'\r') => Ok(State::LineLf),
            (State::StatusLine | State::Value, b'\n') if self.lenient() => Ok(State::LineStart),
            (State::LineLf, b'\n') => Ok(State::LineStart),
            (State::LineStart, b'\r') => Ok(State::EndLf),
            (State::LineStart, b'\n') if self.lenient() => Ok(State::Done),
            (State::LineStart, b) if is_tchar(b) => {
                self.fields = true;
                Ok(State::Name)
            }
            (State::Name, b':') => Ok(State::Value),
            (State::EndLf, b'\n') => Ok(State::Done),
            (state, b) => Err(self.fault(state, b)),
        }
    }

    fn fault(&self, state: State, b: u8) -> Reason {
        match (state, b) {
            (State::StartLf | State::LineLf | State::EndLf, _) => Reason::BareCr,
            (_, b'\n') => Reason::BareLf,
            (State::Start, _) => Reason::BadMethod,
            (State::Method | State::RequestLine, b' ' | b'\r') => Reason::BadRequestLine,
            (State::Method, _) => Reason::BadMethod,
            (State::RequestLine, _) => Reason::BadTarget,
            (State::LineStart, b' ' | b'\t') if self.fields => Reason::ObsFold,
            (State::LineStart, b' ' | b'\t') => Reason::SpaceBeforeFirstField,
            (State::LineStart, b':') => Reason::EmptyFieldName,
            (State::Name, b' ' | b'\t') => Reason::SpaceBeforeColon,
            (State::Name, b'\r') => Reason::NoColon,
            (State::LineStart | State::Name, _) => Reason::BadFieldName,
            (_, _) => Reason::ControlByte,
        }
    }
}

/// Where the first empty line of well-formed lines ends.
fn end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', bytes).find_map(|at| match bytes.get(at + 1..)? {
        [b'\r', b'\n', ..] => Some(at + 3),
        [b'\n', ..] => Some(at + 2),
        _ => None,
    })
}

fn protocol(i: u8, b: u8) -> Result<State, Reason> {
    if PROTOCOL.get(usize::from(i)) != Some(&b) {
        return Err(Reason::BadStatusLine);
    }
    if usize::from(i) + 1 == PROTOCOL.len() {
        Ok(State::StatusLine)
    } else {
        Ok(State::Protocol(i + 1))
    }
}

/// What of the scanner's strictness the parser does not have itself, for a whole
/// request head: exact line ends, and nothing in front. A property test holds
/// that a head which passes both passes the scanner.
pub(super) fn has_strict_lines(head: &[u8]) -> bool {
    let pairs = head.iter().zip(head.iter().skip(1));
    // No early exit, so that the compiler makes it a vector loop.
    let bare = pairs.fold(0, |bad: u8, (a, b)| {
        bad | u8::from((*b == b'\n') & (*a != b'\r'))
    });
    head.first().is_some_and(|&b| is_tchar(b)) && bare == 0
}
