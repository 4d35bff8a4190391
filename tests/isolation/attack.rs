//! What the attackers do, each on a thread of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::PATIENCE;

/// Environment of the attackers' process: what they do, and to whom.
pub const KIND: &str = "TORON_TEST_ATTACK";
pub const ADDRESS: &str = "TORON_TEST_ADDRESS";
/// What the process says when all but [`crate::CAP`] attackers have been refused.
pub const SETTLED: &str = "settled:";

const FULL: &[u8] = br#"{"error":"503 Service Unavailable: Route concurrency limit reached"}"#;
const BODY: &str = "1000000000";

/// A kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// 300 clients ask once and wait for the answer.
    Wait,
    /// The same, and who is refused asks again at once.
    AskAgain,
    /// 64 uploads of 10 bytes a second; who is refused or severed comes back.
    Drip,
    /// 64 uploads as fast as they are taken, by an upstream that takes nothing.
    Stall,
}

/// What has been seen by all attackers.
#[derive(Default)]
struct Seen {
    refused: AtomicUsize,
    /// Longest time from an attacker's begin to its first refusal, in microseconds.
    slowest: AtomicUsize,
}

impl Attack {
    const ALL: [Attack; 4] = [Attack::Wait, Attack::AskAgain, Attack::Drip, Attack::Stall];

    pub fn name(self) -> &'static str {
        match self {
            Attack::Wait => "300 clients wait",
            Attack::AskAgain => "300 clients, refused ask again",
            Attack::Drip => "64 uploads of 10 B/s",
            Attack::Stall => "64 uploads that are not taken",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attack| attack.name() == name)
    }

    pub fn is_upload(self) -> bool {
        matches!(self, Attack::Drip | Attack::Stall)
    }

    pub fn attackers(self) -> usize {
        if self.is_upload() {
            64
        } else {
            300
        }
    }

    /// Attacks until the process is ended.
    pub fn run(self, addr: SocketAddr) -> ! {
        let seen = Arc::new(Seen::default());
        for _ in 0..self.attackers() {
            let seen = Arc::clone(&seen);
            let attacker = move || self.attacker(addr, &seen);
            std::thread::Builder::new()
                .stack_size(128 * 1024)
                .spawn(attacker)
                .expect("a thread for an attacker");
        }
        let awaited = self.attackers() - crate::CAP as usize;
        let limit = Instant::now() + PATIENCE;
        while seen.refused.load(Ordering::SeqCst) < awaited && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        // One too many would come now.
        std::thread::sleep(Duration::from_millis(200));
        eprintln!(
            "{SETTLED} {} of {} refused at first, the slowest after {} µs",
            seen.refused.load(Ordering::SeqCst),
            self.attackers(),
            seen.slowest.load(Ordering::SeqCst)
        );
        loop {
            std::thread::park();
        }
    }

    fn attacker(self, addr: SocketAddr, seen: &Seen) {
        let began = Instant::now();
        let mut counted = false;
        let mut refused = || {
            if !std::mem::replace(&mut counted, true) {
                let took = began.elapsed().as_micros() as usize;
                seen.slowest.fetch_max(took, Ordering::SeqCst);
                seen.refused.fetch_add(1, Ordering::SeqCst);
            }
        };
        loop {
            let mut stream = TcpStream::connect(addr).expect("connect an attacker");
            stream.set_nodelay(true).expect("no delay");
            match self {
                Attack::Wait | Attack::AskAgain => self.ask(&mut stream, &mut refused),
                Attack::Drip | Attack::Stall => {
                    if self.upload(&mut stream) {
                        refused();
                    }
                }
            }
            // Less than Retry-After asks for.
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Asks until the connection ends. Who waits goes on waiting after a refusal.
    fn ask(self, stream: &mut TcpStream, refused: &mut dyn FnMut()) {
        let request = b"GET /legacy/report HTTP/1.1\r\nHost: t.example\r\n\r\n";
        while stream.write_all(request).is_ok() && is_refused(stream) {
            refused();
            if self == Attack::Wait {
                loop {
                    std::thread::park();
                }
            }
        }
    }

    /// Uploads until the connection ends; whether it was refused.
    fn upload(self, stream: &mut TcpStream) -> bool {
        let head = format!(
            "POST /legacy/upload HTTP/1.1\r\nHost: t.example\r\nContent-Length: {BODY}\r\n\r\n"
        );
        if stream.write_all(head.as_bytes()).is_err() {
            return false;
        }
        let (piece, pause) = match self {
            Attack::Stall => (vec![b'u'; 16 * 1024], Duration::from_millis(1)),
            _ => (vec![b'u'], Duration::from_millis(100)),
        };
        loop {
            // Answers come before the body is whole, if at all.
            stream.set_read_timeout(Some(pause)).expect("a limit");
            match stream.peek(&mut [0]) {
                Ok(_) => return is_refused(stream),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return false,
            }
            stream.set_write_timeout(Some(pause)).expect("a limit");
            match stream.write(&piece) {
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                // The answer may be there all the same.
                Err(_) => return is_refused(stream),
            }
        }
    }
}

/// Reads an answer; whether it is that of a full route.
fn is_refused(stream: &mut TcpStream) -> bool {
    let _ = stream.set_read_timeout(None);
    let mut bytes = Vec::new();
    let mut room = [0; 1024];
    while let Ok(n @ 1..) = stream.read(&mut room) {
        bytes.extend_from_slice(&room[..n]);
        if bytes.ends_with(FULL) {
            return true;
        }
        if bytes.ends_with(b"}") {
            break;
        }
    }
    false
}
