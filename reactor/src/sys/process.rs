//! What this process may use: processors and descriptors.

use std::fs;
use std::io;
use std::mem;

use super::check;

/// How many processors this process may keep busy: those of its affinity mask, cut to the CPU
/// quota of its control group (rounded up). At least 1.
#[must_use]
pub fn cores() -> usize {
    let allowed = affinity().unwrap_or(1);
    cgroup_quota()
        .map_or(allowed, |quota| allowed.min(quota))
        .max(1)
}

/// Processors in the affinity mask.
fn affinity() -> io::Result<usize> {
    // SAFETY: all-zero bytes are a valid cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `set` has the size that is passed.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) })?;
    // SAFETY: `set` is initialised.
    Ok(unsafe { libc::CPU_COUNT(&set) } as usize)
}

/// The tightest CPU quota from this process's control group up to the root.
fn cgroup_quota() -> Option<usize> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut tightest: Option<usize> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let root = if controllers.is_empty() {
            "/sys/fs/cgroup"
        } else if controllers.split(',').any(|c| c == "cpu") {
            "/sys/fs/cgroup/cpu"
        } else {
            continue;
        };
        let mut path = path.trim_end_matches('/');
        loop {
            if let Some(quota) = quota_in(&format!("{root}{path}")) {
                tightest = Some(tightest.map_or(quota, |t| t.min(quota)));
            }
            let Some(slash) = path.rfind('/') else { break };
            path = &path[..slash];
        }
    }
    tightest
}

/// The quota of one control group, in processors: version 2 (`cpu.max`) or version 1
/// (`cpu.cfs_quota_us`).
fn quota_in(directory: &str) -> Option<usize> {
    if let Ok(text) = fs::read_to_string(format!("{directory}/cpu.max")) {
        return parse_cpu_max(&text);
    }
    let read = |name: &str| fs::read_to_string(format!("{directory}/{name}")).ok();
    let quota = read("cpu.cfs_quota_us")?;
    let period = read("cpu.cfs_period_us")?;
    parse_cpu_max(&format!("{} {}", quota.trim(), period.trim()))
}

/// `"150000 100000"` is two processors; `"max …"` and negative quotas are none.
fn parse_cpu_max(text: &str) -> Option<usize> {
    let mut words = text.split_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let period: u64 = words.next()?.parse().ok()?;
    if period == 0 {
        return None;
    }
    usize::try_from(quota.div_ceil(period))
        .ok()
        .filter(|n| *n > 0)
}

/// Lets the kernel delay this thread's waits by a microsecond at most, instead of the usual 50 (for
/// the sake of precise timers; with a wait per turn there is nothing to be gained by grouping).
pub fn sharpen_timers() {
    let slack: libc::c_ulong = 1_000;
    // SAFETY: no pointers are passed. The call cannot fail with this option.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack, 0, 0, 0) };
}

/// Raises the soft limit of descriptors to the hard one and returns what then holds.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the result.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit {
            rlim_cur: limit.rlim_max,
            rlim_max: limit.rlim_max,
        };
        // SAFETY: `raised` is initialised.
        if check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) }).is_ok() {
            return Ok(raised.rlim_cur);
        }
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_rounded_up_to_whole_processors() {
        assert_eq!(parse_cpu_max("150000 100000"), Some(2));
        assert_eq!(parse_cpu_max("50000 100000\n"), Some(1));
        assert_eq!(parse_cpu_max("200000 100000"), Some(2));
        assert_eq!(parse_cpu_max("max 100000"), None);
        assert_eq!(parse_cpu_max("-1 100000"), None);
        assert_eq!(parse_cpu_max("100000 0"), None);
    }

    #[test]
    fn there_is_at_least_one_core() {
        assert!(cores() >= 1);
        assert!(affinity().is_ok_and(|n| n >= cores()));
    }
}
