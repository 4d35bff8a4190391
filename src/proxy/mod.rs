//! The life of one request, without any input or output of its own.
//!
//! ```text
//!   facts, input ──▶ transaction (state; reading, writing, window, pace, clock) ──▶ order
//! ```

#![deny(clippy::wildcard_enum_match_arm)]

pub mod clock;
pub mod facts;
pub mod input;
pub mod order;
pub mod pace;
pub mod reading;
pub mod state;
pub mod transaction;
pub mod window;
pub mod writing;
