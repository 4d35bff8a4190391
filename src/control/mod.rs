//! Everything that is not traffic: the files, names, health, logs, signals. Makes
//! snapshots and publishes them.

pub mod admin;
pub mod check;
pub mod config;
pub mod discovered;
pub mod discovery;
pub mod effective;
pub mod explain;
pub mod logs;
pub mod machine;
pub mod needs;
pub mod probe;
pub mod publish;
pub mod reload;
pub mod report;
pub mod resolve;
pub mod serve;
pub mod signals;
pub mod watch;
