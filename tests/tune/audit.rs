//! What is said of a machine for a configuration.

use toron::tune::row::{Group, Row, Verdict};

use crate::tree::{Audit, Tree};

/// Rows that can only be had of the machine itself.
const LIVE: [&str; 5] = [
    "engine",
    "qdisc",
    "eth0 rings",
    "eth0 channels",
    "eth0 offloads",
];

#[test]
fn a_healthy_machine_is_said_to_be_good() {
    let tree = Tree::new();
    let audit = tree.audit();
    let amiss = audit.with(&["missing", "better", "consider"]);
    assert!(amiss.is_empty(), "{amiss:?}");
    assert_eq!(audit.with(&["unknown"]).len(), LIVE.len());
    for name in LIVE {
        let why = audit.get(name)["unknown"].as_str().unwrap();
        assert!(why.contains("on the machine itself") || why.contains("of the machine itself"));
    }
    let check = tree.run(&["--check"]);
    assert_eq!(
        (check.code, &check.out[..]),
        (Some(0), "no must-have is missing\n")
    );
}

/// Each must-have with a value that is too small, and what is proposed for the default
/// configuration: 10,000 clients, one upstream with 100 idle connections, 4 processors, 128
/// reactors.
#[test]
fn each_must_have_that_is_missing_fails_the_check() {
    // 32 + 4 × (4 + 1) + 1 + 10,000 × 2 + 100 are needed, 2 × 10,000 + 4 × 128 more are for pipes;
    // in multiples of 1,024.
    let descriptors = "40960";
    let limits = |line: &str| {
        format!("{line}\nMax processes 60000 60000\nMax open files 1 524288\nMax locked memory 8388608 8388608\n")
    };
    let limits_path = "proc/self/limits";
    let cases: [(&str, &str, String, &str); 9] = [
        (
            "limit nofile",
            limits_path,
            limits("Max open files 1024 20152"),
            descriptors,
        ),
        (
            "fs.nr_open",
            "proc/sys/fs/nr_open",
            "20152\n".into(),
            descriptors,
        ),
        // 1,000 are open.
        (
            "fs.file-max",
            "proc/sys/fs/file-max",
            "21152\n".into(),
            "43008",
        ),
        (
            "net.core.somaxconn",
            "proc/sys/net/core/somaxconn",
            "4095\n".into(),
            "4096",
        ),
        // 10,100 and a quarter more.
        (
            "net.ipv4.ip_local_port_range",
            "proc/sys/net/ipv4/ip_local_port_range",
            "50902\t61000\n".into(),
            "52224 65535",
        ),
        // 10,000 × 16 pages and 4 × 32 × 48 more.
        (
            "fs.pipe-user-pages-soft",
            "proc/sys/fs/pipe-user-pages-soft",
            "166143\n".into(),
            "166912",
        ),
        (
            "limit nproc",
            limits_path,
            limits("Max processes 135 200"),
            "1024",
        ),
        // 4 rings of 140 KiB.
        (
            "limit memlock",
            limits_path,
            limits("Max locked memory 573439 8388608"),
            "8388608",
        ),
        (
            "net.netfilter.nf_conntrack_max",
            "proc/sys/net/netfilter/nf_conntrack_max",
            "20099\n".into(),
            "65536",
        ),
    ];
    for (name, path, text, proposed) in cases {
        let tree = Tree::new();
        tree.put(path, text);
        let audit = tree.audit();
        assert_eq!(audit.with(&["missing"]), [name]);
        assert_eq!(audit.proposed(name), Some(proposed), "{name}");
        assert_eq!(audit.get(name)["must_have"], true);
        let check = tree.run(&["--check"]);
        assert_eq!(check.code, Some(1), "{name}");
        assert!(check.out.contains(name) && check.out.contains(proposed));
    }
}

/// One more than each of those bounds is enough.
#[test]
fn just_enough_is_enough() {
    let tree = Tree::new();
    tree.put(
        "proc/self/limits",
        "Max processes 136 136\nMax open files 1 20153\nMax locked memory 573440 573440\n",
    );
    tree.set("fs.nr_open", "20153\n");
    tree.set("fs.file-max", "21153\n");
    tree.set("net.core.somaxconn", "4096\n");
    tree.set("net.ipv4.ip_local_port_range", "50901\t61000\n");
    tree.set("fs.pipe-user-pages-soft", "166144\n");
    tree.set("net.netfilter.nf_conntrack_max", "20100\n");
    let said = tree.run(&["--check"]);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn proposals_follow_the_configuration() {
    let tree = Tree::new();
    tree.configure(
        "firewall: {max_connections_total: 50000}\nproxy: {transport: {max_idle_per_target: 10}}\n",
        &["http://192.0.2.7:9000", "http://192.0.2.8:9000"],
    );
    tree.put(
        "proc/self/limits",
        "Max processes 60000 60000\nMax open files 1 1024\nMax locked memory 8388608 8388608\n",
    );
    let audit = tree.audit();
    let demand = &audit.0["demand"];
    assert_eq!(demand["clients"], 50_000);
    assert_eq!(demand["targets"], 2);
    assert_eq!(demand["idle_upstreams"], 20);
    // 53 + 100,020 + 100,000 + 512 = 200,585.
    assert_eq!(audit.proposed("limit nofile"), Some("200704"));
    assert_eq!(
        audit.proposed("net.ipv4.ip_local_port_range"),
        Some("2048 65535")
    );
    assert!(audit.get("limit nofile")["why"]
        .as_str()
        .unwrap()
        .starts_with(
            "50,000 clients, 50,000 connections to upstreams in use and 20 idle ones need 100,073"
        ));

    tree.configure(
        "firewall: {max_connections_total: 100}\n",
        &["http://192.0.2.7:9000"],
    );
    let audit = tree.audit();
    assert_eq!(audit.verdict("limit nofile"), "good");
    assert_eq!(audit.with(&["missing"]), Vec::<&str>::new());

    // Without a limit a number is planned for, and said to be.
    tree.configure("firewall: {enabled: false}\n", &["http://192.0.2.7:9000"]);
    assert_eq!(tree.audit().0["demand"]["clients_are_limited"], false);
    assert!(tree
        .run(&[])
        .out
        .contains("10,000 clients (planned; no limit is configured)"));

    // Nothing behind toron: no ports, no pipes.
    tree.configure("server: {}\n", &[]);
    std::fs::write(
        tree.join("routes.yaml"),
        "routes:\n  - {prefix: /, status: 204}\n",
    )
    .unwrap();
    tree.set("net.ipv4.ip_local_port_range", "60000\t60001\n");
    tree.set("fs.pipe-user-pages-soft", "1\n");
    assert_eq!(tree.audit().with(&["missing"]), ["limit nofile"]);
}

/// Caps of the routes bound what is behind toron, if all have one.
#[test]
fn caps_of_routes_are_counted() {
    let tree = Tree::new();
    let routes = |second: &str| {
        let text = format!(
            "routes:\n  - {{prefix: /a, target: http://192.0.2.7:1, max_concurrency: 300}}\n  \
             - {{prefix: /b, target: http://192.0.2.7:1, max_concurrency: 500}}\n  \
             - {{prefix: /c, target: http://192.0.2.8:1{second}}}\n"
        );
        std::fs::write(tree.join("routes.yaml"), text).unwrap();
        tree.audit()
    };
    let need = |audit: &Audit, name: &str, words: &str| {
        let why = audit.get(name)["why"].as_str().unwrap().to_owned();
        assert!(why.contains(words), "{words}: {why}");
    };
    // 32 + 4 × 5 + 1 + 10,000 + 1,500 + 200.
    let audit = routes(", max_concurrency: 700");
    need(
        &audit,
        "limit nofile",
        "1,500 connections to upstreams in use and 200 idle ones need 11,753",
    );
    need(
        &audit,
        "net.ipv4.ip_local_port_range",
        "800 requests at a time and 100 idle connections may want 900",
    );
    // 1,500 × 16 and 128 × 48 pages.
    need(
        &audit,
        "fs.pipe-user-pages-soft",
        "1,500 requests at a time may hold 30,144 pages",
    );
    let audit = routes("");
    need(
        &audit,
        "limit nofile",
        "10,000 connections to upstreams in use",
    );
    need(
        &audit,
        "net.ipv4.ip_local_port_range",
        "10,000 requests at a time",
    );
}

/// Root is bound by no quota, but the root of a user namespace is.
#[test]
fn the_administrator_is_exempt_from_quotas() {
    let tree = Tree::new();
    tree.set("fs.pipe-user-pages-soft", "1\n");
    let status =
        "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nSeccomp:\t0\nCpus_allowed_list:\t0-3\n";
    tree.put("proc/self/status", status);
    tree.put(
        "proc/self/limits",
        "Max processes 1 1\nMax open files 1 524288\nMax locked memory 0 0\n",
    );
    assert_eq!(tree.audit().with(&["missing"]), Vec::<&str>::new());
    tree.put("proc/self/uid_map", "0 1000 1\n");
    let mut missing = tree.audit();
    let names = missing.with(&["missing"]);
    assert_eq!(
        names,
        ["fs.pipe-user-pages-soft", "limit memlock", "limit nproc"]
    );
    // What is meant for epoll locks no memory.
    tree.configure("server: {engine: epoll}\n", &["http://192.0.2.7:9000"]);
    missing = tree.audit();
    assert_eq!(
        missing.with(&["missing"]),
        ["fs.pipe-user-pages-soft", "limit nproc"]
    );
}

#[test]
fn io_uring_is_a_must_only_where_it_is_demanded() {
    let tree = Tree::new();
    const NAME: &str = "kernel.io_uring_disabled";
    for (engine, value, verdict) in [
        ("auto", "2", "consider"),
        ("epoll", "2", "good"),
        ("io_uring", "0", "good"),
        ("io_uring", "1", "missing"),
        ("io_uring", "2", "missing"),
    ] {
        tree.configure(
            &format!("server: {{engine: {engine}}}\n"),
            &["http://192.0.2.7:9000"],
        );
        tree.set(NAME, &format!("{value}\n"));
        assert_eq!(tree.audit().verdict(NAME), verdict, "{engine} {value}");
    }
}

/// What is better or to be considered: a file, a value, the row, its verdict and proposal.
#[test]
fn what_would_be_better_is_proposed_on_evidence() {
    for (path, text, name, verdict, proposed) in [
        (
            "proc/sys/net/ipv4/tcp_syncookies",
            "0\n",
            "net.ipv4.tcp_syncookies",
            "better",
            "1",
        ),
        (
            "proc/sys/net/ipv4/tcp_syncookies",
            "0\n",
            "net.ipv4.tcp_max_syn_backlog",
            "better",
            "4096",
        ),
        (
            "proc/sys/net/ipv4/tcp_abort_on_overflow",
            "1\n",
            "net.ipv4.tcp_abort_on_overflow",
            "consider",
            "0",
        ),
        (
            "proc/sys/net/ipv4/tcp_timestamps",
            "0\n",
            "net.ipv4.tcp_timestamps",
            "consider",
            "1",
        ),
        (
            "proc/sys/net/ipv4/tcp_wmem",
            "4096\t16384\t65536\n",
            "net.ipv4.tcp_wmem",
            "better",
            "4096 16384 4194304",
        ),
        (
            "proc/sys/net/ipv4/tcp_moderate_rcvbuf",
            "0\n",
            "net.ipv4.tcp_moderate_rcvbuf",
            "better",
            "1",
        ),
        (
            "proc/sys/net/ipv4/tcp_max_orphans",
            "4096\n",
            "net.ipv4.tcp_max_orphans",
            "better",
            "32768",
        ),
        // 10,000 × 144 KiB are 360,000 pages.
        (
            "proc/sys/net/ipv4/tcp_mem",
            "1000\t2000\t3000\n",
            "net.ipv4.tcp_mem",
            "consider",
            "270000 360000 540000",
        ),
        (
            "proc/sys/net/ipv4/tcp_congestion_control",
            "bbr\n",
            "net.core.default_qdisc",
            "consider",
            "fq",
        ),
        (
            "proc/sys/net/ipv4/tcp_slow_start_after_idle",
            "1\n",
            "net.ipv4.tcp_slow_start_after_idle",
            "consider",
            "0",
        ),
        (
            "proc/sys/net/core/busy_poll",
            "50\n",
            "net.core.busy_poll",
            "consider",
            "0",
        ),
        (
            "proc/net/softnet_stat",
            "000f4240 00000100 00000000\n",
            "net.core.netdev_max_backlog",
            "better",
            "2000",
        ),
        (
            "proc/net/softnet_stat",
            "000f4240 00000000 00000100\n",
            "net.core.netdev_budget",
            "consider",
            "600",
        ),
        (
            "proc/sys/fs/pipe-user-pages-hard",
            "1000\n",
            "fs.pipe-user-pages-hard",
            "better",
            "0",
        ),
        (
            "proc/sys/fs/pipe-max-size",
            "65536\n",
            "fs.pipe-max-size",
            "better",
            "1048576",
        ),
        (
            "proc/self/status",
            "CapEff:\t0\nSeccomp:\t2\nCpus_allowed_list:\t0-7\n",
            "eth0 rps_cpus",
            "consider",
            "ff",
        ),
        (
            "proc/irq/31/smp_affinity_list",
            "0\n",
            "eth0 interrupts",
            "consider",
            "spread over the processors",
        ),
        (
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
            "powersave\n",
            "cpufreq scaling_governor",
            "consider",
            "performance",
        ),
        (
            "sys/devices/system/cpu/cpu0/cpuidle/state1/latency",
            "133\n",
            "cpuidle states",
            "consider",
            "at most 100 us",
        ),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "[always] madvise never\n",
            "transparent_hugepage",
            "consider",
            "madvise",
        ),
        (
            "sys/fs/cgroup/system.slice/toron.service/memory.max",
            "104857600\n",
            "cgroup memory.max",
            "better",
            "3,294 MiB or more, or fewer connections",
        ),
    ] {
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

#[test]
fn where_it_runs_is_found_out() {
    for (path, text, name, present) in [
        (
            "run/.containerenv",
            "",
            "container",
            "Podman (by /run/.containerenv)",
        ),
        (".dockerenv", "", "container", "Docker (by /.dockerenv)"),
        (
            "run/systemd/container",
            "lxc\n",
            "container",
            "lxc (by /run/systemd/container)",
        ),
        (
            "proc/self/cgroup",
            "0::/kubepods/pod1\n",
            "container",
            "likely (kubepods in the control group)",
        ),
        (
            "proc/meminfo",
            "MemTotal: 1 kB\n",
            "container",
            "none found",
        ),
        (
            "proc/self/status",
            "CapEff:\t0\nSeccomp:\t2\nCpus_allowed_list:\t0\n",
            "seccomp",
            "filter",
        ),
        (
            "proc/self/uid_map",
            "0 1000 1\n",
            "user namespace",
            "own (root here is an ordinary user outside)",
        ),
        (
            "sys/fs/cgroup/system.slice/cpu.max",
            "150000 100000\n",
            "processors allowed",
            "0-3, quota worth 2",
        ),
    ] {
        let tree = Tree::new();
        tree.put(path, text);
        assert_eq!(tree.audit().get(name)["present"], present, "{path}");
    }
}

/// Interfaces of another network namespace are not taken for this one's.
#[test]
fn interfaces_that_sys_shows_of_another_namespace_are_unknown() {
    let tree = Tree::new();
    tree.put("proc/net/dev", "Inter-| a\n face |b\n    lo: 0 0\n");
    let audit = tree.audit();
    let why = audit.get("network interfaces")["unknown"].as_str().unwrap();
    assert!(
        why.contains("another network namespace (eth0, lo, here: lo)"),
        "{why}"
    );
    assert!(audit
        .settings()
        .iter()
        .all(|row| !row["name"].as_str().unwrap().starts_with("eth0")));
}

/// Every file in turn gone, empty, nonsense, huge, binary, a folder: never a crash, and unknown
/// values say why.
#[test]
fn no_file_is_relied_upon() {
    let tree = Tree::new();
    let known = names(&tree.rows());
    for path in Tree::paths() {
        let before = tree.text(path);
        for (way, text) in [
            ("gone", None),
            ("folder", None),
            ("empty", Some(&b""[..])),
            ("nonsense", Some(b"nonsense: [\x01 -1\n")),
            (
                "huge",
                Some(b"18446744073709551615 18446744073709551615 18446744073709551615\n"),
            ),
            ("binary", Some(b"\xff\x00\xfe")),
        ] {
            tree.remove(path);
            if let Some(text) = text {
                tree.put(path, text);
            } else if way == "folder" {
                std::fs::create_dir(tree.root().join(path)).unwrap();
            }
            let rows = tree.rows();
            judge_unknowns(&rows, path, way);
            let setting = path.strip_prefix("proc/sys/").map(|p| p.replace('/', "."));
            let setting = setting.filter(|name| known.contains(name));
            if let Some(name) = setting.filter(|_| !["nonsense", "huge"].contains(&way)) {
                let row = rows.iter().find(|row| row.name == name).unwrap();
                assert_eq!(row.verdict, Verdict::Unknown, "{path} {way}");
            }
            let table = table(&rows);
            assert!(
                table.lines().all(|line| line.chars().count() <= 100),
                "{table}"
            );
        }
        tree.remove(path);
        tree.put(path, &before);
    }
    // And nothing at all.
    for folder in ["proc", "sys"] {
        tree.remove(folder);
    }
    judge_unknowns(&tree.rows(), "everything", "gone");
    let audit = tree.audit();
    assert!(audit.with(&["missing", "better", "consider"]).is_empty());
    assert_eq!(tree.run(&["--check"]).code, Some(0));
}

fn names(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| row.name.clone()).collect()
}

fn table(rows: &[Row]) -> String {
    let group = Group {
        title: "All",
        rows: rows.to_vec(),
    };
    toron::tune::table::full(&[group])
}

fn judge_unknowns(rows: &[Row], path: &str, way: &str) {
    for row in rows {
        let is_unknown = row.verdict == Verdict::Unknown;
        assert_eq!(row.present.is_err(), is_unknown, "{path} {way}: {row:?}");
        if let Err(why) = &row.present {
            assert!(
                !why.is_empty() && row.proposed.is_none(),
                "{path} {way}: {row:?}"
            );
        }
    }
}

#[test]
fn the_table_fits_and_is_plain() {
    let tree = Tree::new();
    tree.put("proc/sys/net/ipv4/tcp_syncookies", "0\n");
    tree.set("net.core.somaxconn", "128\n");
    tree.remove("proc/meminfo");
    let out = tree.run(&[]).out;
    for line in out.lines() {
        assert!(line.chars().count() <= 100, "{line}");
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
    }
    let row = |start: &str| {
        let found = out.lines().find(|line| line.starts_with(start));
        found
            .unwrap_or_else(|| panic!("{start} not in {out}"))
            .to_owned()
    };
    assert!(row("MISSING   net.core.somaxconn ").ends_with(" 128 → 4096"));
    assert!(row("better    net.ipv4.tcp_syncookies ").ends_with(" 0 → 1"));
    assert!(row("good      fs.nr_open ").ends_with(" 1048576"));
    assert!(
        out.contains("1 MISSING (a configured limit cannot be reached):\n  net.core.somaxconn\n")
    );
    // Each row has its reason.
    let names = tree.audit().settings().len();
    assert_eq!(out.matches("\n            why       ").count(), names);
}

#[test]
fn a_bad_configuration_is_told() {
    let tree = Tree::new();
    tree.configure("sever: {}\n", &["http://192.0.2.7:9000"]);
    let said = tree.run(&[]);
    assert_eq!((said.code, &said.out[..]), (Some(1), ""));
    assert!(
        said.err.contains("the configuration has faults"),
        "{}",
        said.err
    );
    assert!(said.err.contains("unknown key \"sever\""), "{}", said.err);
}

#[test]
fn json_goes_into_a_file_beside_the_table() {
    let tree = Tree::new();
    let file = tree.join("audit.json");
    let said = tree.run(&["--json", file.to_str().unwrap()]);
    assert_eq!(said.code, Some(0));
    assert!(said.out.starts_with("toron tune: for 10,000 clients (firewall.max_connections_total), 1 upstream target, 128 reactors\n"));
    let audit = Audit::parse(&std::fs::read_to_string(file).unwrap());
    assert_eq!(
        audit.get("net.ipv4.tcp_rmem")["present"],
        "4096\t131072\t6291456"
    );
}
