//! toron: a reverse proxy for the bare-metal Linux edge.
//!
//! ```text
//!             bytes, fds, time                 HTTP, pure                     decisions, pure
//! client ──▶  reactor/  ──events──▶ server/ ──Input──▶ proxy/transaction ──▶ policy/{router, …}
//! upstream ◀── (io_uring | epoll | sim) ◀──ops── server/ ◀──Output── proxy/transaction   ▲
//!                                                                        one snapshot, swapped whole
//!                                                                        control/{config, …}
//! ```

#![forbid(unsafe_code)]

pub mod args;
pub mod control;
pub mod http;
pub mod origin;
pub mod policy;
pub mod proxy;
pub mod server;
