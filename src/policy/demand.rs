//! What a configuration asks of the machine, counted: connections, descriptors, pipes, threads.
//! `toron serve` warns by it and `toron tune` proposes by it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::settings::{Endpoint, EngineChoice};
use super::snapshot::Snapshot;

/// Connections that may wait to be accepted, per listener: what toron asks of `listen(2)`.
pub const BACKLOG: u32 = 4096;

/// Buffers that one reactor may have out, 76 KiB each (304 MiB in all, taken when needed). Idle
/// connections and requests that wait for their response hold none; a head of more than 4 KiB that
/// is not whole yet, a client that does not take its response and a copied body hold one each.
pub const BUFFERS: usize = 4096;
/// Bytes that one takes.
const BUFFER_BYTES: u64 = toron_reactor::buffer::SIZE as u64;

/// Bytes of a pipe that a body is spliced through.
const PIPE_BYTES: u64 = toron_reactor::pipes::PIPE_SIZE as u64;
/// Bytes that the first pipes of a reactor are raised to.
pub const LARGE_PIPE_BYTES: u64 = toron_reactor::pipes::LARGE_PIPE_SIZE as u64;
/// How many those are.
const LARGE_PIPES: u64 = toron_reactor::pipes::LARGE_PIPES as u64;

/// Client connections that are planned for where the configuration sets no total: as many as the
/// firewall's default allows.
const PLANNED_CLIENTS: u64 = 10_000;
/// Connections on each active reactor beyond which one more is woken.
const HIGH_WATER: u64 = toron_reactor::placement::HIGH_WATER as u64;
/// Descriptors of a reactor besides connections and pipes: ring or epoll, eventfd, the spare one.
/// Its listening sockets come on top.
const OWN_DESCRIPTORS: u64 = 4;
/// Idle pipes that a reactor keeps.
const KEPT_PIPES: u64 = toron_reactor::pipes::KEPT as u64;
/// Descriptors of the process: standard streams, logs, signals, name look-ups.
const PROCESS_DESCRIPTORS: u64 = 32;
/// Threads besides reactors: signals, resolver, log writers.
const OTHER_THREADS: u64 = 8;

/// What a configuration asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Demand {
    /// Client connections at a time.
    pub clients: u64,
    /// Whether the configuration sets that number; otherwise it is a plan.
    pub clients_are_limited: bool,
    /// Requests on their way to upstreams at a time: one for each client (HTTP/1.1 has one at a
    /// time on a connection), but not more than the caps of the routes together allow.
    pub in_flight: u64,
    /// Those of them that may all want the same target.
    pub in_flight_to_one: u64,
    /// Different hosts and ports behind the routes.
    pub targets: u64,
    /// Whether each of those is an address of this machine (127.0.0.0/8, ::1).
    pub targets_are_local: bool,
    /// Most idle connections to one of them.
    pub idle_per_target: u64,
    /// How long those are kept.
    pub idle_kept: Duration,
    /// Bytes of request bodies that may be collected at a time (`server.buffer_memory`).
    pub collected_bytes: u64,
    /// Configured reactors (threads).
    pub reactors: u64,
    /// Listening sockets.
    pub listeners: u64,
    /// Engine asked for.
    pub engine: EngineChoice,
}

impl Demand {
    /// Of a configuration.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let settings = &snapshot.settings;
        let limit = settings.firewall.connection_cap().map(u64::from);
        let clients = limit.unwrap_or(PLANNED_CLIENTS);
        let mut caps = 0u64;
        let mut targets: BTreeMap<u32, (&Endpoint, u64)> = BTreeMap::new();
        for route in snapshot.table.routes() {
            if let Some(upstream) = route.upstream() {
                let cap = route.limits.max_concurrency.map_or(clients, u64::from);
                caps = caps.saturating_add(cap);
                for target in &upstream.targets {
                    let endpoint = &target.endpoint;
                    let (_, of_target) = targets.entry(endpoint.id).or_insert((endpoint, 0));
                    *of_target = of_target.saturating_add(cap);
                }
            }
        }
        let most = targets.values().map(|(_, of_target)| *of_target).max();
        let is_local = |host: &str| {
            let address = host.parse::<std::net::IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        };
        Demand {
            clients,
            clients_are_limited: limit.is_some(),
            in_flight: caps.min(clients),
            in_flight_to_one: most.unwrap_or(0).min(clients),
            targets: targets.len() as u64,
            targets_are_local: targets
                .values()
                .all(|(endpoint, _)| is_local(&endpoint.host)),
            idle_per_target: match settings.idle_conn_timeout.is_zero() {
                true => 0,
                false => settings.max_idle_per_target as u64,
            },
            idle_kept: settings.idle_conn_timeout,
            collected_bytes: settings.buffer_memory,
            reactors: settings.worker_pool_size as u64,
            listeners: settings.listen.len() as u64,
            engine: settings.engine,
        }
    }

    /// Idle upstream connections at most.
    #[must_use]
    pub fn idle_upstreams(&self) -> u64 {
        self.idle_per_target.saturating_mul(self.targets)
    }

    /// Upstream connections at most: those in use, and the idle ones.
    #[must_use]
    pub fn upstreams(&self) -> u64 {
        self.in_flight.saturating_add(self.idle_upstreams())
    }

    /// Connections to one target at most.
    #[must_use]
    pub fn connections_to_one_target(&self) -> u64 {
        match self.targets {
            0 => 0,
            _ => self.in_flight_to_one.saturating_add(self.idle_per_target),
        }
    }

    /// Connections at most, on both sides.
    #[must_use]
    pub fn sockets(&self) -> u64 {
        self.clients.saturating_add(self.upstreams())
    }

    /// Reactors that work with that many clients on so many cores.
    #[must_use]
    pub fn active_reactors(&self, cores: u64) -> u64 {
        let for_clients = self.clients.div_ceil(HIGH_WATER);
        cores.max(for_clients).clamp(1, self.reactors.max(1))
    }

    /// Descriptors without which not all connections can be open.
    #[must_use]
    pub fn descriptors_least(&self, cores: u64) -> u64 {
        let own = OWN_DESCRIPTORS.saturating_add(self.listeners);
        let reactors = self.active_reactors(cores).saturating_mul(own);
        let fixed = PROCESS_DESCRIPTORS.saturating_add(reactors);
        fixed
            .saturating_add(self.listeners)
            .saturating_add(self.sockets())
    }

    /// Descriptors with which every transfer can have its pipe as well (two each).
    #[must_use]
    pub fn descriptors_ample(&self, cores: u64) -> u64 {
        let kept = self.active_reactors(cores).saturating_mul(2 * KEPT_PIPES);
        let pipes = self.spliced().saturating_mul(2).saturating_add(kept);
        self.descriptors_least(cores).saturating_add(pipes)
    }

    /// Bodies that are spliced at a time, at most: one for each request.
    #[must_use]
    pub fn spliced(&self) -> u64 {
        self.in_flight
    }

    /// Bytes of capacity of all their pipes.
    #[must_use]
    pub fn pipe_bytes(&self, cores: u64) -> u64 {
        let pipes = self.spliced();
        let large = self.active_reactors(cores).saturating_mul(LARGE_PIPES);
        let large = large.min(pipes);
        let more = large.saturating_mul(LARGE_PIPE_BYTES - PIPE_BYTES);
        pipes.saturating_mul(PIPE_BYTES).saturating_add(more)
    }

    /// Bytes of memory that buffers, pipes and collected bodies take when every client transfers and
    /// is slow.
    #[must_use]
    pub fn transfer_bytes(&self, cores: u64) -> u64 {
        let buffers = self.active_reactors(cores).saturating_mul(BUFFERS as u64);
        let copied = buffers.min(self.clients).saturating_mul(BUFFER_BYTES);
        self.pipe_bytes(cores)
            .saturating_add(copied)
            .saturating_add(self.collected_bytes)
    }

    /// Threads of the process.
    #[must_use]
    pub fn threads(&self) -> u64 {
        self.reactors.saturating_add(OTHER_THREADS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(clients: u64, targets: u64) -> Demand {
        Demand {
            clients,
            clients_are_limited: true,
            in_flight: if targets == 0 { 0 } else { clients },
            in_flight_to_one: if targets == 0 { 0 } else { clients },
            targets,
            targets_are_local: false,
            idle_per_target: 100,
            idle_kept: Duration::from_secs(30),
            collected_bytes: 256 << 20,
            reactors: 128,
            listeners: 1,
            engine: EngineChoice::Auto,
        }
    }

    #[test]
    fn every_client_has_an_upstream_connection_and_may_have_a_pipe() {
        let d = demand(10_000, 2);
        assert_eq!((d.idle_upstreams(), d.upstreams()), (200, 10_200));
        assert_eq!(d.connections_to_one_target(), 10_100);
        assert_eq!(d.descriptors_least(2), 32 + 2 * 5 + 1 + 20_200);
        assert_eq!(
            d.descriptors_ample(2),
            d.descriptors_least(2) + 20_000 + 256
        );
        assert_eq!(d.pipe_bytes(2), 10_000 * 65_536 + 64 * 3 * 65_536);
        let copied = 2 * 4096 * 76 * 1024;
        assert_eq!(d.transfer_bytes(2), d.pipe_bytes(2) + copied + (256 << 20));
    }

    #[test]
    fn without_targets_there_is_nothing_behind_the_clients() {
        let d = demand(10_000, 0);
        assert_eq!((d.upstreams(), d.connections_to_one_target()), (0, 0));
        assert_eq!((d.spliced(), d.pipe_bytes(2)), (0, 0));
    }

    #[test]
    fn more_reactors_work_than_there_are_cores_only_with_many_clients() {
        assert_eq!(demand(10_000, 1).active_reactors(2), 2);
        assert_eq!(demand(100_000, 1).active_reactors(2), 7);
        assert_eq!(demand(u64::MAX, 1).active_reactors(2), 128);
        assert_eq!(demand(1, 1).active_reactors(0), 1);
        assert_eq!(demand(u64::MAX, 3).descriptors_ample(2), u64::MAX);
    }
}
