//! `toron bench`: a load generator on the same reactor as the proxy.
//!
//! ```text
//!  options ─▶ args ─▶ command ─▶ plan ─▶ run ─▶ generator × threads   profile (when), mix (what)
//!                        │                │           │ slices of time   reply, record
//!                        ▼                ▼           ▼
//!      (compare, attack, stages)      verdict ◀─ measurement ─▶ text, json, csv, hdr, report
//! ```
//!
//! Latency is counted from when a request was to start, so that a stall of the target weighs as
//! much as its users would feel (no coordinated omission); the closed loop, which cannot do that, is
//! labelled as such. The generator watches itself and says when the figures are its own.

pub mod args;
pub mod attack;
pub mod bootstrap;
mod command;
pub mod compare;
pub mod csv;
pub mod generator;
pub mod hdr;
pub mod json;
pub mod machine;
pub mod measurement;
pub mod mix;
pub mod mix_file;
pub mod options;
pub mod output;
pub mod plan;
pub mod process;
pub mod profile;
pub mod record;
pub mod reply;
pub mod report;
pub mod run;
pub mod stages;
pub mod text;
pub mod url;
pub mod usage;
pub mod verdict;

pub use args::{BenchArgs, HELP};
pub use command::{plan, run};
pub use options::Asked;
