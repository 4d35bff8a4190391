//! A blocking HTTP/1.1 client for one Unix socket: what an engine's API needs and no more.
//!
//! Nothing that comes from the other side is believed: heads, bodies and lines have a largest size,
//! every call a time by which it must be over, and what is not HTTP/1.1 is an error with a reason.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::http::chunk::{Decoder, Event};
use crate::http::field_slots;
use crate::http::response::{parse, Asked, MAX_RESPONSE_HEAD};
use crate::http::{HeadScanner, ResponseBody, Scan};

/// Bytes asked for at once.
const READ: usize = 64 * 1024;

/// What the other side sends that a client of gRPC would expect: a SETTINGS frame of HTTP/2 (RFC
/// 9113, section 6.5), whose fourth byte is its type.
const HTTP2_SETTINGS: u8 = 4;

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Fields, as sent.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The first field called `name` (any case).
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self
            .fields
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// A connection to the socket.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    /// Received and not dealt with.
    buffer: Vec<u8>,
}

/// How much of a body is left.
#[derive(Debug)]
enum Left {
    Length(u64),
    Chunks(Box<Decoder>),
    UntilClose,
    Nothing,
}

/// A body that is read as it comes.
#[derive(Debug)]
pub struct Body {
    connection: Connection,
    left: Left,
}

fn broken(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// What is left until `deadline`; an error when there is nothing.
fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "no answer in the time allowed",
        ));
    }
    Ok(left)
}

impl Connection {
    /// Connects. An engine whose queue is full makes connect(2) wait, at most until `deadline`.
    pub fn open(path: &Path, deadline: Instant) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_write_timeout(Some(left_until(deadline)?))?;
        socket.connect(&SockAddr::unix(path)?)?;
        Ok(Connection {
            stream: socket.into(),
            buffer: Vec::new(),
        })
    }

    /// A second handle, to end the connection from another thread.
    pub fn handle(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// The answer to GET, its body of at most `most` bytes read whole.
    pub fn get(&mut self, target: &str, most: usize, deadline: Instant) -> io::Result<Answer> {
        let (mut answer, mut left) = self.ask(target, deadline)?;
        while self.piece(&mut left, &mut answer.body, Some(deadline))? {
            if answer.body.len() > most {
                return Err(broken(format!("an answer of more than {most} bytes")));
            }
        }
        Ok(answer)
    }

    /// The answer to GET, its body to be read as it comes. Another status than 200 is an error.
    pub fn subscribe(mut self, target: &str, deadline: Instant) -> io::Result<Body> {
        let (answer, left) = self.ask(target, deadline)?;
        if answer.status != 200 {
            return Err(broken(format!("{target}: status {}", answer.status)));
        }
        Ok(Body {
            connection: self,
            left,
        })
    }

    /// Sends the request and reads the head of the answer.
    fn ask(&mut self, target: &str, deadline: Instant) -> io::Result<(Answer, Left)> {
        // Docker wants a host, whatever it is.
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: toron/{}\r\nAccept: \
             application/json\r\n\r\n",
            env!("CARGO_PKG_VERSION")
        );
        self.stream.set_write_timeout(Some(left_until(deadline)?))?;
        self.stream.write_all(request.as_bytes())?;
        let mut scanner = HeadScanner::response();
        loop {
            match scanner.scan(&self.buffer) {
                Scan::Complete { skip, len } => {
                    let (answer, left) = read_head(&self.buffer, skip, len)?;
                    self.buffer.drain(..skip + len);
                    // Interim answers are followed by the one that counts.
                    if (100..200).contains(&answer.status) {
                        scanner.reset();
                        continue;
                    }
                    return Ok((answer, left));
                }
                Scan::Bad(reason) => return Err(self.not_http(reason.code())),
                Scan::Incomplete if self.buffer.len() > MAX_RESPONSE_HEAD => {
                    return Err(broken("the head of an answer is too large"));
                }
                Scan::Incomplete => {
                    if self.receive(Some(deadline))? == 0 {
                        return Err(io::Error::new(
                            io::ErrorKind::UnexpectedEof,
                            "closed without an answer",
                        ));
                    }
                }
            }
        }
    }

    fn not_http(&self, reason: &str) -> io::Error {
        match self.buffer.as_slice() {
            [0, _, _, HTTP2_SETTINGS, ..] => broken(
                "this socket speaks gRPC, as those of containerd and CRI-O do, not the Docker API",
            ),
            _ => broken(format!("not an answer of HTTP/1.1 ({reason})")),
        }
    }

    /// Receives more into the buffer; 0 when the other side has closed. Without a deadline it waits
    /// for ever.
    fn receive(&mut self, deadline: Option<Instant>) -> io::Result<usize> {
        let timeout = deadline.map(left_until).transpose()?;
        self.stream.set_read_timeout(timeout)?;
        let before = self.buffer.len();
        self.buffer.resize(before + READ, 0);
        let got = loop {
            let room = self.buffer.get_mut(before..).unwrap_or_default();
            match self.stream.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    break Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "no answer in the time allowed",
                    ));
                }
                outcome => break outcome,
            }
        };
        let end = before + got.as_ref().copied().unwrap_or(0);
        self.buffer.truncate(end);
        got
    }

    /// Appends some more of a body to `out`; `false` when there is no more.
    fn piece(
        &mut self,
        left: &mut Left,
        out: &mut Vec<u8>,
        deadline: Option<Instant>,
    ) -> io::Result<bool> {
        if matches!(left, Left::Nothing | Left::Length(0)) {
            return Ok(false);
        }
        if self.buffer.is_empty() && self.receive(deadline)? == 0 {
            return match left {
                Left::UntilClose => Ok(false),
                Left::Length(_) | Left::Chunks(_) | Left::Nothing => Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "closed in the middle of an answer",
                )),
            };
        }
        match left {
            Left::Length(bytes) => {
                let some = usize::try_from(*bytes).unwrap_or(usize::MAX);
                let some = some.min(self.buffer.len());
                out.extend(self.buffer.drain(..some));
                *bytes -= some as u64;
                Ok(*bytes > 0)
            }
            Left::UntilClose => {
                out.append(&mut self.buffer);
                Ok(true)
            }
            Left::Chunks(decoder) => self.chunks(decoder, out),
            Left::Nothing => Ok(false),
        }
    }

    /// Decodes what has been received; `false` after the last chunk.
    fn chunks(&mut self, decoder: &mut Decoder, out: &mut Vec<u8>) -> io::Result<bool> {
        // Trailers have no meaning here; the decoder bounds them.
        let mut trailers = Vec::new();
        let mut at = 0;
        let more = loop {
            let rest = self.buffer.get(at..).unwrap_or_default();
            let step = decoder.feed(rest, &mut trailers);
            at += step.consumed;
            match step.event {
                Event::Data { start, end } => {
                    out.extend_from_slice(rest.get(start..end).unwrap_or_default());
                }
                Event::NeedMore => break true,
                Event::Done => break false,
                Event::Fault(fault) => {
                    return Err(broken(format!("bad chunked coding ({})", fault.code())));
                }
            }
        };
        self.buffer.drain(..at);
        Ok(more)
    }
}

fn read_head(bytes: &[u8], skip: usize, len: usize) -> io::Result<(Answer, Left)> {
    let head = bytes.get(skip..skip + len).unwrap_or_default();
    let mut slots = field_slots::<64>();
    let asked = Asked {
        head: false,
        upgrade: false,
    };
    let head = parse(head, asked, &mut slots)
        .map_err(|fault| broken(format!("a bad answer ({})", fault.code())))?;
    let left = match head.facts.body {
        ResponseBody::None => Left::Nothing,
        ResponseBody::Length(length) => Left::Length(length),
        ResponseBody::Chunked => Left::Chunks(Box::default()),
        ResponseBody::UntilClose => Left::UntilClose,
    };
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let answer = Answer {
        status: head.facts.status,
        fields: head
            .fields()
            .map(|(name, value)| (name.to_owned(), text(value)))
            .collect(),
        body: Vec::new(),
    };
    Ok((answer, left))
}

impl Body {
    /// Waits for more and appends it to `out`; `false` when the body has ended.
    pub fn next(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        self.connection.piece(&mut self.left, out, None)
    }

    /// A second handle, to end the connection from another thread.
    pub fn handle(&self) -> io::Result<UnixStream> {
        self.connection.handle()
    }
}

/// Ends a connection that another thread reads from.
pub fn hang_up(handle: &UnixStream) {
    // It may have ended already.
    let _ = handle.shutdown(Shutdown::Both);
}
