//! Real kernel settings, changed and restored inside a network namespace of the test's own; what
//! `toron serve` says there; and the audit as an unprivileged user in namespaces, as in a container.

use std::collections::BTreeMap;
use std::process::Command;

use crate::machine::{output, same_as_sysctl};
use crate::support::process::{OnDrop, Process};
use crate::support::setup::{Engine, Route, Settings};
use crate::support::toron::listening_on;
use crate::support::{TempDir, PATIENCE};
use crate::tree::{said, Audit};

const TORON: &str = env!("CARGO_BIN_EXE_toron");

/// `unshare` into a new network namespace; an ordinary user needs a user namespace around it.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    if !rustix::process::geteuid().is_root() {
        command.arg("-r");
    }
    command.arg("-n");
    command
}

/// Runs a shell script in a new network namespace. `$TORON` is the program.
fn in_namespace(script: &str, dir: &TempDir) -> String {
    let mut command = unshare();
    command.args(["bash", "-euc", script]);
    command.env("TORON", TORON).current_dir(dir.path());
    let said = said(&mut command);
    assert_eq!(said.code, Some(0), "{said:?}");
    said.out
}

/// The parts of an output that a line `== name` begins.
fn parts(out: &str) -> BTreeMap<&str, &str> {
    out.split("== ")
        .skip(1)
        .map(|part| part.split_once('\n').unwrap())
        .collect()
}

/// `name = value` lines of sysctl(8).
fn settings(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.split_once(" = ").or(line.split_once(" =")))
        .collect()
}

/// Settings that change by themselves are left out.
const ALL: &str = "sysctl -a 2>/dev/null | grep '^net\\.' | grep -v conntrack_count";

#[test]
fn apply_is_read_back_and_undo_restores_every_setting() {
    let dir = TempDir::new("tune-namespace");
    let script = format!(
        "
        sysctl -qw net.core.somaxconn=128 net.ipv4.tcp_syncookies=0 net.ipv4.tcp_tw_reuse=0 \
            net.ipv4.tcp_moderate_rcvbuf=0 net.ipv4.tcp_max_syn_backlog=64 \
            net.ipv4.ip_local_port_range='50902 61000' net.ipv4.tcp_wmem='4096 16384 65536' \
            net.ipv4.tcp_slow_start_after_idle=1
        echo '== before'; {ALL}
        only=
        for name in net.core.somaxconn net.ipv4.tcp_syncookies net.ipv4.tcp_tw_reuse \
            net.ipv4.tcp_moderate_rcvbuf net.ipv4.tcp_max_syn_backlog \
            net.ipv4.ip_local_port_range net.ipv4.tcp_wmem net.ipv4.tcp_slow_start_after_idle; do
            only=\"$only --only $name\"
        done
        echo '== apply'; $TORON tune -c config.yaml --apply --yes --journal journal $only
        echo '== after'; {ALL}
        echo '== undo'; $TORON tune --undo --yes --journal journal
        echo '== restored'; {ALL}
        test ! -e journal
        "
    );
    let config = "routes:\n  - target: http://192.0.2.7:9000\n";
    std::fs::write(dir.join("config.yaml"), config).unwrap();
    let out = in_namespace(&script, &dir);
    let parts = parts(&out);
    let [before, after, restored] =
        ["before", "after", "restored"].map(|part| settings(parts[part]));
    assert!(before.len() > 100, "only {} settings", before.len());
    let wanted = [
        ("net.core.somaxconn", "4096"),
        ("net.ipv4.ip_local_port_range", "52224\t65535"),
        ("net.ipv4.tcp_max_syn_backlog", "4096"),
        ("net.ipv4.tcp_moderate_rcvbuf", "1"),
        ("net.ipv4.tcp_slow_start_after_idle", "0"),
        ("net.ipv4.tcp_syncookies", "1"),
        ("net.ipv4.tcp_tw_reuse", "1"),
        ("net.ipv4.tcp_wmem", "4096\t16384\t4194304"),
    ];
    let changed: Vec<_> = after
        .iter()
        .filter(|(name, value)| before[*name] != **value)
        .map(|(name, value)| (*name, *value))
        .collect();
    assert_eq!(changed, wanted);
    for (name, _) in wanted {
        assert!(
            parts["apply"].contains(&format!("{name}: ")),
            "{}",
            parts["apply"]
        );
        assert!(
            parts["undo"].contains(&format!("{name}: ")),
            "{}",
            parts["undo"]
        );
    }
    assert_eq!(before, restored);
}

/// sysctl(8) takes the files of --emit, and that of the values before brings those back.
#[test]
fn emitted_files_are_understood_by_sysctl() {
    let dir = TempDir::new("tune-emit");
    let config = "routes:\n  - target: http://192.0.2.7:9000\n";
    std::fs::write(dir.join("config.yaml"), config).unwrap();
    let script = format!(
        "
        sysctl -qw net.core.somaxconn=128 net.ipv4.ip_local_port_range='50902 61000'
        echo '== before'; {ALL}
        $TORON tune -c config.yaml --emit out --only net.core.somaxconn \
            --only net.ipv4.ip_local_port_range
        sysctl -qp out/90-toron.conf
        echo '== after'; sysctl net.core.somaxconn net.ipv4.ip_local_port_range
        sysctl -qp out/90-toron-undo.conf
        echo '== restored'; {ALL}
        "
    );
    let out = in_namespace(&script, &dir);
    let parts = parts(&out);
    assert_eq!(
        parts["after"],
        "net.core.somaxconn = 4096\nnet.ipv4.ip_local_port_range = 52224\t65535\n"
    );
    assert_eq!(settings(parts["before"]), settings(parts["restored"]));
}

/// The settings are the namespace's own, and those that it hides are unknown.
#[test]
fn the_audit_in_a_namespace_is_that_of_sysctl_there() {
    let dir = TempDir::new("tune-audit");
    let script = "
        sysctl -qw net.core.somaxconn=77
        echo '== audit'; $TORON tune --json
        echo '== all'; sysctl -a 2>/dev/null
        ";
    let out = in_namespace(script, &dir);
    let parts = parts(&out);
    let audit = Audit::parse(parts["audit"]);
    let all = settings(parts["all"]);
    assert_eq!(audit.get("net.core.somaxconn")["present"], "77");
    let compared = same_as_sysctl(&audit, |name| all[name].to_owned());
    assert!(compared >= 20, "only {compared} settings were compared");
    for row in audit
        .settings()
        .iter()
        .filter(|row| row["means"] == "sysctl")
    {
        let name = row["name"].as_str().unwrap();
        assert_eq!(row["present"].is_null(), !all.contains_key(name), "{row}");
    }
    // One interface, whatever /sys shows.
    assert!(audit
        .settings()
        .iter()
        .all(|row| !row["name"].as_str().unwrap().ends_with(" rings")));
}

/// As in a container without privileges: a user, process, mount and network namespace of its own,
/// the root of which is nobody outside, and kernel settings that may be read but not written.
#[test]
fn an_unprivileged_container_is_audited_and_nothing_can_be_changed() {
    let dir = TempDir::new("tune-container");
    let toron = dir.join("toron");
    std::fs::copy(TORON, &toron).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-Urnmpf", "--mount-proc", "bash", "-uc"]);
    command.arg(
        "
        mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys || exit 9
        sysctl() { PATH=$PATH:/usr/sbin:/sbin command sysctl \"$@\"; }
        echo '== audit'; ./toron tune --json || exit 8
        echo '== all'; sysctl -a 2>/dev/null
        echo '== apply'; ./toron tune --apply --yes --journal journal; echo status $?
        echo '== again'; sysctl -a 2>/dev/null
        ",
    );
    command.current_dir(dir.path());
    let said = said(&mut command);
    assert_eq!(said.code, Some(0), "{said:?}");
    let parts = parts(&said.out);
    let audit = Audit::parse(parts["audit"]);
    let all = settings(parts["all"]);
    let compared = same_as_sysctl(&audit, |name| all[name].to_owned());
    assert!(compared >= 20, "only {compared} settings were compared");
    let user = audit.get("user namespace")["present"].as_str().unwrap();
    assert!(user.starts_with("own"), "{user}");
    // The quota of pipes holds for the root of a container.
    let quota: u64 = all["fs.pipe-user-pages-soft"].parse().unwrap();
    let missing = audit.verdict("fs.pipe-user-pages-soft") == "missing";
    assert_eq!(missing, (1..166_000).contains(&quota));
    if missing {
        assert!(parts["apply"].contains("fs.pipe-user-pages-soft: refused by the kernel: "));
        assert!(parts["apply"].ends_with("status 1\n"), "{}", parts["apply"]);
    }
    assert_eq!(
        all["fs.pipe-user-pages-soft"],
        settings(parts["again"])["fs.pipe-user-pages-soft"]
    );
}

/// toron serve says at start what would bound its limits.
fn start_up_lines(engine: Engine) {
    let dir = TempDir::new("tune-serve");
    let mut settings = Settings::new(engine, vec![Route::new("/", "127.0.0.1:9")]);
    settings.firewall = vec![("max_connections_total", "3000".to_owned())];
    std::fs::write(dir.join("config.yaml"), settings.config_yaml()).unwrap();
    std::fs::write(dir.join("routes.yaml"), settings.routes_yaml()).unwrap();
    let mut command = unshare();
    command.args([
        "bash",
        "-euc",
        "ip link set lo up; sysctl -qw net.core.somaxconn=128 \
         net.ipv4.ip_local_port_range='60000 61001'; ulimit -n 5000; exec $TORON serve",
    ]);
    command
        .env("TORON", TORON)
        .env("RUST_LOG", "info")
        .current_dir(dir.path());
    let process = Process::spawn(command, "toron", OnDrop::Kill);
    process.wait_line(PATIENCE, listening_on);
    let lines = process.log_lines();
    for wanted in [
        "net.core.somaxconn is 128 and should be 4096: the kernel cuts the queue",
        "net.ipv4.ip_local_port_range is 60000 61001 and should be 61440 65535: each connection",
        // 32 + reactors + 1 + 3,000 × 2 + 100.
        "limit nofile is 5000 and should be ",
    ] {
        let found: Vec<_> = lines.iter().filter(|line| line.contains(wanted)).collect();
        assert_eq!(found.len(), 1, "{wanted}: {lines:#?}");
        assert!(found[0].contains("WARN") && found[0].ends_with(" (see toron tune)"));
    }
}

#[test]
fn missing_must_haves_are_logged_at_start_on_epoll() {
    start_up_lines(Engine::Epoll);
}

#[test]
fn missing_must_haves_are_logged_at_start_on_io_uring() {
    start_up_lines(Engine::IoUring);
}

/// Values of the whole machine are not this test's to change: only what is proposed is looked at,
/// and an ordinary user is turned away before anything is written.
#[test]
fn an_ordinary_user_is_turned_away() {
    if !rustix::process::geteuid().is_root() {
        let said = said(Command::new(TORON).args(["tune", "--apply", "--yes"]));
        assert_eq!(said.code, Some(1));
        assert!(
            said.err.contains("only root may change kernel settings"),
            "{said:?}"
        );
        return;
    }
    let dir = TempDir::new("tune-user");
    // Where nobody may walk to the target folder, the program is still to be reached.
    let toron = std::env::temp_dir().join(format!("toron-tune-{}", std::process::id()));
    std::fs::copy(TORON, &toron).unwrap();
    let journal = dir.join("journal");
    let program = toron.to_str().unwrap();
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        program,
        "tune",
    ]);
    command
        .args(["--apply", "--yes", "--journal"])
        .arg(&journal)
        .current_dir("/");
    let said = said(&mut command);
    std::fs::remove_file(&toron).unwrap();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.err.contains("only root may change kernel settings"),
        "{said:?}"
    );
    assert!(!journal.exists());
    assert!(!output("sysctl", &["-n", "kernel.osrelease"]).is_empty());
}
