//! Who gets a processor first. Attackers, bystanders and the origin share two cores with toron; on a
//! network they would not.
//!
//! Where times are measured (in the long form, which wants root) attackers are in `SCHED_IDLE`, bystanders
//! and the origin in `SCHED_RR` (sched(7)): a thread that runs is left to run for a time slice of
//! some 3 ms whatever wakes up meanwhile and however nice it is, and toron runs all the time. One or two
//! such slices were the p99 of a flood of heads: 5.0 to 7.6 ms.

use std::process::Command;

use rustix::process::setpriority_process;

use crate::support::soak;

/// The calling thread attacks. A nice value belongs to a thread on Linux (setpriority(2)).
pub fn of_attackers() {
    setpriority_process(None, 19).expect("lower the priority");
    if soak() {
        chrt(&["--idle", "--pid", "0"]);
    }
}

/// The calling thread is a client whose time counts.
pub fn of_bystanders() {
    if soak() {
        chrt(&["--rr", "--pid", "1"]);
    }
}

/// A command for `program`, which stands for another machine.
pub fn elsewhere(program: &str) -> Command {
    if !soak() {
        return Command::new(program);
    }
    let mut command = Command::new("chrt");
    command.args(["--rr", "1", program]);
    command
}

fn chrt(arguments: &[&str]) {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let done = Command::new("chrt").args(arguments).arg(thread).status();
    assert!(
        done.is_ok_and(|done| done.success()),
        "chrt (util-linux) is missing, or this is not root"
    );
}
