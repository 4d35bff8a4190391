//! All that holds at one moment, settings and routes together.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::router::Table;
use super::settings::Settings;

/// All that holds at one moment. Shared as [`SharedSnapshot`] and swapped whole; a transaction
/// keeps the one it began with.
#[derive(Debug)]
pub struct Snapshot {
    /// Settings of the process.
    pub settings: Arc<Settings>,
    /// All routes, in order of matching, and how the one of a request is found.
    pub table: Table,
}

/// How reactors get at the present [`Snapshot`].
pub type SharedSnapshot = Arc<ArcSwap<Snapshot>>;
