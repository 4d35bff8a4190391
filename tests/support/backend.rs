//! An upstream that the test plays itself, step by step: for orders of events that a script cannot
//! wait for, and for amounts of bytes that nobody should log.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::SockRef;

use super::http::End;
use super::{contains, PATIENCE};

/// A listener whose connections the test accepts.
pub struct Backend {
    listener: TcpListener,
    pub addr: SocketAddr,
}

impl Backend {
    pub fn start() -> Self {
        let listener = super::listen();
        let addr = listener.local_addr().expect("backend address");
        Backend { listener, addr }
    }

    /// The next connection.
    ///
    /// # Panics
    /// When none comes.
    pub fn accept(&self) -> Peer {
        self.accept_within(PATIENCE)
            .expect("a connection from the proxy")
    }

    /// The next connection, if one comes within `limit`.
    pub fn accept_within(&self, limit: Duration) -> Option<Peer> {
        // SO_RCVTIMEO bounds accept as well (socket(7)).
        let bounded = SockRef::from(&self.listener).set_read_timeout(Some(limit));
        bounded.expect("bound the wait for a connection");
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nodelay(true).expect("TCP_NODELAY");
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(PATIENCE)).expect("bound the waits of a peer");
        }
        Some(Peer {
            stream,
            received: Vec::new(),
        })
    }
}

/// The upstream's side of one connection from the proxy.
pub struct Peer {
    pub stream: TcpStream,
    pub received: Vec<u8>,
}

impl Peer {
    /// Receives once into the log. False at the end of the connection.
    pub fn receive(&mut self) -> bool {
        let mut room = [0; 64 * 1024];
        match self.stream.read(&mut room) {
            Ok(n) if n > 0 => {
                self.received.extend_from_slice(&room[..n]);
                true
            }
            _ => false,
        }
    }

    /// Receives until `done`; says whether it came.
    pub fn receive_until(&mut self, done: impl Fn(&[u8]) -> bool) -> bool {
        while !done(&self.received) {
            if !self.receive() {
                return false;
            }
        }
        true
    }

    /// Receives a whole head, and whatever came with it.
    ///
    /// # Panics
    /// When the connection ends before.
    pub fn receive_head(&mut self) {
        let whole = self.receive_until(|bytes| contains(bytes, b"\r\n\r\n"));
        assert!(whole, "no head from the proxy");
    }

    /// # Panics
    /// When the proxy is gone.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("send to the proxy");
    }

    /// Sends until the proxy takes no more for `quiet`, or `most` bytes; how many it took.
    pub fn send_until_full(&mut self, most: usize, quiet: Duration) -> usize {
        send_until_full(&mut self.stream, most, quiet)
    }

    /// Receives and forgets until the proxy ends the connection. `None` when it does not.
    pub fn wait_end(&mut self) -> Option<End> {
        let mut room = [0; 64 * 1024];
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => return Some(End::Fin),
                Ok(_) => {}
                Err(e) => match e.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return None,
                    ErrorKind::Interrupted => {}
                    _ => return Some(End::Reset),
                },
            }
        }
    }

    /// Sends FIN.
    pub fn shutdown_write(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Whether the proxy ends the connection within `limit`; what comes until then is forgotten.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        self.stream
            .set_read_timeout(Some(limit))
            .expect("bound the waits of a peer");
        let ended = self.wait_end().is_some();
        self.stream
            .set_read_timeout(Some(PATIENCE))
            .expect("bound the waits of a peer");
        ended
    }

    /// Closes with RST.
    pub fn reset(self) {
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

/// Writes until nothing is taken for `quiet`, or `most` bytes have gone; returns how many.
pub fn send_until_full(stream: &mut TcpStream, most: usize, quiet: Duration) -> usize {
    let before = stream.write_timeout().expect("write timeout");
    stream
        .set_write_timeout(Some(quiet))
        .expect("write timeout");
    let block = [b'f'; 16 * 1024];
    let mut sent = 0;
    while sent < most {
        match stream.write(&block[..block.len().min(most - sent)]) {
            Ok(n) => sent += n,
            Err(_) => break,
        }
    }
    stream.set_write_timeout(before).expect("write timeout");
    sent
}
