//! Everything that is not traffic: the files, names, logs, signals. Makes
//! snapshots and publishes them.

pub mod check;
pub mod config;
pub mod discovered;
pub mod discovery;
pub mod logs;
pub mod machine;
pub mod needs;
pub mod publish;
pub mod report;
pub mod resolve;
pub mod serve;
pub mod signals;
