//! This machine, value by value against the programs that an operator would ask.

use std::process::Command;

use crate::tree::{said, Audit};

/// A program of the system. Debian puts sysctl, ethtool and tc where only root's PATH looks.
fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// What a program prints; it has to be there and to succeed.
pub fn output(name: &str, arguments: &[&str]) -> String {
    let said = said(program(name).args(arguments));
    assert_eq!(said.code, Some(0), "{name} {arguments:?}: {said:?}");
    said.out
}

fn toron(arguments: &[&str]) -> String {
    let mut words = vec!["tune"];
    words.extend(arguments);
    output(env!("CARGO_BIN_EXE_toron"), &words)
}

/// Kernel settings that are known must be what sysctl(8) says, tabs and all.
pub fn same_as_sysctl(audit: &Audit, sysctl: impl Fn(&str) -> String) -> usize {
    let mut compared = 0;
    for row in audit.settings() {
        let name = row["name"].as_str().unwrap();
        let is_setting = row["means"] == "sysctl" || name.starts_with("kernel.");
        if let Some(present) = row["present"].as_str().filter(|_| is_setting) {
            assert_eq!(present, sysctl(name).trim_end(), "{name}");
            compared += 1;
        }
    }
    compared
}

#[test]
fn kernel_settings_are_those_of_sysctl() {
    let audit = Audit::parse(&toron(&["--json"]));
    let compared = same_as_sysctl(&audit, |name| output("sysctl", &["-n", name]));
    assert!(compared >= 25, "only {compared} settings were compared");
    // None that sysctl(8) can read is said to be unknown.
    for row in audit
        .settings()
        .iter()
        .filter(|row| row["means"] == "sysctl")
    {
        let name = row["name"].as_str().unwrap();
        if row["present"].is_null() {
            let read = program("sysctl").args(["-n", name]).output();
            assert!(!read.expect("sysctl").status.success(), "{row}");
        }
    }
}

#[test]
fn limits_are_those_of_the_shell() {
    let audit = Audit::parse(&toron(&["--json"]));
    for (name, option, unit) in [
        ("limit nofile", "-Hn", 1),
        ("limit memlock", "-Sl", 1024),
        ("limit nproc", "-Su", 1),
    ] {
        let shown = output("bash", &["-c", &format!("ulimit {option}")]);
        let wanted = match shown.trim().parse::<u64>() {
            Ok(number) => (number * unit).to_string(),
            Err(_) => shown.trim().to_owned(),
        };
        assert_eq!(audit.get(name)["present"], wanted.as_str(), "{name}");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    let present = audit.get("processors allowed")["present"].as_str().unwrap();
    assert!(present.starts_with(line.unwrap().trim()), "{present}");
    let engine = output(env!("CARGO_BIN_EXE_toron"), &["--version"]);
    let engine = engine
        .lines()
        .nth(1)
        .unwrap()
        .strip_prefix("engine ")
        .unwrap();
    assert_eq!(audit.get("engine")["present"], engine);
    let net = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert_eq!(
        audit.get("network namespace")["present"],
        net.to_str().unwrap()
    );
}

/// Counters that only grow: what is shown lies between two readings of nstat(8).
#[test]
fn counters_are_those_of_nstat() {
    let read = |name: &str| -> u64 {
        let text = output("nstat", &["-asz", name]);
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    let (overflows, drops) = ("TcpExtListenOverflows", "TcpExtListenDrops");
    let before = [read(overflows), read(drops)];
    let audit = Audit::parse(&toron(&["--json"]));
    let after = [read(overflows), read(drops)];
    let evidence = audit.get("net.core.somaxconn")["evidence"]
        .as_str()
        .unwrap();
    let numbers: Vec<u64> = evidence
        .split_whitespace()
        .filter_map(|word| word.replace(',', "").parse().ok())
        .collect();
    assert_eq!(numbers.len(), 2, "{evidence}");
    for index in 0..2 {
        assert!(
            (before[index]..=after[index]).contains(&numbers[index]),
            "{evidence}"
        );
    }
}

/// `name: value` lines of ethtool(8) below a heading.
fn below(text: &str, heading: &str, key: &str) -> Option<u64> {
    let (_, rest) = text.split_once(heading)?;
    let line = rest
        .lines()
        .find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':'));
    line?.trim().parse().ok()
}

#[test]
fn network_cards_are_as_ethtool_and_tc_show_them() {
    let audit = Audit::parse(&toron(&["--json"]));
    let names: Vec<String> = std::fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| {
            std::path::Path::new("/sys/class/net")
                .join(name)
                .join("device")
                .exists()
        })
        .collect();
    let run = |option: &str, card: &str| {
        let output = program("ethtool").args([option, card]).output();
        let output = output.expect("ethtool (make tools)");
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    };
    const MOST: &str = "Pre-set maximums:";
    const NOW: &str = "Current hardware settings:";
    for card in &names {
        let present = |what: &str| audit.get(&format!("{card} {what}"))["present"].as_str();
        if let Some(text) = run("-g", card) {
            for (key, word) in [("RX", "receive"), ("TX", "send")] {
                if let (Some(now), Some(most)) = (below(&text, NOW, key), below(&text, MOST, key)) {
                    let wanted = format!("{now} of {most} {word}");
                    assert!(
                        present("rings").unwrap().contains(&wanted),
                        "{card}: {wanted}"
                    );
                }
            }
        }
        if let Some(text) = run("-l", card) {
            if let (Some(now), Some(most)) = (
                below(&text, NOW, "Combined"),
                below(&text, MOST, "Combined"),
            ) {
                let wanted = format!("{now} of {most} combined");
                assert!(
                    present("channels").unwrap().contains(&wanted),
                    "{card}: {wanted}"
                );
            }
        }
        let text = run("-k", card).expect("ethtool -k");
        for (short, long) in [
            ("tso", "tx-tcp-segmentation"),
            ("gso", "generic-segmentation-offload"),
            ("gro", "generic-receive-offload"),
            ("sg", "tx-scatter-gather"),
        ] {
            let line = text
                .lines()
                .find_map(|l| l.trim().strip_prefix(long)?.strip_prefix(": "));
            let state = line.unwrap().split_whitespace().next().unwrap();
            let wanted = format!("{short} {state}");
            assert!(
                present("offloads").unwrap().contains(&wanted),
                "{card}: {wanted}"
            );
        }
    }
    // Every root that tc(8) shows; `dev eth0 root`.
    let shown = audit.get("qdisc")["present"].as_str().unwrap().to_owned();
    let text = output("tc", &["qdisc", "show"]);
    let mut roots = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let device = words
            .iter()
            .position(|w| *w == "dev")
            .map(|at| words[at + 1]);
        if let (Some(device), true) = (device, words.contains(&"root")) {
            let wanted = format!("{device} {}", words[1]);
            assert!(shown.contains(&wanted), "{wanted} not in {shown}");
            roots += 1;
        }
    }
    assert!(roots >= 1, "{text}");
}

#[test]
fn the_table_of_this_machine_fits() {
    let out = toron(&[]);
    for line in out.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}
