//! toron: a reverse proxy for the bare-metal Linux edge.
//!
//! ```text
//!             bytes, fds, time                 HTTP, pure                     decisions, pure
//! client ──▶  reactor/  ──events──▶ server/ ──Input──▶ proxy/transaction ──▶ policy/{router, …}
//! upstream ◀── (io_uring | epoll | sim) ◀──ops── server/ ◀──Output── proxy/transaction   ▲
//!                                                                        one snapshot, swapped whole
//!                                                                        control/{config, …}
//! ```
//!
//! From the ground up; each floor imports only those below it, and no two files import each other
//! (`tests/floors.rs` holds both):
//!
//! | floor | what it knows |
//! | --- | --- |
//! | `reactor` (a crate of its own) | descriptors, buffers, pipes, time; all `unsafe`, every system call of the data path |
//! | [`http`] | HTTP/1.1 on the wire: heads, framing, chunks, paths, canned answers; pure functions |
//! | [`policy`] | decisions and what holds: routes, balancing, settings; pure |
//! | [`proxy`] | the life of one request as a state machine, without descriptor, clock or allocation |
//! | [`server`] | where HTTP meets descriptors: orders become operations, completions become inputs |
//! | [`control`] | what is not traffic: files, containers, names, logs, signals |
//! | [`origin`] | the test origin, `toron upstream` |
//! | [`mod@bench`] | the load generator, `toron bench` |
//! | [`tune`] | what the kernel allows, why it matters, how to change it and put it back, and what a change does under a load of [`mod@bench`]: `toron tune` |
//! | `main`, `cli` | the command line; [`args`] is what it asks for |
//!
//! Ids such as I18, R12 or F4 in comments and test names are rules; `docs/rules.md` says what each is.

#![forbid(unsafe_code)]

pub mod args;
pub mod bench;
pub mod control;
pub mod http;
pub mod origin;
pub mod policy;
pub mod proxy;
pub mod server;
pub mod tune;
