//! Discovery of containers by their labels, from Docker and Podman alike (D1 to D12).
//!
//! ```text
//!  the engine's socket                                             pure
//!  socket ──▶ connection ──▶ api ──▶ watch ──▶ container ──▶ labels ─┐
//!             events ──────────────▶   │       constraints, address ─┴─▶ group ──▶ routes, verdicts
//!                                      ▼                                    ▲
//!                              news for the publisher ──────────────────────┘
//! ```
//!
//! `watch` runs on a thread of its own, sees to it that the list of containers is never old, and
//! tells the publisher of every list. What the list comes to is worked out by `group`, which knows
//! neither sockets nor time, and again when the files change: limits are inherited from there.

pub mod address;
pub mod api;
pub mod backoff;
pub mod connection;
pub mod constraints;
pub mod container;
pub mod events;
pub mod group;
pub mod labels;
pub mod look;
pub mod report;
pub mod socket;
pub mod watch;
