//! What the target's process used, from /proc: processor time and context switches.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// USER_HZ: the unit of times in /proc/PID/stat on Linux, whatever the kernel's own HZ.
const TICK: Duration = Duration::from_millis(10);

/// What a process and its descendants have used so far.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Usage {
    /// In user mode, to 10 ms.
    pub user: Duration,
    /// In the kernel, to 10 ms.
    pub system: Duration,
    /// Both, exact where the kernel keeps schedstat.
    pub total: Duration,
    /// Waits.
    pub voluntary_switches: u64,
    /// Preemptions.
    pub involuntary_switches: u64,
}

impl Usage {
    /// Of `pid` and its descendants (nginx's workers are children of its master). `None` if there
    /// is no such process.
    #[must_use]
    pub fn of(pid: u32) -> Option<Usage> {
        let mut usage = read(pid)?;
        for child in descendants(pid) {
            // One that has just ended has nothing to add.
            if let Some(its) = read(child) {
                usage.add(&its);
            }
        }
        Some(usage)
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Usage) {
        self.user += other.user;
        self.system += other.system;
        self.total += other.total;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
    }

    /// What has been added since.
    #[must_use]
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            total: self.total.saturating_sub(earlier.total),
            voluntary_switches: self
                .voluntary_switches
                .saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
        }
    }
}

fn descendants(pid: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut next = vec![pid];
    while let Some(parent) = next.pop() {
        for thread in threads(parent) {
            let path = format!("/proc/{parent}/task/{thread}/children");
            let text = fs::read_to_string(path).unwrap_or_default();
            for child in text.split_whitespace().filter_map(|n| n.parse().ok()) {
                if found.insert(child) {
                    next.push(child);
                }
            }
        }
    }
    found
}

fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let name = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.flatten().filter_map(name).collect()
}

fn read(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; utime and stime are fields 14 and 15.
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    let (user, system) = (TICK * ticks()?, TICK * ticks()?);
    let mut usage = Usage {
        user,
        system,
        ..Usage::default()
    };
    let mut exact = Some(Duration::ZERO);
    for thread in threads(pid) {
        let path = format!("/proc/{pid}/task/{thread}");
        let status = fs::read_to_string(format!("{path}/status")).unwrap_or_default();
        usage.voluntary_switches += figure(&status, "voluntary_ctxt_switches:");
        usage.involuntary_switches += figure(&status, "nonvoluntary_ctxt_switches:");
        let text = fs::read_to_string(format!("{path}/schedstat")).ok();
        let running = text
            .as_deref()
            .and_then(|t| t.split_whitespace().next()?.parse().ok());
        exact = exact
            .zip(running)
            .map(|(sum, n)| sum + Duration::from_nanos(n));
    }
    usage.total = exact.filter(|t| !t.is_zero()).unwrap_or(user + system);
    Some(usage)
}

fn figure(status: &str, key: &str) -> u64 {
    let line = status.lines().find_map(|l| l.strip_prefix(key));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let pid = std::process::id();
        let before = Usage::of(pid).unwrap();
        for round in 0..20_000_u64 {
            let sum: u64 = (0..100_000).map(|n| std::hint::black_box(n ^ round)).sum();
            std::hint::black_box(sum);
            if Usage::of(pid).unwrap().since(&before).total > TICK {
                break;
            }
        }
        let used = Usage::of(pid).unwrap().since(&before);
        assert!(used.total > TICK, "{used:?}");
        assert_eq!(Usage::of(u32::MAX), None);
    }

    #[test]
    fn children_count_with_their_parent() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let found = descendants(std::process::id()).contains(&child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found);
    }
}
