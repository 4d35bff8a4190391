//! A connection of a drill: from an address of its own, read no further than to the status of each
//! answer. Of hundreds of them one thread has to keep hold.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::support::{find, PATIENCE};

/// What a look at a connection has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Nothing yet.
    Nothing,
    /// The status of an answer that is there as a whole.
    Answer(u16),
    /// The peer has ended the connection in order.
    End,
    /// It has reset it.
    Reset,
}

pub struct Wire {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Wire {
    /// Connects from `source`. One that is reset at once may be known as reset before `connect(2)` has
    /// returned, which then says so.
    pub fn connect(source: IpAddr, to: SocketAddr) -> io::Result<Wire> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SockAddr::from(SocketAddr::new(source, 0)))?;
        socket.connect(&SockAddr::from(to))?;
        socket.set_tcp_nodelay(true)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Wire {
            stream,
            received: Vec::new(),
        })
    }

    /// From now on no call waits.
    pub fn do_not_wait(&self) {
        self.stream.set_nonblocking(true).expect("set O_NONBLOCK");
    }

    /// Sends all of `bytes`. An error says that the peer is gone; its answer may still be there.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends what is taken of `bytes`, as [`Wire::send`].
    pub fn send_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stream.write(bytes) {
            Err(e) if waits(&e) => Ok(0),
            done => done,
        }
    }

    /// The next thing to be seen; waits for it unless told not to.
    pub fn look(&mut self) -> Seen {
        loop {
            if let Some(status) = take_answer(&mut self.received) {
                return Seen::Answer(status);
            }
            let mut room = [0; 16 * 1024];
            match self.stream.read(&mut room) {
                Ok(0) => return Seen::End,
                Ok(n) => self.received.extend_from_slice(&room[..n]),
                Err(e) if waits(&e) => return Seen::Nothing,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Seen::Reset,
            }
        }
    }

    /// Closes with a reset, which leaves no port behind in TIME_WAIT.
    pub fn reset(self) {
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

fn waits(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Takes the first answer out of `received`, if it is whole; its status. All answers of a drill have
/// a length.
fn take_answer(received: &mut Vec<u8>) -> Option<u16> {
    let head = find(received, b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&received[..head]).into_owned();
    let status = text.split(' ').nth(1)?.parse().expect("a status");
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().expect("a length"))
    });
    let end = head + length.expect("an answer with a length");
    (received.len() >= end).then(|| {
        received.drain(..end);
        status
    })
}
