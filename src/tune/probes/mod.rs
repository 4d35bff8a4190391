//! The audit: probes, each of which reads some values and judges them by what toron is configured
//! to do.
//!
//! A probe never fails: what cannot be read becomes a row that says why. The must-haves are judged
//! in [`crate::control::needs`], because `toron serve` warns of them, too; the probes add evidence
//! and risk.

mod congestion;
mod container;
mod descriptors;
mod memory;
mod network;
mod nic;
mod ports;
mod processors;
mod queues;
mod rings;

use crate::control::machine::{Known, Machine};
use crate::control::needs::{grouped, must_haves, Need};
use crate::policy::demand::Demand;

use super::row::{Group, Means, Row};

/// What a probe is given.
struct Context<'a> {
    machine: &'a Machine,
    demand: &'a Demand,
    needs: Vec<Need>,
}

impl Context<'_> {
    /// The row of a must-have, if it applies to this configuration and machine.
    fn need(&self, name: &str, means: Means) -> Option<Row> {
        let need = self.needs.iter().find(|need| need.name == name)?;
        Some(Row::need(need.clone(), means))
    }

    /// A counter of the kernel in words: `993 ListenOverflows`, or why it is unknown.
    fn count(&self, name: &str) -> String {
        let short = name.trim_start_matches("TcpExt");
        match self.machine.counter(name) {
            Ok(count) => format!("{} {short}", grouped(count)),
            Err(why) => format!("{short} unknown ({why})"),
        }
    }
}

/// Figures that may be unknown, for evidence.
fn told(figure: Known<u64>) -> String {
    match figure {
        Ok(figure) => grouped(figure),
        Err(why) => format!("unknown ({why})"),
    }
}

/// Audits a machine for a configuration.
#[must_use]
pub fn audit(machine: &Machine, demand: &Demand) -> Vec<Group> {
    let cx = Context {
        machine,
        demand,
        needs: must_haves(machine, demand),
    };
    vec![
        group("Descriptors", descriptors::rows(&cx)),
        group("Listen queues", queues::rows(&cx)),
        group("Ports", ports::rows(&cx)),
        group("Socket memory", memory::rows(&cx)),
        group("Congestion control and queueing", congestion::rows(&cx)),
        group("Keep-alive", network::keep_alive(&cx)),
        group("Busy polling", network::busy_polling(&cx)),
        group("Receiving packets", network::receiving(&cx)),
        group("Network interfaces", nic::rows(&cx)),
        group("Connection tracking", network::tracking(&cx)),
        group("Pipes", rings::pipes(&cx)),
        group("io_uring", rings::rings(&cx)),
        group("Processors and memory", processors::rows(&cx)),
        group("Container and kernel", container::rows(&cx)),
    ]
}

fn group(title: &'static str, rows: Vec<Row>) -> Group {
    Group { title, rows }
}
