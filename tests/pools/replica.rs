//! An upstream that counts, behaves as it is told, and can be killed and started again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::support::{contains, PATIENCE};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// This status.
    Answer(u16),
    /// Nothing, until the behaviour is another one.
    Hold,
    /// The connection is closed.
    Close,
    /// The connection is reset.
    Reset,
}

#[derive(Debug)]
struct State {
    behaviour: Behaviour,
    /// Status of `/healthz`.
    health: u16,
    requests: usize,
    probes: usize,
    sockets: Vec<(u64, TcpStream)>,
    accepted: u64,
    /// Threads that serve a connection.
    serving: usize,
    stopping: bool,
}

/// See the module text.
pub struct Replica {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A wait that fails is a failure of its own; whoever cleans up goes on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bound, so that nobody else gets the port, whether it listens or not.
fn bound(addr: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("SO_REUSEADDR");
    socket.bind(&addr.into()).expect("bind");
    socket
}

/// An address of this machine at which nothing listens, as long as the socket is kept.
pub fn refusing() -> (SocketAddr, Socket) {
    let socket = bound(SocketAddr::from(([127, 0, 0, 1], 0)));
    let addr = socket.local_addr().expect("its address");
    (addr.as_socket().expect("an IP address"), socket)
}

impl Replica {
    pub fn start() -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                behaviour: Behaviour::Answer(200),
                health: 200,
                requests: 0,
                probes: 0,
                sockets: Vec::new(),
                accepted: 0,
                serving: 0,
                stopping: false,
            }),
            changed: Condvar::new(),
        });
        let mut replica = Replica {
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
            shared,
            acceptor: None,
        };
        replica.restart();
        replica
    }

    /// Listens again, at the same address.
    pub fn restart(&mut self) {
        let socket = bound(self.addr);
        socket.listen(1024).expect("listen");
        let listener = TcpListener::from(socket);
        self.addr = listener.local_addr().expect("its address");
        self.shared.lock().stopping = false;
        let shared = Arc::clone(&self.shared);
        self.acceptor = Some(std::thread::spawn(move || accept(&listener, &shared)));
    }

    /// As SIGKILL does it: nobody listens any more, and the connections are gone.
    pub fn kill(&mut self) {
        self.shared.lock().stopping = true;
        // Wakes the accept call.
        let _ = TcpStream::connect(self.addr);
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().expect("the replica's acceptor");
        }
        for (_, socket) in self.shared.lock().sockets.drain(..) {
            let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
            let _ = socket.shutdown(std::net::Shutdown::Read);
        }
        self.shared.changed.notify_all();
        // What had arrived may still be read: nobody answers it from here on.
        self.await_state("an end", |state| state.serving == 0);
    }

    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.lock().behaviour = behaviour;
        self.shared.changed.notify_all();
    }

    /// What probes get.
    pub fn answer_probes(&self, status: u16) {
        self.shared.lock().health = status;
    }

    pub fn requests(&self) -> usize {
        self.shared.lock().requests
    }

    /// Connections from the proxy that are open.
    pub fn connections(&self) -> usize {
        self.shared.lock().sockets.len()
    }

    /// # Panics
    /// When there are fewer requests for a long time.
    pub fn await_requests(&self, count: usize) {
        self.await_state("requests", |state| state.requests >= count);
    }

    /// Waits for so many further probes.
    pub fn await_probes(&self, more: usize) {
        let count = self.shared.lock().probes + more;
        self.await_state("probes", |state| state.probes >= count);
    }

    /// Waits until the proxy has closed all connections.
    pub fn await_no_connection(&self) {
        self.await_state("no connections", |state| state.sockets.is_empty());
    }

    fn await_state(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.shared.lock();
        while !holds(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{}: {what} awaited: {state:?}", self.addr);
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if self.acceptor.is_some() {
            self.kill();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let mut state = shared.lock();
        if state.stopping {
            return;
        }
        let Ok(stream) = stream else { continue };
        let Ok(kept) = stream.try_clone() else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        state.accepted += 1;
        let id = state.accepted;
        state.sockets.push((id, kept));
        state.serving += 1;
        drop(state);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            serve(&stream, &shared);
            drop(stream);
            let mut state = shared.lock();
            state.sockets.retain(|(other, _)| *other != id);
            state.serving -= 1;
            drop(state);
            shared.changed.notify_all();
        });
    }
}

/// Answers requests, whose bodies are as long as they say and come whole with the head or soon.
fn serve(mut stream: &TcpStream, shared: &Shared) {
    let mut bytes = Vec::new();
    loop {
        let mut room = [0; 16 * 1024];
        while !is_whole(&bytes) {
            match stream.read(&mut room) {
                Ok(n) if n > 0 => bytes.extend_from_slice(&room[..n]),
                _ => return,
            }
        }
        let is_probe = bytes.starts_with(b"GET /healthz ");
        bytes.clear();
        let mut state = shared.lock();
        if state.stopping {
            return;
        }
        let behaviour = if is_probe {
            state.probes += 1;
            Behaviour::Answer(state.health)
        } else {
            state.requests += 1;
            state.behaviour
        };
        shared.changed.notify_all();
        let mut now = behaviour;
        while now == Behaviour::Hold && !state.stopping {
            let waited = shared.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            now = state.behaviour;
        }
        drop(state);
        match now {
            Behaviour::Answer(status) => {
                let text = format!("HTTP/1.1 {status} Text\r\nContent-Length: 2\r\n\r\nOK");
                if stream.write_all(text.as_bytes()).is_err() {
                    return;
                }
            }
            Behaviour::Reset => {
                let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
                return;
            }
            Behaviour::Close | Behaviour::Hold => return,
        }
    }
}

fn is_whole(bytes: &[u8]) -> bool {
    let Some(head) = super::support::find(bytes, b"\r\n\r\n") else {
        return false;
    };
    let body = if contains(&bytes[..head], b"Content-Length: 3") {
        3
    } else {
        0
    };
    bytes.len() >= head + 4 + body
}
