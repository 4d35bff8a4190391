//! Where toron runs: container, filters, kernel.

use super::Context;
use crate::control::machine::{Known, Machine};
use crate::tune::row::Row;

pub(super) fn rows(cx: &Context<'_>) -> Vec<Row> {
    let machine = cx.machine;
    vec![
        Row::fact(
            "container",
            container(machine),
            "In a container many settings belong to the host and cannot be changed from inside; \
             limits then come from the container engine.",
        ),
        Row::fact(
            "seccomp",
            seccomp(machine),
            "A filter of system calls. Container engines use one that mostly forbids io_uring, \
             so that toron takes epoll.",
        ),
        Row::fact(
            "user namespace",
            Ok(match machine.in_user_namespace() {
                true => "own (root here is an ordinary user outside)".to_owned(),
                false => "the machine's".to_owned(),
            }),
            "In a user namespace of its own, root is bound by the quotas of ordinary users.",
        ),
        Row::fact(
            "network namespace",
            namespace(machine),
            "Each has its own net.ipv4 settings and ports; the audit shows those of the one that \
             this command runs in.",
        ),
        kernel(machine),
    ]
}

fn container(machine: &Machine) -> Known<String> {
    if machine.has("/run/.containerenv") {
        return Ok("Podman (by /run/.containerenv)".to_owned());
    }
    if machine.has("/.dockerenv") {
        return Ok("Docker (by /.dockerenv)".to_owned());
    }
    if let Ok(name) = machine.value("/run/systemd/container") {
        return Ok(format!("{name} (by /run/systemd/container)"));
    }
    let groups = machine.text("/proc/self/cgroup")?;
    let marks = ["docker", "libpod", "kubepods", "containerd", "lxc"];
    let found = marks.iter().find(|mark| groups.contains(*mark));
    Ok(found.map_or("none found".to_owned(), |mark| {
        format!("likely ({mark} in the control group)")
    }))
}

fn seccomp(machine: &Machine) -> Known<String> {
    let mode = machine.status("Seccomp")?;
    Ok(match mode.as_str() {
        "0" => "none".to_owned(),
        "1" => "strict".to_owned(),
        "2" => "filter".to_owned(),
        other => other.to_owned(),
    })
}

/// `net:[4026531840]`.
fn namespace(machine: &Machine) -> Known<String> {
    const PATH: &str = "/proc/self/ns/net";
    let own = std::fs::read_link(machine.path(PATH)).map_err(|error| format!("{PATH}: {error}"))?;
    Ok(own.display().to_string())
}

fn kernel(machine: &Machine) -> Row {
    /// Since when something that toron makes use of is there.
    const FACTS: [((u32, u32), &str); 3] = [
        ((5, 11), "epoll_pwait2, for precise timers on epoll"),
        (
            (6, 1),
            "io_uring with DEFER_TASKRUN, which toron needs of it",
        ),
        (
            (6, 15),
            "io_uring waits that do not count as waits for a disk (NO_IOWAIT)",
        ),
    ];
    let release = machine.value("/proc/sys/kernel/osrelease");
    let version = release.as_deref().ok().and_then(version);
    let facts = FACTS.iter().map(|((major, minor), what)| {
        let there = match version {
            Some(version) if version >= (*major, *minor) => "there",
            Some(_) => "not there",
            None => "unknown",
        };
        format!("{major}.{minor}: {what}: {there}")
    });
    let why = format!(
        "What toron makes use of, by the version it came with: {}.",
        facts.collect::<Vec<_>>().join("; ")
    );
    Row::fact("kernel.osrelease", release, why)
}

/// Major and minor number of a release like `6.18.44-x`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("6.18.44-fc"), Some((6, 18)));
        assert_eq!(version("6.1-rc3"), Some((6, 1)));
        assert_eq!(version("next"), None);
    }
}
