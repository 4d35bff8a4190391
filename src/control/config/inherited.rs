//! What routes inherit from the settings of the process.

use std::time::Duration;

pub use crate::policy::settings::DEFAULT_MAX_BODY_BYTES;
use crate::policy::settings::{ChunkedMode, Origin};

/// The words for `inbound_chunked_mode`.
pub const CHUNKED_MODES: [(&str, ChunkedMode); 3] = [
    ("normalize", ChunkedMode::Normalize),
    ("passthrough", ChunkedMode::Passthrough),
    ("reject", ChunkedMode::Reject),
];

/// A value and which setting it came from.
pub type Sourced<T> = (T, Origin);

/// What routes inherit.
#[derive(Clone, Debug)]
pub struct Inherited {
    /// `server.worker_pool_size`.
    pub worker_pool_size: usize,
    /// `server.max_body_bytes`.
    pub max_body_bytes: Sourced<u64>,
    /// `server.read_timeout`.
    pub read_timeout: Sourced<Duration>,
    /// `server.write_timeout`.
    pub write_timeout: Sourced<Duration>,
    /// `server.min_progress_bytes`.
    pub min_progress_bytes: Sourced<u64>,
    /// `server.upgrade_idle_timeout`.
    pub upgrade_idle_timeout: Sourced<Duration>,
    /// `server.header_deadline`.
    pub header_deadline: Sourced<Option<Duration>>,
    /// `proxy.transport.inbound_chunked_mode`, else `server.inbound_chunked_mode`.
    pub chunked_mode: Sourced<ChunkedMode>,
    /// `proxy.transport.response_header_timeout`.
    pub response_header_timeout: Sourced<Duration>,
    /// `proxy.transport.upstream_idle_timeout`.
    pub upstream_idle_timeout: Sourced<Duration>,
    /// `firewall.body_timeout`.
    pub body_timeout: Sourced<Duration>,
    /// `firewall.min_body_rate`.
    pub min_body_rate: Sourced<u64>,
}
