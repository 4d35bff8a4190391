//! Everything that is not traffic: the files, names, and later signals and the admin API. Makes
//! snapshots and publishes them.

pub mod check;
pub mod config;
pub mod logs;
pub mod resolve;
pub mod serve;
