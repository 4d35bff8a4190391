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

/// What ethtool(8) prints; `None` where the card has no such thing.
fn ethtool(option: &str, card: &str) -> Option<String> {
    let output = program("ethtool").args([option, card]).output();
    let output = output.expect("ethtool (make tools)");
    let good = output.status.success();
    good.then(|| String::from_utf8(output.stdout).unwrap())
}

/// `256 of 1024`, as ethtool(8) shows a size now and at most.
fn of_most(text: &str, key: &str) -> Option<String> {
    let now = below(text, "Current hardware settings:", key)?;
    let most = below(text, "Pre-set maximums:", key)?;
    Some(format!("{now} of {most}"))
}

#[test]
fn network_cards_are_as_ethtool_shows_them() {
    let audit = Audit::parse(&toron(&["--json"]));
    let folder = std::path::Path::new("/sys/class/net");
    let names = std::fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for card in names.filter(|name| folder.join(name).join("device").exists()) {
        let has = |what: &str, wanted: &str| {
            let row = audit.get(&format!("{card} {what}"));
            let present = row["present"].as_str().expect("a value");
            assert!(
                present.contains(wanted),
                "{card}: {wanted} not in {present}"
            );
        };
        let rings = ethtool("-g", &card).unwrap_or_default();
        for (key, word) in [("RX", "receive"), ("TX", "send")] {
            if let Some(sizes) = of_most(&rings, key) {
                has("rings", &format!("{sizes} {word}"));
            }
        }
        let channels = ethtool("-l", &card).unwrap_or_default();
        if let Some(sizes) = of_most(&channels, "Combined") {
            has("channels", &format!("{sizes} combined"));
        }
        for name in ["napi_defer_hard_irqs", "gro_flush_timeout", "threaded"] {
            let value = std::fs::read_to_string(folder.join(&card).join(name)).unwrap();
            has("napi", &format!("{name} {}", value.trim()));
        }
        let text = ethtool("-k", &card).expect("ethtool -k");
        for (short, long) in [
            ("tso", "tx-tcp-segmentation"),
            ("gso", "generic-segmentation-offload"),
            ("gro", "generic-receive-offload"),
            ("sg", "tx-scatter-gather"),
        ] {
            let mut lines = text.lines().map(str::trim);
            let line = lines.find_map(|line| line.strip_prefix(long)?.strip_prefix(": "));
            let state = line.unwrap().split_whitespace().next().unwrap();
            has("offloads", &format!("{short} {state}"));
        }
    }
}

/// Queues with their masks, interrupts, and what /sys says of processors and memory.
#[test]
fn what_stands_in_sys_is_as_cat_shows_it() {
    let audit = Audit::parse(&toron(&["--json"]));
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let shown = |name: &str| audit.get(name)["present"].as_str().unwrap_or("unknown");
    for row in audit.settings() {
        let name = row["name"].as_str().unwrap();
        let Some(card) = name.strip_suffix(" rps_cpus") else {
            continue;
        };
        let queues = format!("/sys/class/net/{card}/queues");
        let count = |kind: &str| {
            let names = std::fs::read_dir(&queues).unwrap();
            let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.starts_with(kind)).count()
        };
        let wanted = format!("{} receive, {} send", count("rx-"), count("tx-"));
        assert_eq!(shown(&format!("{card} queues")), wanted);
        let first = read(&format!("{queues}/rx-0/rps_cpus")).unwrap();
        assert!(shown(name).starts_with(first.trim()), "{row}");
        let interrupts = shown(&format!("{card} interrupts"));
        for pair in interrupts.split("; ").filter(|pair| *pair != "unknown") {
            let (number, list) = pair.split_once(": ").unwrap();
            let wanted = read(&format!("/proc/irq/{number}/smp_affinity_list")).unwrap();
            assert_eq!(list, wanted.trim(), "{pair}");
        }
    }
    for (name, path) in [
        ("numa nodes", "/sys/devices/system/node/online"),
        (
            "cpufreq scaling_governor",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        ),
    ] {
        let wanted = read(path).unwrap_or("unknown".to_owned());
        assert!(
            shown(name).contains(wanted.trim()),
            "{name}: {}",
            shown(name)
        );
    }
    let pages = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = format!("[{}]", shown("transparent_hugepage"));
    assert!(pages.is_none_or(|text| text.contains(&chosen)), "{chosen}");
    let state = read("/sys/devices/system/cpu/cpu0/cpuidle/state0/name");
    assert!(state.is_none_or(|name| shown("cpuidle states").contains(name.trim())));
}

/// Every root that tc(8) shows: `qdisc KIND … dev NAME root …`.
#[test]
fn queueing_is_as_tc_shows_it() {
    let audit = Audit::parse(&toron(&["--json"]));
    let shown = audit.get("qdisc")["present"].as_str().unwrap();
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
