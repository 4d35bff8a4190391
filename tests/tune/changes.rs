//! `--apply`, `--undo` and `--emit` on a tree.

use crate::tree::Tree;

/// A machine with two must-haves missing, three values that could be better (a narrow range makes
/// ports short after a burst, too) and one to consider.
pub fn ailing() -> Tree {
    let tree = Tree::new();
    tree.set("net.core.somaxconn", "128\n");
    tree.set("net.ipv4.ip_local_port_range", "50902\t61000\n");
    tree.set("net.ipv4.tcp_syncookies", "0\n");
    tree.set("net.ipv4.tcp_slow_start_after_idle", "1\n");
    tree.set("net.ipv4.tcp_tw_reuse", "2\n");
    tree
}

#[test]
fn what_is_applied_is_undone_to_the_byte() {
    let tree = ailing();
    let before = tree.snapshot();
    let said = tree.run(&["--apply", "--yes"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.out.contains("net.core.somaxconn: 128 → 4096\n"),
        "{}",
        said.out
    );
    assert_eq!(tree.sysctl("net.core.somaxconn"), "4096");
    assert_eq!(tree.sysctl("net.ipv4.ip_local_port_range"), "52224 65535");
    assert_eq!(tree.sysctl("net.ipv4.tcp_syncookies"), "1");
    assert_eq!(tree.sysctl("net.ipv4.tcp_max_syn_backlog"), "4096");
    assert_eq!(tree.sysctl("net.ipv4.tcp_tw_reuse"), "1");
    // To be considered only: not touched unasked.
    assert_eq!(tree.sysctl("net.ipv4.tcp_slow_start_after_idle"), "1\n");
    let after = tree.snapshot();
    let changed = before
        .iter()
        .filter(|(path, bytes)| after[*path] != **bytes);
    assert_eq!(changed.count(), 5);
    assert_eq!(
        tree.audit().with(&["missing", "better"]),
        Vec::<&str>::new()
    );

    let said = tree.run(&["--undo", "--yes"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(tree.snapshot() == before);
    assert!(!tree.journal().exists());
    let again = tree.run(&["--undo", "--yes"]);
    assert_eq!(again.code, Some(0));
    assert!(again.out.starts_with("nothing to undo"), "{}", again.out);
}

#[test]
fn nothing_is_changed_unless_it_is_confirmed() {
    let tree = ailing();
    let before = tree.snapshot();
    // Standard input is empty: no answer.
    let said = tree.run(&["--apply"]);
    assert_eq!(said.code, Some(1));
    assert!(said.out.contains("net.core.somaxconn: 128 → 4096\n"));
    assert!(said.out.ends_with("nothing was changed\n"), "{}", said.out);
    for answer in ["n", "", "yesterday"] {
        assert_eq!(tree.run_and_answer(answer, &["--apply"]).code, Some(1));
    }
    assert!(tree.snapshot() == before && !tree.journal().exists());

    let said = tree.run_and_answer("y", &["--apply"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("Set these values now? [y/N] "));
    assert_eq!(tree.sysctl("net.core.somaxconn"), "4096");
    let applied = tree.snapshot();
    assert_eq!(tree.run(&["--undo"]).code, Some(1));
    assert!(tree.snapshot() == applied && tree.journal().exists());
}

#[test]
fn only_what_is_named_is_changed() {
    let tree = ailing();
    let before = tree.snapshot();
    let name = "net.ipv4.tcp_slow_start_after_idle";
    let said = tree.run(&["--apply", "--yes", "--only", name]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(tree.sysctl(name), "0");
    assert_eq!(tree.sysctl("net.core.somaxconn"), "128\n");
    for (name, why) in [
        ("net.core.nonsense", "the audit has no such setting"),
        ("fs.nr_open", "nothing is proposed for it"),
    ] {
        let said = tree.run(&["--apply", "--yes", "--only", name]);
        assert_eq!(said.code, Some(1));
        assert!(said.err.contains(why), "{}", said.err);
    }
    assert_eq!(tree.run(&["--undo", "--yes"]).code, Some(0));
    assert!(tree.snapshot() == before);
}

#[test]
fn applying_twice_is_undone_to_the_first_values() {
    let tree = ailing();
    let before = tree.snapshot();
    assert_eq!(tree.run(&["--apply", "--yes"]).code, Some(0));
    // Nothing is left to do, and the journal stays as it is.
    let journal = std::fs::read(tree.journal()).unwrap();
    let again = tree.run(&["--apply", "--yes"]);
    assert_eq!(again.out, "no kernel setting is to be changed\n");
    assert_eq!(std::fs::read(tree.journal()).unwrap(), journal);
    // More clients: more ports.
    tree.configure(
        "firewall: {max_connections_total: 20000}\n",
        &["http://192.0.2.7:9000"],
    );
    assert_eq!(tree.run(&["--apply", "--yes"]).code, Some(0));
    assert_eq!(tree.sysctl("net.ipv4.ip_local_port_range"), "39936 65535");
    assert_eq!(tree.run(&["--undo", "--yes"]).code, Some(0));
    assert!(tree.snapshot() == before);
}

#[test]
fn what_somebody_else_has_changed_is_left_alone() {
    let tree = ailing();
    assert_eq!(tree.run(&["--apply", "--yes"]).code, Some(0));
    tree.set("net.core.somaxconn", "9999\n");
    let said = tree.run(&["--undo", "--yes"]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.out.contains(
            "net.core.somaxconn: left at 9999: somebody else has changed it since (it was 128)"
        ),
        "{}",
        said.out
    );
    assert_eq!(tree.sysctl("net.core.somaxconn"), "9999\n");
    assert_eq!(tree.sysctl("net.ipv4.tcp_syncookies"), "0\n");
    assert!(tree.journal().exists());
    // Once it is as it was, the rest is done.
    tree.set("net.core.somaxconn", "128\n");
    assert_eq!(tree.run(&["--undo", "--yes"]).code, Some(0));
    assert!(!tree.journal().exists());
}

#[test]
fn a_setting_that_is_gone_is_told_and_the_others_are_restored() {
    let tree = ailing();
    assert_eq!(tree.run(&["--apply", "--yes"]).code, Some(0));
    tree.remove("proc/sys/net/core/somaxconn");
    let said = tree.run(&["--undo", "--yes"]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.out.contains("net.core.somaxconn: not restored: "),
        "{}",
        said.out
    );
    assert!(!tree.root().join("proc/sys/net/core/somaxconn").exists());
    assert_eq!(tree.sysctl("net.ipv4.tcp_syncookies"), "0\n");
}

#[test]
fn a_restart_of_the_machine_ends_the_changes() {
    let tree = ailing();
    assert_eq!(tree.run(&["--apply", "--yes"]).code, Some(0));
    tree.set("kernel.random.boot_id", "another\n");
    let now = tree.snapshot();
    let said = tree.run(&["--undo", "--yes"]);
    assert_eq!(said.code, Some(0));
    assert!(said.out.contains("was restarted since"), "{}", said.out);
    assert!(tree.snapshot() == now && !tree.journal().exists());

    // Applied again after a restart, the journal begins anew.
    let tree = ailing();
    assert_eq!(tree.run(&["--apply", "--yes"]).code, Some(0));
    tree.set("kernel.random.boot_id", "another\n");
    tree.set("net.core.somaxconn", "64\n");
    assert_eq!(tree.run(&["--apply", "--yes"]).code, Some(0));
    assert_eq!(tree.run(&["--undo", "--yes"]).code, Some(0));
    assert_eq!(tree.sysctl("net.core.somaxconn"), "64\n");
}

#[test]
fn changes_of_another_network_namespace_are_not_undone_here() {
    let tree = ailing();
    assert_eq!(tree.run(&["--apply", "--yes"]).code, Some(0));
    let link = tree.root().join("proc/self/ns/net");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("net:[2000]", &link).unwrap();
    let now = tree.snapshot();
    let said = tree.run(&["--undo", "--yes"]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.err
            .contains("in another network namespace (net:[1000])"),
        "{}",
        said.err
    );
    tree.set("net.core.somaxconn", "128\n");
    let said = tree.run(&["--apply", "--yes"]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.err.contains("of another network namespace"),
        "{}",
        said.err
    );
    tree.set("net.core.somaxconn", "4096");
    assert!(tree.snapshot() == now && tree.journal().exists());
}

#[test]
fn files_are_written_for_every_start() {
    let tree = ailing();
    let before = tree.snapshot();
    let folder = tree.join("out");
    let said = tree.run(&["--emit", folder.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let settings = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter(|l| !l.starts_with('#') && !l.is_empty());
        lines.map(str::to_owned).collect()
    };
    assert_eq!(
        settings(&read("90-toron.conf")),
        [
            "net.core.somaxconn = 4096",
            "net.ipv4.tcp_syncookies = 1",
            "net.ipv4.tcp_max_syn_backlog = 4096",
            "net.ipv4.ip_local_port_range = 52224 65535",
            "net.ipv4.tcp_tw_reuse = 1",
        ]
    );
    assert!(read("90-toron.conf").contains("\n# net.ipv4.tcp_slow_start_after_idle = 0\n"));
    assert_eq!(
        settings(&read("90-toron-undo.conf")),
        [
            "net.core.somaxconn = 128",
            "net.ipv4.tcp_syncookies = 0",
            "net.ipv4.tcp_max_syn_backlog = 1024",
            "net.ipv4.ip_local_port_range = 50902 61000",
            "net.ipv4.tcp_tw_reuse = 2",
        ]
    );
    assert_eq!(
        settings(&read("toron-limits.conf")),
        ["[Service]", "LimitNOFILE=40960", "LimitMEMLOCK=8388608"]
    );
    for name in ["90-toron.conf", "90-toron-undo.conf", "toron-limits.conf"] {
        assert!(read(name).lines().all(|line| line.len() <= 100), "{name}");
    }
    assert!(tree.snapshot() == before);
    // The values before are not overwritten by those after.
    let said = tree.run(&["--emit", folder.to_str().unwrap()]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("is there already"), "{}", said.err);
}

#[test]
fn on_several_nodes_the_drop_in_names_the_processors_of_the_card() {
    let tree = Tree::new();
    tree.put("sys/devices/system/node/online", "0-1\n");
    tree.put("sys/devices/system/node/node0/cpulist", "0-15\n");
    let folder = tree.join("out");
    assert_eq!(
        tree.run(&["--emit", folder.to_str().unwrap()]).code,
        Some(0)
    );
    let text = std::fs::read_to_string(folder.join("toron-limits.conf")).unwrap();
    assert!(text.contains("\nCPUAffinity=0-15\n"), "{text}");
}
