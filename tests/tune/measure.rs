//! `--measure` on a tree: settings that are changed to and fro under a real load, which feels nothing
//! of a file in a folder unless the command that starts toron anew reads it.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::changes::ailing;
use crate::support::process::{OnDrop, Process};
use crate::support::setup::{Engine, Settings};
use crate::support::toron::Toron;
use crate::support::PATIENCE;
use crate::tree::{Audit, Tree};

const SOMAXCONN: &str = "net.core.somaxconn";
const COOKIES: &str = "net.ipv4.tcp_syncookies";

/// A toron that answers everything itself.
fn answering(engine: Engine) -> Toron {
    let mut settings = Settings::new(engine, Vec::new());
    settings.further_routes = "  - {prefix: /, status: 200, body: ok}\n".to_owned();
    Toron::start(&settings)
}

fn url(toron: &Toron) -> String {
    format!("http://{}/", toron.addr)
}

/// A short load.
const LOAD: [&str; 8] = [
    "--rate",
    "200",
    "--connections",
    "4",
    "--seconds",
    "0.05",
    "--engine",
    "epoll",
];

fn judgement<'a>(audit: &'a Audit, name: &str) -> &'a Value {
    &audit.get(name)["measured"]["judgement"]
}

#[test]
fn what_is_tried_is_put_back_and_what_cannot_be_says_why() {
    let toron = answering(Engine::Epoll);
    let tree = ailing();
    let before = tree.snapshot();
    let url = url(&toron);
    let mut arguments = vec!["--measure", &url, "--yes", "--rounds", "2"];
    arguments.extend(LOAD);
    let said = tree.run(&arguments);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(tree.snapshot() == before && !tree.journal().exists());
    for wanted in [
        "5 of these can be measured: 2 rounds each",
        "net.ipv4.tcp_syncookies: 0 → 1\n",
        "measured  not measured: takes effect only when toron starts: give the command",
        "measured  too few rounds (2 rounds)\n",
        "answered     100.00% → 100.00%",
        "15 comparisons need 10 rounds.",
        "All values are as they were.\n",
    ] {
        assert!(said.out.contains(wanted), "{wanted} not in {}", said.out);
    }
    for line in said.out.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let mut arguments = vec!["--measure", &url, "--yes", "--json", "--only", COOKIES];
    arguments.extend(["--only", SOMAXCONN, "--apply", "--rounds", "7"]);
    arguments.extend(LOAD);
    let said = tree.run(&arguments);
    assert_eq!(said.code, Some(0), "{said:?}");
    let audit = Audit::parse(&said.out);
    assert_eq!(judgement(&audit, SOMAXCONN), "not_measured");
    let measured = &audit.get(COOKIES)["measured"];
    // A file in a folder has no effect on the kernel: whatever came out, it is no answer more.
    assert_eq!(measured["rounds"], 7, "{measured}");
    let figures = measured["figures"].as_array().unwrap();
    let names: Vec<_> = figures.iter().map(|f| f["figure"].as_str()).collect();
    assert_eq!(names, ["answered", "throughput", "p99"].map(Some));
    assert_eq!(figures[0]["says"], "no_difference", "{measured}");
    assert_eq!(measured["counted"]["new"]["bad"], 0);
    assert!(measured["counted"]["old"]["due"].as_u64() >= Some(7 * 9));
    assert!(audit.get("net.ipv4.tcp_tw_reuse")["measured"].is_null());
    if measured["kept"] == false {
        assert!(tree.snapshot() == before && !tree.journal().exists());
    }
}

/// A toron that `--restart` starts, and ends with this.
struct Restarted<'t> {
    tree: &'t Tree,
    addr: SocketAddr,
}

impl<'t> Restarted<'t> {
    /// At an address of its own, so that the port is free whenever it starts. With the first value
    /// of the setting it refuses everything, with another one nothing.
    fn new(tree: &'t Tree, engine: Engine) -> Self {
        let [a, b, c, _] = std::process::id().to_be_bytes();
        let last = std::process::id().to_be_bytes()[3];
        let host = format!("127.{}.{c}.{last}", 64 + (a ^ b) % 64);
        let port = match engine {
            Engine::Epoll => 8081,
            Engine::IoUring => 8082,
        };
        let script = format!(
            "set -eu
            cd {dir}
            if test -e pid; then
                old=$(cat pid)
                kill -TERM $old
                while grep -qs '^State:.[^Z]' /proc/$old/status; do sleep 0.01; done
            fi
            status=200
            test \"$(cat root/proc/sys/net/core/somaxconn)\" != 128 || status=503
            printf 'server: {{listen: [\"{host}:{port}\"], engine: {engine}}}\\n' > t.yaml
            printf 'firewall: {{enabled: false}}\\n' >> t.yaml
            printf \"routes: [{{prefix: /, status: $status, body: x}}]\\n\" >> t.yaml
            {toron} serve -c t.yaml >>log 2>&1 </dev/null &
            echo $! > pid
            echo $status >> starts
            ",
            dir = tree.join("").display(),
            engine = engine.name(),
            toron = env!("CARGO_BIN_EXE_toron"),
        );
        std::fs::write(tree.join("restart.sh"), script).unwrap();
        Restarted {
            tree,
            addr: format!("{host}:{port}").parse().unwrap(),
        }
    }

    fn command(&self) -> String {
        format!("sh '{}'", self.tree.join("restart.sh").display())
    }

    fn measure(&self, more: &[&str]) -> crate::tree::Said {
        let (url, command) = (format!("http://{}/", self.addr), self.command());
        let pid = self.tree.join("pid").display().to_string();
        let mut arguments = vec!["--measure", &url, "--yes", "--only", SOMAXCONN];
        arguments.extend(["--restart", &command, "--pid-file", &pid]);
        arguments.extend(LOAD);
        arguments.extend(more);
        self.tree.run(&arguments)
    }

    /// The statuses that it was started with so far.
    fn starts(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.tree.join("starts")).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Restarted<'_> {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(self.tree.join("pid")) {
            let _ = Command::new("kill").args(["-KILL", pid.trim()]).status();
        }
    }
}

/// With the old value nothing is answered, with the new one everything: that is found, and kept if
/// asked for; toron runs with the value that stands in the end.
fn what_helps_is_found(engine: Engine) {
    let tree = ailing();
    let before = tree.snapshot();
    let toron = Restarted::new(&tree, engine);
    assert!(Command::new("sh")
        .arg(tree.join("restart.sh"))
        .status()
        .unwrap()
        .success());
    let said = toron.measure(&["--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let audit = Audit::parse(&said.out);
    let measured = &audit.get(SOMAXCONN)["measured"];
    assert_eq!(measured["judgement"], "helps", "{measured}");
    assert_eq!(
        (&measured["rounds"], &measured["kept"]),
        (&10.into(), &false.into())
    );
    let figures = measured["figures"].as_array().unwrap();
    assert_eq!(
        (&figures[0]["old"], &figures[0]["new"]),
        (&0.0.into(), &1.0.into())
    );
    assert_eq!(figures[0]["says"], "better");
    assert_eq!(figures[3]["figure"], "cpu");
    let counted = &measured["counted"];
    assert_eq!(counted["old"]["due"], counted["old"]["bad"]);
    assert_eq!(counted["new"]["bad"], 0);
    assert!(tree.snapshot() == before && !tree.journal().exists());
    let starts = toron.starts();
    // The first one, two for each round, and one more where the last round ended with the new value.
    assert_eq!(&starts[..5], ["503", "503", "200", "200", "503"]);
    assert_eq!(starts.last().unwrap(), "503");

    let said = toron.measure(&["--apply", "--rounds", "8"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.out.contains("measured  helps, kept (8 rounds)"),
        "{}",
        said.out
    );
    assert_eq!(tree.sysctl(SOMAXCONN), "4096");
    assert_eq!(toron.starts().last().unwrap(), "200");
    let undone = tree.run(&["--undo", "--yes"]);
    assert_eq!(undone.code, Some(0), "{undone:?}");
    assert!(tree.snapshot() == before);
}

on_both_engines! {
    what_helps_is_found: what_helps_is_found_on_epoll, what_helps_is_found_on_io_uring;
}

#[test]
fn a_restart_that_fails_is_told_and_the_value_put_back() {
    let tree = ailing();
    let before = tree.snapshot();
    let toron = Restarted::new(&tree, Engine::Epoll);
    std::fs::write(tree.join("restart.sh"), "exit 3\n").unwrap();
    std::fs::write(tree.join("pid"), std::process::id().to_string()).unwrap();
    let said = toron.measure(&[]);
    std::fs::remove_file(tree.join("pid")).unwrap();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("exit status: 3"), "{said:?}");
    assert!(tree.snapshot() == before && !tree.journal().exists());
}

/// `toron tune --measure`, waited for until the setting has its new value.
fn under_way(tree: &Tree, toron: &Toron) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    command.arg("tune").arg("-c").arg(tree.join("config.yaml"));
    command.arg("--root").arg(tree.root());
    command.arg("--journal").arg(tree.journal());
    command.args(["--measure", &url(toron), "--yes", "--only", COOKIES]);
    command.args(["--rate", "50", "--connections", "2", "--seconds", "1"]);
    command.stdout(Stdio::null());
    let process = Process::spawn(command, "toron tune", OnDrop::Kill);
    let until = Instant::now() + PATIENCE;
    // Also for the moment of the first try: the journal then knows of it as well.
    while tree.sysctl(COOKIES) != "1" {
        assert!(Instant::now() < until, "it is never changed");
        std::thread::sleep(Duration::from_millis(2));
    }
    process
}

#[test]
fn a_signal_ends_it_in_order() {
    use rustix::process::Signal;
    let toron = answering(Engine::IoUring);
    for signal in [Signal::INT, Signal::TERM] {
        let tree = ailing();
        let before = tree.snapshot();
        let mut process = under_way(&tree, &toron);
        process.signal(signal);
        process.wait_line(PATIENCE, |line| line.contains("interrupted").then_some(()));
        let status = process.wait(PATIENCE).expect("it ends");
        assert_eq!(status.code(), Some(1), "{:?}", process.log_lines());
        assert!(tree.snapshot() == before && !tree.journal().exists());
    }
}

#[test]
fn killed_in_the_middle_it_is_undone() {
    let toron = answering(Engine::Epoll);
    let tree = ailing();
    let before = tree.snapshot();
    let mut process = under_way(&tree, &toron);
    process.signal(rustix::process::Signal::KILL);
    assert_eq!(process.wait(PATIENCE).expect("it ends").code(), None);
    let said = tree.run(&["--undo", "--yes"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains(COOKIES), "{}", said.out);
    assert!(tree.snapshot() == before && !tree.journal().exists());
}

#[test]
fn it_is_refused_where_it_would_tell_nothing() {
    let tree = ailing();
    let before = tree.snapshot();
    for (arguments, said) in [
        (
            &["--measure", "http://192.0.2.1/"][..],
            "is no address of this machine",
        ),
        (&["--measure", "http://127.0.0.1:9/"], "cannot connect to"),
        (
            &["--measure", "http://127.0.0.1:9/", "--only", "limit nofile"],
            "limit nofile",
        ),
        (
            &[
                "--measure",
                "http://127.0.0.1:9/",
                "--pid-file",
                "/nonexistent",
            ],
            "--pid-file /nonexistent",
        ),
        (
            &["--measure", "http://127.0.0.1:9/", "--pid", "4194304"],
            "process",
        ),
    ] {
        let got = tree.run(&[arguments, &["--yes"][..]].concat());
        assert_eq!(got.code, Some(1), "{arguments:?}: {got:?}");
        assert!(got.err.contains(said), "{arguments:?}: {got:?}");
        assert!(tree.snapshot() == before && !tree.journal().exists());
    }
    // Asked, and not answered.
    let got = tree.run(&["--measure", "http://127.0.0.1:9/"]);
    assert_eq!(got.code, Some(1));
    assert!(got.out.ends_with("nothing was changed\n"), "{}", got.out);
}
