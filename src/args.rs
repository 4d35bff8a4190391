//! What the command line asks for, as plain data. Imports nothing, so that every floor may take it.

use std::path::PathBuf;

/// For `toron serve` and `toron check`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServeArgs {
    /// `--config`; `None` looks in the usual places.
    pub config: Option<PathBuf>,
    /// `--routes`; `None` looks beside the configuration.
    pub routes: Option<PathBuf>,
}
