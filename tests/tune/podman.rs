//! The audit inside a container of a real Podman without privileges: value by value what /proc and
//! the control group say there, with what cannot be read said to be so.

use std::collections::BTreeMap;

use crate::engine::Podman;
use crate::tree::Audit;

const IMAGE: &str = "replica:latest";

/// What marks a value that cannot be read.
const UNREADABLE: &str = "cannot be read";

/// Kinds of containers: as `podman run` makes them, and with nothing left to the process.
const KINDS: [&[&str]; 2] = [
    &[],
    &[
        "--cap-drop=all",
        "--user=65534:65534",
        "--security-opt=no-new-privileges",
        "--read-only",
    ],
];

/// Runs a script of /bin/sh in a container, which has `cat` besides.
fn run(podman: &Podman, options: &[&str], script: &str) -> String {
    // Detached: in namespaces of its own, Podman takes 20 s to see that a container has ended.
    let mut arguments = vec!["run", "-d", "--log-driver", "k8s-file", "--network", "none"];
    arguments.extend(["--pids-limit", "77", "--memory", "300m", "--cpus", "1"]);
    arguments.extend(options);
    arguments.extend([IMAGE, "/bin/sh", "-c", script]);
    let started = podman.run(&arguments);
    let id = started.trim();
    crate::rig::await_that("the end of the script", || {
        let said = podman.run(&["logs", id]);
        match said.strip_suffix("=== end\n") {
            Some(whole) => Ok(whole.to_owned()),
            None => Err(said),
        }
    })
}

/// A script that shows files, each behind a line `== path`.
fn shown(paths: &[String]) -> String {
    let show = |path: &String| {
        format!("echo '== {path}'; cat '{path}' 2>/dev/null || echo '{UNREADABLE}'\n")
    };
    paths.iter().map(show).collect()
}

fn parts(out: &str) -> BTreeMap<&str, &str> {
    out.split("== ")
        .skip(1)
        .filter_map(|part| part.split_once('\n'))
        .collect()
}

/// The kernel settings of the audit by name, with the file of each.
fn settings(audit: &Audit) -> BTreeMap<String, String> {
    let rows = audit.settings().iter();
    rows.filter(|row| row["means"] == "sysctl" || row["name"] == "kernel.osrelease")
        .map(|row| {
            let name = row["name"].as_str().unwrap().to_owned();
            let path = format!("/proc/sys/{}", name.replace('.', "/"));
            (name, path)
        })
        .collect()
}

/// The second number of a line of /proc/self/limits is the hard limit.
fn limit(limits: &str, name: &str, column: usize) -> String {
    let line = limits.lines().find_map(|line| line.strip_prefix(name));
    let word = line.unwrap().split_whitespace().nth(column);
    word.unwrap().to_owned()
}

fn status<'t>(text: &'t str, key: &str) -> &'t str {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.unwrap().trim_start_matches(':').trim()
}

/// Files of a control group's limits: of the unified hierarchy, and of the older one.
const PIDS: [&str; 2] = ["/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"];
const MEMORY: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];

/// All that is done in a container: the audit, the files that it read, and an attempt to change them.
fn script(settings: &BTreeMap<String, String>) -> String {
    let mut paths: Vec<String> = settings.values().cloned().collect();
    let more = ["/proc/self/limits", "/proc/self/status"];
    let more = more.iter().chain(&PIDS).chain(&MEMORY);
    let files = shown(&more.map(|path| (*path).to_owned()).collect::<Vec<_>>());
    paths.sort();
    let settings = shown(&paths);
    format!(
        "echo '=== audit'; /toron tune --json; echo \"status $?\"
        echo '=== table'; /toron tune; echo \"status $?\"
        echo '=== check'; /toron tune --check >/dev/null; echo \"status $?\"
        echo '=== files'; {files}
        echo '=== before'; {settings}
        echo '=== apply'; /toron tune --apply --yes --journal /tmp/journal 2>&1
        echo \"status $?\"
        echo '=== after'; {settings}
        echo '=== end'"
    )
}

fn audited(podman: &Podman, options: &[&str], settings: &BTreeMap<String, String>) {
    let out = run(podman, options, &script(settings));
    let sections: BTreeMap<&str, &str> = out
        .split("=== ")
        .filter_map(|section| section.split_once('\n'))
        .collect();
    let audit = sections["audit"].strip_suffix("status 0\n").unwrap();
    let audit = Audit::parse(audit);
    same_settings(&audit, settings, &parts(sections["before"]));
    same_limits(&audit, &parts(sections["files"]));
    for line in sections["table"].lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(sections["table"].ends_with("status 0\n"));
    let missing = !audit.with(&["missing"]).is_empty();
    let status = format!("status {}\n", u8::from(missing));
    assert_eq!(sections["check"], status);
    // What is applied is refused without a trace.
    assert_eq!(sections["before"], sections["after"]);
    let applied = sections["apply"];
    let reasons = ["only root may", "refused by the kernel", "left alone"];
    assert!(reasons.iter().any(|why| applied.contains(why)), "{applied}");
    assert!(applied.ends_with("status 1\n"), "{applied}");
}

fn same_settings(audit: &Audit, names: &BTreeMap<String, String>, files: &BTreeMap<&str, &str>) {
    let mut read = 0;
    for (name, path) in names {
        let row = audit.get(name);
        match files[&path[..]].trim_end() {
            UNREADABLE => {
                let why = row["unknown"].as_str().unwrap();
                assert!(why.starts_with(path), "{row}");
                assert_eq!(row["verdict"], "unknown", "{row}");
            }
            value => {
                assert_eq!(row["present"], value, "{name}");
                read += 1;
            }
        }
    }
    assert!(read >= 20, "only {read} settings were read");
}

fn same_limits(audit: &Audit, files: &BTreeMap<&str, &str>) {
    let shown = |name: &str| audit.get(name)["present"].as_str().unwrap_or("unknown");
    let limits = files["/proc/self/limits"];
    assert_eq!(shown("limit nofile"), limit(limits, "Max open files", 1));
    assert_eq!(shown("limit nproc"), limit(limits, "Max processes", 0));
    assert_eq!(
        shown("limit memlock"),
        limit(limits, "Max locked memory", 0)
    );
    let own = files["/proc/self/status"];
    let cores = status(own, "Cpus_allowed_list");
    assert!(shown("processors allowed").starts_with(cores), "{cores}");
    assert_eq!(status(own, "Seccomp"), "2");
    assert_eq!(shown("seccomp"), "filter");
    // With --read-only something else is mounted over /run; the name of the control group is left.
    let container = shown("container");
    let by = [
        "Podman (by /run/.containerenv)",
        "likely (libpod in the control group)",
    ];
    assert!(by.contains(&container), "{container}");
    // A control group that cannot be seen is unknown, and no limit is made up for it.
    let seen = |paths: [&str; 2]| {
        let values = paths.map(|path| files[path].trim_end());
        values.into_iter().find(|value| *value != UNREADABLE)
    };
    match seen(PIDS) {
        None => assert_eq!(audit.verdict("cgroup pids.max"), "unknown"),
        Some("77") => assert_eq!(shown("cgroup pids.max"), "77"),
        Some(other) => panic!("the container has --pids-limit 77, not {other}"),
    }
    match seen(MEMORY) {
        None => assert_eq!(audit.verdict("cgroup memory.max"), "unknown"),
        Some("314572800") => assert_eq!(shown("cgroup memory.max"), "300MiB"),
        Some(other) => panic!("the container has --memory 300m, not {other}"),
    }
}

pub fn audits() {
    let here = crate::tree::said(
        std::process::Command::new(env!("CARGO_BIN_EXE_toron")).args(["tune", "--json"]),
    );
    let settings = settings(&Audit::parse(&here.out));
    let podman = Podman::start(&[IMAGE]);
    for options in KINDS {
        audited(&podman, options, &settings);
    }
}
