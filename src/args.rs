//! What the command line asks for, as plain data. Imports nothing, so that every floor may take it.

use std::net::SocketAddr;
use std::path::PathBuf;

/// For `toron serve` and `toron check`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServeArgs {
    /// `--config`; `None` looks in the usual places.
    pub config: Option<PathBuf>,
    /// `--routes`; `None` looks beside the configuration.
    pub routes: Option<PathBuf>,
}

/// For `toron upstream`, the test origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamArgs {
    /// Addresses to listen on; at least one.
    pub listen: Vec<SocketAddr>,
}
