//! A client that does no harm: asks at a steady pace, from an address of its own, on a connection that
//! it keeps for some requests, and must always be served.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::attackers::request;
use crate::priority;
use crate::wire::{Seen, Wire};

/// 40 requests a second: well within the default limits.
const PACE: Duration = Duration::from_millis(25);
/// Requests on one connection.
const KEPT_FOR: usize = 10;

/// Times of requests, in microseconds; where the connection was made for it, with that.
pub struct Times(Vec<u64>);

impl Times {
    fn new(mut micros: Vec<u64>) -> Times {
        micros.sort_unstable();
        Times(micros)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The least that `per_cent` of all do not exceed.
    pub fn percentile(&self, per_cent: usize) -> u64 {
        let at = (self.0.len() * per_cent).div_ceil(100).max(1) - 1;
        self.0.get(at).copied().unwrap_or(0)
    }
}

pub struct Bystander {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<u64>, String>>,
}

impl Bystander {
    /// Begins to ask, with `fields` in each request.
    pub fn start(source: IpAddr, target: SocketAddr, fields: &str) -> Bystander {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, request) = (Arc::clone(&stop), request(fields));
        let thread = std::thread::spawn(move || {
            priority::of_bystanders();
            let mut times = Vec::new();
            let mut wire = None;
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                ask(&mut wire, source, target, &request)
                    .map_err(|error| format!("request {}: {error}", times.len()))?;
                times.push(u64::try_from(began.elapsed().as_micros()).unwrap());
                if times.len() % KEPT_FOR == 0 {
                    wire = None;
                }
                std::thread::sleep(PACE.saturating_sub(began.elapsed()));
            }
            Ok(times)
        });
        Bystander { stop, thread }
    }

    /// Whether it still asks: it stops at the first error.
    pub fn is_content(&self) -> bool {
        !self.thread.is_finished()
    }

    /// How long its requests took.
    ///
    /// # Panics
    /// When one of them was not answered with 200.
    pub fn stop(self) -> Times {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.thread.join().expect("the bystander has panicked");
        Times::new(outcome.unwrap_or_else(|error| panic!("a client that did no harm: {error}")))
    }
}

fn ask(
    wire: &mut Option<Wire>,
    source: IpAddr,
    target: SocketAddr,
    request: &str,
) -> Result<(), String> {
    let open = match wire {
        Some(open) => open,
        None => wire.insert(Wire::connect(source, target).map_err(|e| e.to_string())?),
    };
    open.send(request.as_bytes()).map_err(|e| e.to_string())?;
    match open.look() {
        Seen::Answer(200) => Ok(()),
        seen => Err(format!("{seen:?}")),
    }
}
