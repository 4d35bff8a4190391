//! Whole requests through the real server and the real transaction: from the event that brings the
//! head to the one that says that the response has been sent, in four turns of the reactor.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use toron::control::config::load_texts;
use toron::control::resolve::Endpoints;
use toron::server::access_log::{self, LogSource};
use toron::server::shared::Shared;
use toron::server::Server;
use toron_reactor::{mailbox, Fd, Reactor, Time};

use super::canned::Canned;
use super::scenario::Run;
use super::texts::{CHUNKED_RESPONSE, GET, POST, RESPONSE};

/// The default configuration, but that one address may ask as often as it likes.
const DEFAULT: &str = "server: {host: 127.0.0.1}\nlogging: {access_log: \"off\"}\n\
    firewall: {rate_limit_rps: 1000000, rate_limit_burst: 1000000}\n";
/// Nothing that can be switched off.
const BARE: &str =
    "server: {host: 127.0.0.1}\nlogging: {access_log: \"off\"}\nfirewall: {enabled: false}\n";
/// All that the issue counts as features.
const FULL: &str = "server: {host: 127.0.0.1}\nlogging: {format: json}\n\
    firewall: {rate_limit_rps: 1000000, rate_limit_burst: 1000000, adaptive_rate_limit: true}\n";

/// A server, a client and an upstream.
struct Rig {
    reactor: Reactor<Canned, Server>,
    client: Fd,
    log: Option<LogSource>,
}

impl Rig {
    fn new(config: &str, more_routes: usize, log: bool) -> Rig {
        let mut routes = "routes:\n  - target: http://127.0.0.1:9\n".to_owned();
        for n in 0..more_routes {
            let _ = writeln!(
                routes,
                "  - {{host: h{n}.example.com, prefix: /svc{n}, target: \"http://127.0.0.1:9\"}}"
            );
        }
        let loaded = load_texts(config, Some(&routes), &mut Endpoints::default())
            .expect("a good configuration");
        let snapshot = Arc::new(ArcSwap::from_pointee(loaded.snapshot));
        let (sink, source) = access_log::channel();
        let shared = Shared::new(snapshot, 1, 1, log.then_some(sink));
        let mut engine = Canned::default();
        let listener = engine.open();
        let (_address, mailbox) = mailbox();
        let mut reactor = Reactor::new(engine, Server::new(shared, 0, 7), mailbox);
        reactor.listen(listener).expect("listens");
        let peer = SocketAddr::from(([192, 0, 2, 1], 40_000));
        let client = reactor.engine_mut().connection(listener, peer);
        let mut rig = Rig {
            reactor,
            client,
            log: log.then_some(source),
        };
        rig.turn();
        rig
    }

    fn turn(&mut self) {
        self.reactor.step(Some(Time(0))).expect("a turn");
    }

    /// The upstream connection: the descriptor made last.
    fn upstream(&self) -> Fd {
        self.reactor.engine().last()
    }

    fn exchange(&mut self, request: &[u8], response: &[u8]) {
        self.reactor.engine_mut().bytes(self.client, request);
        self.turn();
        self.turn();
        let upstream = self.upstream();
        self.reactor.engine_mut().bytes(upstream, response);
        self.turn();
        self.turn();
        if let Some(source) = &self.log {
            // The writer's part.
            while let Ok(mut batch) = source.batches.try_recv() {
                batch.clear();
                let _ = source.empty.try_send(batch);
            }
        }
    }
}

/// The first request dials, so that its upstream answers a turn later.
fn first(rig: &mut Rig, request: &[u8], response: &[u8]) {
    rig.reactor.engine_mut().bytes(rig.client, request);
    for _ in 0..3 {
        rig.turn();
    }
    let upstream = rig.upstream();
    rig.reactor.engine_mut().bytes(upstream, response);
    for _ in 0..2 {
        rig.turn();
    }
}

fn run(
    config: &str,
    more_routes: usize,
    log: bool,
    request: &'static [u8],
    response: &'static [u8],
) -> Run {
    let mut rig = Rig::new(config, more_routes, log);
    first(&mut rig, request, response);
    rig.exchange(request, response);
    let counts = rig.reactor.service().counts();
    assert_eq!(
        (counts.requests, counts.exchanges, counts.upstream_idle),
        (2, 0, 1),
        "{counts:?}"
    );
    let engine = rig.reactor.engine();
    let forwarded = String::from_utf8_lossy(engine.sent(rig.upstream()));
    assert!(
        forwarded.contains("\r\nX-Forwarded-For: 192.0.2.1\r\n"),
        "{forwarded}"
    );
    let relayed = engine.sent(rig.client);
    let end = &response[response.len() - 5..];
    assert!(
        relayed.starts_with(b"HTTP/1.1 200 OK\r\n") && relayed.ends_with(end),
        "{}",
        String::from_utf8_lossy(relayed)
    );
    rig.reactor.engine_mut().forget_sent();
    Box::new(move || rig.exchange(request, response))
}

/// GET by the default configuration, without an access log.
pub fn get() -> Run {
    run(DEFAULT, 0, false, GET, RESPONSE)
}

/// The same with everything off that can be.
pub fn get_bare() -> Run {
    run(BARE, 0, false, GET, RESPONSE)
}

/// The same with 1,000 other routes, an access log in JSON, and adaptive limits.
pub fn get_full() -> Run {
    run(FULL, 1000, true, GET, RESPONSE)
}

/// A body that is there with its head, and a chunked answer.
pub fn post() -> Run {
    run(DEFAULT, 0, false, POST, CHUNKED_RESPONSE)
}
