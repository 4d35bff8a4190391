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
