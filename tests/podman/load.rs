//! Requests at a steady pace, on connections that are kept.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::client::Client;
use crate::support::{soak, PATIENCE};

/// Connections.
pub const CLIENTS: u32 = 8;

#[derive(Debug, Default)]
pub struct Outcome {
    pub good: usize,
    /// How often, by what was seen.
    pub failed: BTreeMap<String, usize>,
}

pub struct Load {
    stopping: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Outcome>>,
}

impl Load {
    /// Begins: 2,000 requests a second in the long form, 400 in the short one.
    pub fn start(addr: SocketAddr, path: &str) -> Self {
        let rate = if soak() { 2000 } else { 400 };
        let pause = Duration::from_secs(1) * CLIENTS / rate;
        let stopping = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (stopping, path) = (Arc::clone(&stopping), path.to_owned());
            std::thread::spawn(move || run(addr, &path, pause, &stopping))
        };
        Load {
            clients: (0..CLIENTS).map(client).collect(),
            stopping,
        }
    }

    /// Ends, and tells what was seen.
    pub fn stop(self) -> Outcome {
        self.stopping.store(true, Ordering::SeqCst);
        let mut all = Outcome::default();
        for client in self.clients {
            let outcome = client.join().expect("a client");
            all.good += outcome.good;
            for (what, count) in outcome.failed {
                *all.failed.entry(what).or_insert(0) += count;
            }
        }
        all
    }
}

fn run(addr: SocketAddr, path: &str, pause: Duration, stopping: &AtomicBool) -> Outcome {
    let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut outcome = Outcome::default();
    let mut kept: Option<(Client, usize)> = None;
    let mut next = Instant::now();
    while !stopping.load(Ordering::SeqCst) {
        // A client does not hurry after what it missed.
        next = (next + pause).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        // The rig's client keeps all that it was sent: not for ever.
        let fresh = kept.take().filter(|(_, count)| *count < 200);
        let (mut client, count) =
            fresh.unwrap_or_else(|| (Client::connect(addr, PATIENCE).expect("connect"), 0));
        client.send(request.as_bytes(), PATIENCE);
        let came = client.receive_responses(count + 1, PATIENCE);
        let status = client.parsed().responses.get(count).map(|r| r.status);
        match status.filter(|_| came) {
            Some(200) => {
                outcome.good += 1;
                kept = Some((client, count + 1));
            }
            other => {
                let what = other.map_or("no answer".to_owned(), |status| status.to_string());
                *outcome.failed.entry(what).or_insert(0) += 1;
            }
        }
    }
    outcome
}
