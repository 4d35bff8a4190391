//! Attack drills: the real binary on both engines under attack, with clients beside it that do no
//! harm.
//!
//! ```text
//!   attackers (lowest priority), 127.0.x.y ──▶
//!   bystanders, 127.0.77.1 or behind a proxy ───▶ toron ──▶ toron upstream
//!   the test: /metrics, /internal/api ──────────▶
//! ```
//!
//! Bystanders see no error. Attackers are refused for the reasons that they should be. Memory stays
//! within a bound that each drill writes down (docs/operations.md has them, too). The long form
//! (`TORON_SOAK=1`, make soak) attacks for 20 s and holds the bystanders' p99 to ten times what it was
//! before the attack, or to 5 ms more.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
mod support;

#[path = "drills/attackers.rs"]
mod attackers;
#[path = "drills/bystander.rs"]
mod bystander;
#[path = "drills/priority.rs"]
mod priority;
#[path = "drills/scene.rs"]
mod scene;
#[path = "drills/wire.rs"]
mod wire;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use attackers::{ask, drip, flood_heads, sources, storm, Attackers, Front, Met};
use scene::{Scene, BUFFER_KIB, BYSTANDER, PER_CONNECTION_KIB, PER_EXCHANGE_KIB};
use support::setup::Engine;
use support::soak;
use wire::{Seen, Wire};

on_both_engines! {
    slowloris: slowloris_with_500_connections_on_epoll, slowloris_with_500_connections_on_io_uring;
    rudy: rudy_with_200_connections_on_epoll, rudy_with_200_connections_on_io_uring;
    heads: a_flood_of_heads_on_epoll, a_flood_of_heads_on_io_uring;
    addresses: a_proxy_with_50_000_addresses_on_epoll, a_proxy_with_50_000_addresses_on_io_uring;
    connects: connects_5_000_a_second_on_epoll, connects_5_000_a_second_on_io_uring;
    spoofed: spoofed_addresses_on_epoll, spoofed_addresses_on_io_uring;
}

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 10));
/// Pages of a buffer that a head makes use of (`max_header_bytes`).
const HEAD_KIB: u64 = 8;
const DIRECT: scene::Harmless = (BYSTANDER, "");

/// Whether the address is one of 127.0.`net`.0/24.
fn of_net(net: u8) -> impl Fn(IpAddr) -> bool {
    move |address| matches!(address, IpAddr::V4(v4) if v4.octets()[..3] == [127, 0, net])
}

/// Attacks that each hold connections from some of the addresses of a net, `each` from every address.
fn drippers(
    (net, hosts, each): (u8, u8, usize),
    opening: &'static str,
    byte: &'static str,
) -> impl Iterator<Item = impl FnOnce(&Front) + Send> {
    let all: Vec<IpAddr> = sources(net, hosts).repeat(each);
    let parts: Vec<Vec<IpAddr>> = all.chunks(100).map(<[IpAddr]>::to_vec).collect();
    parts.into_iter().map(move |part| {
        move |front: &Front| drip(front, &part, opening.as_bytes(), byte.as_bytes())
    })
}

/// What `reason` is told of, as long as the list still has it: later it is full of blocks. A long form
/// waits longer than that.
fn explained_early(
    scene: &Scene,
    until: &dyn Fn(&dyn Fn() -> bool),
    reason: &str,
    limit: (&str, u64, &str),
    net: u8,
) {
    if !soak() {
        until(&|| scene.refused_for(reason) > 0);
        scene.explains(reason, limit, of_net(net));
    }
}

/// 500 heads that grow by a field line now and then, ten from each of 50 addresses. Each address is
/// blocked with its tenth cut.
fn slowloris(engine: Engine) {
    let scene = Scene::set("slowloris", engine, &[("header_timeout", "1s")], &[DIRECT]);
    let blocks = || scene.metric("toron_firewall_blocks_total", &[("kind", "slowness")]);
    let outcome = scene.attacked(|until| {
        let attackers = drippers(
            (20, 50, 10),
            "GET / HTTP/1.1\r\nHost: t\r\n",
            "X-Slow: 1\r\n",
        );
        let attackers = Attackers::start(scene.addr(), attackers);
        explained_early(
            &scene,
            until,
            "header_timeout",
            ("header_timeout", 1000, "firewall"),
            20,
        );
        until(&|| blocks() >= 50 && attackers.met().answers(403) >= 500);
        attackers.stop()
    });
    outcome.bounded(&[(500, PER_CONNECTION_KIB + HEAD_KIB)]);
    assert_eq!((blocks(), scene.blocked().len()), (50, 50));
    assert!(outcome.met.answers(408) >= 500, "{:?}", outcome.met);
    assert!(scene.refused_for("header_timeout") >= 500);
    assert!(scene.metric("toron_firewall_violations_total", &[("kind", "slowness")]) >= 500);
    scene.explains("blocked", ("block_duration", 300, "default"), of_net(20));
    assert_eq!(outcome.met.answers(200), 0);
}

/// 200 bodies that come by the byte, ten from each of 20 addresses, under the defaults.
fn rudy(engine: Engine) {
    let scene = Scene::set("RUDY", engine, &[], &[DIRECT]);
    let blocks = || scene.metric("toron_firewall_blocks_total", &[("kind", "slowness")]);
    let opening = "POST /discard HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n";
    let outcome = scene.attacked(|until| {
        let attackers = Attackers::start(scene.addr(), drippers((21, 20, 10), opening, "a"));
        explained_early(
            &scene,
            until,
            "min_body_rate",
            ("min_body_rate", 100, "default"),
            21,
        );
        until(&|| blocks() >= 20 && attackers.met().answers(403) >= 200);
        attackers.stop()
    });
    outcome.bounded(&[(200, PER_CONNECTION_KIB + 2 * HEAD_KIB)]);
    assert_eq!((blocks(), scene.blocked().len()), (20, 20));
    assert!(outcome.met.answers(408) >= 200, "{:?}", outcome.met);
    assert!(scene.refused_for("min_body_rate") >= 200);
    // Nothing of it is left at the upstream: the bystander's connection has been idle for long.
    let used = || scene.metric("toron_upstream_connections", &[("state", "in_use")]);
    let limit = Instant::now() + support::PATIENCE;
    while used() > 0 {
        assert!(
            Instant::now() < limit,
            "{} upstream connections in use",
            used()
        );
    }
    scene.explains("blocked", ("block_duration", 300, "default"), of_net(21));
}

/// Heads without an end, and heads of too many fields, as fast as they are taken.
fn heads(engine: Engine) {
    let scene = Scene::set("header flood", engine, &[], &[DIRECT]);
    let refused = |reason| scene.refused_for(reason);
    let long = format!("X-Flood: {}\r\n", "a".repeat(1000)).repeat(16);
    let many = "A: b\r\n".repeat(110) + "\r\n";
    let outcome = scene.attacked(|until| {
        let flood = |net: u8, piece: String| {
            move |front: &Front| flood_heads(front, &sources(net, 50), piece.as_bytes())
        };
        let (long, many) = (long.clone(), many.clone());
        let floods = [
            (22, long.clone()),
            (22, long),
            (23, many.clone()),
            (23, many),
        ];
        let floods = floods.map(|(net, piece)| flood(net, piece));
        let attackers = Attackers::start(scene.addr(), floods);
        until(&|| refused("head_too_large") >= 200 && refused("too_many_fields") >= 200);
        attackers.stop()
    });
    outcome.bounded(&[(4, PER_CONNECTION_KIB + BUFFER_KIB)]);
    assert_eq!(outcome.met.answers.keys().collect::<Vec<_>>(), [&431]);
    let attackers = |client: IpAddr| of_net(22)(client) || of_net(23)(client);
    // One more of each, since the list may be full of the other.
    for (net, piece) in [(22, long), (23, many)] {
        let mut wire = Wire::connect(sources(net, 1)[0], scene.addr()).unwrap();
        // The answer may come before all of it has gone.
        let _ = wire.send(format!("GET / HTTP/1.1\r\nHost: t\r\n{piece}").as_bytes());
        assert_eq!(wire.look(), Seen::Answer(431));
    }
    scene.explains(
        "head_too_large",
        ("max_header_bytes", 8192, "default"),
        attackers,
    );
    scene.explains(
        "too_many_fields",
        ("max_header_count", 100, "default"),
        attackers,
    );
}

const TRACKED: u64 = 10_000;
const ADDRESSES: u32 = 50_000;
/// Slot, share of the hash table, and as much again for the room that a shard keeps.
const PER_ADDRESS_BYTES: u64 = 2 * 256;

/// 50,000 addresses behind a trusted proxy, on four connections. The table stays within its bound, and
/// the block of one address is not washed away.
fn addresses(engine: Engine) {
    let firewall = [
        ("trusted_proxies", "[127.0.0.10]"),
        ("max_tracked_addresses", "10000"),
    ];
    let scene = Scene::set("50,000 addresses", engine, &firewall, &[DIRECT]);
    let tracked = || scene.metric("toron_firewall_tracked_addresses", &[]);
    let abuser = |_: u32| "X-Forwarded-For: 198.51.100.200\r\n".to_owned();
    let abuse = move |front: &Front| ask(front, PROXY, (600, 100), abuser);
    let most = Mutex::new(0);
    let outcome = scene.attacked(|until| {
        let met = Attackers::start(scene.addr(), [abuse]).join();
        assert!(met.answers(429) >= 9 && met.answers(403) > 0, "{met:?}");
        assert_eq!(scene.blocked(), ["198.51.100.200"]);
        let share = ADDRESSES / 4;
        let flood = |part: u32| {
            let address = move |n| Ipv4Addr::from_bits(0x0a00_0000 + part * share + n);
            let fields = move |n| format!("X-Forwarded-For: {}\r\n", address(n));
            move |front: &Front| loop {
                ask(front, PROXY, (share, 50), fields);
                if !(soak() && front.goes_on()) {
                    break;
                }
            }
        };
        let attackers = Attackers::start(scene.addr(), (0..4).map(flood));
        until(&|| {
            let now = tracked();
            let mut most = most.lock().unwrap();
            *most = now.max(*most);
            attackers.met().answers(200) >= u64::from(ADDRESSES)
        });
        attackers.stop()
    });
    outcome.bounded(&[
        (8, PER_EXCHANGE_KIB),
        (TRACKED, PER_ADDRESS_BYTES.div_ceil(1024)),
    ]);
    // Each of them was served: they did no harm one by one.
    assert_eq!(outcome.met.answers.keys().collect::<Vec<_>>(), [&200]);
    let most = (*most.lock().unwrap()).max(tracked());
    assert!(
        (TRACKED - 10..=TRACKED).contains(&most),
        "{most} addresses tracked"
    );
    assert!(
        scene.metric("toron_firewall_evicted_addresses_total", &[])
            >= u64::from(ADDRESSES) - TRACKED
    );
    assert_eq!(scene.metric("toron_firewall_untracked_total", &[]), 0);
    assert_eq!(scene.blocked(), ["198.51.100.200"]);
    let met = Attackers::start(
        scene.addr(),
        [move |front: &Front| ask(front, PROXY, (1, 1), abuser)],
    )
    .join();
    assert_eq!(met.answers(403), 1, "{met:?}");
    let only = |client: IpAddr| client == IpAddr::from([198, 51, 100, 200]);
    scene.explains("rate_limit", ("rate_limit_rps", 100, "default"), only);
    scene.explains("blocked", ("block_duration", 300, "default"), only);
}

const SOURCES: u64 = 200;
const PER_SOURCE: u64 = 10;
/// Connections of the bystander and of the test, those included that are not quite gone.
const OTHERS: u64 = 10;

/// 5,000 connects a second from 200 addresses, which say nothing and hold what they get. Beyond 1,000
/// refusals a second connections are reset without a word.
fn connects(engine: Engine) {
    // Who says nothing is let stay as long as the attack lasts.
    let server = [("read_timeout", "60s")];
    let firewall = [("max_connections_per_ip", "10"), ("header_timeout", "60s")];
    let name = "5,000 connects a second";
    let scene = Scene::set_with(name, engine, &server, &firewall, &[DIRECT]);
    let refused = || scene.refused_for("address_connection_limit");
    let admitted = SOURCES * PER_SOURCE;
    // Of each of two threads; a long form ends by time.
    let times = if soak() { u32::MAX } else { 5_000 };
    let outcome = scene.attacked(|until| {
        let part = |net: u8| move |front: &Front| storm(front, &sources(net, 100), times, 2_500);
        let attackers = Attackers::start(scene.addr(), [24, 25].map(part));
        until(&|| {
            let open = scene.metric("toron_firewall_connections", &[]);
            assert!(open <= admitted + OTHERS, "{open} connections");
            let met = attackers.met();
            // As long as others come, some of them wait to be refused.
            let done = met.connects == 2 * u64::from(times);
            let awaited = if done {
                met.connects - admitted
            } else {
                admitted
            };
            (done || soak()) && refused() >= awaited
        });
        attackers.stop()
    });
    outcome.bounded(&[(admitted, PER_CONNECTION_KIB)]);
    let met = &outcome.met;
    // As many as may were let in, and no answer was any other than that there are too many.
    assert!(refused() <= met.connects - admitted, "{met:?}");
    assert_eq!(met.answers.keys().collect::<Vec<_>>(), [&503], "{met:?}");
    // A slow machine may be too slow for a flood.
    assert!(
        !soak() || met.resets + met.failed > 0,
        "nobody was reset: {met:?}"
    );
    let attackers = |client: IpAddr| of_net(24)(client) || of_net(25)(client);
    scene.explains(
        "address_connection_limit",
        ("max_connections_per_ip", 10, "firewall"),
        attackers,
    );
}

/// Requests of each attacker, and how they come: 2,000 against 200 tokens and 50 more a second.
const SPOOFED: (u32, u32) = (2_000, 100);
const BURST: u64 = 200;
const RATE: u64 = 50;

/// Who is blocked, asks from where, and says what, in its n-th request.
type Liar = (Option<&'static str>, IpAddr, fn(u32) -> String);

/// 198.51.100.77 is the bystander behind the proxy, 127.0.77.1 the other one. An address in front
/// that changes with each request is meant to evade the limit, a bystander's to have it blocked.
const LIARS: [Liar; 6] = [
    // From an address that is no trusted proxy: whatever it says.
    (
        Some("127.0.26.1"),
        IpAddr::V4(Ipv4Addr::new(127, 0, 26, 1)),
        |n| {
            let victims = ["198.51.100.77", "127.0.77.1"];
            format!("X-Forwarded-For: {}\r\n", victims[n as usize % 2])
        },
    ),
    // In front of what the proxy adds.
    (Some("198.51.100.2"), PROXY, |n| {
        format!(
            "X-Forwarded-For: 203.0.113.{}, 198.51.100.77, 198.51.100.2\r\n",
            n % 250
        )
    }),
    // On a line of its own.
    (Some("198.51.100.3"), PROXY, |n| {
        format!(
            "X-Forwarded-For: 203.0.113.{}, 127.0.77.1\r\nX-Forwarded-For: 198.51.100.3\r\n",
            n % 250
        )
    }),
    // As if it had come through another proxy of ours.
    (Some("198.51.100.4"), PROXY, |n| {
        format!(
            "X-Forwarded-For: 198.51.100.77, 127.0.0.11, 198.51.100.4:{}, 127.0.0.11\r\n",
            1024 + n
        )
    }),
    // Behind something that is no address.
    (Some("198.51.100.5"), PROXY, |n| {
        format!("X-Forwarded-For: 198.51.100.77, unknown-{n}, 198.51.100.5\r\n")
    }),
    // Something that is no address in the last place: that is the proxy's own word, so it is the
    // proxy that is limited. It is never blocked.
    (None, PROXY, |n| {
        format!("X-Forwarded-For: 198.51.100.77, 127.0.77.1, unknown-{n}\r\n")
    }),
];

/// Whatever they write into X-Forwarded-For, attackers are counted as who they are, and nobody else is.
fn spoofed(engine: Engine) {
    let firewall = [
        ("trusted_proxies", "[127.0.0.10, 127.0.0.11]"),
        ("rate_limit_rps", "50"),
    ];
    let behind = (PROXY, "X-Forwarded-For: 203.0.113.9, 198.51.100.77\r\n");
    let scene = Scene::set("spoofed addresses", engine, &firewall, &[DIRECT, behind]);
    let met = Mutex::new(BTreeMap::new());
    let began = Instant::now();
    scene
        .attacked(|until| {
            let start = |liar: &Liar| {
                let (_, source, fields) = *liar;
                let attack = move |front: &Front| loop {
                    ask(front, source, SPOOFED, fields);
                    if !(soak() && front.goes_on()) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                };
                Attackers::start(scene.addr(), [attack])
            };
            let all: Vec<Attackers> = LIARS.iter().map(start).collect();
            let asked = |attackers: &Attackers| attackers.met().answers.values().sum::<u64>();
            // Refused at accept a batch has one answer.
            let tried =
                |attackers: &Attackers| asked(attackers) + attackers.met().answers(403) * 99;
            until(&|| {
                all.iter()
                    .all(|attackers| tried(attackers) >= u64::from(SPOOFED.0))
            });
            let mut sum = Met::default();
            for (liar, attackers) in LIARS.iter().zip(all) {
                let its = attackers.stop();
                sum.connects += its.connects;
                for (status, count) in &its.answers {
                    *sum.answers.entry(*status).or_default() += count;
                }
                met.lock().unwrap().insert(liar.0, its);
            }
            sum
        })
        .bounded(&[(14, PER_EXCHANGE_KIB)]);
    let may = BURST + RATE * (began.elapsed().as_secs() + 1);
    for (is, its) in met.into_inner().unwrap() {
        assert!(
            its.answers(200) <= may,
            "{is:?} was let in more often than {may} times: {its:?}"
        );
        assert!(its.answers(429) > 0, "{is:?}: {its:?}");
        assert_eq!(its.answers(403) > 0, is.is_some(), "{is:?}: {its:?}");
    }
    let mut blocked: Vec<_> = LIARS.iter().filter_map(|liar| liar.0).collect();
    blocked.sort_unstable();
    assert_eq!(scene.blocked(), blocked);
    let liar = |client: IpAddr| client == PROXY || blocked.contains(&client.to_string().as_str());
    // The list is full of whoever was the last: one more, whose denials are the newest.
    let last = |_: u32| "X-Forwarded-For: 203.0.113.9, 198.51.100.6\r\n".to_owned();
    let attack = move |front: &Front| ask(front, PROXY, (400, 400), last);
    let met = Attackers::start(scene.addr(), [attack]).join();
    assert!(met.answers(429) > 0 && met.answers(403) > 0, "{met:?}");
    let liar = |client: IpAddr| liar(client) || client == IpAddr::from([198, 51, 100, 6]);
    scene.explains("rate_limit", ("rate_limit_rps", RATE, "firewall"), liar);
    scene.explains("blocked", ("block_duration", 300, "default"), liar);
}
