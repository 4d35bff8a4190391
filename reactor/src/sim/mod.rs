//! A simulated Linux.

mod random;

pub use random::Random;
