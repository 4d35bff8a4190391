//! Discovery of containers: what was asked for, and what there is to show of it. How containers are
//! found is the business of `control/discovery`.

use std::path::PathBuf;
use std::time::Duration;

/// Whose socket is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContainerEngine {
    /// Docker's, then Podman's.
    Auto,
    /// Docker's alone.
    Docker,
    /// Podman's alone.
    Podman,
}

/// `discovery`, where it is on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiscoverySettings {
    /// Whose socket is looked for when none is named.
    pub engine: ContainerEngine,
    /// The socket; `None` is the first of the standard places that is there.
    pub socket: Option<PathBuf>,
    /// Time between full lists; also the longest wait between attempts to connect.
    pub poll_interval: Duration,
    /// Weight of a container without `toron.weight`.
    pub default_weight: u32,
    /// The network whose address is used when a container is on several.
    pub network: Option<String>,
}

/// What discovery has to show. Replaced whole whenever it changes, by the thread that finds
/// containers; readers take no lock.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DiscoveryView {
    /// Name and version of the engine that answered last.
    pub engine: Option<(String, String)>,
    /// The socket in use.
    pub socket: Option<PathBuf>,
    /// Whether the stream of events is open.
    pub connected: bool,
    /// Whether the routes may be older than what runs: the last look at the containers failed.
    pub stale: bool,
    /// What is wrong.
    pub problem: Option<String>,
    /// When the containers were last seen, in milliseconds since 1970; `None` is never.
    pub last_sync: Option<u64>,
    /// Connections made to the engine's socket, failed attempts included.
    pub connects: u64,
    /// Lists that were read.
    pub lists: u64,
    /// Looks that failed.
    pub failed_lists: u64,
    /// Labels of header constraints that cannot be read and so do not hold: their containers take
    /// requests that were not meant for them. Worth an alert.
    pub ignored_constraints: usize,
    /// Every container with `toron.enable`, by name.
    pub containers: Vec<ContainerView>,
}

/// A container, as shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerView {
    /// The engine's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `running`, …
    pub state: String,
    /// The route that it is in.
    pub route: Option<RouteView>,
    /// Where requests for it go.
    pub target: Option<String>,
    /// Why it is in no route.
    pub reason: Option<String>,
    /// What else the operator should know.
    pub notes: Vec<String>,
}

/// The key of a route, as shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteView {
    /// The name in logs and metrics.
    pub name: String,
    /// Empty is any.
    pub host: String,
    /// Normalised.
    pub prefix: String,
    /// Joined by commas; empty is any.
    pub method: String,
    /// Names in Title-Case.
    pub headers: Vec<(String, String)>,
}

impl DiscoveryView {
    /// Containers that requests go to.
    #[must_use]
    pub fn routed(&self) -> usize {
        self.containers.iter().filter(|c| c.route.is_some()).count()
    }
}
