//! Everything that is not traffic: the files, names, health, logs, signals. Makes
//! snapshots and publishes them.

pub mod check;
pub mod config;
pub mod logs;
pub mod machine;
pub mod needs;
pub mod probe;
pub mod publish;
pub mod report;
pub mod resolve;
pub mod serve;
pub mod signals;
