//! Decisions: which route, which target, what holds. Pure: no descriptor, no file, no clock; time
//! comes in as an argument.
//!
//! `control/config` makes the values of [`settings`] out of files, [`router`] compiles the routes
//! into a table, reactors read both through one [`snapshot::Snapshot`] that is swapped whole.
//! [`pool`] knows the targets of a route, [`balance`] whose turn it is.
//! [`firewall`] decides about client addresses, and keeps what it knows of them over reloads.

pub mod balance;
pub mod bulkhead;
pub mod by_route;
pub mod cidr;
pub mod counter;
pub mod demand;
pub mod discovery;
pub mod explain;
pub mod firewall;
pub(crate) mod hash;
pub mod limit;
pub(crate) mod map;
pub mod memory;
pub mod origin;
pub mod pool;
pub mod route_stats;
pub mod router;
pub mod settings;
pub mod snapshot;
