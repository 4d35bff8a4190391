//! Slots after a storm (I14): requests to a capped route that end in every way there is, on either
//! side; afterwards exactly the cap fits, not one more or fewer, and the metrics add up. 5,000 requests
//! on each engine, and 100,000 in the long form (`TORON_SOAK=1`, make soak).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

#[path = "storm/endings.rs"]
mod endings;
#[path = "storm/origin.rs"]
mod origin;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use endings::{Ending, Random, ENDINGS};
use origin::Origin;
use support::bulkheads::{await_in_flight, read_out, ADMIN_KEY};
use support::client::Client;
use support::metrics::scrape;
use support::setup::{Engine, Route, Settings};
use support::toron::Toron;
use support::{soak, PATIENCE};

/// Slots of the route.
const CAP: usize = 32;
/// Clients at a time: some find the route full.
const CLIENTS: u64 = 48;
/// Clients at a time that wait for a limit in time.
const SLOW_MOST: usize = 20;
/// Asked for in the end beyond the cap.
const BEYOND: usize = 20;

fn settings(engine: Engine, origin: &Origin) -> Settings {
    let mut stormy = Route::new("/s", &origin.addr);
    for (key, value) in [
        ("max_concurrency", CAP.to_string()),
        ("max_body_bytes", endings::CEILING.to_string()),
        ("read_timeout", "300ms".into()),
        ("response_header_timeout", "300ms".into()),
        ("upstream_idle_timeout", "300ms".into()),
    ] {
        stormy.extra.push((key, value));
    }
    // The slots are asked for in the end without a limit in time.
    let mut settings = Settings::new(engine, vec![stormy]);
    settings.admin_key = Some(ADMIN_KEY.into());
    settings.transport.push(("idle_conn_timeout", "1s".into()));
    settings
}

/// Where nothing listens: the port was free a moment ago, and is bound without listening.
fn dead_route(settings: &mut Settings, refusing: &socket2::Socket) {
    let addr = refusing.local_addr().unwrap().as_socket().unwrap();
    let mut dead = Route::new("/dead", &addr);
    dead.extra.push(("max_concurrency", CAP.to_string()));
    settings.routes.push(dead);
}

fn refusing_socket() -> socket2::Socket {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).unwrap();
    socket
}

/// What came of an ending, and how often.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// What was to come.
    own: u64,
    /// A full route, after which it is tried again.
    full: u64,
    /// A limit in time that only a loaded machine reaches: the ending did not come about.
    late: u64,
}

impl Seen {
    fn plus(self, other: Seen) -> Seen {
        Seen {
            own: self.own + other.own,
            full: self.full + other.full,
            late: self.late + other.late,
        }
    }
}

/// The storm, as its clients share it.
struct Storm<'a> {
    toron: &'a Toron,
    /// Endings to come about.
    count: u64,
    ended: AtomicU64,
    /// Of those that wait for a limit in time, some only at a time: they would hold all the slots.
    slow: AtomicUsize,
    /// Statuses that clients saw, by their first digit; 0 is none.
    seen: [AtomicU64; 6],
}

impl Storm<'_> {
    fn draw(&self, random: &mut Random) -> usize {
        loop {
            let index = random.below(ENDINGS.len() as u64) as usize;
            if !ENDINGS[index].slow || self.slow.fetch_add(1, Ordering::Relaxed) < SLOW_MOST {
                return index;
            }
            self.slow.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Plays an ending until it comes about.
    fn play(&self, ending: &Ending, random: &mut Random) -> Seen {
        let mut seen = Seen::default();
        loop {
            let mut client =
                Client::connect(self.toron.addr, PATIENCE).expect("connect in the storm");
            let status = (ending.play)(&mut client, random);
            self.seen[usize::from(status / 100)].fetch_add(1, Ordering::Relaxed);
            match status {
                503 => seen.full += 1,
                status if ending.allowed.contains(&status) => {
                    seen.own += 1;
                    return seen;
                }
                408 | 504 => {
                    seen.late += 1;
                    return seen;
                }
                status => panic!(
                    "{}: {status}: {}",
                    ending.name,
                    support::show(&client.received)
                ),
            }
        }
    }

    fn client(&self, seed: u64) -> Vec<Seen> {
        let mut random = Random::new(seed);
        let mut seen = vec![Seen::default(); ENDINGS.len()];
        while self.ended.fetch_add(1, Ordering::Relaxed) < self.count {
            let index = self.draw(&mut random);
            let ending = &ENDINGS[index];
            seen[index] = seen[index].plus(self.play(ending, &mut random));
            if ending.slow {
                self.slow.fetch_sub(1, Ordering::Relaxed);
            }
        }
        seen
    }

    /// Returns what came of each ending.
    fn rage(&self) -> Vec<Seen> {
        std::thread::scope(|scope| {
            let start = |seed| {
                std::thread::Builder::new()
                    .stack_size(256 * 1024)
                    .spawn_scoped(scope, move || self.client(seed))
                    .unwrap()
            };
            let clients: Vec<_> = (1..=CLIENTS).map(start).collect();
            let all = vec![Seen::default(); ENDINGS.len()];
            clients.into_iter().fold(all, |all, client| {
                let seen = client.join().expect("a client of the storm");
                all.into_iter().zip(seen).map(|(a, b)| a.plus(b)).collect()
            })
        })
    }
}

/// What toron counted: every request that was received has ended, in a response or in none, and there
/// are at least as many of each kind as clients saw (some had left before the answer came).
fn the_metrics_add_up(storm: &Storm<'_>) {
    let deadline = Instant::now() + PATIENCE;
    let found = loop {
        let found = scrape(storm.toron);
        if found.count("toron_requests_in_flight", &[]) == 0 {
            break found;
        }
        assert!(Instant::now() < deadline, "{:?}", found.samples);
    };
    found.check();
    found.adds_up();
    for (digit, seen) in storm.seen.iter().enumerate().skip(1) {
        let (class, seen) = (format!("{digit}xx"), seen.load(Ordering::Relaxed));
        let counted = found.sum("toron_requests_total", &[("class", &class)]);
        println!("  {class}: {counted} counted, {seen} seen");
        assert!(counted >= seen, "{class}: {counted} counted, {seen} seen");
    }
    let stormy = |reason| {
        found.count(
            "toron_refusals_total",
            &[("route", "/s"), ("reason", reason)],
        )
    };
    for reason in [
        "client_left_body",
        "client_left_waiting",
        "client_left_response",
        "route_full",
    ] {
        assert!(stormy(reason) > 0, "{reason}");
    }
    // Every request of a capped route that ends without a response has a reason.
    let aborts = [("route", "/s"), ("class", "none")];
    let aborts = found.count("toron_requests_total", &aborts);
    let reasons = found.sum("toron_refusals_total", &[("route", "/s")]);
    assert!(reasons >= aborts, "{reasons} reasons, {aborts} aborts");
}

/// Asks for more slots than there are, all to be held.
fn exactly_the_cap_fits(toron: &Toron, origin: &Origin) {
    let ask = |_| {
        let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
        client.send(
            b"POST /s/hold HTTP/1.1\r\nHost: t.example\r\nContent-Length: 0\r\n\r\n",
            PATIENCE,
        );
        client
    };
    let mut clients: Vec<Client> = (0..CAP + BEYOND).map(ask).collect();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut refused = 0;
        for client in &mut clients {
            let soon = Instant::now() + Duration::from_millis(1);
            client.receive(usize::MAX, soon);
            let parsed = client.parsed();
            assert!(parsed.responses.iter().all(|r| r.status == 503));
            refused += parsed.responses.len();
        }
        let held = origin.held();
        if (held, refused) == (CAP, BEYOND) {
            break;
        }
        assert!(
            held <= CAP && refused <= BEYOND && Instant::now() < deadline,
            "of {CAP} slots {held} are held, and {refused} requests refused, not {BEYOND}"
        );
    }
    clients.iter_mut().for_each(Client::reset);
}

fn i14_after_the_storm_exactly_the_cap_fits(engine: Engine) {
    let count = if soak() { 100_000 } else { 5_000 };
    let origin = Origin::start();
    let refusing = refusing_socket();
    let mut stormy = settings(engine, &origin);
    dead_route(&mut stormy, &refusing);
    let mut toron = Toron::start(&stormy);
    let storm = Storm {
        toron: &toron,
        count,
        ended: AtomicU64::new(0),
        slow: AtomicUsize::new(0),
        seen: Default::default(),
    };
    let began = Instant::now();
    let seen = storm.rage();
    let took = began.elapsed();
    await_in_flight(&toron, "/s", 0);
    await_in_flight(&toron, "/dead", 0);
    println!("{}: {count} requests in {took:.1?}", engine.name());
    for (ending, Seen { own, full, late }) in ENDINGS.iter().zip(&seen) {
        println!(
            "  {:36} {own:6}, {full} refused before, {late} late",
            ending.name
        );
        assert!(*own > 0, "{}: never came about", ending.name);
    }
    the_metrics_add_up(&storm);
    assert!(toron.process_mut().is_running(), "the proxy has ended");

    // The same counter, under the same key, without the short limits.
    let mut calm = settings(engine, &origin);
    calm.routes[0].extra.truncate(2);
    dead_route(&mut calm, &refusing);
    toron.reload(&calm);
    exactly_the_cap_fits(&toron, &origin);
    await_in_flight(&toron, "/s", 0);
    let left: u32 = read_out(&toron).iter().map(|slots| slots.in_flight).sum();
    assert_eq!(left, 0);
}

#[test]
fn i14_after_the_storm_exactly_the_cap_fits_on_epoll() {
    i14_after_the_storm_exactly_the_cap_fits(Engine::Epoll);
}

#[test]
fn i14_after_the_storm_exactly_the_cap_fits_on_io_uring() {
    i14_after_the_storm_exactly_the_cap_fits(Engine::IoUring);
}
