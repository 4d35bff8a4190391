//! `toron tune`: what the kernel allows, why it matters to this configuration, how to change it, and
//! how to put everything back.
//!
//! ```text
//!  config ─▶ policy::demand   what the configuration asks for, in numbers
//!            control::machine /proc and /sys: values, or why not     control::needs   must-haves
//!            netlink/         what only netlink tells of network cards
//!                 ▼
//!            probes/ ─▶ row.rs ─▶ table.rs, json.rs   to read
//!                           ├───▶ emit.rs             files for sysctl.d and systemd
//!                           ├───▶ apply.rs ──▶ journal.rs ◀── undo.rs
//!                           └───▶ measure/ ───────┘           tried with bench
//! ```
//!
//! Without a flag nothing is changed. A change is written to the journal, and the journal to the
//! disk, before it is made; so whatever ends the program, `--undo` finds what to restore.

mod apply;
pub mod args;
mod change;
mod emit;
pub mod journal;
mod json;
pub mod measure;
mod netlink;
pub mod probes;
pub mod row;
mod run;
pub mod table;
mod undo;

pub use run::run;
