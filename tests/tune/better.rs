//! What is better or to be considered, and on what evidence.

use crate::tree::Tree;

/// What is better or to be considered: a file, a value, the row, its verdict and proposal.
const BETTER: [[&str; 5]; 21] = [
    [
        "proc/sys/net/ipv4/tcp_syncookies",
        "0\n",
        "net.ipv4.tcp_syncookies",
        "better",
        "1",
    ],
    [
        "proc/sys/net/ipv4/tcp_syncookies",
        "0\n",
        "net.ipv4.tcp_max_syn_backlog",
        "better",
        "4096",
    ],
    [
        "proc/sys/net/ipv4/tcp_abort_on_overflow",
        "1\n",
        "net.ipv4.tcp_abort_on_overflow",
        "consider",
        "0",
    ],
    [
        "proc/sys/net/ipv4/tcp_timestamps",
        "0\n",
        "net.ipv4.tcp_timestamps",
        "consider",
        "1",
    ],
    [
        "proc/sys/net/ipv4/tcp_wmem",
        "4096\t16384\t65536\n",
        "net.ipv4.tcp_wmem",
        "better",
        "4096 16384 4194304",
    ],
    [
        "proc/sys/net/ipv4/tcp_moderate_rcvbuf",
        "0\n",
        "net.ipv4.tcp_moderate_rcvbuf",
        "better",
        "1",
    ],
    [
        "proc/sys/net/ipv4/tcp_max_orphans",
        "4096\n",
        "net.ipv4.tcp_max_orphans",
        "better",
        "32768",
    ],
    // 10,000 × 144 KiB are 360,000 pages.
    [
        "proc/sys/net/ipv4/tcp_mem",
        "1000\t2000\t3000\n",
        "net.ipv4.tcp_mem",
        "consider",
        "270000 360000 540000",
    ],
    [
        "proc/sys/net/ipv4/tcp_congestion_control",
        "bbr\n",
        "net.core.default_qdisc",
        "consider",
        "fq",
    ],
    [
        "proc/sys/net/ipv4/tcp_slow_start_after_idle",
        "1\n",
        "net.ipv4.tcp_slow_start_after_idle",
        "consider",
        "0",
    ],
    [
        "proc/sys/net/core/busy_poll",
        "50\n",
        "net.core.busy_poll",
        "consider",
        "0",
    ],
    [
        "proc/net/softnet_stat",
        "000f4240 00000100 00000000\n",
        "net.core.netdev_max_backlog",
        "better",
        "2000",
    ],
    [
        "proc/net/softnet_stat",
        "000f4240 00000000 00000100\n",
        "net.core.netdev_budget",
        "consider",
        "600",
    ],
    [
        "proc/sys/fs/pipe-user-pages-hard",
        "1000\n",
        "fs.pipe-user-pages-hard",
        "better",
        "0",
    ],
    [
        "proc/sys/fs/pipe-max-size",
        "65536\n",
        "fs.pipe-max-size",
        "better",
        "1048576",
    ],
    [
        "proc/self/status",
        "CapEff:\t0\nSeccomp:\t2\nCpus_allowed_list:\t0-7\n",
        "eth0 rps_cpus",
        "consider",
        "ff",
    ],
    [
        "proc/irq/31/smp_affinity_list",
        "0\n",
        "eth0 interrupts",
        "consider",
        "spread over the processors",
    ],
    [
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        "powersave\n",
        "cpufreq scaling_governor",
        "consider",
        "performance",
    ],
    [
        "sys/devices/system/cpu/cpu0/cpuidle/state1/latency",
        "133\n",
        "cpuidle states",
        "consider",
        "at most 100 us",
    ],
    [
        "sys/kernel/mm/transparent_hugepage/enabled",
        "[always] madvise never\n",
        "transparent_hugepage",
        "consider",
        "madvise",
    ],
    [
        "sys/fs/cgroup/system.slice/toron.service/memory.max",
        "104857600\n",
        "cgroup memory.max",
        "better",
        "3,294 MiB or more, or fewer connections",
    ],
];

#[test]
fn what_would_be_better_is_proposed_on_evidence() {
    for [path, text, name, verdict, proposed] in BETTER {
        let tree = Tree::new();
        tree.put(path, text);
        let audit = tree.audit();
        assert_eq!(
            (audit.verdict(name), audit.proposed(name)),
            (verdict, Some(proposed)),
            "{path}"
        );
        // No must-have: the check is content.
        assert_eq!(tree.run(&["--check"]).code, Some(0), "{path}");
    }
}

/// Interrupts that are put off: only where both values say so.
#[test]
fn interrupts_that_are_put_off_are_told() {
    for (defer, timeout, verdict) in [
        ("2", "200000", "consider"),
        ("2", "0", "fact"),
        ("0", "200000", "fact"),
    ] {
        let tree = Tree::new();
        tree.put("sys/class/net/eth0/napi_defer_hard_irqs", defer);
        tree.put("sys/class/net/eth0/gro_flush_timeout", timeout);
        let audit = tree.audit();
        assert_eq!(audit.verdict("eth0 napi"), verdict, "{defer} {timeout}");
        let shown =
            format!("napi_defer_hard_irqs {defer}, gro_flush_timeout {timeout}, threaded 0");
        assert_eq!(audit.get("eth0 napi")["present"], shown);
    }
}

/// Ports of closed connections: reuse is proposed unless it is on, for upstreams elsewhere at least;
/// the more so when ports are short after a burst or half of them are taken by closed connections.
#[test]
fn reuse_of_ports_is_proposed_by_need() {
    const NAME: &str = "net.ipv4.tcp_tw_reuse";
    const FAR: &str = "http://192.0.2.7:9000";
    const NEAR: &str = "http://127.0.0.1:9000";
    for (value, target, waiting, clients, verdict) in [
        ("1", FAR, 20_000, 10_000, "good"),
        ("2", NEAR, 20_000, 10_000, "good"),
        ("0", NEAR, 5, 10_000, "consider"),
        ("2", FAR, 5, 10_000, "consider"),
        ("2", FAR, 14_117, 10_000, "better"),
        // 14,100 + 13,900 and 14,300 + 14,100 of 28,232.
        ("2", FAR, 5, 14_000, "consider"),
        ("2", FAR, 5, 14_200, "better"),
    ] {
        let tree = Tree::new();
        tree.set(NAME, &format!("{value}\n"));
        let text = format!("TCP: inuse 1 orphan 0 tw {waiting} alloc 1 mem 1\n");
        tree.put("proc/net/sockstat", text);
        tree.configure(
            &format!("firewall: {{max_connections_total: {clients}}}\n"),
            &[target],
        );
        let audit = tree.audit();
        assert_eq!(
            audit.verdict(NAME),
            verdict,
            "{value} {target} {waiting} {clients}"
        );
        let proposed = (verdict != "good").then_some("1");
        assert_eq!(audit.proposed(NAME), proposed);
    }
}
