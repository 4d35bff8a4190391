//! The machine that the load came from, as far as it matters to the figures.

use std::fs;

/// Settings of the kernel that change what a load measures.
const SYSCTLS: [&str; 11] = [
    "net.core.somaxconn",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.busy_poll",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_congestion_control",
    "kernel.io_uring_disabled",
];

/// Names and values, in the order in which they are shown. What cannot be read is left out.
#[must_use]
pub fn describe() -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            facts.push((name.to_owned(), value));
        }
    };
    add("kernel", read("/proc/sys/kernel/osrelease"));
    add("processor", line_of("/proc/cpuinfo", "model name"));
    add(
        "processors",
        Some(toron_reactor::sys::process::cores().to_string()),
    );
    add(
        "frequency governor",
        read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    );
    add("memory", line_of("/proc/meminfo", "MemTotal"));
    let load = read("/proc/loadavg");
    add(
        "load average",
        load.map(|l| l.split(' ').take(3).collect::<Vec<_>>().join(" ")),
    );
    add("descriptors", descriptors());
    for name in SYSCTLS {
        add(name, read(&format!("/proc/sys/{}", name.replace('.', "/"))));
    }
    facts
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The value behind the colon of the first line with this key.
fn line_of(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn descriptors() -> Option<String> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("Max open files"))?;
    line.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_essentials_are_there() {
        let facts = describe();
        for name in [
            "kernel",
            "processors",
            "memory",
            "net.core.somaxconn",
            "descriptors",
        ] {
            assert!(
                facts.iter().any(|(n, v)| n == name && !v.is_empty()),
                "{name}: {facts:?}"
            );
        }
    }
}
