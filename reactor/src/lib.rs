//! Descriptors, buffers, pipes and time. Has never heard of HTTP.
//!
//! ```text
//!        Service (one per reactor: HTTP server, origin, relay)
//!     ▲ incoming, event, deadline, message          │ submit, cancel, arm, close, splice …
//!     │                                             ▼
//!   Reactor: one thread's loop ─── Wheel (deadlines) ─── Mailbox (messages from other threads)
//!     │ turn                                        │ ops
//!     ▼                                             ▼
//!   Engine:  io_uring │ epoll │ simulator      BufferPool, pipes, Slab (tokens with generations)
//! ```
//!
//! All `unsafe` and every system call of the data path live in this crate.

mod acceptor;
mod broken;
pub mod buffer;
pub mod choice;
pub mod engine;
pub mod epoll;
pub mod fd;
pub mod mailbox;
pub mod native;
pub mod pipe;
pub mod pipes;
pub mod placement;
pub mod planted;
pub mod pool;
pub mod reactor;
mod send_queue;
pub mod service;
pub mod sim;
pub mod slab;
pub mod stats;
pub mod sys;
pub mod time;
pub mod uring;
pub mod wheel;

pub use buffer::{Buf, BufferPool};
pub use choice::{Chosen, EngineKind};
pub use engine::{
    Acknowledged, Close, Engine, Event, Fd, Key, Op, OpId, Outcome, Shutdown, SocketOptions, Stats,
    Wake,
};
pub use epoll::EpollEngine;
pub use mailbox::{mailbox, Address, Mailbox};
pub use native::{EngineConfig, NativeEngine};
pub use pipe::Pipe;
pub use pool::{bind, Pool, PoolConfig, Running};
pub use reactor::Reactor;
pub use service::{Context, Incoming, Service};
pub use slab::{Slab, Token};
pub use stats::ReactorStats;
pub use time::Time;
pub use uring::UringEngine;
pub use wheel::{TimerId, Wheel};
