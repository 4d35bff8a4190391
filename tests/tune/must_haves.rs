//! The must-haves: when one is missing, and what is proposed for which configuration.

use crate::tree::{Audit, Tree};

/// Each must-have with a value that is too small, and what is proposed for the default
/// configuration: 10,000 clients, one upstream with 100 idle connections, 4 processors, 128
/// reactors.
fn too_small() -> [(&'static str, &'static str, String, &'static str); 9] {
    // 32 + 4 × (4 + 1) + 1 + 10,000 × 2 + 100 are needed, 2 × 10,000 + 4 × 128 more are for pipes;
    // in multiples of 1,024.
    let descriptors = "40960";
    let limits = |line: &str| {
        format!("{line}\nMax processes 60000 60000\nMax open files 1 524288\nMax locked memory 8388608 8388608\n")
    };
    let limits_path = "proc/self/limits";
    [
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
    ]
}

#[test]
fn each_must_have_that_is_missing_fails_the_check() {
    for (name, path, text, proposed) in too_small() {
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
