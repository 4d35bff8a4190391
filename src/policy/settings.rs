//! What holds: every setting, resolved. The server reads these and never looks at two places.
//!
//! Nothing here knows YAML. `control/config` fills the values in, precedence already applied; what
//! a value came from is kept beside it for `toron check` ([`LimitSources`]), never for the request
//! path.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};

use super::cidr::{Cidr, CidrSet};
use super::discovery::DiscoverySettings;
use super::firewall::Rules;
pub use super::origin::{LimitSources, Origin, Place, ProcessSources, SetBy};

/// Which engine the reactors run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineChoice {
    /// io_uring when the kernel allows it, else epoll.
    Auto,
    /// io_uring, or no start.
    IoUring,
    /// epoll.
    Epoll,
}

/// How a line of the log looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where the access log goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogSink {
    /// Standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

/// `logging`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logging {
    /// Least severe level that is written.
    pub level: log::LevelFilter,
    /// Of both logs.
    pub format: LogFormat,
    /// One line per request, or none.
    pub access_log: Option<LogSink>,
    /// Where the error log goes; `None` is standard error.
    pub error_log: Option<PathBuf>,
}

/// `admin`: who may use the built-in endpoints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admin {
    /// The key of `/internal/`; `None` makes everything under it 404.
    pub key: Option<String>,
    /// Client addresses that may use `/metrics` and `/internal/`.
    pub subnets: Vec<Cidr>,
    /// An address of its own; `None` is the traffic listener.
    pub listen: Option<SocketAddr>,
}

impl Admin {
    /// Whether `client` is in `subnets`.
    #[must_use]
    pub fn admits(&self, client: IpAddr) -> bool {
        self.subnets.iter().any(|subnet| subnet.contains(client))
    }
}

/// Settings of the whole process. A [`Duration::ZERO`] is "off" wherever a doc comment says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Addresses to accept on; at least one. Port 0 is any free port.
    pub listen: Vec<SocketAddr>,
    /// Number of reactors; at least 1.
    pub worker_pool_size: usize,
    /// Engine of the reactors.
    pub engine: EngineChoice,
    /// Total time for a header block from its first byte: the smaller of `server.read_timeout` and
    /// `firewall.header_timeout`, zeros left out (I3). Zero is off: both are.
    pub header_timeout: Duration,
    /// Window of the sliding read deadline of a request body without a route's own (I18). Zero is
    /// off.
    pub read_timeout: Duration,
    /// Window in which the client must take bytes (I29). Zero is off.
    pub write_timeout: Duration,
    /// How long a connection may stay after a response without sending anything. Zero is off.
    pub idle_timeout: Duration,
    /// Most bytes of request line and fields together: the smaller of `server.max_header_bytes` and
    /// `firewall.max_header_bytes`.
    pub max_header_bytes: usize,
    /// Most fields of a request.
    pub max_header_count: usize,
    /// Body ceiling where no route applies (404, 405). `u64::MAX` is unlimited.
    pub max_body_bytes: u64,
    /// Bytes that end a window of the sliding read deadline, where no route applies.
    pub min_progress_bytes: u64,
    /// Least average rate of a request body in bytes per second, where no route applies (I20). 0 is
    /// off.
    pub min_body_rate: u64,
    /// Total time for a request body, where no route applies (I21). Zero is off.
    pub body_timeout: Duration,
    /// How long requests in flight may take after the listeners are closed.
    pub shutdown_grace: Duration,
    /// How long to go on serving, with `/health` at 503, before the listeners are closed.
    pub drain_delay: Duration,
    /// Whether a PROXY protocol header is read from trusted proxies.
    pub proxy_protocol: bool,
    /// Whether `Via` is added.
    pub via: bool,
    /// Whether responses carry the explain header.
    pub explain_header: bool,
    /// Whether a change of a configuration file reloads both.
    pub watch: bool,
    /// Bytes that collected bodies may take in the whole process.
    pub buffer_memory: u64,
    /// Limit on establishing an upstream connection. Zero is off.
    pub connect_timeout: Duration,
    /// How long an upstream connection may be kept idle. Zero keeps none.
    pub idle_conn_timeout: Duration,
    /// Most idle connections to one target in the whole process.
    pub max_idle_per_target: usize,
    /// How often names are resolved again.
    pub dns_refresh: Duration,
    /// Whose forwarding headers are believed.
    pub trusted_proxies: CidrSet,
    /// The one header in which trusted proxies name the client.
    pub client_ip_header: String,
    /// What holds for client addresses.
    pub firewall: Rules,
    /// How containers are found; `None` is not at all.
    pub discovery: Option<DiscoverySettings>,
    /// Log settings.
    pub logging: Logging,
    /// Built-in endpoints.
    pub admin: Admin,
    /// Where those of them were set that refuse something.
    pub sources: ProcessSources,
}

/// The default body ceiling in bytes (I7). A route with a higher one asks for more than the defaults
/// allow (I16), and does not collect chunked bodies whole (I37).
pub const DEFAULT_MAX_BODY_BYTES: u64 = 4 * 1024 * 1024;

/// Who made a route (R6). On the same key the earlier one here wins. Routes of type `static` and
/// `k8s-ingress` are refused so far, and have no source here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Source {
    /// The configuration files.
    Config,
    /// Discovery of containers.
    OciDiscovery,
}

impl Source {
    /// The name used in files, logs and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Config => "config",
            Source::OciDiscovery => "oci-discovery",
        }
    }
}

/// Which request hosts a route takes (R1). Names are lower-case and without a trailing dot; IPv6
/// literals keep their brackets. A port of `None` takes any; a request that names none has 80.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum HostPattern {
    /// Every host.
    Any,
    /// `*.example.com`: one label or more in front of `suffix`.
    Wildcard {
        /// What must follow, without the leading `*.`.
        suffix: String,
        /// The port that the request must name.
        port: Option<u16>,
    },
    /// This host.
    Exact {
        /// The host.
        name: String,
        /// The port that the request must name.
        port: Option<u16>,
    },
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = match self {
            HostPattern::Any => return Ok(()),
            HostPattern::Wildcard { suffix, port } => {
                write!(f, "*.{suffix}")?;
                port
            }
            HostPattern::Exact { name, port } => {
                f.write_str(name)?;
                port
            }
        };
        match port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

/// An answer that toron gives by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FixedResponse {
    /// Status code, 200 to 599.
    pub status: u16,
    /// Fields, as written; never `Content-Length`, `Transfer-Encoding` or `Connection`, which are
    /// toron's.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

/// What becomes of chunked request bodies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkedMode {
    /// Decoded and validated at the edge, sent on with a length where it was collected whole.
    Normalize,
    /// Validated and streamed as canonical chunks.
    Passthrough,
    /// 501.
    Reject,
}

impl ChunkedMode {
    /// The name in the files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ChunkedMode::Normalize => "normalize",
            ChunkedMode::Passthrough => "passthrough",
            ChunkedMode::Reject => "reject",
        }
    }
}

/// What a FIN of the client after a complete request means (I39).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HalfClose {
    /// Nothing: the response is still delivered.
    Allow,
    /// The client has gone.
    Abort,
}

/// The limits of a route, precedence applied. A [`Duration::ZERO`] is "off".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Body ceiling (I7). `u64::MAX` is unlimited.
    pub max_body_bytes: u64,
    /// Most requests in flight (I12); `None` is unlimited.
    pub max_concurrency: Option<u32>,
    /// Window of the sliding read deadline (I18). Zero is off.
    pub read_timeout: Duration,
    /// Window in which the client must take bytes (I29). Zero is off.
    pub write_timeout: Duration,
    /// Bytes that end a window of the sliding read deadline. 0 leaves the pause rule alone.
    pub min_progress_bytes: u64,
    /// Least average rate of a request body in bytes per second (I20). 0 is off.
    pub min_body_rate: u64,
    /// Total time for a request body (I21). `None` is off: also where the route lives by its
    /// sliding deadline alone.
    pub body_timeout: Option<Duration>,
    /// From the whole request sent to the response headers (I24). Zero is off.
    pub response_header_timeout: Duration,
    /// How long an upstream may neither take nor send a byte (I26). Zero is off.
    pub upstream_idle_timeout: Duration,
    /// How long a tunnel may be silent (R14). Zero is off.
    pub upgrade_idle_timeout: Duration,
    /// From the request parsed to the response headers (I32).
    pub header_deadline: Option<Duration>,
    /// The answer when `header_deadline` expires; `None` is the plain 504.
    pub header_deadline_response: Option<Arc<FixedResponse>>,
    /// From the request parsed to the last response byte (I33).
    pub request_deadline: Option<Duration>,
    /// Whether `request_deadline` goes on after a 101.
    pub request_deadline_covers_upgrades: bool,
    /// `Some(true)` always streams, `Some(false)` collects the whole body, `None` decides by its
    /// length (I37).
    pub stream_request_body: Option<bool>,
    /// For chunked request bodies.
    pub chunked_mode: ChunkedMode,
    /// What a half-close of the client means.
    pub client_half_close: HalfClose,
}

/// How a target is chosen (R18).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// In turn; smooth weighted when weights differ.
    RoundRobin,
    /// The one with the fewest requests in flight for its weight.
    LeastConn,
    /// The less loaded of two taken at random.
    RandomTwo,
    /// By a hash of the client's address.
    IpHash,
}

impl Algorithm {
    /// The name in the files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Algorithm::RoundRobin => "round_robin",
            Algorithm::LeastConn => "least_conn",
            Algorithm::RandomTwo => "random_two",
            Algorithm::IpHash => "ip_hash",
        }
    }
}

/// A host and port that targets point to, shared by all targets that name it and kept over
/// reloads, with the addresses that it has at present. The resolver writes them, reactors read
/// them without a lock.
#[derive(Debug)]
pub struct Endpoint {
    /// Unique in the process and never used again: a key for pools of idle connections.
    pub id: u32,
    /// Host name (lower-case) or address literal, IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// What tells it from another one that had the same host and port before (the id of a
    /// container): they share neither connections nor health. Empty where nothing does.
    pub identity: String,
    addresses: ArcSwap<Vec<SocketAddr>>,
    /// Counts dials: whoever dials begins with the next address.
    turn: AtomicUsize,
}

impl Endpoint {
    /// An endpoint. An address literal has its address from the start; a name has none until the
    /// resolver publishes some.
    #[must_use]
    pub fn new(id: u32, host: &str, port: u16) -> Self {
        Self::identified(id, host, port, "")
    }

    /// One that is told from others with the same host and port by `identity`.
    #[must_use]
    pub fn identified(id: u32, host: &str, port: u16, identity: &str) -> Self {
        let addresses = match host.parse() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => Vec::new(),
        };
        Endpoint {
            id,
            host: host.to_owned(),
            port,
            identity: identity.to_owned(),
            addresses: ArcSwap::from_pointee(addresses),
            turn: AtomicUsize::new(0),
        }
    }

    /// Whether the host is an address, so that there is nothing to resolve.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok()
    }

    /// The present addresses; none when the name has never resolved.
    pub fn addresses(&self) -> Guard<Arc<Vec<SocketAddr>>> {
        self.addresses.load()
    }

    /// Which of the addresses is the first to be dialled now, to be taken modulo their number: each
    /// in turn.
    pub fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Replaces the addresses.
    pub fn publish(&self, addresses: Vec<SocketAddr>) {
        self.addresses.store(Arc::new(addresses));
    }
}

/// One server behind a route.
#[derive(Clone, Debug)]
pub struct Target {
    /// Host and port as in the URL, IPv6 in brackets, the port left out when the URL left it out:
    /// the `Host` of `preserve_host: false`, and what absolute redirects are compared with.
    pub authority: String,
    /// Path of the URL without a trailing slash; empty when the URL has none.
    pub path: String,
    /// Share of the requests compared with the other targets; at least 1.
    pub weight: u32,
    /// What to dial.
    pub endpoint: Arc<Endpoint>,
}

impl Target {
    /// The URL, as shown by `toron check` and the admin API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.path)
    }
}

/// The servers behind a route, and how requests are changed on the way.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// At least one.
    pub targets: Vec<Arc<Target>>,
    /// How one is chosen.
    pub algorithm: Algorithm,
    /// Most requests in flight to one target (R19); `None` is unlimited.
    pub target_max_concurrency: Option<u32>,
    /// Further targets to try (R21).
    pub retries: u32,
    /// Whether the matched prefix is removed (R7).
    pub strip_prefix: bool,
    /// Whether `Location` is mapped back (R9).
    pub rewrite_redirects: bool,
    /// Whether cookie paths are mapped back (R10).
    pub rewrite_cookie_path: bool,
    /// Whether the client's `Host` is sent on (R12).
    pub preserve_host: bool,
    /// Active and passive health checks (R20).
    pub health: Health,
}

/// Health settings of a route's targets (R20).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Path of the active probe; `None` is none.
    pub check_path: Option<String>,
    /// Time between probes. Zero is none.
    pub check_interval: Duration,
    /// Limit on one probe.
    pub check_timeout: Duration,
    /// Failures in a row that take a target out.
    pub consecutive_failures: u32,
    /// How long it stays out before one trial.
    pub cooldown_period: Duration,
    /// Statuses that count as failures.
    pub passive_statuses: Vec<u16>,
    /// Whether targets are tried anyway when all are out.
    pub try_when_all_down: bool,
}

impl Health {
    /// Whether this can be the path (and query) of a probe.
    #[must_use]
    pub fn is_path(text: &str) -> bool {
        text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic() && b != b'#')
    }

    /// Whether there are active probes: then only they bring a target back that is out.
    #[must_use]
    pub fn is_probed(&self) -> bool {
        self.check_path.is_some() && !self.check_interval.is_zero()
    }
}

/// What a route does with a request.
#[derive(Clone, Debug)]
pub enum RouteKind {
    /// Passes it on.
    Upstream(Upstream),
    /// Answers it at the edge.
    Respond(FixedResponse),
}

/// A route: which requests, what with them, within which limits.
#[derive(Clone, Debug)]
pub struct Route {
    /// Position in [`Table::routes`](super::router::Table::routes), the order of matching.
    pub id: u32,
    /// A bounded label for logs and metrics: `example.com/api [GET,POST] {X-Tier=beta}`, cut at
    /// 128 bytes.
    pub name: String,
    /// Request hosts.
    pub host: HostPattern,
    /// Request paths: `/`, or a path without a trailing slash or repeated slashes.
    pub prefix: String,
    /// Request methods, upper-case, sorted, each once; empty is any.
    pub methods: Vec<String>,
    /// Fields that must be present with this value, sorted by lower-case name; names as written.
    pub headers: Vec<(String, String)>,
    /// Who made it.
    pub source: Source,
    /// Where it was written.
    pub origin: Place,
    /// What it does.
    pub kind: RouteKind,
    /// Its limits, precedence applied.
    pub limits: Limits,
    /// Where they came from.
    pub limit_sources: LimitSources,
}

impl Route {
    /// What it passes requests on to, if it does.
    #[must_use]
    pub fn upstream(&self) -> Option<&Upstream> {
        match &self.kind {
            RouteKind::Upstream(upstream) => Some(upstream),
            RouteKind::Respond(_) => None,
        }
    }

    /// Where its requests go.
    #[must_use]
    pub fn targets(&self) -> &[Arc<Target>] {
        self.upstream().map_or(&[], |upstream| &upstream.targets)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Limits for tests of other things: everything off.
    pub(crate) fn limits() -> Limits {
        Limits {
            max_body_bytes: u64::MAX,
            max_concurrency: None,
            read_timeout: Duration::ZERO,
            write_timeout: Duration::ZERO,
            min_progress_bytes: 0,
            min_body_rate: 0,
            body_timeout: None,
            response_header_timeout: Duration::ZERO,
            upstream_idle_timeout: Duration::ZERO,
            upgrade_idle_timeout: Duration::ZERO,
            header_deadline: None,
            header_deadline_response: None,
            request_deadline: None,
            request_deadline_covers_upgrades: false,
            stream_request_body: None,
            chunked_mode: ChunkedMode::Normalize,
            client_half_close: HalfClose::Allow,
        }
    }

    /// Sources for [`limits`].
    pub(crate) fn limit_sources() -> LimitSources {
        LimitSources::default()
    }

    #[test]
    fn an_endpoint_has_the_addresses_that_were_published() {
        let literal = Endpoint::new(0, "::1", 80);
        assert!(literal.is_literal());
        assert_eq!(
            **literal.addresses(),
            [SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 80))]
        );
        let name = Endpoint::new(1, "example.com", 80);
        assert!(!name.is_literal() && name.addresses().is_empty());
        name.publish(vec![SocketAddr::from(([127, 0, 0, 1], 80))]);
        assert_eq!(name.addresses().len(), 1);
    }
}
