//! Requests at a steady pace, on connections that are kept.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::PATIENCE;

/// Connections.
pub const CLIENTS: u32 = 8;
/// Requests a second, of all of them.
const RATE: u32 = 2000;
/// How much a client makes up for when it is late.
const MADE_UP: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct Outcome {
    pub good: usize,
    /// How often, by what was seen.
    pub failed: BTreeMap<String, usize>,
}

impl Outcome {
    fn fails(&mut self, what: String) {
        *self.failed.entry(what).or_insert(0) += 1;
    }

    /// Adds what another has seen.
    fn add(&mut self, other: Outcome) {
        self.good += other.good;
        for (what, count) in other.failed {
            *self.failed.entry(what).or_insert(0) += count;
        }
    }
}

pub struct Load {
    began: Instant,
    stopping: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Outcome>>,
}

impl Load {
    /// Begins.
    pub fn start(addr: SocketAddr, path: &str) -> Self {
        let pause = Duration::from_secs(1) * CLIENTS / RATE;
        let stopping = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (stopping, path) = (Arc::clone(&stopping), path.to_owned());
            std::thread::spawn(move || run(addr, &path, pause, &stopping))
        };
        Load {
            began: Instant::now(),
            clients: (0..CLIENTS).map(client).collect(),
            stopping,
        }
    }

    /// How long it has gone on.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Ends, tells of its pace, and gives what was seen.
    pub fn stop(self, what: &str) -> Outcome {
        let took = self.age();
        self.stopping.store(true, Ordering::SeqCst);
        let mut all = Outcome::default();
        for client in self.clients {
            all.add(client.join().expect("a client"));
        }
        let pace = all.good as f64 / took.as_secs_f64();
        println!("{what}: {took:.1?}, {pace:.0} good a second, {all:?}");
        all
    }
}

fn run(addr: SocketAddr, path: &str, pause: Duration, stopping: &AtomicBool) -> Outcome {
    let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut outcome = Outcome::default();
    let mut kept = None;
    let mut next = Instant::now();
    while !stopping.load(Ordering::SeqCst) {
        // A client makes up for a moment, and does not hurry after more.
        next = (next + pause).max(Instant::now() - MADE_UP);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let mut stream = kept.take().unwrap_or_else(|| connect(addr));
        match exchange(&mut stream, request.as_bytes()) {
            Ok(200) => {
                outcome.good += 1;
                kept = Some(stream);
            }
            Ok(status) => outcome.fails(status.to_string()),
            Err(error) => outcome.fails(format!("no whole answer: {error}")),
        }
    }
    outcome
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&addr, PATIENCE).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    stream
}

/// The status of one request, once all of its response has come, whose length the head must tell.
fn exchange(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<u16> {
    let bad = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    stream.write_all(request)?;
    let (mut room, mut have) = ([0; 4096], 0);
    loop {
        let came = stream.read(room.get_mut(have..).unwrap_or_default())?;
        if came == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        have += came;
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut fields);
        let parsed = head.parse(&room[..have]);
        let Ok(httparse::Status::Complete(start)) = parsed else {
            parsed.map_err(|error| bad(&error.to_string()))?;
            continue;
        };
        let length = head
            .headers
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case("content-length"))
            .and_then(|field| std::str::from_utf8(field.value).ok()?.parse().ok());
        let length: usize = length.ok_or_else(|| bad("no length"))?;
        if have >= start + length {
            return head.code.ok_or_else(|| bad("no status"));
        }
    }
}
