//! A raw client: sends what it is told in the pieces it is told, and notes what comes and when.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::backend::send_until_full;
use super::http::{parse_request, parse_responses, End, Progress, Received};

/// One connection to the proxy. All calls block, none longer than it is allowed to.
pub struct Client {
    stream: Option<TcpStream>,
    pub sent: Vec<u8>,
    pub received: Vec<u8>,
    /// When how many bytes had been received.
    arrivals: Vec<(Instant, usize)>,
    pub end: Option<End>,
    /// The first error of a write: the peer was gone.
    pub send_error: Option<ErrorKind>,
    last_sent: Instant,
}

impl Client {
    /// Connects, with no delay of small writes.
    pub fn connect(addr: SocketAddr, limit: Duration) -> std::io::Result<Self> {
        Self::of(TcpStream::connect_timeout(&addr, limit)?)
    }

    /// Connects from an address of 127.0.0.0/8. A connection that is reset at once may be known as reset
    /// before `connect(2)` has returned, which then says so.
    pub fn connect_from(source: IpAddr, addr: SocketAddr) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
        socket.connect(&addr.into())?;
        Self::of(socket.into())
    }

    /// Connects with a receive buffer of so many bytes (the kernel doubles it), so that what is not
    /// received soon cannot be sent.
    pub fn connect_with_window(addr: SocketAddr, bytes: usize) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
        socket.set_recv_buffer_size(bytes)?;
        socket.connect(&addr.into())?;
        Self::of(socket.into())
    }

    fn of(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Client::over(stream))
    }

    /// Takes over a connection.
    pub fn over(stream: TcpStream) -> Self {
        Client {
            stream: Some(stream),
            sent: Vec::new(),
            received: Vec::new(),
            arrivals: Vec::new(),
            end: None,
            send_error: None,
            last_sent: Instant::now(),
        }
    }

    /// Writes all of `bytes` in writes of up to 64 KiB. A peer that is gone is noted, not an error:
    /// what it has said before may still be there to read.
    pub fn send(&mut self, bytes: &[u8], limit: Duration) {
        let Some(stream) = self.stream.as_mut() else {
            return;
        };
        let deadline = Instant::now() + limit;
        for piece in bytes.chunks(64 * 1024) {
            let left = deadline.saturating_duration_since(Instant::now());
            let _ = stream.set_write_timeout(Some(left.max(Duration::from_millis(1))));
            self.last_sent = Instant::now();
            if let Err(e) = stream.write_all(piece) {
                self.send_error.get_or_insert(e.kind());
                return;
            }
            self.sent.extend_from_slice(piece);
        }
    }

    /// Writes filler until nothing is taken for `quiet`, or `most` bytes have gone; how many went.
    /// It is not noted among what was sent.
    pub fn send_until_full(&mut self, most: usize, quiet: Duration) -> usize {
        let stream = self.stream.as_mut();
        stream.map_or(0, |stream| send_until_full(stream, most, quiet))
    }

    /// Sends FIN.
    pub fn shutdown_write(&mut self) {
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    /// Closes with RST (SO_LINGER 0).
    pub fn reset(&mut self) {
        if let Some(stream) = self.stream.take() {
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Closes in the ordinary way.
    pub fn close(&mut self) {
        self.stream = None;
    }

    /// Whether this side has closed or reset the connection.
    pub fn closed_here(&self) -> bool {
        self.stream.is_none()
    }

    /// Receives once, at most `max` bytes, waiting until `deadline`. False when nothing came: time
    /// is over or the connection has ended.
    pub fn receive(&mut self, max: usize, deadline: Instant) -> bool {
        let Some(stream) = self.stream.as_mut() else {
            return false;
        };
        if self.end.is_some() {
            return false;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let _ = stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
        let mut buffer = vec![0; max.min(64 * 1024)];
        match stream.read(&mut buffer) {
            Ok(0) => self.end = Some(End::Fin),
            Ok(n) => {
                self.received.extend_from_slice(&buffer[..n]);
                self.arrivals.push((Instant::now(), self.received.len()));
                return true;
            }
            Err(e) => match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ => self.end = Some(End::Reset),
            },
        }
        false
    }

    /// Receives until `done`, the end of the connection, or `limit`. Says whether `done` came.
    pub fn receive_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if done(self) {
                return true;
            }
            if self.closed_here() || self.end.is_some() || Instant::now() >= deadline {
                return false;
            }
            self.receive(usize::MAX, deadline);
        }
    }

    /// Receives until nothing has come for `silence`, or the connection has ended.
    pub fn receive_until_quiet(&mut self, silence: Duration) {
        while self.receive(usize::MAX, Instant::now() + silence) {}
    }

    /// Receives until the peer has ended the connection.
    pub fn receive_until_end(&mut self, limit: Duration) -> bool {
        self.receive_until(limit, |c| c.end.is_some())
    }

    /// Receives until so many final responses are complete.
    pub fn receive_responses(&mut self, count: usize, limit: Duration) -> bool {
        self.receive_until(limit, |c| c.complete_responses() >= count)
    }

    /// What has been received, read as responses to what has been sent.
    pub fn parsed(&self) -> Received {
        parse_responses(&self.received, &methods(&self.sent), self.end)
    }

    pub fn complete_responses(&self) -> usize {
        self.parsed()
            .responses
            .iter()
            .filter(|r| r.complete)
            .count()
    }

    /// Time from the last write to the moment when `offset` bytes had been received.
    pub fn arrived_after(&self, offset: usize) -> Option<Duration> {
        let (when, _) = self.arrivals.iter().find(|(_, total)| *total >= offset)?;
        Some(when.saturating_duration_since(self.last_sent))
    }
}

/// The methods of the requests in `sent`, as far as they can be read strictly.
fn methods(sent: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    // Empty lines before a request are allowed (RFC 9112 §2.2).
    let mut rest = sent;
    loop {
        while let Some(after) = rest.strip_prefix(b"\r\n") {
            rest = after;
        }
        match parse_request(rest) {
            Ok(Progress::Complete(request, used)) => {
                found.push(request.head.method().to_owned());
                rest = &rest[used..];
            }
            Ok(Progress::Started(head)) => {
                found.push(head.method().to_owned());
                return found;
            }
            Ok(Progress::Nothing) | Err(_) => return found,
        }
    }
}
