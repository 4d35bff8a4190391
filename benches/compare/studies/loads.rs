//! Rows about small requests.

use super::{origin, start_all, torons, with_relays, EPOLL, HAPROXY, NGINX, RELAY_URING, URING};
use crate::load::{self, Run};
use crate::peers::{Core, Form, Kind, Peer};
use crate::table::{Column, Table};
use crate::Options;

const fn column(key: &'static str, title: &'static str, digits: usize) -> Column {
    Column { key, title, digits }
}

const CPU: Column = column("cpu", "CPU µs/request", 2);
const USER: Column = column("user", "of it user", 2);
const RATE: Column = column("rate", "requests/s", 0);
/// Time for a request at full load on one core: what a rate is when less is better.
const EACH: Column = column("each", "µs between answers", 2);
const P99: Column = column("p99", "p99 µs", 0);
const P999: Column = column("p999", "p99.9 µs", 0);
const HONEST: Column = column("honest", "rounds that kept the schedule", 2);

fn add(table: &mut Table, name: &'static str, run: &Run) {
    table.add(name, "cpu", run.cpu);
    table.add(name, "user", run.user);
    table.add(name, "rate", run.rate);
    table.add(name, "each", 1e6 / run.rate);
    table.add(name, "p99", run.p99);
}

fn rounds(
    options: &Options,
    peers: &[Peer],
    mut one: impl FnMut(&Peer) -> Result<(), String>,
) -> Result<(), String> {
    for _ in 0..options.rounds {
        for peer in peers {
            one(peer)?;
        }
    }
    Ok(())
}

fn load_core(core: Core) -> Core {
    match core {
        Core::Any => Core::Any,
        Core::Load | Core::Proxy => Core::Load,
    }
}

fn small(name: &'static str, title: &str, options: &Options, core: Core) -> Result<Table, String> {
    let mut table = Table::new(name, title.to_owned(), &[CPU, USER, RATE, EACH, P99]);
    let origin = origin(core)?;
    let peers = start_all(&with_relays(), core, origin.addr)?;
    rounds(options, &peers, |peer| {
        let run = load::closed(peer, load_core(core), 64, options.length, None)?;
        add(&mut table, peer.name, &run);
        Ok(())
    })?;
    let better = [(NGINX, "cpu"), (HAPROXY, "cpu")];
    table.goal(
        "CPU, io_uring, against the io_uring relay",
        (URING, "cpu"),
        &[(RELAY_URING, "cpu")],
        1.15,
    );
    table.goal(
        "CPU, io_uring, against the better of nginx and HAProxy",
        (URING, "cpu"),
        &better,
        0.85,
    );
    table.goal(
        "CPU, epoll, against the better of nginx and HAProxy",
        (EPOLL, "cpu"),
        &better,
        0.92,
    );
    table.goal("user time, io_uring, µs", (URING, "user"), &[], 1.5);
    if core == Core::Proxy {
        let text = "time between answers, io_uring, against HAProxy (1.10 times its rate)";
        table.goal(text, (URING, "each"), &[(HAPROXY, "each")], 1.0 / 1.10);
    }
    Ok(table)
}

pub(super) fn keep_alive(options: &Options) -> Result<Table, String> {
    let title = "Small requests, 64 keep-alive connections, answers of 1 KiB, proxy on one core, load and origin on the other";
    small("keep-alive", title, options, Core::Proxy)
}

pub(super) fn unpinned(options: &Options) -> Result<Table, String> {
    let title = "The same, proxy, load and origin on both cores";
    small("unpinned", title, options, Core::Any)
}

pub(super) fn fresh(options: &Options) -> Result<Table, String> {
    let title = "A new client connection for each request".to_owned();
    let mut table = Table::new("fresh", title, &[CPU, USER, RATE, P99]);
    let origin = origin(Core::Proxy)?;
    let peers = start_all(&with_relays(), Core::Proxy, origin.addr)?;
    rounds(options, &peers, |peer| {
        let header = Some("Connection: close");
        let run = load::closed(peer, Core::Load, 64, options.length, header)?;
        add(&mut table, peer.name, &run);
        Ok(())
    })?;
    table.goal(
        "CPU, io_uring, against nginx",
        (URING, "cpu"),
        &[(NGINX, "cpu")],
        0.9,
    );
    table.goal(
        "CPU, epoll, against nginx",
        (EPOLL, "cpu"),
        &[(NGINX, "cpu")],
        0.9,
    );
    Ok(table)
}

const SHARES: [(u64, [&str; 6]); 2] = [
    (
        40,
        [
            "toron, io_uring, 40%",
            "toron, epoll, 40%",
            "nginx, 40%",
            "HAProxy, 40%",
            "relay, io_uring, 40%",
            "relay, epoll, 40%",
        ],
    ),
    (
        70,
        [
            "toron, io_uring, 70%",
            "toron, epoll, 70%",
            "nginx, 70%",
            "HAProxy, 70%",
            "relay, io_uring, 70%",
            "relay, epoll, 70%",
        ],
    ),
];

pub(super) fn open_loop(options: &Options) -> Result<Table, String> {
    let origin = origin(Core::Proxy)?;
    let peers = start_all(&with_relays(), Core::Proxy, origin.addr)?;
    let nginx = peers
        .iter()
        .find(|peer| peer.name == NGINX)
        .ok_or("no nginx")?;
    let most = load::closed(nginx, Core::Load, 64, options.length, None)?.rate;
    let title = format!(
        "Open loop (Poisson) at 40% and 70% of the {most:.0}/s that nginx answers at most, 64 connections"
    );
    let mut table = Table::new("open-loop", title, &[CPU, P99, P999, HONEST]);
    for (share, names) in SHARES {
        let rate = (most * share as f64 / 100.0) as u64;
        for _ in 0..options.rounds {
            for (peer, name) in peers.iter().zip(names) {
                let run = load::open(peer, Core::Load, rate, options.length)?;
                table.add(name, "cpu", run.cpu);
                table.add(name, "p99", run.p99);
                table.add(name, "p999", run.p999);
                table.add(name, "honest", f64::from(u8::from(run.honest)));
            }
        }
        let [uring, _, nginx, haproxy, relay, _] = names;
        let both = [(nginx, "cpu"), (haproxy, "cpu")];
        table.goal(
            &format!("p99 at {share}% against the io_uring relay"),
            (uring, "p99"),
            &[(relay, "p99")],
            1.25,
        );
        table.goal(
            &format!("p99.9 at {share}% against the io_uring relay"),
            (uring, "p999"),
            &[(relay, "p999")],
            1.25,
        );
        table.goal(
            &format!("CPU at {share}% against the better of nginx and HAProxy"),
            (uring, "cpu"),
            &both,
            0.85,
        );
    }
    Ok(table)
}

const MANY: &str = "128 reactors";
const FEW: &str = "one for each core";

pub(super) fn reactors(options: &Options) -> Result<Table, String> {
    let title = "128 reactors against one for each core (io_uring and epoll), all on both cores";
    let columns = [
        column("1", "1 connection, CPU µs", 2),
        column("16", "16", 2),
        column("64", "64", 2),
        column("1000", "1,000", 2),
        column("8000", "8,000 of which 1,000 busy", 2),
        column("p99-64", "p99 of 64, µs", 0),
        column("p99-1000", "p99 of 1,000, µs", 0),
    ];
    let mut table = Table::new("reactors", title.to_owned(), &columns);
    let origin = origin(Core::Any)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let forms = [(MANY, None), (FEW, Some(cores))];
    for (engine, names) in [
        (
            "io_uring",
            ["io_uring, 128 reactors", "io_uring, one for each core"],
        ),
        ("epoll", ["epoll, 128 reactors", "epoll, one for each core"]),
    ] {
        let kinds: Vec<_> = names
            .iter()
            .zip(forms)
            .map(|(name, (_, reactors))| {
                (
                    *name,
                    Kind::Toron(
                        engine,
                        Form {
                            reactors,
                            ..Form::default()
                        },
                    ),
                )
            })
            .collect();
        let peers = start_all(&kinds, Core::Any, origin.addr)?;
        for (count, key) in [(1, "1"), (16, "16"), (64, "64"), (1000, "1000")] {
            rounds(options, &peers, |peer| {
                let run = load::closed(peer, Core::Any, count, options.length, None)?;
                table.add(peer.name, key, run.cpu);
                match count {
                    64 => table.add(peer.name, "p99-64", run.p99),
                    1000 => table.add(peer.name, "p99-1000", run.p99),
                    _ => {}
                }
                Ok(())
            })?;
        }
        rounds(options, &peers, |peer| {
            let held = load::idle(peer.addr, 7000)?;
            let run = load::closed(peer, Core::Any, 1000, options.length, None)?;
            table.add(peer.name, "8000", run.cpu);
            drop(held);
            Ok(())
        })?;
        for column in &columns {
            let text = format!("{engine}: {}", column.title);
            table.goal(
                &text,
                (names[0], column.key),
                &[(names[1], column.key)],
                1.05,
            );
        }
    }
    Ok(table)
}

pub(super) fn idle(options: &Options) -> Result<Table, String> {
    let title =
        "64 busy connections beside 8,000 idle ones and alone, proxy on one core".to_owned();
    let columns = [
        column("alone", "alone, CPU µs", 2),
        column("beside", "beside 8,000, CPU µs", 2),
    ];
    let mut table = Table::new("idle", title, &columns);
    let origin = origin(Core::Proxy)?;
    let peers = start_all(&torons(), Core::Proxy, origin.addr)?;
    rounds(options, &peers, |peer| {
        let alone = load::closed(peer, Core::Load, 64, options.length, None)?;
        let held = load::idle(peer.addr, 8000)?;
        let beside = load::closed(peer, Core::Load, 64, options.length, None)?;
        drop(held);
        table.add(peer.name, "alone", alone.cpu);
        table.add(peer.name, "beside", beside.cpu);
        Ok(())
    })?;
    for name in [URING, EPOLL] {
        table.goal(name, (name, "beside"), &[(name, "alone")], 1.03);
    }
    Ok(table)
}

pub(super) fn features(options: &Options) -> Result<Table, String> {
    let title =
        "Firewall, 1,000 routes and a JSON access log on, against all off, proxy on one core";
    let mut table = Table::new("features", title.to_owned(), &[CPU, USER, RATE, P99]);
    let origin = origin(Core::Proxy)?;
    let on = Form {
        log: true,
        routes: 1000,
        ..Form::default()
    };
    let off = Form {
        firewall: false,
        ..Form::default()
    };
    let names = [
        ("io_uring", "io_uring, all on", "io_uring, all off"),
        ("epoll", "epoll, all on", "epoll, all off"),
    ];
    let kinds: Vec<_> = names
        .iter()
        .flat_map(|(engine, with, without)| {
            [
                (*with, Kind::Toron(engine, on.clone())),
                (*without, Kind::Toron(engine, off.clone())),
            ]
        })
        .collect();
    let peers = start_all(&kinds, Core::Proxy, origin.addr)?;
    rounds(options, &peers, |peer| {
        let run = load::closed(peer, Core::Load, 64, options.length, None)?;
        add(&mut table, peer.name, &run);
        Ok(())
    })?;
    for (engine, with, without) in names {
        table.goal(
            &format!("CPU, {engine}"),
            (with, "cpu"),
            &[(without, "cpu")],
            1.10,
        );
    }
    Ok(table)
}
