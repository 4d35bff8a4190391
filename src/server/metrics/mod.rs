//! `/metrics`: what is counted, and how it is told.
//!
//! ```text
//!  a request ends, a deadline passes, …
//!     ▼
//!  count      which cells it belongs to
//!     ▼
//!  cells      numbers of one reactor        policy::route_stats   numbers of one route and reactor
//!     ▼                                        ▼
//!  family     a row: name, kind, help, samples; the tables of them:
//!     │       requests, connections, firewall, discovery, inside (with reloads, process)
//!     ▼
//!  cursor     writes the families one after the other, a piece at a time
//!     ▼          └ text   how samples look in either format
//!  expose     who may ask; sends a piece, and the next when that has been taken
//! ```
//!
//! Nothing is gathered before somebody asks, and an exposition is never whole in memory: a piece is
//! at most [`cursor::PIECE`] and one route long, is made when the client has taken the one before,
//! and other connections have their turn in between.
//!
//! To add a metric, add a row to a table; `docs/operations.md` must name it.

pub mod cells;
pub mod connections;
mod count;
pub mod cursor;
pub mod discovery;
mod expose;
pub mod family;
pub mod firewall;
pub mod inside;
pub mod process;
pub mod reloads;
pub mod requests;
pub mod text;

pub(crate) use count::{no_cells, CellsOfRoutes};
use family::Family;

/// All metrics, in the order in which they are told.
pub fn families() -> impl Iterator<Item = &'static Family> {
    TABLES.iter().copied().flatten()
}

/// The tables of metrics.
const TABLES: [&[Family]; 5] = [
    requests::FAMILIES,
    connections::FAMILIES,
    firewall::FAMILIES,
    discovery::FAMILIES,
    inside::FAMILIES,
];
