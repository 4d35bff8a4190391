//! Loopback and the kernel as a lab.

use std::any::Any;
use std::cell::Cell;
use std::io::Read;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use toron_reactor::{EngineConfig, Fd, NativeEngine};

use crate::lab::{Door, Lab, Peer};

/// The lab of one kernel engine.
pub struct Native<E>(PhantomData<E>);

impl<E: NativeEngine> Native<E> {
    pub fn new() -> Self {
        Native(PhantomData)
    }
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn listener(backlog: i32) -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&loopback().into()).unwrap();
    socket.listen(backlog).unwrap();
    socket.into()
}

impl<E: NativeEngine> Lab for Native<E> {
    type Engine = E;
    type Peer = SocketPeer;
    type Door = TcpListener;
    const TOLD_AT_ONCE_MOST: usize = 32;

    fn engine(&self, buffers: usize) -> E {
        let config = EngineConfig {
            buffers,
            ..EngineConfig::default()
        };
        match E::open(&config) {
            Ok(engine) => engine,
            Err(error) => panic!("{} cannot be opened: {error}", E::NAME),
        }
    }

    fn more_than_fits(&self) -> usize {
        32 << 20
    }

    fn listen(&self) -> (Fd, SocketAddr) {
        let listener = listener(128);
        let addr = listener.local_addr().unwrap();
        (Fd(listener.into_raw_fd()), addr)
    }

    fn dial(&self, to: SocketAddr) -> SocketPeer {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&loopback().into()).unwrap();
        // Loopback connects at once, or waits for room in the listener's queue.
        socket
            .connect_timeout(&to.into(), Duration::from_secs(10))
            .unwrap();
        SocketPeer::new(socket)
    }

    fn door(&self) -> TcpListener {
        listener(128)
    }

    fn refusing(&self) -> SocketAddr {
        // Nothing in this suite listens on that address.
        "127.0.0.9:9".parse().unwrap()
    }

    /// A listener whose queue is full does not answer.
    fn silent(&self) -> (SocketAddr, Box<dyn Any>) {
        let listener = listener(0);
        let addr = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        for _ in 0..8 {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&addr.into());
            queue.push(socket);
        }
        (addr, Box::new((listener, queue)))
    }
}

impl Door for TcpListener {
    type Peer = SocketPeer;
    fn addr(&self) -> SocketAddr {
        self.local_addr().unwrap()
    }
    fn accept(&self) -> Option<SocketPeer> {
        let (stream, _) = TcpListener::accept(self).ok()?;
        Some(SocketPeer::new(stream.into()))
    }
}

/// A kernel socket as the other end.
pub struct SocketPeer {
    stream: TcpStream,
    socket: Socket,
    reset: Cell<bool>,
}

impl SocketPeer {
    fn new(socket: Socket) -> SocketPeer {
        socket.set_nonblocking(true).unwrap();
        socket.set_tcp_nodelay(true).unwrap();
        let stream = socket.try_clone().unwrap().into();
        SocketPeer {
            stream,
            socket,
            reset: Cell::new(false),
        }
    }

    /// Sends one urgent byte.
    pub fn send_urgent(&self) {
        assert_eq!(self.socket.send_out_of_band(b"!").unwrap(), 1);
    }

    fn note(&self, error: Option<i32>) {
        if matches!(error, Some(libc::ECONNRESET | libc::EPIPE)) {
            self.reset.set(true);
        }
    }
}

impl Peer for SocketPeer {
    fn local_addr(&self) -> SocketAddr {
        self.stream.local_addr().unwrap()
    }

    fn send(&self, bytes: &[u8]) -> usize {
        if bytes.is_empty() {
            return 0;
        }
        match self.socket.send(bytes) {
            Ok(n) => n,
            Err(error) => {
                self.note(error.raw_os_error());
                0
            }
        }
    }

    fn recv(&self, max: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let limit = (&self.stream).take(max as u64).read_to_end(&mut bytes);
        if let Err(error) = limit {
            self.note(error.raw_os_error());
        }
        bytes
    }

    fn at_end(&self) -> bool {
        match self.stream.peek(&mut [0]) {
            Ok(n) => n == 0 && !self.reset.get(),
            Err(error) => {
                self.note(error.raw_os_error());
                false
            }
        }
    }

    fn is_reset(&self) -> bool {
        let error = self.socket.take_error().unwrap();
        self.note(error.and_then(|error| error.raw_os_error()));
        self.reset.get()
    }

    fn shutdown_write(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }

    fn reset(self) {
        self.socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    fn close(self) {}
}
