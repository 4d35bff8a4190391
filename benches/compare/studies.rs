//! The rows: what is done with whom, and which goals it serves.

mod bodies;
mod loads;
mod shape;

use std::net::SocketAddr;

use crate::peers::{Core, Form, Kind, Peer};
use crate::table::Table;
use crate::Options;

/// A row.
pub struct Study {
    /// On the command line.
    pub name: &'static str,
    /// In a line.
    pub what: &'static str,
    /// Makes its table.
    pub run: fn(&Options) -> Result<Table, String>,
}

/// All, in the order of the report.
pub const ALL: &[Study] = &[
    Study {
        name: "keep-alive",
        what: "small requests on 64 connections, proxy on a core of its own",
        run: loads::keep_alive,
    },
    Study {
        name: "unpinned",
        what: "the same with proxy, load and origin on all cores",
        run: loads::unpinned,
    },
    Study {
        name: "open-loop",
        what: "latency at 40% and 70% of nginx's greatest rate",
        run: loads::open_loop,
    },
    Study {
        name: "fresh",
        what: "a new connection for each request",
        run: loads::fresh,
    },
    Study {
        name: "bulk",
        what: "1 GiB up and down, and 100 uploads of 20 MiB at once",
        run: bodies::bulk,
    },
    Study {
        name: "chunked",
        what: "a chunked upload of 256 MiB",
        run: bodies::chunked,
    },
    Study {
        name: "memory",
        what: "bytes for an idle connection, an active transfer, and an idle process",
        run: shape::memory,
    },
    Study {
        name: "reactors",
        what: "128 reactors against one for each core",
        run: loads::reactors,
    },
    Study {
        name: "idle",
        what: "64 busy connections with and without 8,000 idle ones",
        run: loads::idle,
    },
    Study {
        name: "features",
        what: "firewall, 1,000 routes and a JSON access log against none of them",
        run: loads::features,
    },
    Study {
        name: "start",
        what: "time to the first answer, and wake-ups of an idle process",
        run: shape::start,
    },
];

/// A row by its name.
pub fn find(name: &str) -> Option<&'static Study> {
    ALL.iter().find(|study| study.name == name)
}

/// All rows, for the help.
pub fn list() -> String {
    let line = |study: &Study| format!("  {:12} {}\n", study.name, study.what);
    ALL.iter().map(line).collect()
}

const URING: &str = "toron, io_uring";
const EPOLL: &str = "toron, epoll";
const NGINX: &str = "nginx";
const HAPROXY: &str = "HAProxy";
const RELAY_URING: &str = "relay, io_uring";
const RELAY_EPOLL: &str = "relay, epoll";
const RELAY_SPLICE: &str = "relay, epoll, splice";

fn torons() -> Vec<(&'static str, Kind)> {
    vec![
        (URING, Kind::Toron("io_uring", Form::default())),
        (EPOLL, Kind::Toron("epoll", Form::default())),
    ]
}

fn proxies() -> Vec<(&'static str, Kind)> {
    let mut all = torons();
    all.push((NGINX, Kind::Nginx));
    all.push((HAPROXY, Kind::Haproxy));
    all
}

/// Proxies and the copying relays.
fn with_relays() -> Vec<(&'static str, Kind)> {
    let mut all = proxies();
    all.push((RELAY_URING, Kind::Relay("io_uring", "copy")));
    all.push((RELAY_EPOLL, Kind::Relay("epoll", "copy")));
    all
}

/// The origin, on the loads' core or on all.
fn origin(core: Core) -> Result<Peer, String> {
    let core = match core {
        Core::Any => Core::Any,
        Core::Load | Core::Proxy => Core::Load,
    };
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    Peer::start("origin", &Kind::Origin, core, nowhere)
}

fn start_all(
    kinds: &[(&'static str, Kind)],
    core: Core,
    origin: SocketAddr,
) -> Result<Vec<Peer>, String> {
    let one = |(name, kind): &(&'static str, Kind)| Peer::start(name, kind, core, origin);
    kinds.iter().map(one).collect()
}
