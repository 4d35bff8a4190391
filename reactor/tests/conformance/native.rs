//! Loopback and the kernel as a lab.

use std::any::Any;
use std::cell::Cell;
use std::io::Read;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use toron_reactor::{EngineConfig, EpollEngine, Fd, NativeEngine, Op, Outcome, UringEngine};

use crate::lab::{Door, Lab, Peer};
use crate::rig::Rig;
use crate::sending::send_until_blocked;

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
        let listener = listener(16);
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
        listener(16)
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

/// While a send waits, the peer's acknowledgements are told, each once; before and after there is
/// no account.
fn acknowledgements_are_told_while_a_send_waits<E: NativeEngine>() {
    let mut rig = Rig::new(Native::<E>::new());
    let (fd, peer) = rig.accepted();
    assert_eq!(rig.engine.acknowledged(fd), None);
    let bytes = vec![7; rig.lab.more_than_fits()];
    let (send, sent) = send_until_blocked(&mut rig, fd, &bytes);
    // The peer's own buffer may still be filling.
    let left = rig.wait(|rig| match rig.engine.acknowledged(fd) {
        Some(told) if told.bytes == 0 => Some(told.left),
        Some(_) => None,
        None => panic!("the send does not wait"),
    });
    assert!(left > 0 && left <= sent as u64);
    let mut acknowledged = 0;
    let mut read = 0;
    let after = rig.wait(|rig| {
        read += peer.recv(16 * 1024).len();
        let told = rig.engine.acknowledged(fd).expect("the send waits");
        acknowledged += told.bytes;
        (acknowledged >= 1024).then_some(told.left)
    });
    assert_eq!(acknowledged, left - after);
    assert!(!rig.ended(send), "less than a third of the buffer is free");
    let event = rig.wait(|rig| {
        read += peer.recv(usize::MAX).len();
        rig.ended(send).then(|| rig.next(send))
    });
    let Outcome::Sent { n, buf } = event.outcome else {
        panic!("{event:?}")
    };
    assert_eq!(rig.engine.acknowledged(fd), None);
    drop(buf);
    rig.wait(|_| {
        read += peer.recv(usize::MAX).len();
        (read == sent + n).then_some(())
    });
    rig.close(fd);
    rig.finish();
}

/// The same of a splice.
fn acknowledgements_are_told_while_a_splice_waits<E: NativeEngine>() {
    let mut rig = Rig::new(Native::<E>::new());
    let (from, source) = rig.accepted();
    let (to, peer) = rig.accepted();
    let mut pipe = rig.engine.pipe().unwrap();
    rig.wait(|rig| {
        source.send(&[7; 16 * 1024]);
        // Either may have nothing to do at this moment.
        let _ = rig.engine.splice_in(from, &mut pipe, 64 * 1024);
        let moved = rig.engine.splice_out(&mut pipe, to, 64 * 1024, false);
        (pipe.held() > 0 && moved.is_err()).then_some(())
    });
    rig.wait(|rig| {
        let told = rig.engine.acknowledged(to).expect("the splice waits");
        (told.bytes == 0).then_some(())
    });
    rig.wait(|rig| {
        peer.recv(16 * 1024);
        let told = rig.engine.acknowledged(to).expect("the splice waits");
        (told.bytes > 0).then_some(())
    });
    rig.wait(|rig| {
        peer.recv(usize::MAX);
        let held = pipe.held();
        rig.engine.splice_out(&mut pipe, to, held, false).ok()
    });
    assert_eq!(rig.engine.acknowledged(to), None);
    rig.engine.return_pipe(pipe);
    let more = rig.submit(Op::Hangup { fd: from });
    rig.close(from);
    rig.cancelled(more);
    rig.close(to);
    rig.finish();
}

#[test]
fn acknowledgements_on_epoll() {
    acknowledgements_are_told_while_a_send_waits::<EpollEngine>();
    acknowledgements_are_told_while_a_splice_waits::<EpollEngine>();
}

#[test]
fn acknowledgements_on_io_uring() {
    acknowledgements_are_told_while_a_send_waits::<UringEngine>();
    acknowledgements_are_told_while_a_splice_waits::<UringEngine>();
}
