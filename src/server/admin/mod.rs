//! The admin API, as far as reactors are concerned.
//!
//! ```text
//!  judge ─▶ access     may this client ask at all
//!             ▼
//!           intake     the request's body, within bounds; then the question is laid on the desk
//!             ▼
//!           desk ────▶ control/admin, on a thread of its own: whatever an answer costs, no other
//!             ▲        │ request on the reactor waits for it
//!             └─Reply──┘ as a message to the reactor that asked
//! ```

pub(crate) mod access;
pub mod desk;
pub(crate) mod intake;
pub(crate) mod visit;
