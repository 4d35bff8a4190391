//! Attackers: threads at the lowest priority.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::priority;
use crate::wire::{Seen, Wire};

/// Between two looks at connections that are held.
const ROUND: Duration = Duration::from_millis(100);
/// Rounds before an attacker who was refused comes back.
const SULK: u32 = 5;

/// What attackers have met with.
#[derive(Clone, Default, Debug)]
pub struct Met {
    pub connects: u64,
    /// Connects that failed: reset at once.
    pub failed: u64,
    pub resets: u64,
    /// Connections that ended without an answer.
    pub ends: u64,
    /// By status.
    pub answers: BTreeMap<u16, u64>,
}

impl Met {
    pub fn answers(&self, status: u16) -> u64 {
        self.answers.get(&status).copied().unwrap_or(0)
    }

    fn note(&mut self, seen: Seen) {
        match seen {
            Seen::Nothing => {}
            Seen::Answer(status) => *self.answers.entry(status).or_default() += 1,
            Seen::End => self.ends += 1,
            Seen::Reset => self.resets += 1,
        }
    }
}

/// Where an attack goes, until when, and what it has met with.
#[derive(Clone)]
pub struct Front {
    pub target: SocketAddr,
    stop: Arc<AtomicBool>,
    met: Arc<Mutex<Met>>,
}

impl Front {
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn note(&self, seen: Seen) {
        self.met.lock().unwrap().note(seen);
    }

    /// Connects, and counts that.
    fn connect(&self, source: IpAddr) -> io::Result<Wire> {
        let connected = Wire::connect(source, self.target);
        let mut met = self.met.lock().unwrap();
        met.connects += 1;
        met.failed += u64::from(connected.is_err());
        connected
    }
}

/// An attack under way.
pub struct Attackers {
    front: Front,
    threads: Vec<JoinHandle<()>>,
}

impl Attackers {
    /// One thread for each of `attacks`.
    pub fn start<A: FnOnce(&Front) + Send + 'static>(
        target: SocketAddr,
        attacks: impl IntoIterator<Item = A>,
    ) -> Attackers {
        let front = Front {
            target,
            stop: Arc::default(),
            met: Arc::default(),
        };
        let begin = |attack: A| {
            let front = front.clone();
            std::thread::spawn(move || {
                priority::of_attackers();
                attack(&front);
            })
        };
        let threads = attacks.into_iter().map(begin).collect();
        Attackers { front, threads }
    }

    /// What they have met with so far.
    pub fn met(&self) -> Met {
        self.front.met.lock().unwrap().clone()
    }

    /// Waits until all of them have ended by themselves.
    pub fn join(self) -> Met {
        for thread in self.threads {
            thread.join().expect("an attacker has panicked");
        }
        Arc::try_unwrap(self.front.met)
            .unwrap()
            .into_inner()
            .unwrap()
    }

    /// Ends them.
    pub fn stop(self) -> Met {
        self.front.stop.store(true, Ordering::Relaxed);
        self.join()
    }
}

/// Addresses of 127.0.0.0/8, one for each host of `net`.
pub fn sources(net: u8, hosts: u8) -> Vec<IpAddr> {
    (1..=hosts)
        .map(|host| Ipv4Addr::new(127, 0, net, host).into())
        .collect()
}

/// Holds a connection for each of `sources`: says `opening`, then `drip` every now and then (slowloris,
/// RUDY), and comes back when it is cut off or refused.
pub fn drip(front: &Front, sources: &[IpAddr], opening: &[u8], drip: &[u8]) {
    let mut held: Vec<(Option<Wire>, u32)> = sources.iter().map(|_| (None, 0)).collect();
    while front.goes_on() {
        let began = Instant::now();
        for ((wire, sulks), source) in held.iter_mut().zip(sources) {
            if let Some(open) = wire {
                if !still_open(front, open, drip) {
                    *wire = None;
                    *sulks = SULK;
                }
            } else if *sulks > 0 {
                *sulks -= 1;
            } else {
                *wire = front.connect(*source).ok().map(|wire| begun(wire, opening));
            }
        }
        std::thread::sleep(ROUND.saturating_sub(began.elapsed()));
    }
}

fn begun(mut wire: Wire, opening: &[u8]) -> Wire {
    // Where it is refused already, the next look says so.
    let _ = wire.send(opening);
    wire.do_not_wait();
    wire
}

fn still_open(front: &Front, wire: &mut Wire, drip: &[u8]) -> bool {
    loop {
        let seen = wire.look();
        match seen {
            Seen::Nothing => return wire.send_some(drip).is_ok(),
            Seen::Answer(_) => front.note(seen),
            Seen::End | Seen::Reset => {
                front.note(seen);
                return false;
            }
        }
    }
}

/// Sends as fast as it is taken the begin of a head, and `piece` again and again until the connection
/// has ended; then the next, from the next address.
pub fn flood_heads(front: &Front, sources: &[IpAddr], piece: &[u8]) {
    for source in sources.iter().cycle() {
        if !front.goes_on() {
            return;
        }
        let Ok(wire) = front.connect(*source) else {
            continue;
        };
        let mut wire = begun(wire, b"GET /bytes/64 HTTP/1.1\r\nHost: t\r\n");
        while front.goes_on() && still_open(front, &mut wire, piece) {}
        wire.reset();
    }
}

/// Connects at most `times` from all of `sources` in turn, `per_second`, says nothing, and keeps what is not
/// refused.
pub fn storm(front: &Front, sources: &[IpAddr], times: u32, per_second: u32) {
    let began = Instant::now();
    let mut held: Vec<Wire> = Vec::new();
    for (n, source) in (0..times).zip(sources.iter().cycle()) {
        if !front.goes_on() {
            break;
        }
        let due = began + Duration::from_secs(1) * n / per_second;
        let early = due.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            std::thread::sleep(early);
        }
        if let Ok(wire) = front.connect(*source) {
            wire.do_not_wait();
            held.push(wire);
        }
        // Ten times a second.
        if n % (per_second / 10) == 0 {
            held.retain_mut(|wire| still_open(front, wire, b""));
        }
    }
    held.retain_mut(|wire| still_open(front, wire, b""));
    while front.goes_on() {
        std::thread::sleep(ROUND);
        held.retain_mut(|wire| still_open(front, wire, b""));
    }
    held.into_iter().for_each(Wire::reset);
}

/// Asks `times` from `source`, `at_once` in one write, with the fields that `fields` gives the n-th
/// request; on a new connection when the old one has ended.
pub fn ask(
    front: &Front,
    source: IpAddr,
    (times, at_once): (u32, u32),
    fields: impl Fn(u32) -> String,
) {
    let mut asked = 0;
    let mut wire = None;
    while asked < times && front.goes_on() {
        let Some(open) = &mut wire else {
            wire = front.connect(source).ok();
            continue;
        };
        let batch = asked..times.min(asked + at_once);
        let requests: String = batch.clone().map(|n| request(&fields(n))).collect();
        asked = batch.end;
        let _ = open.send(requests.as_bytes());
        for _ in batch {
            let seen = open.look();
            assert_ne!(seen, Seen::Nothing, "no answer in time");
            front.note(seen);
            if !matches!(seen, Seen::Answer(_)) {
                wire = None;
                break;
            }
        }
    }
}

/// A request that goes to the upstream.
pub fn request(fields: &str) -> String {
    format!("GET /bytes/64 HTTP/1.1\r\nHost: t.example\r\n{fields}\r\n")
}
