//! The load of one part, and toron started anew.

use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use toron_reactor::sys::process;
use toron_reactor::Chosen;

use super::args::MeasureArgs;
use super::judge::{Part, EVENTS};
use crate::bench::compare::Meter;
use crate::bench::measurement::{Measurement, Nobody};
use crate::bench::process::Usage;
use crate::bench::run::{measure, Interrupt};
use crate::bench::verdict::{Grade, Verdict};
use crate::control::machine::Machine;

/// How long toron may take to listen again.
const RESTART_PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at whether it does.
const RETRY: Duration = Duration::from_millis(20);

/// Puts the load on toron, part by part.
#[derive(Debug)]
pub struct Load<'a> {
    machine: &'a Machine,
    args: &'a MeasureArgs,
    chosen: Chosen,
    /// Whether the user wants the end.
    pub interrupt: Interrupt,
}

impl<'a> Load<'a> {
    /// Takes over SIGINT and SIGTERM.
    pub fn new(machine: &'a Machine, args: &'a MeasureArgs) -> Result<Self, String> {
        let interrupt = Interrupt::watch().map_err(|error| error.to_string())?;
        if let Err(error) = process::raise_descriptor_limit() {
            log::warn!("cannot raise the limit of descriptors: {error}");
        }
        let (chosen, _) = args
            .load
            .engine
            .choose()
            .map_err(|error| error.to_string())?;
        Ok(Load {
            machine,
            args,
            chosen,
            interrupt,
        })
    }

    /// Whether there is a command to start toron anew.
    #[must_use]
    pub fn can_restart(&self) -> bool {
        self.args.restart.is_some()
    }

    /// One part. `None`: interrupted.
    pub fn part(&self) -> Result<Option<Part>, String> {
        let Some(mut target) = self.args.load.targets.first().cloned() else {
            return Err("there is no URL".to_owned());
        };
        target.pids.extend(self.args.pid_in_file()?);
        let plan = crate::bench::plan(&self.args.load, &target)?;
        let before = self.events();
        let mut nobody = Nobody;
        let mut meter = Meter::new(target.pids, plan.load.duration(), &mut nobody);
        let measured = measure(&plan, self.chosen, &self.interrupt, &mut meter)
            .map_err(|error| error.to_string())?;
        let usage = meter.used();
        if measured.interrupted || self.interrupt.is_seen() {
            return Ok(None);
        }
        if measured.total.counts.started == 0 {
            return Err("no request was due: --seconds is too short for this --rate".to_owned());
        }
        let strained = Verdict::of(&plan, &measured).grade == Grade::Bottleneck;
        let mut part = part_of(&measured, usage.as_ref(), strained);
        for ((sum, after), before) in part.events.iter_mut().zip(self.events()).zip(before) {
            *sum = after.saturating_sub(before);
        }
        Ok(Some(part))
    }

    /// The kernel's counters so far; 0 where one is unknown.
    fn events(&self) -> [u64; EVENTS.len()] {
        EVENTS.map(|name| self.machine.counter(name).unwrap_or(0))
    }

    /// Runs the command that starts toron anew, and waits until it listens.
    pub fn restart(&self) -> Result<(), String> {
        let Some(command) = &self.args.restart else {
            return Ok(());
        };
        // A file that is not there yet, or of a process that has ended, is no fault here.
        let before = self.args.pid_in_file().ok().flatten();
        let told = |what: &dyn std::fmt::Display| format!("--restart '{command}': {what}");
        // In a group of its own, so that Ctrl-C does not end the toron that it starts.
        let status = Command::new("sh")
            .args(["-c", command])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .status()
            .map_err(|error| told(&error))?;
        if !status.success() {
            return Err(told(&status));
        }
        let pid = self.args.pid_in_file()?;
        if pid.is_some() && pid == before {
            return Err(told(&"toron's process is the same as before"));
        }
        self.await_listening().map_err(|why| told(&why))
    }

    fn await_listening(&self) -> Result<(), String> {
        let Some(target) = self.args.load.targets.first() else {
            return Ok(());
        };
        let address = target.url.resolve()?;
        let until = Instant::now() + RESTART_PATIENCE;
        loop {
            match TcpStream::connect_timeout(&address, RESTART_PATIENCE) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= until => {
                    return Err(format!("nobody listens at {address}: {error}"));
                }
                Err(_) => thread::sleep(RETRY),
            }
        }
    }
}

fn part_of(measured: &Measurement, usage: Option<&Usage>, strained: bool) -> Part {
    let total = &measured.total;
    let refused: u64 = total
        .statuses
        .iter()
        .filter(|(status, _)| *status >= 500)
        .map(|(_, n)| n)
        .sum();
    let counts = &total.counts;
    let good = counts.answered.saturating_sub(refused);
    // Answers within the measured time, without the share of them that is none.
    let share = match counts.answered {
        0 => 0.0,
        answered => good as f64 / answered as f64,
    };
    let per_answer = |usage: &Usage| usage.total.as_nanos() as f64 / counts.completed as f64;
    Part {
        due: counts.started,
        bad: counts.started.saturating_sub(good),
        rate: measured.rate() * share,
        p99: total.latency.value_at_quantile(0.99) as f64,
        cpu: usage.filter(|_| counts.completed > 0).map(per_answer),
        strained,
        ..Part::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 requests due: 60 good answers, 30 times 503, 10 failures.
    #[test]
    fn refusals_are_no_answers() {
        let mut measured = Measurement::new(Duration::from_millis(50), 1);
        let total = &mut measured.total;
        for _ in 0..60 {
            total.answer(200);
        }
        for _ in 0..30 {
            total.answer(503);
        }
        total.counts.started = 100;
        total.counts.completed = 90;
        measured.elapsed = Duration::from_secs(2);
        let usage = Usage {
            total: Duration::from_micros(900),
            ..Usage::default()
        };
        let part = part_of(&measured, Some(&usage), false);
        assert_eq!((part.due, part.bad), (100, 40));
        assert!((part.rate - 30.0).abs() < 1e-9, "{part:?}");
        assert_eq!(part.cpu, Some(10_000.0));
    }
}
