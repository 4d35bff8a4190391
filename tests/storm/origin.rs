//! An origin that ends what the path names in the way that the path names. One thread for each
//! connection, and no log: a storm is longer than that of [`crate::support::upstream`] would bear.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;

use crate::support::http::{parse_request, Progress};

/// Body of `/big`, and what `/cut` announces.
pub const BIG: usize = 256 * 1024;

/// What becomes of the connection.
enum Then {
    Keep,
    Close,
    Reset,
}

/// The origin.
pub struct Origin {
    pub addr: SocketAddr,
    held: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Origin {
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bind the origin");
        let addr = listener.local_addr().expect("origin address");
        let (held, stopping) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counter, ending) = (Arc::clone(&held), Arc::clone(&stopping));
        let acceptor = std::thread::spawn(move || accept(&listener, &counter, &ending));
        Origin {
            addr,
            held,
            stopping,
            acceptor: Some(acceptor),
        }
    }

    /// Requests to `/hold` whose connection is open.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect_timeout(&self.addr, Duration::from_secs(1));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, held: &Arc<AtomicUsize>, stopping: &AtomicBool) {
    for stream in listener.incoming() {
        if stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok(mut stream) = stream else { continue };
        let held = Arc::clone(held);
        let serve = move || {
            let _ = stream.set_nodelay(true);
            if let Then::Reset = serve(&mut stream, &held) {
                let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
        };
        std::thread::Builder::new()
            .stack_size(256 * 1024)
            .spawn(serve)
            .expect("a thread for a connection");
    }
}

/// Serves one connection to its end.
fn serve(stream: &mut TcpStream, held: &AtomicUsize) -> Then {
    let mut bytes = Vec::new();
    let mut room = vec![0; 64 * 1024];
    loop {
        // An answer before the body is whole needs the head only.
        let (target, used) = match parse_request(&bytes) {
            Ok(Progress::Complete(request, used)) => (request.head.target().to_owned(), used),
            Ok(Progress::Started(head)) if head.target().contains("/early") => {
                (head.target().to_owned(), bytes.len())
            }
            Ok(Progress::Started(_) | Progress::Nothing) => match stream.read(&mut room) {
                Ok(n) if n > 0 => {
                    bytes.extend_from_slice(&room[..n]);
                    continue;
                }
                _ => return Then::Close,
            },
            Err(fault) => panic!("toron sent what is no request: {fault}"),
        };
        bytes.drain(..used);
        match answer(stream, &target, held) {
            Then::Keep => {}
            other => return other,
        }
    }
}

fn answer(stream: &mut TcpStream, target: &str, held: &AtomicUsize) -> Then {
    let mut say = |bytes: &[u8]| stream.write_all(bytes).is_ok();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n");
    match target.rsplit('/').next().unwrap_or_default() {
        "big" => {
            if say(head.as_bytes()) && say(&vec![b'd'; BIG]) {
                return Then::Keep;
            }
            Then::Close
        }
        "close" => Then::Close,
        "reset" => Then::Reset,
        "cut" | "cut-reset" => {
            say(head.as_bytes());
            say(&vec![b'd'; BIG / 2]);
            if target.ends_with("reset") {
                Then::Reset
            } else {
                Then::Close
            }
        }
        "stall" => {
            say(head.as_bytes());
            say(b"a few bytes");
            until_end(stream)
        }
        "garbage" => {
            say(b"HTTP/1.1 200 OK\r\nContent-Length: none\r\n\r\n");
            Then::Close
        }
        "never" => until_end(stream),
        "hold" => {
            held.fetch_add(1, Ordering::SeqCst);
            let then = until_end(stream);
            held.fetch_sub(1, Ordering::SeqCst);
            then
        }
        "early" => {
            say(b"HTTP/1.1 422 Unprocessable Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            until_end(stream)
        }
        "ws" | "ws-close" | "ws-reset" => {
            say(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello");
            match target {
                t if t.ends_with("close") => Then::Close,
                t if t.ends_with("reset") => Then::Reset,
                _ => until_end(stream),
            }
        }
        _ => {
            say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            Then::Keep
        }
    }
}

/// Reads until toron ends the connection.
fn until_end(stream: &mut TcpStream) -> Then {
    let mut room = vec![0; 64 * 1024];
    while stream.read(&mut room).is_ok_and(|n| n > 0) {}
    Then::Close
}
