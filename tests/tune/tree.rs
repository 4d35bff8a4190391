//! A healthy machine as a tree of files, and the command run on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use toron::control::config::load_texts;
use toron::control::machine::Machine;
use toron::control::resolve::Endpoints;
use toron::policy::demand::Demand;
use toron::tune::probes::audit;
use toron::tune::row::Row;

use crate::support::TempDir;

/// Settings and files of a machine on which nothing is amiss for the default configuration:
/// 4 processors, 16 GiB, an ordinary user.
const FILES: &[(&str, &str)] = &[
    ("proc/sys/fs/nr_open", "1048576\n"),
    ("proc/sys/fs/file-max", "1000000\n"),
    ("proc/sys/fs/file-nr", "1000\t0\t1000000\n"),
    ("proc/sys/fs/pipe-user-pages-soft", "262144\n"),
    ("proc/sys/fs/pipe-user-pages-hard", "0\n"),
    ("proc/sys/fs/pipe-max-size", "1048576\n"),
    ("proc/sys/net/core/somaxconn", "4096\n"),
    ("proc/sys/net/core/default_qdisc", "fq_codel\n"),
    ("proc/sys/net/core/rmem_max", "212992\n"),
    ("proc/sys/net/core/wmem_max", "212992\n"),
    ("proc/sys/net/core/busy_poll", "0\n"),
    ("proc/sys/net/core/busy_read", "0\n"),
    ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
    ("proc/sys/net/core/netdev_budget", "300\n"),
    ("proc/sys/net/core/netdev_budget_usecs", "8000\n"),
    ("proc/sys/net/ipv4/tcp_syncookies", "1\n"),
    ("proc/sys/net/ipv4/tcp_max_syn_backlog", "1024\n"),
    ("proc/sys/net/ipv4/tcp_abort_on_overflow", "0\n"),
    ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
    ("proc/sys/net/ipv4/ip_local_reserved_ports", "\n"),
    ("proc/sys/net/ipv4/tcp_tw_reuse", "1\n"),
    ("proc/sys/net/ipv4/tcp_timestamps", "1\n"),
    ("proc/sys/net/ipv4/tcp_max_tw_buckets", "131072\n"),
    ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
    ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
    ("proc/sys/net/ipv4/tcp_mem", "284796\t379730\t569592\n"),
    ("proc/sys/net/ipv4/tcp_moderate_rcvbuf", "1\n"),
    ("proc/sys/net/ipv4/tcp_max_orphans", "65536\n"),
    ("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
    (
        "proc/sys/net/ipv4/tcp_available_congestion_control",
        "reno cubic\n",
    ),
    ("proc/sys/net/ipv4/tcp_slow_start_after_idle", "0\n"),
    ("proc/sys/net/ipv4/tcp_keepalive_time", "7200\n"),
    ("proc/sys/net/ipv4/tcp_keepalive_intvl", "75\n"),
    ("proc/sys/net/ipv4/tcp_keepalive_probes", "9\n"),
    ("proc/sys/net/netfilter/nf_conntrack_max", "262144\n"),
    ("proc/sys/net/netfilter/nf_conntrack_count", "12\n"),
    ("proc/sys/kernel/io_uring_disabled", "0\n"),
    ("proc/sys/kernel/numa_balancing", "0\n"),
    ("proc/sys/kernel/osrelease", "6.12.1-made\n"),
    (
        "proc/sys/kernel/random/boot_id",
        "11111111-2222-3333-4444-555555555555\n",
    ),
    (
        "proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n\
         Max processes             60000                60000                processes \n\
         Max open files            1024                 524288               files     \n\
         Max locked memory         8388608              8388608              bytes     \n",
    ),
    (
        "proc/self/status",
        "Name:\ttoron\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t0\n\
         Cpus_allowed_list:\t0-3\n",
    ),
    ("proc/self/uid_map", "         0          0 4294967295\n"),
    ("proc/self/cgroup", "0::/system.slice/toron.service\n"),
    (
        "sys/fs/cgroup/system.slice/toron.service/cpu.max",
        "max 100000\n",
    ),
    (
        "sys/fs/cgroup/system.slice/toron.service/memory.max",
        "max\n",
    ),
    (
        "sys/fs/cgroup/system.slice/toron.service/pids.max",
        "18000\n",
    ),
    ("proc/meminfo", "MemTotal:       16384000 kB\n"),
    (
        "proc/net/sockstat",
        "sockets: used 200\nTCP: inuse 10 orphan 0 tw 5 alloc 12 mem 30\n",
    ),
    (
        "proc/net/netstat",
        "TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPTimeWaitOverflow \
         TCPReqQFullDoCookies TCPReqQFullDrop TCPMemoryPressures TCPAbortOnMemory\n\
         TcpExt: 0 3 4 0 0 0 0 0\n",
    ),
    ("proc/net/snmp", "Tcp: CurrEstab\nTcp: 7\n"),
    (
        "proc/net/softnet_stat",
        "000f4240 00000000 00000001 00000000\n000f4240 00000000 00000000\n",
    ),
    (
        "proc/net/dev",
        "Inter-|   Receive\n face |bytes\n    lo: 1 1 0\n  eth0: 2 2 0\n",
    ),
    ("proc/irq/30/smp_affinity_list", "0\n"),
    ("proc/irq/31/smp_affinity_list", "1\n"),
    ("sys/class/net/lo/ifindex", "1\n"),
    ("sys/class/net/eth0/device/msi_irqs/30", "msix\n"),
    ("sys/class/net/eth0/device/msi_irqs/31", "msix\n"),
    ("sys/class/net/eth0/device/numa_node", "0\n"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n"),
    ("sys/class/net/eth0/queues/rx-1/rps_cpus", "0\n"),
    ("sys/class/net/eth0/queues/rx-2/rps_cpus", "0\n"),
    ("sys/class/net/eth0/queues/rx-3/rps_cpus", "0\n"),
    ("sys/class/net/eth0/queues/tx-0/xps_cpus", "3\n"),
    ("sys/class/net/eth0/queues/tx-1/xps_cpus", "c\n"),
    ("sys/class/net/eth0/napi_defer_hard_irqs", "0\n"),
    ("sys/class/net/eth0/gro_flush_timeout", "0\n"),
    ("sys/class/net/eth0/threaded", "0\n"),
    ("sys/class/net/eth0/statistics/rx_missed_errors", "0\n"),
    ("sys/class/net/eth0/statistics/rx_fifo_errors", "0\n"),
    ("sys/devices/system/cpu/online", "0-3\n"),
    (
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "performance\n",
    ),
    (
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
        "acpi-cpufreq\n",
    ),
    (
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        "performance\n",
    ),
    (
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_driver",
        "acpi-cpufreq\n",
    ),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C1\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "2\n"),
    ("sys/devices/system/node/online", "0\n"),
    (
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    ),
];

/// What the command said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// A machine, a configuration for it, and a journal.
pub struct Tree {
    dir: TempDir,
}

impl Tree {
    /// The healthy machine with toron's defaults and one upstream.
    pub fn new() -> Self {
        let tree = Tree {
            // Deeper than a line of the table is wide.
            dir: TempDir::new(&format!("tune-{}", "deep-".repeat(20))),
        };
        for (path, text) in FILES {
            tree.put(path, text);
        }
        let net = tree.root().join("proc/self/ns");
        std::fs::create_dir_all(&net).unwrap();
        std::os::unix::fs::symlink("net:[1000]", net.join("net")).unwrap();
        tree.configure("server: {}\n", &["http://192.0.2.7:9000"]);
        tree
    }

    /// The files that a machine has.
    pub fn paths() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(path, _)| *path)
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// Writes a file of the machine.
    pub fn put(&self, path: &str, text: impl AsRef<[u8]>) {
        let place = self.root().join(path);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, text).unwrap();
    }

    /// Removes a file or folder of the machine, if there is one.
    pub fn remove(&self, path: &str) {
        let place = self.root().join(path);
        if place.is_dir() {
            std::fs::remove_dir_all(place).unwrap();
        } else if place.exists() {
            std::fs::remove_file(place).unwrap();
        }
    }

    pub fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.root().join(path)).unwrap()
    }

    /// A kernel setting.
    pub fn set(&self, name: &str, value: &str) {
        self.put(&format!("proc/sys/{}", name.replace('.', "/")), value);
    }

    pub fn sysctl(&self, name: &str) -> String {
        self.text(&format!("proc/sys/{}", name.replace('.', "/")))
    }

    /// The configuration.
    pub fn configure(&self, config: &str, targets: &[&str]) {
        std::fs::write(self.dir.join("config.yaml"), config).unwrap();
        let routes: String = targets
            .iter()
            .enumerate()
            .map(|(n, target)| format!("  - {{prefix: /{n}, target: {target}}}\n"))
            .collect();
        std::fs::write(self.dir.join("routes.yaml"), format!("routes:\n{routes}")).unwrap();
    }

    /// Runs `toron tune` with these arguments on this machine.
    pub fn run(&self, arguments: &[&str]) -> Said {
        self.run_by(Command::new(env!("CARGO_BIN_EXE_toron")), arguments)
    }

    /// The same; the program is killed (SIGXFSZ) when a file grows beyond so many KiB.
    pub fn run_with_files_up_to(&self, kib: u32, arguments: &[&str]) -> Said {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("ulimit -c 0 -f {kib}; exec \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_toron"));
        self.run_by(command, arguments)
    }

    /// The same with an answer to its question.
    pub fn run_and_answer(&self, answer: &str, arguments: &[&str]) -> Said {
        let mut command = Command::new("bash");
        command.args(["-c", "answer=$1; shift; \"$0\" \"$@\" <<<\"$answer\""]);
        command.args([env!("CARGO_BIN_EXE_toron"), answer]);
        self.run_by(command, arguments)
    }

    fn run_by(&self, mut command: Command, arguments: &[&str]) -> Said {
        command
            .arg("tune")
            .arg("-c")
            .arg(self.dir.join("config.yaml"));
        command.arg("--root").arg(self.root());
        command.arg("--journal").arg(self.journal());
        command.args(arguments).stdin(std::process::Stdio::null());
        said(&mut command)
    }

    /// The audit, by name.
    pub fn audit(&self) -> Audit {
        let said = self.run(&["--json"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        Audit::parse(&said.out)
    }

    /// The audit without the program around it.
    pub fn rows(&self) -> Vec<Row> {
        let config = std::fs::read_to_string(self.dir.join("config.yaml")).unwrap();
        let routes = std::fs::read_to_string(self.dir.join("routes.yaml")).unwrap();
        let loaded = load_texts(&config, Some(&routes), &mut Endpoints::default());
        let demand = Demand::of(&loaded.expect("a good configuration").snapshot);
        let groups = audit(&Machine::at(&self.root()), &demand);
        groups.into_iter().flat_map(|group| group.rows).collect()
    }

    /// Every file of the machine with its bytes.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.root(), &mut files);
        files
    }
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            files.insert(path, bytes);
        }
    }
}

pub fn said(command: &mut Command) -> Said {
    let output = command.output().expect("run toron");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    Said {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// The audit as `--json` gives it.
pub struct Audit(pub Value);

impl Audit {
    pub fn parse(text: &str) -> Self {
        Audit(serde_json::from_str(text).expect("JSON"))
    }

    pub fn settings(&self) -> &[Value] {
        self.0["settings"].as_array().expect("settings")
    }

    pub fn get(&self, name: &str) -> &Value {
        let found = self.settings().iter().find(|row| row["name"] == name);
        found.unwrap_or_else(|| panic!("no setting {name}"))
    }

    pub fn verdict(&self, name: &str) -> &str {
        self.get(name)["verdict"].as_str().expect("a verdict")
    }

    pub fn proposed(&self, name: &str) -> Option<&str> {
        self.get(name)["proposed"].as_str()
    }

    /// Names with one of these verdicts.
    pub fn with(&self, verdicts: &[&str]) -> Vec<&str> {
        let rows = self.settings().iter();
        rows.filter(|row| verdicts.contains(&row["verdict"].as_str().unwrap()))
            .map(|row| row["name"].as_str().unwrap())
            .collect()
    }
}
