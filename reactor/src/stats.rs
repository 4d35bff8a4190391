//! What a reactor holds, in numbers.

use crate::engine::Stats;

/// What a reactor holds at present.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ReactorStats {
    /// Whether it has an engine.
    pub running: bool,
    /// What that holds.
    pub engine: Stats,
    /// Connections given to the service and not ended.
    pub connections: usize,
    /// Connections accepted, also those given to other reactors.
    pub accepted: u64,
    /// Timers, armed or not.
    pub timers: usize,
    /// The most buffers that were ever out at a time.
    pub buffers_peak: usize,
    /// How many buffers may be out at a time.
    pub buffers_limit: usize,
}
