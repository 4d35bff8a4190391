//! Descriptors as numbers.

/// A descriptor owned by an engine. Plain data: ownership ends with [`crate::Engine::close`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Fd(pub i32);
