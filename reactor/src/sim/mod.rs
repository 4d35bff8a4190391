//! A simulated Linux, deterministic from one seed.
//!
//! ```text
//!   test script ── World, Remote, RemoteListener ──┐
//!                                                  ├── Net: clock, TCP endpoints, wires, faults
//!   Service ── Reactor ── SimEngine (Engine) ──────┘
//! ```
//!
//! A [`World`] holds a clock, a network and a process's descriptors. A [`SimEngine`] made by it
//! implements [`crate::Engine`]; [`Remote`] and [`RemoteListener`] are the ends of connections that
//! a test script plays. Everything that happens follows from the seed, the [`Faults`] and what the
//! script does: there are no threads, no system calls, no real time and no hash maps.
//!
//! The sockets behave as Linux was measured to (kernel 6.18, loopback; `tests/conformance.rs` runs
//! the same script on the kernel): bytes that arrived before a RST can still be read, then comes
//! `ECONNRESET` once, then end of stream; a FIN stays behind unread bytes and hides a later RST
//! from the reader; closing with unread bytes sends RST and drops what was not sent; bytes that
//! arrive at a closed socket are answered by RST; a send to a peer that has closed succeeds the
//! first time; `POLLOUT` comes only when a third of the send buffer is free; a pipe counts pages,
//! not bytes; bytes sent with `MSG_MORE` wait up to 200 ms.
//!
//! # Driving a server with scripted peers
//!
//! Between two turns the script acts; a turn moves the clock to the next thing that happens, and
//! returns without events if that thing concerns a remote end, so that the script can react:
//!
//! ```
//! # use toron_reactor::sim::{Faults, World};
//! # use toron_reactor::{mailbox, Context, Engine, Event, Incoming, Key, Reactor, Service};
//! # struct Server;
//! # impl<E: Engine> Service<E> for Server {
//! #     type Message = ();
//! #     fn incoming(&mut self, cx: &mut Context<'_, E>, incoming: Incoming) {
//! #         cx.engine.close(incoming.fd, toron_reactor::Close::Orderly);
//! #         cx.connection_ended();
//! #     }
//! #     fn event(&mut self, _: &mut Context<'_, E>, _: Event) {}
//! #     fn deadline(&mut self, _: &mut Context<'_, E>, _: Key) {}
//! #     fn message(&mut self, _: &mut Context<'_, E>, _: ()) {}
//! #     fn drain(&mut self, _: &mut Context<'_, E>, _: std::time::Duration) {}
//! #     fn is_finished(&self) -> bool { true }
//! # }
//! let world = World::new(7, Faults::none());
//! let address = "127.0.0.1:80".parse().unwrap();
//! let (_address, mailbox) = mailbox();
//! let mut reactor = Reactor::new(world.engine(64), Server, mailbox);
//! reactor.listen(world.listen(address, 16).unwrap()).unwrap();
//! let client = world.connect("127.0.0.2:0".parse().unwrap(), address);
//! for _ in 0..1_000 {
//!     if client.at_end() {
//!         break; // the script has seen what it waited for
//!     }
//!     client.send(b"hello"); // the peers act …
//!     reactor.step(None).unwrap(); // … then the server
//! }
//! assert!(client.at_end());
//! ```
//!
//! A peer that wants to act at a certain time sets [`World::alarm`]. When nothing is left that
//! could happen, a step returns at once and the clock stands still.
//!
//! Several engines of one world (several reactors) are stepped in turn with `until` now, so that
//! none moves the clock past what another waits for; then [`World::advance`] takes it to the
//! earliest of their [`SimEngine::next_event`] and deadlines.

mod engine;
mod faults;
mod in_flight;
mod net;
mod operations;
mod pipes;
mod random;
mod socket;
mod world;

pub use engine::SimEngine;
pub use faults::Faults;
pub use net::Route;
pub use random::Random;
pub use world::{Remote, RemoteListener, World};
