//! What the kernel says about this process.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};

/// Of this moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Process {
    /// Processor time in user and kernel mode, in seconds.
    pub cpu_seconds: f64,
    /// Bytes of address space.
    pub virtual_bytes: u64,
    /// Bytes of memory in use.
    pub resident_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors, if that is quickly told.
    pub open_fds: Option<u64>,
    /// The soft limit of descriptors.
    pub max_fds: Option<u64>,
}

impl Process {
    /// This one; none where /proc is not mounted. Takes some 50 µs (`benches/metrics.rs`), at most
    /// twice in an exposition.
    #[must_use]
    pub fn here() -> Option<Process> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let (ticks, page) = (clock_ticks_per_second(), page_size() as u64);
        Some(Process {
            // Since Linux 6.2 the size of the folder is the number of descriptors. To count them one
            // by one would stall the reactor when there are many.
            open_fds: fs::metadata("/proc/self/fd")
                .ok()
                .map(|folder| folder.len())
                .filter(|n| *n > 0),
            max_fds: parse_limits(&limits),
            ..parse_stat(&stat, ticks, page)?
        })
    }
}

/// /proc/PID/stat (proc(5)); the name in its second field may hold anything, parentheses too.
fn parse_stat(stat: &str, ticks_per_second: u64, page: u64) -> Option<Process> {
    let (_, behind) = stat.rsplit_once(')')?;
    // From the third field on.
    let fields: Vec<u64> = behind
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let field = |number: usize| fields.get(number - 4).copied();
    Some(Process {
        cpu_seconds: (field(14)? + field(15)?) as f64 / ticks_per_second as f64,
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * page,
        open_fds: None,
        max_fds: None,
    })
}

/// The soft limit in /proc/PID/limits; none if there is no limit.
fn parse_limits(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_by_its_fields() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 150 250 7 8 20 0 131 0 99 8192 3 \
                    18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n";
        let found = parse_stat(stat, 100, 4096).unwrap();
        assert!((found.cpu_seconds - 4.0).abs() < 1e-9);
        assert_eq!(found.threads, 131);
        assert_eq!(found.virtual_bytes, 8192);
        assert_eq!(found.resident_bytes, 3 * 4096);
        assert_eq!(parse_stat("42 (a) S 1", 100, 4096), None);
        assert_eq!(parse_stat("", 100, 4096), None);
    }

    #[test]
    fn the_soft_limit_of_descriptors_is_the_first_number() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 524288               files\n";
        assert_eq!(parse_limits(limits), Some(1024));
        let none = limits.replace("1024  ", "unlimited");
        assert_eq!(parse_limits(&none), None);
    }

    #[test]
    fn this_process_has_threads_memory_and_descriptors() {
        let here = Process::here().unwrap();
        assert!(here.threads >= 1 && here.resident_bytes > 100_000);
        assert!(here.virtual_bytes >= here.resident_bytes);
        assert!(here
            .max_fds
            .is_none_or(|most| most >= here.open_fds.unwrap_or(0)));
    }
}
