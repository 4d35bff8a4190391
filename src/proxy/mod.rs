//! The life of one request, without any input or output of its own.
//!
//! [`transaction`] is the state machine; [`window`] the sliding deadline it uses twice.

pub mod transaction;
pub mod window;
