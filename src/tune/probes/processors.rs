//! Processors, memory, and what the control group leaves of them.

use super::Context;
use crate::control::config::values::show_size;
use crate::control::machine::{Known, Machine};
use crate::control::needs::{grouped, show_clients};
use crate::tune::row::{Means, Row, Verdict};

const CPU: &str = "/sys/devices/system/cpu";

pub(super) fn rows(cx: &Context<'_>) -> Vec<Row> {
    let machine = cx.machine;
    let mut rows = vec![cores(cx), governor(machine), idle_states(machine)];
    rows.extend(numa(machine));
    rows.push(huge_pages(machine));
    rows.push(group_memory(cx));
    for name in ["limit nproc", "cgroup pids.max"] {
        rows.extend(cx.need(name, Means::Unit).map(|row| {
            row.risk("None for a service: the limit guards against programs that run away.")
        }));
    }
    rows
}

fn cores(cx: &Context<'_>) -> Row {
    let machine = cx.machine;
    let present = machine
        .status("Cpus_allowed_list")
        .map(|list| match machine.processor_quota() {
            Ok(Some(quota)) => format!("{list}, quota worth {quota}"),
            _ => list,
        });
    let active = machine
        .cores()
        .map_or(1, |cores| cx.demand.active_reactors(cores));
    let quota = match machine.processor_quota() {
        Ok(None) => "No quota.".to_owned(),
        Ok(Some(_)) => {
            "A quota stops all threads for the rest of a tenth of a second once it is used up: \
             requests then wait that long."
                .to_owned()
        }
        Err(why) => format!("Quota unknown ({why})."),
    };
    let online = machine.value(&format!("{CPU}/online"));
    let online = online.unwrap_or_else(|why| format!("unknown ({why})"));
    let why = format!(
        "Processors that toron may run on: {} of its {} reactors work at first, one for each; the \
         others sleep until there are more connections.",
        grouped(active),
        grouped(cx.demand.reactors)
    );
    Row::fact("processors allowed", present, why).evidence(format!("Online: {online}. {quota}"))
}

/// One value of all processors: `performance`, or `performance, powersave`.
fn of_all_processors(machine: &Machine, file: &str) -> Known<String> {
    let names = machine.names_in(CPU)?;
    let is_processor = |name: &&String| {
        let digits = name.strip_prefix("cpu").unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    };
    let mut values = Vec::new();
    let mut why = format!("{CPU}: no processor is listed");
    for name in names.iter().filter(is_processor) {
        match machine.value(&format!("{CPU}/{name}/{file}")) {
            Ok(value) => values.push(value),
            Err(error) => why = error,
        }
    }
    values.sort();
    values.dedup();
    match values.is_empty() {
        true => Err(why),
        false => Ok(values.join(", ")),
    }
}

fn governor(machine: &Machine) -> Row {
    let present = of_all_processors(machine, "cpufreq/scaling_governor");
    let driver = of_all_processors(machine, "cpufreq/scaling_driver");
    // These choose the frequency themselves, well, whatever the governor's name suggests.
    let chooses = driver
        .as_deref()
        .is_ok_and(|driver| driver.contains("pstate") && !driver.contains("passive"));
    let slow = present
        .as_deref()
        .is_ok_and(|name| name.contains("powersave") || name.contains("ondemand"));
    Row::good(
        "cpufreq scaling_governor",
        present,
        "Which frequency the processors run at. A governor that waits for load keeps them slow \
         during the first milliseconds of a burst. (A virtual machine mostly has none: the host \
         decides.)",
    )
    .evidence(match driver {
        Ok(driver) => format!("Driver {driver}."),
        Err(_) => String::new(),
    })
    .propose(slow && !chooses, Verdict::Consider, "performance")
    .risk("More power. By hand: cpupower frequency-set -g performance.")
}

/// The deepest idle state and the time it takes to wake from.
fn idle_states(machine: &Machine) -> Row {
    const WHY: &str = "How deeply an idle processor sleeps, and the microseconds that it takes to \
                       wake: they are added to the first request after a pause.";
    let folder = format!("{CPU}/cpu0/cpuidle");
    let states = machine.names_in(&folder).and_then(|names| {
        let state = |name: &String| {
            let read = |file: &str| machine.value(&format!("{folder}/{name}/{file}"));
            let latency: u64 = read("latency").ok()?.parse().ok()?;
            Some((read("name").ok()?, latency))
        };
        let states: Vec<(String, u64)> = names.iter().filter_map(state).collect();
        match states.is_empty() {
            true => Err(format!("{folder}: no states are listed")),
            false => Ok(states),
        }
    });
    let deepest = states.as_ref().map_or(0, |states| {
        states.iter().map(|(_, l)| *l).max().unwrap_or(0)
    });
    let present = states.map(|states| {
        let shown = states.iter().map(|(name, us)| format!("{name} {us} us"));
        shown.collect::<Vec<_>>().join(", ")
    });
    Row::good("cpuidle states", present, WHY)
        .propose(deepest > 100, Verdict::Consider, "at most 100 us")
        .risk("More power and heat. By hand: cpupower idle-set -D 100.")
}

fn numa(machine: &Machine) -> Vec<Row> {
    let nodes = machine.value("/sys/devices/system/node/online");
    let several = nodes.as_deref().is_ok_and(|nodes| nodes != "0");
    let why = if several {
        "Memory and network cards belong to one node each; a thread on another node reaches them \
         more slowly. A process that fits on the node of its network card is best kept there \
         (CPUAffinity in the drop-in)."
    } else {
        "One node: all memory and cards are equally near to all processors."
    };
    let balancing = machine.number("kernel.numa_balancing");
    let on = balancing.is_ok_and(|n| n > 0);
    vec![
        Row::fact("numa nodes", nodes, why),
        Row::sysctl(
            machine,
            "kernel.numa_balancing",
            "Moves memory after the threads that use it, by interrupting them now and then. With \
             one node there is nothing to move.",
        )
        .propose(on && several, Verdict::Consider, "0")
        .risk("Programs that rely on it may run more slowly."),
    ]
}

/// `always [madvise] never`: the one in brackets.
fn huge_pages(machine: &Machine) -> Row {
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let chosen = machine.value(PATH).and_then(|text| {
        let chosen = text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        chosen
            .map(|(chosen, _)| chosen.to_owned())
            .ok_or_else(|| format!("{PATH}: none of \"{text}\" is chosen"))
    });
    let always = chosen.as_deref() == Ok("always");
    Row::good(
        "transparent_hugepage",
        chosen,
        "Memory in pieces of 2 MiB instead of 4 KiB. toron's buffers are 76 KiB each; with always, \
         pieces that are used only in part stay in memory.",
    )
    .propose(always, Verdict::Consider, "madvise")
    .risk("Programs that rely on it may run more slowly. By hand: echo madvise > \
           /sys/kernel/mm/transparent_hugepage/enabled.")
}

fn group_memory(cx: &Context<'_>) -> Row {
    let machine = cx.machine;
    let cores = machine.cores().unwrap_or(1);
    let wanted = cx.demand.transfer_bytes(cores);
    let limit = machine.group_limit("memory", "memory.max", "memory.limit_in_bytes");
    let machine_s = machine.memory();
    let holds = match (&limit, &machine_s) {
        (Ok(Some(limit)), Ok(memory)) => (*limit).min(*memory),
        (Ok(Some(limit)), Err(_)) => *limit,
        (_, Ok(memory)) => *memory,
        (_, Err(_)) => u64::MAX,
    };
    let mib = |bytes: u64| format!("{} MiB", grouped(bytes >> 20));
    let why = format!(
        "When {} transfer bodies at once and all are slow, toron's buffers and pipes and the \
         bodies it collects (server.buffer_memory) hold up to {}. Past the limit of a control \
         group its processes are killed.",
        show_clients(cx.demand),
        mib(wanted)
    );
    let present = limit.map(|limit| limit.map_or("unlimited".to_owned(), show_size));
    let memory = machine_s.map_or_else(|why| format!("unknown ({why})"), mib);
    Row::good("cgroup memory.max", present, why)
        .evidence(format!("Memory of the machine: {memory}."))
        .propose(
            holds < wanted,
            Verdict::Better,
            format!(
                "{} or more, or fewer connections",
                mib(wanted.saturating_mul(2))
            ),
        )
        .risk("Set in the unit (MemoryMax=) or by the container engine.")
}
