//! A relay, an accountant and a scenario: what the simulation tests share.

#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::expect_used)]

pub mod audit;
pub mod relay;
pub mod scenario;
