//! `toron tune`: the audit of made-up machines (trees of files like /proc and /sys) and of this
//! one, and changes with their undoing.
//!
//! ```text
//!   tree       a healthy machine as files, and toron tune run on it
//!   audit      what is said of a machine: the table, JSON, what cannot be read
//!   must_haves when one is missing, and what is proposed for which configuration
//!   better     the other proposals, and their evidence
//!   changes    --apply, --undo, --emit on a tree
//!   crashes    the journal cut off anywhere
//!   measure    --measure: to and fro under a load, kept or put back, interrupted
//!   podman     the audit in a container of a real Podman
//!   machine    this machine, value by value against sysctl(8), ethtool(8), tc(8) and /proc
//!   namespace  real kernel settings, changed and restored in a network namespace; start-up lines
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
#[macro_use]
mod support;

mod audit;
mod better;
mod changes;
mod crashes;
#[path = "../podman/engine.rs"]
#[allow(dead_code)]
mod engine;
mod machine;
mod measure;
mod must_haves;
mod namespace;
mod podman;
#[path = "../discovery/rig.rs"]
mod rig;
mod tree;

/// In this file because its name names a folder, which may hold no colons for Podman.
#[test]
fn the_audit_in_a_container_of_podman_is_that_of_proc_there() {
    if !engine::ran_inside("the_audit_in_a_container_of_podman_is_that_of_proc_there") {
        podman::audits();
    }
}
