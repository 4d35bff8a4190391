//! The configuration that every seed runs with, and its limits.

use std::sync::Arc;
use std::time::Duration;

use toron::control::config::{self, Inputs};
use toron::control::resolve::Endpoints;
use toron::policy::router::compile;
use toron::policy::settings::Route;
use toron::policy::snapshot::Snapshot;

/// The client's header block (`server.read_timeout` is the smaller one).
pub const HEADER: Duration = Duration::from_secs(3);
/// A window of a request body.
pub const READ: Duration = Duration::from_secs(3);
/// The rate of a request body is not judged before (I20).
pub const RATE_GRACE: Duration = Duration::from_secs(2);
/// A window of a response.
pub const WRITE: Duration = Duration::from_secs(4);
/// A client connection without a request.
pub const IDLE: Duration = Duration::from_secs(8);
/// For an upstream connection to stand.
pub const CONNECT: Duration = Duration::from_secs(2);
/// For the head of a response.
pub const RESPONSE_HEADER: Duration = Duration::from_secs(6);
/// Between bytes of the upstream.
pub const UPSTREAM_IDLE: Duration = Duration::from_secs(5);
/// A silent tunnel.
pub const UPGRADE_IDLE: Duration = Duration::from_secs(7);
/// An idle upstream connection.
pub const IDLE_UPSTREAM: Duration = Duration::from_secs(9);
/// toron's own 100, and the longest time of lingering (I11, I9).
const CONTINUE_AND_LINGER: Duration = Duration::from_secs(1 + 5);
/// Requests that a client sends at most.
pub const REQUESTS: u32 = 5;

const CONFIG: &str = "\
server:
  read_timeout: 3s
  write_timeout: 4s
  idle_timeout: 8s
  upgrade_idle_timeout: 7s
  buffer_memory: 512KiB
proxy:
  transport:
    connect_timeout: 2s
    response_header_timeout: 6s
    upstream_idle_timeout: 5s
    idle_conn_timeout: 9s
firewall:
  # All clients of a scene come from one address.
  rate_limit_rps: 1000000
  rate_limit_burst: 1000000
  max_connections_per_ip: 100000
  auto_block_threshold: 0
  max_tracked_addresses: 100
";

const ROUTES: &str = "\
routes:
  - prefix: /
    targets: [http://127.0.1.1:81, http://127.0.1.2:82]
    retries: 1
  - prefix: /one
    target: http://127.0.1.1:81
    max_concurrency: 1
    inbound_chunked_mode: passthrough
  - prefix: /app
    target: http://127.0.1.2:82/base
    stream_request_body: true
  - prefix: /up
    target: http://127.0.1.3:83
    max_concurrency: 2
  - prefix: /limited
    target: http://127.0.1.3:83
    max_body_bytes: 1000
  - prefix: /dead
    target: http://127.0.1.9:89
  - prefix: /pair
    targets: [http://127.0.1.9:89, http://127.0.1.3:83]
    retries: 1
    max_body_bytes: 8MiB
    max_concurrency: -1
  - prefix: /pool
    targets: [http://127.0.1.1:81, http://127.0.1.9:89, http://127.0.1.3:83]
    algorithm: least_conn
    target_max_concurrency: 1
    retries: 2
    consecutive_failures: 1
    cooldown_period: 300ms
  - prefix: /fixed
    status: 200
    body: fixed
";

/// The snapshot.
pub fn snapshot() -> Arc<Snapshot> {
    load(CONFIG, ROUTES)
}

/// The same configuration with counters and health of its own: nothing goes from one seed to the
/// next.
pub fn anew(snapshot: &Snapshot) -> Arc<Snapshot> {
    let routes = snapshot.table.routes().iter();
    let table = compile(routes.map(|route| Route::clone(route)).collect()).table;
    Arc::new(Snapshot::new(Arc::clone(&snapshot.settings), table))
}

/// The snapshot of two files.
pub fn load(config: &str, routes: &str) -> Arc<Snapshot> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("config.yaml"), config).unwrap();
    std::fs::write(path("routes.yaml"), routes).unwrap();
    let inputs = Inputs {
        config: Some(path("config.yaml")),
        routes: Some(path("routes.yaml")),
        ..Inputs::default()
    };
    match config::load(&inputs, &mut Endpoints::default()) {
        Ok(loaded) => Arc::new(loaded.snapshot),
        Err(rejected) => panic!("{rejected:?}"),
    }
}

/// The longest a session may last after every peer has stopped acting: a request may be dialled
/// three times, sent up to four times (a stale connection, other targets), wait for its upstream before
/// and in its response, for the client to send and to take it; several may be in the buffer; then
/// comes an idle time or lingering.
pub fn longest() -> Duration {
    let request = 3 * CONNECT + 4 * (RESPONSE_HEADER + UPSTREAM_IDLE) + READ + WRITE + UPGRADE_IDLE;
    REQUESTS * request + HEADER + IDLE + CONTINUE_AND_LINGER
}
