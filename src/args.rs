//! What the command line asks for, as plain data. Imports nothing, so that every floor may take it.

use std::net::IpAddr;
use std::path::PathBuf;

/// For `toron serve` and `toron check`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServeArgs {
    /// `--config`; `None` looks in the usual places.
    pub config: Option<PathBuf>,
    /// `--routes`; `None` looks beside the configuration.
    pub routes: Option<PathBuf>,
}

/// For `toron explain`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExplainArgs {
    /// Which files.
    pub files: ServeArgs,
    /// Method of the request.
    pub method: String,
    /// Its URL.
    pub url: String,
    /// Its further fields, `Name: value`.
    pub headers: Vec<String>,
    /// Where it comes from.
    pub from: IpAddr,
    /// Whether a toron that runs is asked, in place of the files.
    pub running: bool,
    /// URL of its admin API; `None` is where the files say.
    pub admin: Option<String>,
    /// Its key; `None` is that of the environment, or of the files.
    pub key: Option<String>,
    /// Whether the output is JSON.
    pub json: bool,
}
