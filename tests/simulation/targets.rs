//! Targets with several addresses, and which of several targets is tried, to the tick (R16, R20,
//! R21).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use toron::policy::pool::Standing;
use toron::policy::settings::{Endpoint, RouteKind};
use toron::policy::snapshot::Snapshot;
use toron_reactor::sim::{Remote, RemoteListener, Route};

use crate::setup;
use crate::stage::{on_time, Peer, Stage};

const SECOND: Duration = Duration::from_secs(1);
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const CLOSING: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

fn configure(route: &str) -> Arc<Snapshot> {
    setup::load("", &format!("routes:\n  - {{prefix: /, {route}}}\n"))
}

/// The endpoint of a target of the only route.
fn endpoint(snapshot: &Snapshot, target: usize) -> Arc<Endpoint> {
    match &snapshot.table.routes()[0].kind {
        RouteKind::Upstream(upstream) => Arc::clone(&upstream.targets[target].endpoint),
        RouteKind::Respond(_) => panic!("a route without targets"),
    }
}

fn addresses(list: &[&str]) -> Vec<SocketAddr> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

fn standing(snapshot: &Snapshot, target: usize) -> Standing {
    snapshot.pool(0).unwrap().targets()[target].standing()
}

/// A client whose request is on its way.
fn asking(stage: &mut Stage) -> Peer {
    let client = stage.client();
    stage.until(SECOND, || client.remote.is_open());
    client.send(GET.as_bytes());
    client
}

/// The request at the upstream, answered, and the client served.
fn served(stage: &mut Stage, mut upstream: Peer, client: &mut Peer, answer: &str) -> Peer {
    stage.until(SECOND, || upstream.has(b"\r\n\r\n"));
    upstream.send(answer.as_bytes());
    stage.until(SECOND, || client.has(b"HTTP/1.1 200 OK\r\n"));
    upstream
}

/// The next connection, by whichever of two doors it comes.
fn either(stage: &mut Stage, doors: &[RemoteListener; 2]) -> Remote {
    let accept = |_: &Stage| doors[0].accept().or_else(|| doors[1].accept());
    stage.look(SECOND, accept).unwrap().1
}

const A: &str = "127.0.1.4:81";
const B: &str = "127.0.1.5:81";

#[test]
fn r16_all_addresses_take_their_turns() {
    let snapshot = configure("target: 'http://name.test', retries: 0");
    endpoint(&snapshot, 0).publish(addresses(&[A, B]));
    let mut stage = Stage::of(&snapshot);
    let doors = [A, B].map(|at| stage.listen(at));
    for n in 0..6 {
        let mut client = asking(&mut stage);
        let upstream = stage.at(&doors[n % 2], SECOND);
        served(&mut stage, upstream, &mut client, CLOSING);
    }
}

#[test]
fn r16_an_address_that_refuses_or_swallows_is_no_failure_while_another_answers() {
    let config = "proxy: {transport: {connect_timeout: 2s}}\n";
    let route = "target: 'http://name.test', retries: 0, consecutive_failures: 1";
    let snapshot = setup::load(config, &format!("routes:\n  - {{prefix: /, {route}}}\n"));
    endpoint(&snapshot, 0).publish(addresses(&[A, B]));
    let mut stage = Stage::of(&snapshot);
    let door = stage.listen(B);
    for _ in 0..4 {
        let mut client = asking(&mut stage);
        let upstream = stage.at(&door, SECOND);
        served(&mut stage, upstream, &mut client, CLOSING);
    }
    stage.world.set_route(A.parse().unwrap(), Route::Silent);
    let mut waited = 0;
    for _ in 0..2 {
        let since = stage.now();
        let mut client = asking(&mut stage);
        let upstream = stage.at(&door, 3 * SECOND);
        if stage.now().since(since) > SECOND {
            on_time(since, 2 * SECOND, stage.now());
            waited += 1;
        }
        served(&mut stage, upstream, &mut client, CLOSING);
    }
    assert_eq!(waited, 1, "each address is the first in its turn");
    assert_eq!(standing(&snapshot, 0), Standing::Up);
}

#[test]
fn r16_an_idle_connection_to_an_address_that_is_gone_is_not_used() {
    let snapshot = configure("target: 'http://name.test'");
    let endpoint = endpoint(&snapshot, 0);
    endpoint.publish(addresses(&[A]));
    let mut stage = Stage::of(&snapshot);
    let doors = [A, B].map(|at| stage.listen(at));
    let mut client = asking(&mut stage);
    let upstream = stage.at(&doors[0], SECOND);
    let mut idle = served(&mut stage, upstream, &mut client, OK);
    endpoint.publish(addresses(&[B]));
    let mut client = asking(&mut stage);
    let upstream = stage.at(&doors[1], SECOND);
    served(&mut stage, upstream, &mut client, OK);
    stage.until(SECOND, || idle.has_ended());
}

#[test]
fn r16_a_name_without_addresses_is_passed_over() {
    let snapshot = configure(&format!(
        "targets: ['http://name.test', 'http://{A}'], retries: 0"
    ));
    let mut stage = Stage::of(&snapshot);
    let door = stage.listen(A);
    for _ in 0..4 {
        let mut client = asking(&mut stage);
        let upstream = stage.at(&door, SECOND);
        served(&mut stage, upstream, &mut client, CLOSING);
    }
    let alone = configure("targets: ['http://name.test', 'http://other.test'], retries: 0");
    let mut stage = Stage::of(&alone);
    let mut client = asking(&mut stage);
    let answer = b"502 Bad Gateway: Upstream name does not resolve";
    stage.until(SECOND, || client.has(answer));
}

#[test]
fn r20_a_response_header_timeout_is_held_against_the_target_and_a_deadline_is_not() {
    let limits = "response_header_timeout: 2s, consecutive_failures: 1, cooldown_period: 5s";
    let targets = format!("targets: ['http://{A}', 'http://{B}']");
    let snapshot = configure(&format!("{targets}, {limits}"));
    let mut stage = Stage::of(&snapshot);
    let doors = [A, B].map(|at| stage.listen(at));
    let mut client = asking(&mut stage);
    let mut upstream = stage.at(&doors[0], SECOND);
    stage.until(SECOND, || upstream.has(b"\r\n\r\n"));
    stage.until(3 * SECOND, || client.has(b"504 Gateway Timeout"));
    let out = stage.now();
    assert_eq!(standing(&snapshot, 0), Standing::Out);
    // Until the cooldown is over the other one takes all, then one request is the trial.
    while stage.now().since(out) < Duration::from_millis(4900) {
        let mut client = asking(&mut stage);
        let upstream = stage.at(&doors[1], SECOND);
        served(&mut stage, upstream, &mut client, CLOSING);
        stage.pass(SECOND / 10);
    }
    stage.pass(SECOND / 5);
    let mut clients = [asking(&mut stage), asking(&mut stage), asking(&mut stage)];
    let mut trial = stage.at(&doors[0], SECOND);
    assert_eq!(standing(&snapshot, 0), Standing::OnTrial);
    for _ in 0..2 {
        let mut upstream = stage.at(&doors[1], SECOND);
        stage.until(SECOND, || upstream.has(b"\r\n\r\n"));
        upstream.send(CLOSING.as_bytes());
    }
    stage.until(SECOND, || trial.has(b"\r\n\r\n"));
    trial.send(CLOSING.as_bytes());
    for client in &mut clients {
        stage.until(SECOND, || client.has(b"200 OK"));
    }
    assert_eq!(standing(&snapshot, 0), Standing::Up);
    let snapshot = configure(&format!("{targets}, {limits}, request_deadline: 1s"));
    let mut stage = Stage::of(&snapshot);
    let doors = [A, B].map(|at| stage.listen(at));
    for n in 0..4 {
        let mut client = asking(&mut stage);
        let _upstream = either(&mut stage, &doors);
        stage.until(2 * SECOND, || client.has(b"Request deadline exceeded"));
        assert_eq!(standing(&snapshot, n % 2), Standing::Up);
    }
}

#[test]
fn r21_without_descriptors_for_it_a_target_is_not_blamed() {
    let targets = format!("targets: ['http://{A}', 'http://{B}'], consecutive_failures: 1");
    let snapshot = configure(&targets);
    let mut stage = Stage::of(&snapshot);
    let client = stage.client();
    stage.until(SECOND, || client.remote.is_open());
    stage
        .world
        .set_descriptor_limit(stage.world.open_descriptors());
    let mut client = client;
    client.send(GET.as_bytes());
    let answer = b"503 Service Unavailable: Out of local resources";
    stage.until(SECOND, || client.has(answer));
    assert_eq!(standing(&snapshot, 0), Standing::Up);
    assert_eq!(standing(&snapshot, 1), Standing::Up);
}
