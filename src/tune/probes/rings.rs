//! Pipes, which splice needs, and io_uring.

use toron_reactor::EngineKind;

use super::Context;
use crate::control::machine::Known;
use crate::control::needs::{has_pipe_quota, page_size};
use crate::policy::demand::LARGE_PIPE_BYTES;
use crate::policy::settings::EngineChoice;
use crate::tune::row::{Effect, Means, Row, Verdict};

pub(super) fn pipes(cx: &Context<'_>) -> Vec<Row> {
    let machine = cx.machine;
    let holds = has_pipe_quota(machine);
    let user = match holds {
        true => "This user is bound by the quota (root is not).",
        false => {
            "This user is exempt; a service that runs as an ordinary user is not (--pid PID \
                  looks at one that runs)."
        }
    };
    let mut rows = Vec::new();
    rows.extend(
        cx.need("fs.pipe-user-pages-soft", Means::Sysctl)
            .map(|row| {
                // New pipes have their size by it, and toron keeps those that it has.
                row.evidence(user)
                    .effect(Effect::Start)
                    .risk("Any user may then fill that much kernel memory through pipes.")
            }),
    );
    let pages = cx.demand.pipe_bytes(machine.cores().unwrap_or(1)) / page_size();
    let hard = machine.number("fs.pipe-user-pages-hard");
    rows.push(
        Row::sysctl(
            machine,
            "fs.pipe-user-pages-hard",
            "Pages of all pipes of a user beyond which the kernel makes no pipe at all; 0 is no such \
             limit. toron copies bodies that get none, at more CPU time each.",
        )
        .propose(
            holds && hard.is_ok_and(|n| n > 0 && n < pages),
            Verdict::Better,
            "0",
        )
        .effect(Effect::Start)
        .risk("Any user may then fill that much kernel memory through pipes."),
    );
    let size = machine.number("fs.pipe-max-size");
    rows.push(
        Row::sysctl(
            machine,
            "fs.pipe-max-size",
            "Largest pipe that an ordinary user may ask for. toron asks for 256 KiB for its first \
             pipes, which saves system calls in large transfers.",
        )
        .propose(
            size.is_ok_and(|n| n < LARGE_PIPE_BYTES),
            Verdict::Better,
            (1 << 20).to_string(),
        )
        .effect(Effect::Start)
        .risk("None: toron does not go beyond 256 KiB."),
    );
    rows
}

pub(super) fn rings(cx: &Context<'_>) -> Vec<Row> {
    let machine = cx.machine;
    let mut rows = vec![engine(cx)];
    let allowed = cx.need("kernel.io_uring_disabled", Means::Sysctl);
    let disabled = machine.number("kernel.io_uring_disabled");
    let wanted = cx.demand.engine != EngineChoice::Epoll;
    rows.push(allowed.unwrap_or_else(|| {
        Row::sysctl(
            machine,
            "kernel.io_uring_disabled",
            "0 allows io_uring to all, 1 to the administrator and kernel.io_uring_group, 2 to \
             nobody. With server.engine: auto toron takes epoll where it is not allowed, at more \
             CPU time for each request.",
        )
        .propose(
            wanted && disabled.is_ok_and(|n| n > 0),
            Verdict::Consider,
            "0",
        )
    }));
    if let Some(row) = rows.last_mut() {
        row.effect = Effect::Start;
        row.risk = "io_uring has had security bugs; some operators forbid it to other programs. \
                    The group is the finer way (1, and toron's group in kernel.io_uring_group)."
            .to_owned();
    }
    rows.extend(cx.need("limit memlock", Means::Unit).map(|row| {
        let whose = match cx.machine.process() {
            Some(_) => "Soft limit of the process.",
            None => "Soft limit of this shell; a service has that of its unit.",
        };
        row.evidence(whose)
            .risk("None: only what is locked counts.")
    }));
    rows
}

/// What the kernel really allows, by a try.
fn engine(cx: &Context<'_>) -> Row {
    const WHY: &str = "What toron moves bytes with. Both engines do the same; io_uring needs \
                       fewer system calls. It needs Linux 6.1 and is often forbidden in containers.";
    let tried: Known<String> = if let Some(pid) = cx.machine.process() {
        Err(format!("process {pid} says it in its log, at its start"))
    } else if cx.machine.is_here() {
        let kind = match cx.demand.engine {
            EngineChoice::Auto => EngineKind::Auto,
            EngineChoice::IoUring => EngineKind::IoUring,
            EngineChoice::Epoll => EngineKind::Epoll,
        };
        match kind.choose() {
            Ok((_, why)) => Ok(why),
            Err(error) => Ok(format!("none: {error}")),
        }
    } else {
        Err("can only be tried on the machine itself, not on a copy of its files".to_owned())
    };
    Row::fact("engine", tried, WHY)
}
