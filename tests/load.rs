//! Many connections: wrk without an error or a wrong byte, and a storm of aborts after which
//! everything is given back. `TORON_SOAK=1` (make soak) runs the long forms and prints figures, with
//! nginx's from the same run.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use support::client::Client;
use support::nginx::{self, Nginx};
use support::setup::{Engine, Route, Settings};
use support::toron::{stand_in, Toron};
use support::{raise_descriptor_limit, soak, PATIENCE};

/// One test at a time: each of them loads the whole machine.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const CONNECTIONS: u32 = 64;
const ADMIN_KEY: &str = "rig";

/// One run of wrk.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    requests: u64,
    micros: u64,
    wrong: u64,
    /// connect, read, write, status, timeout
    errors: [u64; 5],
    p50: u64,
    p99: u64,
    ticks: u64,
}

impl Figures {
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|l| l.strip_prefix("FIGURES "))?;
        let n: Vec<u64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
        let [requests, micros, wrong, a, b, c, d, e, p50, p99, _] = n[..] else {
            return None;
        };
        Some(Figures {
            requests,
            micros,
            wrong,
            errors: [a, b, c, d, e],
            p50,
            p99,
            ticks: 0,
        })
    }

    /// Sums of counts, the worst of percentiles.
    fn add(self, other: Figures) -> Figures {
        let mut errors = self.errors;
        errors
            .iter_mut()
            .zip(other.errors)
            .for_each(|(a, b)| *a += b);
        Figures {
            requests: self.requests + other.requests,
            micros: self.micros + other.micros,
            wrong: self.wrong + other.wrong,
            errors,
            p50: self.p50.max(other.p50),
            p99: self.p99.max(other.p99),
            ticks: self.ticks + other.ticks,
        }
    }

    fn print(&self, what: &str) {
        let per_second = self.requests as f64 / (self.micros.max(1) as f64 / 1e6);
        let cpu = self.ticks as f64 * 10_000.0 / self.requests.max(1) as f64;
        println!(
            "{what:42} {per_second:9.0} requests/s  {cpu:6.1} µs CPU/request  p50 {:6} µs  p99 {:7} µs  wrong {}  errors {:?}",
            self.p50, self.p99, self.wrong, self.errors
        );
    }
}

/// Runs wrk. With `exact` each of its threads has one connection and knows which answer it awaits.
fn wrk(addr: SocketAddr, seconds: u64, close: bool, exact: bool) -> Figures {
    let threads = if exact { CONNECTIONS } else { 2 };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/load/check.lua");
    let mut command = Command::new("wrk");
    command
        .arg(format!("-t{threads}"))
        .arg(format!("-c{CONNECTIONS}"));
    command
        .arg(format!("-d{seconds}s"))
        .args(["--timeout", "10s", "-s", script]);
    if close {
        command.args(["-H", "Connection: close"]);
    }
    command
        .arg(format!("http://{addr}/"))
        .arg("--")
        .arg(if exact { "exact" } else { "paired" });
    let out = command.output().expect("run wrk");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let figures = Figures::parse(&text).unwrap_or_else(|| panic!("wrk gave no figures:\n{text}"));
    assert_eq!((figures.wrong, figures.errors), (0, [0; 5]), "{text}");
    assert!(figures.requests > u64::from(CONNECTIONS), "{text}");
    figures
}

fn settings(engine: Engine, pool: usize, origin: &Nginx) -> Settings {
    let mut settings = Settings::new(engine, vec![Route::new("/", &origin.addr)]);
    settings.worker_pool_size = pool;
    settings.max_body_bytes = Some(0);
    settings
}

fn forms() -> impl Iterator<Item = (Engine, usize, bool)> {
    Engine::ALL
        .into_iter()
        .flat_map(|e| [128, 2].map(|p| (e, p)))
        .flat_map(|(e, p)| [false, true].map(|c| (e, p, c)))
}

fn name(toron: &Toron, engine: Engine, pool: usize, close: bool) -> String {
    let how = if close {
        "Connection: close"
    } else {
        "keep-alive"
    };
    format!("{} {} pool {pool} {how}", toron.name(), engine.name())
}

/// A run of wrk with the processor time that the proxy took for it.
fn measured(
    addr: SocketAddr,
    seconds: u64,
    close: bool,
    exact: bool,
    ticks: impl Fn() -> u64,
) -> Figures {
    let before = ticks();
    let figures = wrk(addr, seconds, close, exact);
    Figures {
        ticks: ticks() - before,
        ..figures
    }
}

#[test]
fn wrk_sees_no_error_and_no_wrong_byte() {
    let _alone = alone();
    let origin = Nginx::origin(1);
    for (engine, pool, close) in forms() {
        let settings = settings(engine, pool, &origin);
        let toron = Toron::start(&settings);
        let short = measured(toron.addr, 3, close, true, || toron.cpu_ticks());
        short.print(&name(&toron, engine, pool, close));
        if soak() {
            beside_nginx(&toron, &settings, close);
        }
    }
}

/// 60 s of wrk in slices that alternate with nginx's on the same origin.
fn beside_nginx(toron: &Toron, settings: &Settings, close: bool) {
    let (slices, seconds) = (6, 10);
    let other = nginx::stand_in(settings);
    let (mut ours, mut theirs) = (Figures::default(), Figures::default());
    for _ in 0..slices {
        ours = ours.add(measured(toron.addr, seconds, close, false, || {
            toron.cpu_ticks()
        }));
        theirs = theirs.add(measured(other.addr, seconds, close, false, || {
            other.cpu_ticks()
        }));
    }
    let workers = settings.worker_pool_size.min(2);
    ours.print("  60 s of the same");
    theirs.print(&format!("  60 s of nginx with {workers} workers"));
}

/// What toron says it has in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
struct Stats {
    sessions: u64,
    exchanges: u64,
    upstream_connections: u64,
    operations: u64,
    sockets: u64,
    buffers: u64,
    pipes: u64,
}

/// The one place that knows where the read-out is. It counts its own connection, before and after
/// alike. nginx has none: zeros stand in.
fn read_out(toron: &Toron) -> Stats {
    if stand_in() {
        return Stats::default();
    }
    let mut client = Client::connect(toron.addr, PATIENCE).expect("connect for the read-out");
    let request = format!(
        "GET /internal/api/status HTTP/1.1\r\nHost: localhost\r\nX-Toron-Admin-Key: {ADMIN_KEY}\r\nConnection: close\r\n\r\n"
    );
    client.send(request.as_bytes(), PATIENCE);
    client.receive_responses(1, PATIENCE);
    let parsed = client.parsed();
    let response = parsed
        .responses
        .first()
        .expect("an answer from the read-out");
    serde_json::from_slice(&response.body).unwrap_or_else(|e| {
        panic!(
            "read-out: {e}: {} {}",
            response.status,
            String::from_utf8_lossy(&response.body)
        )
    })
}

const IDLE: usize = 2000;
const ACTIVE: u64 = 200;
/// Of a body: more than fits in a pipe or buffer of 64 KiB.
const BIG: usize = 256 * 1024;

/// xorshift64: reproducible from its seed, and random enough to choose where to stop.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// One connection of the storm. Half of them are given up at a random place, by RST or by FIN; the
/// others must be served whole.
fn one_connection(addr: SocketAddr, random: &mut Random) {
    let mut client = Client::connect(addr, PATIENCE).expect("connect in the storm");
    let upload = random.below(2) == 0;
    let head = if upload {
        // Few names: the origin's disk must not fill in a long run.
        let name = random.below(64);
        format!("PUT /put/s{name} HTTP/1.1\r\nHost: t.example\r\nContent-Length: {BIG}\r\n\r\n")
    } else {
        "GET /files/big HTTP/1.1\r\nHost: t.example\r\n\r\n".to_owned()
    };
    let head_len = head.len() as u64;
    let mut request = head.into_bytes();
    if upload {
        request.resize(request.len() + BIG, b'u');
    }
    if random.below(2) == 0 {
        let all = request.len() as u64;
        // Inside the head, inside the body, or behind the request.
        let stop = match random.below(3) {
            0 => random.below(head_len),
            1 => random.below(all),
            _ => all,
        };
        client.send(&request[..usize::try_from(stop).unwrap()], PATIENCE);
        if stop == all && !upload {
            let goal = usize::try_from(random.below(BIG as u64)).unwrap();
            client.receive_until(PATIENCE, |c| c.received.len() >= goal);
        }
        if random.below(2) == 0 {
            client.reset();
        }
        return;
    }
    client.send(&request, PATIENCE);
    let bytes = if upload { 0 } else { BIG };
    // Parsing it all after each receive would be the test's load, not toron's.
    client.receive_until(PATIENCE, |c| c.received.len() >= bytes.max(1));
    assert!(
        client.receive_responses(1, PATIENCE),
        "no whole answer: {:?}",
        client.end
    );
    let parsed = client.parsed();
    let response = &parsed.responses[0];
    assert_eq!(response.status / 100, 2, "status {}", response.status);
    if !upload {
        assert!(response.body.len() == BIG && response.body.iter().all(|&b| b == b'd'));
    }
}

/// Idle connections that have been answered once, and active ones for `time`. Returns how many were
/// made.
fn storm(addr: SocketAddr, time: Duration, seed: u64) -> u64 {
    let idle: Vec<Client> = (0..IDLE)
        .map(|i| {
            let mut client = Client::connect(addr, PATIENCE).expect("connect an idle client");
            client.send(
                b"GET /echo/idle HTTP/1.1\r\nHost: t.example\r\n\r\n",
                PATIENCE,
            );
            assert!(
                client.receive_responses(1, PATIENCE),
                "idle client {i} not answered"
            );
            client
        })
        .collect();
    let made = AtomicU64::new(0);
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        for i in 0..ACTIVE {
            let made = &made;
            let work = move || {
                let mut random = Random((seed << 32) ^ (0x9e37_79b9_7f4a_7c15 + i));
                while Instant::now() < until {
                    one_connection(addr, &mut random);
                    made.fetch_add(1, Ordering::Relaxed);
                }
            };
            std::thread::Builder::new()
                .stack_size(256 * 1024)
                .spawn_scoped(scope, work)
                .unwrap();
        }
    });
    drop(idle);
    made.into_inner()
}

/// Sockets held by the proxy, which are all that a storm may add for a while.
fn sockets(toron: &Toron) -> usize {
    toron
        .proc()
        .descriptor_kinds()
        .get("socket")
        .copied()
        .unwrap_or(0)
}

/// Waits until the number of sockets has not changed for two seconds.
fn settled(toron: &Toron) -> usize {
    let deadline = Instant::now() + PATIENCE;
    let (mut last, mut since) = (sockets(toron), Instant::now());
    while since.elapsed() < Duration::from_secs(2) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        let now = sockets(toron);
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

fn aborts_leave_nothing_behind(engine: Engine) {
    let _alone = alone();
    let limit = raise_descriptor_limit();
    assert!(
        limit >= 8192,
        "a descriptor limit of {limit} is too low for this test"
    );
    let time = Duration::from_secs(if soak() { 60 } else { 5 });
    let origin = Nginx::origin(2);
    std::fs::write(origin.dir.join("files/big"), vec![b'd'; BIG]).unwrap();
    let mut settings = settings(engine, 2, &origin);
    settings.admin_key = Some(ADMIN_KEY.to_owned());
    settings.server.push(("idle_timeout", "300s".into()));
    // So that the idle pool towards the origin is empty soon after the storm.
    settings.transport.push(("idle_conn_timeout", "1s".into()));
    let mut toron = Toron::start(&settings);

    storm(toron.addr, Duration::from_secs(1), 1);
    let (sockets_before, before) = (settled(&toron), read_out(&toron));
    let made = storm(toron.addr, time, 2);
    let rest = |stats: Stats| Stats {
        operations: 0,
        ..stats
    };
    let deadline = Instant::now() + PATIENCE;
    let (sockets_after, after) = loop {
        let now = (sockets(&toron), read_out(&toron));
        // The read-out's own connection has one operation more or less, and may still be closing.
        let as_before = now.1.operations <= before.operations && rest(now.1) == rest(before);
        let done = now.0 <= sockets_before && as_before;
        if done || Instant::now() >= deadline {
            break now;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    println!(
        "{}: {made} connections, half of them aborted, beside {IDLE} idle ones; then {after:?}",
        engine.name()
    );
    assert!(toron.process_mut().is_running(), "the proxy has ended");
    assert!(
        sockets_after <= sockets_before,
        "{sockets_after} sockets, {sockets_before} before the storm; {after:?}, before {before:?}"
    );
    assert!(
        after.operations <= before.operations,
        "{after:?}, before {before:?}"
    );
    assert_eq!(rest(after), rest(before));
    // What was leaked before the first read-out must not hide in it: one session, its own, is left.
    let left = (after.exchanges, after.upstream_connections, after.pipes);
    assert_eq!(left, (0, 0, 0), "{after:?}");
    assert!(after.sessions <= 1 && after.buffers <= 1, "{after:?}");
}

#[test]
fn aborts_leave_nothing_behind_on_epoll() {
    aborts_leave_nothing_behind(Engine::Epoll);
}

#[test]
fn aborts_leave_nothing_behind_on_io_uring() {
    aborts_leave_nothing_behind(Engine::IoUring);
}
