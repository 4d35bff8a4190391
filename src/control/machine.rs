//! What this machine says about itself in /proc and /sys: each value, or why it cannot be read.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Most bytes of a file that are looked at.
const LONGEST: u64 = 4 << 20;

/// `CAP_SYS_RESOURCE` (`capabilities(7)`).
pub const CAP_SYS_RESOURCE: u32 = 24;
/// `CAP_SYS_ADMIN`.
pub const CAP_SYS_ADMIN: u32 = 21;
/// `CAP_IPC_LOCK`.
pub const CAP_IPC_LOCK: u32 = 14;

/// A value, or in words why there is none.
pub type Known<T> = Result<T, String>;

/// A machine whose /proc and /sys stand below a folder, and a process on it whose limits count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    root: PathBuf,
    /// `None`: the one that looks.
    process: Option<u32>,
}

/// Where a process finds itself.
const SELF: &str = "/proc/self/";

/// One limit of a process (`getrlimit(2)`); `u64::MAX` is unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// What holds.
    pub soft: u64,
    /// How far the process may raise it.
    pub hard: u64,
}

impl Machine {
    /// The one that this runs on.
    #[must_use]
    pub fn here() -> Self {
        Self::at(Path::new("/"))
    }

    /// A copy of another one's /proc and /sys below `root`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Machine {
            root: root.to_owned(),
            process: None,
        }
    }

    /// The same with the limits, capabilities and control groups of another process.
    #[must_use]
    pub fn of_process(mut self, pid: u32) -> Self {
        self.process = Some(pid);
        self
    }

    /// That process.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// Whether it is the one that this runs on, so that the kernel can be asked otherwise, too.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where `path` (absolute) stands.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(self.named(path).trim_start_matches('/'))
    }

    /// `path` with the process in the place of `self`.
    fn named<'p>(&self, path: &'p str) -> Cow<'p, str> {
        match (self.process, path.strip_prefix(SELF)) {
            (Some(pid), Some(rest)) => format!("/proc/{pid}/{rest}").into(),
            _ => path.into(),
        }
    }

    /// The text of a file, as it stands.
    pub fn text(&self, path: &str) -> Known<String> {
        let place = self.path(path);
        let path = &*self.named(path);
        let reason = |error: &io::Error| format!("{path}: {}", in_words(error));
        // A fifo, say, in a copied tree would be waited for.
        let meta = fs::metadata(&place).map_err(|error| reason(&error))?;
        if !meta.is_file() {
            return Err(format!("{path}: not a file"));
        }
        let mut bytes = Vec::new();
        File::open(&place)
            .and_then(|file| file.take(LONGEST).read_to_end(&mut bytes))
            .map_err(|error| reason(&error))?;
        String::from_utf8(bytes).map_err(|_| format!("{path}: not text"))
    }

    /// The text of a file without white space around; nothing at all is no value.
    pub fn value(&self, path: &str) -> Known<String> {
        let text = self.text(path)?;
        match text.trim() {
            "" => Err(format!("{path}: empty")),
            value => Ok(value.to_owned()),
        }
    }

    /// The value of a kernel setting by its dotted name.
    pub fn sysctl(&self, name: &str) -> Known<String> {
        self.value(&sysctl_path(name))
    }

    /// The same as a whole number.
    pub fn number(&self, name: &str) -> Known<u64> {
        self.number_in(&sysctl_path(name))
    }

    /// The whole number that a file holds.
    pub fn number_in(&self, path: &str) -> Known<u64> {
        let value = self.value(path)?;
        value
            .parse()
            .map_err(|_| format!("{path}: \"{}\" is not a whole number", short(&value)))
    }

    /// A setting of exactly `N` whole numbers.
    pub fn numbers<const N: usize>(&self, name: &str) -> Known<[u64; N]> {
        let path = sysctl_path(name);
        let value = self.value(&path)?;
        let numbers: Result<Vec<u64>, _> = value.split_whitespace().map(str::parse).collect();
        numbers
            .ok()
            .and_then(|numbers| numbers.try_into().ok())
            .ok_or_else(|| format!("{path}: \"{}\" is not {N} whole numbers", short(&value)))
    }

    /// The names in a folder, sorted.
    pub fn names_in(&self, path: &str) -> Known<Vec<String>> {
        let entries = fs::read_dir(self.path(path))
            .map_err(|error| format!("{path}: {}", in_words(&error)))?;
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Whether there is such a file or folder (and it may be seen).
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// A limit of this process, by the name in /proc/self/limits.
    pub fn limit(&self, name: &str) -> Known<Limit> {
        const PATH: &str = "/proc/self/limits";
        let text = self.text(PATH)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let mut words = line.unwrap_or_default().split_whitespace();
        let mut next = || match words.next()? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        };
        match (next(), next()) {
            (Some(soft), Some(hard)) => Ok(Limit { soft, hard }),
            _ => {
                let path = self.named(PATH);
                Err(format!("{path}: there is no \"{name}\" with two values"))
            }
        }
    }

    /// A line of /proc/self/status.
    pub fn status(&self, key: &str) -> Known<String> {
        const PATH: &str = "/proc/self/status";
        let text = self.text(PATH)?;
        let found = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name == key).then(|| value.trim().to_owned())
        });
        found.ok_or_else(|| format!("{}: there is no {key}", self.named(PATH)))
    }

    /// Whether this process has a capability where the kernel asks for the one of the whole
    /// machine: also the root of a user namespace has none of those.
    pub fn is_capable(&self, capability: u32) -> Known<bool> {
        let mask = self.status("CapEff")?;
        let mask = u64::from_str_radix(&mask, 16)
            .map_err(|_| format!("/proc/self/status: CapEff \"{}\" is no mask", short(&mask)))?;
        Ok(mask >> capability & 1 == 1 && !self.in_user_namespace())
    }

    /// Whether this process lives in a user namespace of its own.
    #[must_use]
    pub fn in_user_namespace(&self) -> bool {
        let map = self.value("/proc/self/uid_map").unwrap_or_default();
        let words: Vec<&str> = map.split_whitespace().collect();
        !words.is_empty() && words != ["0", "0", "4294967295"]
    }

    /// A counter by the name that `nstat(8)` gives it: `TcpExtListenOverflows`.
    pub fn counter(&self, name: &str) -> Known<u64> {
        for path in ["/proc/net/netstat", "/proc/net/snmp"] {
            let text = self.text(path)?;
            let mut lines = text.lines();
            while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
                let group = names.split(':').next().unwrap_or_default();
                let Some(wanted) = name.strip_prefix(group) else {
                    continue;
                };
                let mut pairs = names.split_whitespace().zip(values.split_whitespace());
                if let Some((_, value)) = pairs.find(|(name, _)| *name == wanted) {
                    return value
                        .parse()
                        .map_err(|_| format!("{path}: {name} is no number"));
                }
            }
        }
        Err(format!("/proc/net/netstat: there is no {name}"))
    }

    /// A figure of a group of /proc/net/sockstat: `("TCP", "tw")`.
    pub fn sockets(&self, group: &str, key: &str) -> Known<u64> {
        const PATH: &str = "/proc/net/sockstat";
        let text = self.text(PATH)?;
        let line = text.lines().find_map(|line| {
            let (name, rest) = line.split_once(':')?;
            (name == group).then_some(rest)
        });
        let mut words = line.unwrap_or_default().split_whitespace();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            if name == key {
                return value
                    .parse()
                    .map_err(|_| format!("{PATH}: {key} is no number"));
            }
        }
        Err(format!("{PATH}: there is no {key} of {group}"))
    }

    /// Bytes of memory of the machine.
    pub fn memory(&self) -> Known<u64> {
        const PATH: &str = "/proc/meminfo";
        let text = self.text(PATH)?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.and_then(|kib| kib.checked_mul(1024))
            .ok_or_else(|| format!("{PATH}: there is no MemTotal"))
    }

    /// How many processors this process may run on, by its affinity mask.
    pub fn processors(&self) -> Known<u64> {
        let list = self.status("Cpus_allowed_list")?;
        match count_in_list(&list) {
            Some(n) if n > 0 => Ok(n),
            _ => Err(format!(
                "/proc/self/status: Cpus_allowed_list \"{}\" is no list",
                short(&list)
            )),
        }
    }

    /// The tightest value of a control-group file from the group of this process up to the root:
    /// `v2` in the unified hierarchy, `v1` in that of `controller`. `Ok(None)`: no limit.
    pub fn group_limit(&self, controller: &str, v2: &str, v1: &str) -> Known<Option<u64>> {
        let values = self.in_groups(controller, |folder, is_v2| {
            let file = if is_v2 { v2 } else { v1 };
            let value = self.value(&format!("{folder}/{file}")).ok()?;
            // "max", and what version 1 writes for it: the largest number of whole pages.
            Some(value.parse::<u64>().ok().filter(|n| *n < 1 << 62))
        })?;
        tightest(&values).ok_or_else(|| format!("no {v2} in the control groups of this process"))
    }

    /// Processors that the quota of the control groups is worth, rounded up. `Ok(None)`: no quota.
    pub fn processor_quota(&self) -> Known<Option<u64>> {
        let values = self.in_groups("cpu", |folder, is_v2| {
            let text = if is_v2 {
                self.value(&format!("{folder}/cpu.max")).ok()?
            } else {
                let quota = self.value(&format!("{folder}/cpu.cfs_quota_us")).ok()?;
                let period = self.value(&format!("{folder}/cpu.cfs_period_us")).ok()?;
                format!("{quota} {period}")
            };
            let mut words = text.split_whitespace().map(str::parse::<u64>);
            Some(match (words.next(), words.next()) {
                (Some(Ok(quota)), Some(Ok(period))) if period > 0 => Some(quota.div_ceil(period)),
                _ => None,
            })
        })?;
        tightest(&values).ok_or_else(|| "no cpu.max in the control groups of this process".into())
    }

    /// How many processors toron may keep busy: those of the affinity mask, cut to the quota.
    pub fn cores(&self) -> Known<u64> {
        let processors = self.processors()?;
        let quota = self.processor_quota().ok().flatten();
        Ok(quota
            .map_or(processors, |quota| processors.min(quota))
            .max(1))
    }

    /// What `read` finds in the folders of this process's control groups, up to the roots.
    fn in_groups<T>(
        &self,
        controller: &str,
        read: impl Fn(&str, bool) -> Option<T>,
    ) -> Known<Vec<T>> {
        let groups = self.text("/proc/self/cgroup")?;
        let mut found = Vec::new();
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            let is_v2 = controllers.is_empty();
            let roots: Vec<String> = if is_v2 {
                vec!["/sys/fs/cgroup".into(), "/sys/fs/cgroup/unified".into()]
            } else if controllers.split(',').any(|c| c == controller) {
                let mut names = vec![controllers, controller];
                names.dedup();
                names
                    .iter()
                    .map(|c| format!("/sys/fs/cgroup/{c}"))
                    .collect()
            } else {
                continue;
            };
            for ancestor in Path::new(path).ancestors() {
                let ancestor = ancestor.display().to_string();
                let ancestor = ancestor.trim_end_matches('/');
                let folders = roots.iter().map(|root| format!("{root}{ancestor}"));
                found.extend(folders.filter_map(|folder| read(&folder, is_v2)));
            }
        }
        Ok(found)
    }
}

/// The smallest limit; `None` where nothing was read at all.
fn tightest(values: &[Option<u64>]) -> Option<Option<u64>> {
    (!values.is_empty()).then(|| values.iter().flatten().min().copied())
}

/// Where a kernel setting stands: `net.core.somaxconn` in /proc/sys/net/core/somaxconn. As in
/// `sysctl(8)`, a slash in a name stands for a dot in a file's.
#[must_use]
pub fn sysctl_path(name: &str) -> String {
    let swapped = name.chars().map(|c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    });
    format!("/proc/sys/{}", swapped.collect::<String>())
}

/// How many numbers a list like `0-3,8` has.
fn count_in_list(list: &str) -> Option<u64> {
    list.split(',').try_fold(0u64, |count, part| {
        let part = part.trim();
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        let length = to.checked_sub(from)?.checked_add(1)?;
        count.checked_add(length)
    })
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "not there (this kernel lacks it, its module is not loaded, or this namespace hides it)"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => "may not be read by this user".to_owned(),
        _ => error.to_string(),
    }
}

/// Enough of a text to recognise it by.
fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let place = dir.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }
        let machine = Machine::at(dir.path());
        (dir, machine)
    }

    #[test]
    fn names_and_places() {
        assert_eq!(
            sysctl_path("net.core.somaxconn"),
            "/proc/sys/net/core/somaxconn"
        );
        assert_eq!(
            sysctl_path("net.ipv4.conf.eth0/1.rp_filter"),
            "/proc/sys/net/ipv4/conf/eth0.1/rp_filter"
        );
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let (dir, machine) = tree(&[
            ("/proc/sys/a/empty", "\n"),
            ("/proc/sys/a/word", "many\n"),
            ("/proc/sys/a/two", "1 2\n"),
        ]);
        fs::create_dir(dir.path().join("proc/sys/a/folder")).unwrap();
        fs::write(dir.path().join("proc/sys/a/bytes"), b"\xff\xfe").unwrap();
        let why = |name: &str| machine.number(name).unwrap_err();
        assert!(why("a.gone").contains("/proc/sys/a/gone: not there"));
        assert_eq!(why("a.empty"), "/proc/sys/a/empty: empty");
        assert!(why("a.word").contains("\"many\" is not a whole number"));
        assert_eq!(why("a.folder"), "/proc/sys/a/folder: not a file");
        assert_eq!(why("a.bytes"), "/proc/sys/a/bytes: not text");
        assert_eq!(machine.numbers::<2>("a.two"), Ok([1, 2]));
        assert!(machine.numbers::<3>("a.two").is_err());
    }

    #[test]
    fn limits_status_and_capabilities() {
        let (_dir, machine) = tree(&[
            (
                "/proc/self/limits",
                "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  unlimited  files\n",
            ),
            (
                "/proc/self/status",
                "CapEff:\t0000000001000000\nCpus_allowed_list:\t0-2,5\n",
            ),
            ("/proc/self/uid_map", "         0          0 4294967295\n"),
        ]);
        let limit = machine.limit("Max open files").unwrap();
        assert_eq!((limit.soft, limit.hard), (1024, u64::MAX));
        assert!(machine.limit("Max locked memory").is_err());
        assert_eq!(machine.is_capable(CAP_SYS_RESOURCE), Ok(true));
        assert_eq!(machine.is_capable(CAP_SYS_ADMIN), Ok(false));
        assert_eq!(machine.processors(), Ok(4));
        fs::write(machine.path("/proc/self/uid_map"), "0 1000 1\n").unwrap();
        assert_eq!(machine.is_capable(CAP_SYS_RESOURCE), Ok(false));
    }

    #[test]
    fn another_process_is_looked_at_in_the_place_of_this_one() {
        let (_dir, machine) = tree(&[
            ("/proc/self/status", "CapEff:\t0000000001000000\n"),
            ("/proc/7/status", "CapEff:\t0000000000000000\n"),
        ]);
        assert_eq!(machine.is_capable(CAP_SYS_RESOURCE), Ok(true));
        let other = machine.of_process(7);
        assert_eq!(other.is_capable(CAP_SYS_RESOURCE), Ok(false));
        let why = other.limit("Max open files").unwrap_err();
        assert!(why.starts_with("/proc/7/limits: not there"), "{why}");
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(count_in_list("0-3,8"), Some(5));
        assert_eq!(count_in_list("0"), Some(1));
        for bad in ["", "3-1", "a", "0-18446744073709551615"] {
            assert_eq!(count_in_list(bad), None, "{bad}");
        }
    }

    #[test]
    fn counters_by_the_names_of_nstat() {
        let (_dir, machine) = tree(&[
            (
                "/proc/net/netstat",
                "TcpExt: A ListenOverflows\nTcpExt: 1 7\nIpExt: A\nIpExt: 2\n",
            ),
            ("/proc/net/snmp", "Tcp: A CurrEstab\nTcp: 1 5\n"),
            (
                "/proc/net/sockstat",
                "sockets: used 3\nTCP: inuse 1 orphan 0 tw 9\n",
            ),
        ]);
        assert_eq!(machine.counter("TcpExtListenOverflows"), Ok(7));
        assert_eq!(machine.counter("IpExtA"), Ok(2));
        assert_eq!(machine.counter("TcpCurrEstab"), Ok(5));
        assert!(machine.counter("TcpExtNone").is_err());
        assert_eq!(machine.sockets("TCP", "tw"), Ok(9));
        assert!(machine.sockets("TCP", "mem").is_err());
    }

    #[test]
    fn the_tightest_control_group_counts() {
        let limit = |m: &Machine| m.group_limit("pids", "pids.max", "pids.max");
        let (_dir, two) = tree(&[
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/pids.max", "70\n"),
            ("/sys/fs/cgroup/a/b/pids.max", "max\n"),
        ]);
        assert_eq!(limit(&two), Ok(Some(70)));
        let (_dir, one) = tree(&[
            ("/proc/self/cgroup", "4:memory:/x\n3:pids,misc:/a\n0::/\n"),
            ("/sys/fs/cgroup/pids/pids.max", "9\n"),
            ("/sys/fs/cgroup/pids,misc/a/pids.max", "80\n"),
            (
                "/sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
        ]);
        assert_eq!(limit(&one), Ok(Some(9)));
        assert_eq!(
            one.group_limit("memory", "memory.max", "memory.limit_in_bytes"),
            Ok(None)
        );
        let (_dir, none) = tree(&[("/proc/self/cgroup", "0::/\n")]);
        assert!(limit(&none).is_err());
    }

    #[test]
    fn cores_are_cut_to_the_quota() {
        let status = ("/proc/self/status", "Cpus_allowed_list:\t0-7\n");
        let (_dir, two) = tree(&[
            status,
            ("/proc/self/cgroup", "0::/a\n"),
            ("/sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
            ("/sys/fs/cgroup/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(two.processor_quota(), Ok(Some(3)));
        assert_eq!(two.cores(), Ok(3));
        let (_dir, one) = tree(&[
            status,
            ("/proc/self/cgroup", "1:cpu,cpuacct:/\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!((one.processor_quota(), one.cores()), (Ok(None), Ok(8)));
    }
}
