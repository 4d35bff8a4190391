//! One slow route does not hurt the others: a capped route is filled, and a fast route and `/health`
//! are measured beside it.
//!
//! ```text
//!   attackers (a process of their own, nice 19) ──▶ toron, pool 128 ──▶ silent: accepts, says nothing
//!   one client ─ /fast, /health ──────────────────▶               ──▶ fast: answers at once
//! ```
//!
//! The long form (`TORON_SOAK=1`, make soak) takes 20,000 samples of each and holds their p99 to
//! 1.5 times that of the same toron without attackers, or to 5 ms beyond it. The attackers run at the
//! lowest priority because they share two cores with what is measured: on a network they would not.
//! Clients that ask again at once are a flood, which a bulkhead does not stop: their figures are
//! printed only.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

#[path = "isolation/attack.rs"]
mod attack;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Instant;

use attack::Attack;
use support::bulkheads::{await_in_flight, read_out, Slots, ADMIN_KEY};
use support::process::{OnDrop, Process};
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::{raise_descriptor_limit, soak, PATIENCE};

/// What the guardrail gives an elevated route in a pool of 128 (I16).
const CAP: u32 = 32;

const FAST: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfast";

/// Accepts and keeps what comes, without reading. The small buffer makes uploads stall at once.
fn silent() -> SocketAddr {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).unwrap();
    socket.listen(512).unwrap();
    let listener = TcpListener::from(socket);
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            kept.push(stream);
        }
    });
    addr
}

/// Answers every request with [`FAST`].
fn fast() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let mut room = [0; 4096];
                let mut held = Vec::new();
                while let Ok(n @ 1..) = stream.read(&mut room) {
                    held.extend_from_slice(&room[..n]);
                    if held.ends_with(b"\r\n\r\n") {
                        held.clear();
                        if stream.write_all(FAST).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    addr
}

fn settings(engine: Engine) -> Settings {
    let mut legacy = Route::new("/legacy", &silent());
    legacy
        .extra
        .push(("response_header_timeout", "600s".into()));
    legacy.extra.push(("max_body_bytes", "1GiB".into()));
    let mut settings = Settings::new(engine, vec![legacy, Route::new("/fast", &fast())]);
    settings.worker_pool_size = 128;
    settings.admin_key = Some(ADMIN_KEY.into());
    // A probe that the machine does not let run for half a minute, as 300 clients on two cores have
    // made it (the kernel then tells of stalled workqueues), is not to be closed as idle.
    settings.server.push(("idle_timeout", "600s".into()));
    settings
}

/// Times of many requests, in microseconds, sorted.
struct Samples(Vec<u128>);

impl Samples {
    fn per_cent(&self, p: usize) -> u128 {
        self.0[(self.0.len() * p / 100).min(self.0.len() - 1)]
    }
}

/// One kept connection on which one request follows the other.
struct Probe {
    stream: TcpStream,
    request: String,
    end: &'static [u8],
    received: Vec<u8>,
    times: Vec<u128>,
}

impl Probe {
    fn new(toron: &Toron, path: &str, end: &'static [u8]) -> Self {
        let stream = TcpStream::connect(toron.addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Probe {
            stream,
            request: format!("GET {path} HTTP/1.1\r\nHost: t.example\r\n\r\n"),
            end,
            received: Vec::new(),
            times: Vec::new(),
        }
    }

    fn sample(&mut self) {
        let mut room = [0; 4096];
        self.received.clear();
        let began = Instant::now();
        self.stream.write_all(self.request.as_bytes()).unwrap();
        while !self.received.ends_with(self.end) {
            let n = self.stream.read(&mut room).expect("an answer");
            assert!(n > 0, "closed on a client that did no harm");
            self.received.extend_from_slice(&room[..n]);
        }
        self.times.push(began.elapsed().as_micros());
        assert!(self.received.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }

    fn samples(mut self) -> Samples {
        self.times.sort_unstable();
        Samples(self.times)
    }
}

/// Times of the fast route and of /health, taken in turn. `meanwhile` is called now and then.
fn measure(toron: &Toron, meanwhile: impl Fn()) -> [Samples; 2] {
    let count = if soak() { 20_000 } else { 500 };
    let mut fast = Probe::new(toron, "/fast", b"fast");
    let mut health = Probe::new(toron, "/health", br#"{"status":"ok"}"#);
    for i in 0..count {
        if i % (count / 10) == 0 {
            meanwhile();
        }
        fast.sample();
        health.sample();
    }
    [fast.samples(), health.samples()]
}

fn show(what: &str, samples: &[Samples; 2]) {
    for (name, samples) in ["/fast", "/health"].iter().zip(samples) {
        let [p50, p99, most] = [50, 99, 100].map(|p| samples.per_cent(p));
        println!("  {what:32} {name:8} p50 {p50:6} µs  p99 {p99:6} µs  longest {most:6} µs");
    }
}

/// Starts the attackers and waits until as many as must be have been refused.
fn begin(attack: Attack, toron: &Toron) -> Process {
    let mut command = Command::new("nice");
    // Without figures there is no reason to let them starve on a loaded machine.
    command.args(["-n", if soak() { "19" } else { "0" }]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["attackers", "--exact", "--ignored", "--nocapture"]);
    command
        .env(attack::KIND, attack.name())
        .env(attack::ADDRESS, toron.addr.to_string());
    let process = Process::spawn(command, "the attackers", OnDrop::Kill);
    let said = process.wait_line(PATIENCE, |line| {
        line.strip_prefix(attack::SETTLED).map(str::to_owned)
    });
    println!("  {}:{said}", attack.name());
    let refused: usize = said.split_whitespace().next().unwrap().parse().unwrap();
    let least = attack.attackers() - CAP as usize;
    // An upload that was severed meanwhile may have met a full route when it came back.
    assert!(refused == least || (attack.is_upload() && refused > least));
    process
}

fn slots(toron: &Toron) -> Slots {
    let slots = read_out(toron);
    slots.into_iter().find(|s| s.route == "/legacy").unwrap()
}

fn i12_a_full_route_does_not_hurt_the_others(engine: Engine, attack: Attack) {
    raise_descriptor_limit();
    let toron = Toron::start(&settings(engine));
    println!("{}:", engine.name());
    // Connections and threads of the first requests are not what is measured.
    measure(&toron, || {});
    let idle = measure(&toron, || {});
    show("idle", &idle);
    let attackers = begin(attack, &toron);
    // Of uploads some may have been severed since, and not have come back.
    if !attack.is_upload() {
        await_in_flight(&toron, "/legacy", CAP);
    }
    assert_eq!(slots(&toron).cap, Some(CAP));
    let under = measure(&toron, || {
        let now = slots(&toron).in_flight;
        // Slow uploads are severed, and others take their slots.
        assert!(now == CAP || (attack.is_upload() && now < CAP), "{now}");
    });
    show(attack.name(), &under);
    drop(attackers);
    if soak() && attack != Attack::AskAgain {
        for (idle, under) in idle.iter().zip(&under) {
            let [idle, under] = [idle, under].map(|s| s.per_cent(99));
            let good = under * 2 <= idle * 3 || under <= idle + 5_000;
            assert!(good, "{}: p99 {under} µs, idle {idle} µs", attack.name());
        }
    }
}

macro_rules! on_both_engines {
    ($($attack:ident: $epoll:ident, $io_uring:ident;)*) => {$(
        #[test]
        fn $epoll() {
            i12_a_full_route_does_not_hurt_the_others(Engine::Epoll, Attack::$attack);
        }

        #[test]
        fn $io_uring() {
            i12_a_full_route_does_not_hurt_the_others(Engine::IoUring, Attack::$attack);
        }
    )*};
}

on_both_engines! {
    Wait:
        i12_a_backend_that_sleeps_does_not_hurt_the_others_on_epoll,
        i12_a_backend_that_sleeps_does_not_hurt_the_others_on_io_uring;
    AskAgain:
        i12_clients_that_do_not_back_off_do_not_hurt_the_others_on_epoll,
        i12_clients_that_do_not_back_off_do_not_hurt_the_others_on_io_uring;
    Drip:
        i12_uploads_that_drip_do_not_hurt_the_others_on_epoll,
        i12_uploads_that_drip_do_not_hurt_the_others_on_io_uring;
    Stall:
        i12_uploads_that_are_not_taken_do_not_hurt_the_others_on_epoll,
        i12_uploads_that_are_not_taken_do_not_hurt_the_others_on_io_uring;
}

/// The other process: without its environment there is nothing to do.
#[test]
#[ignore = "started by the tests of this file"]
fn attackers() {
    let (Ok(kind), Ok(address)) = (std::env::var(attack::KIND), std::env::var(attack::ADDRESS))
    else {
        return;
    };
    raise_descriptor_limit();
    let attack = Attack::named(&kind).expect("a kind of attack");
    attack.run(address.parse().expect("an address"));
}
