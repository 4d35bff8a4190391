//! S14: the wrong address among several networks. S15: a container that restarts, or starts too early
//! to be known.

use std::time::Instant;

use serde_json::{json, Value};

use crate::fake::{Fake, FakeEngine};
use crate::on_every_engine;
use crate::rig::{container, socket_dir, Named, Toron};
use crate::support::client::Client;
use crate::support::setup::Engine;
use crate::support::PATIENCE;

/// Events are what is tested: the poll must not help.
const SELDOM: &str = ", poll_interval: 60s";

/// A container in networks with these addresses, written in this order.
fn in_networks(name: &str, port: u16, networks: &[(&str, &str)], labels: &[(&str, &str)]) -> Fake {
    let mut fake = Fake::docker(name, port, labels);
    fake.entry["HostConfig"] = json!({"NetworkMode": networks[0].0});
    let entry = |(name, address): &(&str, &str)| {
        format!("\"{name}\":{{\"IPAddress\":\"{address}\",\"GlobalIPv6Address\":\"\"}}")
    };
    let all: Vec<String> = networks.iter().map(entry).collect();
    fake.networks = Some(format!("{{\"Networks\":{{{}}}}}", all.join(",")));
    fake
}

/// Does it, and waits until a list was read.
fn until_listed(toron: &Toron, act: impl FnOnce()) -> Value {
    let lists = |state: &Value| state["lists"].as_u64().unwrap_or(0);
    let before = lists(&toron.discovery());
    act();
    toron.await_discovery("another list", |state| lists(state) > before)
}

// S14

/// So many looks with the networks in another order each time, as lists have them or as inspections
/// do.
fn s14_shuffled(engine: Engine, looks: usize, more: &str, label: &[(&str, &str)], wanted: usize) {
    let servers = Named::pair(["apple", "zebra"]);
    let (_dir, socket) = socket_dir();
    let labels = [&[("toron.prefix", "/api")], label].concat();
    let port = servers[0].port();
    let networks = [
        ("apple", "127.0.0.2"),
        ("zebra", "127.0.0.3"),
        ("empty", ""),
    ];
    let fake = FakeEngine::start(&socket, Vec::new());
    let toron = Toron::start(engine, &socket, &format!("{SELDOM}{more}"), "");
    for n in 0..looks {
        let mut order = networks;
        order.rotate_left(n % 3);
        if n % 2 == 1 {
            order.reverse();
        }
        let mut web = in_networks("web", port, &order, &labels);
        if n >= looks / 2 {
            // Podman: nothing in the list, all of it when asked for.
            web.inspected = json!({"HostConfig": web.entry["HostConfig"].take()});
            web.entry.as_object_mut().unwrap().remove("HostConfig");
        }
        let state = until_listed(&toron, || fake.set(vec![web]));
        let at = json!(format!("http://{}", servers[wanted].addr));
        assert_eq!(container(&state, "web")["target"], at, "look {n}");
        let name = ["apple", "zebra"][wanted];
        assert_eq!(toron.get("/api", ""), (200, name.to_owned()), "look {n}");
    }
    let lines = toron.process.log_lines();
    let chosen = format!("container web (http://{}) is in", servers[wanted].addr);
    let said = lines.iter().filter(|line| line.contains(&chosen)).count();
    assert_eq!(said, 1, "{lines:#?}");
}

fn s14_same_whatever_the_order(engine: Engine) {
    s14_shuffled(engine, 20, "", &[], 0);
    s14_shuffled(engine, 20, "", &[("toron.network", "zebra")], 1);
    s14_shuffled(engine, 4, ", network: zebra", &[], 1);
    // The label is nearer.
    s14_shuffled(
        engine,
        4,
        ", network: zebra",
        &[("toron.network", "apple")],
        0,
    );
}

#[test]
fn s14_d7_the_same_network_is_chosen_whatever_their_order_on_epoll() {
    s14_same_whatever_the_order(Engine::Epoll);
}

#[test]
fn s14_d7_the_same_network_is_chosen_whatever_their_order_on_io_uring() {
    s14_same_whatever_the_order(Engine::IoUring);
}

/// No address: no route, one line that says why, and never an empty host.
fn s14_without_an_address(engine: Engine) {
    let (_dir, socket) = socket_dir();
    let loopback = Named::start("on loopback");
    let api = [("toron.prefix", "/api")];
    let nowhere = in_networks("nowhere", 8123, &[("edge", ""), ("other", "")], &api);
    let host = Fake::docker("host", loopback.port(), &[("toron.prefix", "/host")]);
    let fake = FakeEngine::start(&socket, vec![nowhere.clone(), host.clone()]);
    let toron = Toron::start(engine, &socket, SELDOM, "");
    // Host networking leaves the address empty as well: that one is on loopback.
    toron.await_body("/host", "", "on loopback");
    for _ in 0..5 {
        let again = || fake.set(vec![nowhere.clone(), host.clone()]);
        let state = until_listed(&toron, again);
        let shown = container(&state, "nowhere");
        assert_eq!(
            (&shown["route"], &shown["target"]),
            (&Value::Null, &Value::Null)
        );
        assert!(shown["reason"]
            .as_str()
            .unwrap()
            .contains("no address on any network"));
    }
    assert_eq!(toron.get("/api", "").0, 404);
    let lines = toron.process.log_lines();
    let about = |line: &&String| line.contains("container nowhere");
    let said: Vec<_> = lines.iter().filter(about).collect();
    assert!(
        said.len() == 1 && said[0].contains("is in no route"),
        "{said:#?}"
    );
}

#[test]
fn s14_d7_d11_no_address_is_no_route_and_one_line() {
    on_every_engine(s14_without_an_address);
}

// S15

/// 1,000 requests, whose answers must all be `name`.
fn s15_all_reach(toron: &Toron, host: &str, name: &str) {
    for round in 0..10 {
        let mut client = Client::connect(toron.addr, PATIENCE).unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        client.send(request.repeat(100).as_bytes(), PATIENCE);
        assert!(
            client.receive_responses(100, PATIENCE),
            "{host}: {:?}",
            client.end
        );
        for response in client.parsed().responses {
            let got = (response.status, String::from_utf8(response.body).unwrap());
            assert_eq!(got, (200, name.to_owned()), "{host}, round {round}");
        }
    }
}

/// Two containers restart and get each other's address. Connections that were kept still lead to
/// whom they led before.
fn s15_swapped(engine: Engine) {
    let servers = Named::pair(["a", "b"]);
    let port = servers[0].port();
    let at = |name: &str, host: &str, address: &str| {
        in_networks(name, port, &[("edge", address)], &[("toron.host", host)])
    };
    let (_dir, socket) = socket_dir();
    let both = |a: &str, b: &str| vec![at("a", "a.example", a), at("b", "b.example", b)];
    let fake = FakeEngine::start(&socket, both("127.0.0.2", "127.0.0.3"));
    let toron = Toron::start(engine, &socket, SELDOM, "");
    s15_all_reach(&toron, "a.example", "a");
    s15_all_reach(&toron, "b.example", "b");
    for round in 0..4 {
        let (a, b) = [("127.0.0.3", "127.0.0.2"), ("127.0.0.2", "127.0.0.3")][round % 2];
        let (first, second) = [("b", "a"), ("a", "b")][round % 2];
        servers[0].rename(first);
        servers[1].rename(second);
        if round < 2 {
            // Both are seen to be gone; in the other rounds only that they have changed places.
            fake.set(Vec::new());
            fake.tell("container", "die");
            toron.await_status("/", "Host: a.example\r\n", 404);
        }
        fake.set(both(a, b));
        let target = json!(format!("http://{a}:{port}"));
        toron.await_discovery("swapped", |state| {
            state["routed"] == 2 && container(state, "a")["target"] == target
        });
        s15_all_reach(&toron, "a.example", "a");
        s15_all_reach(&toron, "b.example", "b");
    }
}

#[test]
fn s15_d4_d5_containers_that_swap_addresses_are_told_apart() {
    on_every_engine(s15_swapped);
}

/// An event that comes before the address is known, and a container that starts between the list and
/// what is heard of events.
fn s15_too_early(engine: Engine) {
    let servers = Named::pair(["early", "between"]);
    let port = servers[0].port();
    let (_dir, socket) = socket_dir();
    let at = |name: &str, address: &str| {
        let host = format!("{name}.example");
        in_networks(name, port, &[("edge", address)], &[("toron.host", &host)])
    };
    let between = at("between", "127.0.0.3");
    let fake = FakeEngine::start(&socket, Vec::new());
    fake.set_behind_next_list(vec![between.clone()]);
    let toron = Toron::start(engine, &socket, SELDOM, "");
    toron.await_body("/", "Host: between.example\r\n", "between");
    fake.set(vec![at("early", ""), between.clone()]);
    toron.await_discovery("seen without an address", |state| {
        state["containers"]
            .as_array()
            .is_some_and(|all| all.len() == 2)
    });
    let started = Instant::now();
    fake.set_silently(vec![at("early", "127.0.0.2"), between]);
    toron.await_body("/", "Host: early.example\r\n", "early");
    println!(
        "{engine:?}: routed {:?} after it had its address",
        started.elapsed()
    );
    // That it came without an event is no reason to doubt the events.
    until_listed(&toron, || fake.tell("container", "start"));
    assert_eq!(fake.streams_opened(), 1);
}

#[test]
fn s15_d3_d5_containers_that_are_early_are_found() {
    on_every_engine(s15_too_early);
}
