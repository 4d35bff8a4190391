//! Network interfaces: queues, who serves them, and what the card does by itself.

use super::Context;
use crate::control::machine::{Known, Machine};
use crate::tune::row::{Row, Verdict};

pub(super) fn rows(cx: &Context<'_>) -> Vec<Row> {
    let (cards, mut rows) = match interfaces(cx.machine) {
        Ok(Interfaces { cards, others }) => {
            let why = "Without a card behind them there is nothing to tune: they hand packets on \
                       in memory.";
            let others = match others.is_empty() {
                true => "none".to_owned(),
                false => others.join(", "),
            };
            (
                cards,
                vec![Row::fact("virtual interfaces", Ok(others), why)],
            )
        }
        Err(why) => {
            let row = Row::fact(
                "network interfaces",
                Err(why),
                "Their queues decide how many processors share the work of receiving.",
            );
            (Vec::new(), vec![row])
        }
    };
    for card in cards {
        rows.extend(queues(cx, &card));
        rows.push(interrupts(cx, &card));
    }
    rows
}

/// The queueing discipline that each interface has now.
pub(super) fn queueing(_cx: &Context<'_>) -> Vec<Row> {
    Vec::new()
}

struct Interfaces {
    /// With a device behind them.
    cards: Vec<String>,
    others: Vec<String>,
}

/// The interfaces of this network namespace. /sys shows those of the namespace that it was mounted
/// in, which may be another one.
fn interfaces(machine: &Machine) -> Known<Interfaces> {
    let text = machine.text("/proc/net/dev")?;
    let mut own: Vec<String> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_owned())
        .collect();
    own.sort();
    let mut shown = machine.names_in("/sys/class/net")?;
    // A file of the bonding driver.
    shown.retain(|name| name != "bonding_masters");
    if own != shown {
        return Err(format!(
            "/sys/class/net shows the interfaces of another network namespace ({}, here: {})",
            shown.join(", "),
            own.join(", ")
        ));
    }
    let has_device = |name: &String| machine.has(&format!("/sys/class/net/{name}/device"));
    let (cards, others) = own.into_iter().partition(has_device);
    Ok(Interfaces { cards, others })
}

fn queues(cx: &Context<'_>, card: &str) -> Vec<Row> {
    let machine = cx.machine;
    let folder = format!("/sys/class/net/{card}/queues");
    let names = machine.names_in(&folder);
    let with = |prefix: &str| -> Vec<String> {
        let names = names.iter().flatten();
        names.filter(|n| n.starts_with(prefix)).cloned().collect()
    };
    let (rx, tx) = (with("rx-"), with("tx-"));
    let cores = machine.cores();
    let few = cores
        .as_ref()
        .is_ok_and(|cores| names.is_ok() && (rx.len() as u64) < *cores);
    let shown = names
        .clone()
        .map(|_| format!("{} receive, {} send", rx.len(), tx.len()));
    let mut rows = vec![Row::fact(
        format!("{card} queues"),
        shown,
        "The card spreads connections over its receive queues (RSS), and each queue interrupts one \
         processor. With fewer queues than processors, RPS can spread them in software.",
    )];
    let values = |queues: &[String], file: &str| -> Known<Vec<String>> {
        let read = |queue: &String| machine.value(&format!("{folder}/{queue}/{file}"));
        queues.iter().map(read).collect()
    };
    let rps = values(&rx, "rps_cpus");
    let off = rps
        .as_ref()
        .is_ok_and(|masks| masks.iter().all(|m| is_zero(m)));
    let mask = cores.as_ref().map_or(0, |cores| mask_of(*cores));
    rows.push(
        Row::good(
            format!("{card} rps_cpus"),
            rps.map(|masks| masks.join(" ")),
            "Masks of the processors that share the work for each receive queue (RPS); 0 leaves it \
             to the one that is interrupted, where it competes with toron's thread.",
        )
        .propose(few && off && mask > 1, Verdict::Consider, format!("{mask:x}"))
        .risk(format!(
            "Each packet costs another interrupt between processors. By hand: echo {mask:x} > \
             {folder}/rx-0/rps_cpus, for each queue."
        )),
    );
    rows.push(Row::fact(
        format!("{card} xps_cpus"),
        values(&tx, "xps_cpus").map(|masks| masks.join(" ")),
        "Masks of the processors that use each send queue (XPS). With one queue there is nothing \
         to choose.",
    ));
    rows
}

fn is_zero(mask: &str) -> bool {
    mask.chars().all(|c| matches!(c, '0' | ','))
}

fn mask_of(cores: u64) -> u64 {
    match cores {
        64.. => u64::MAX,
        cores => (1 << cores) - 1,
    }
}

/// Which processors the card interrupts.
fn interrupts(cx: &Context<'_>, card: &str) -> Row {
    const WHY: &str = "Processors that each interrupt of the card may go to. Several receive \
                       queues that all interrupt the same processor share only that one.";
    let machine = cx.machine;
    let device = format!("/sys/class/net/{card}/device");
    // Those of a virtio card belong to the device above it.
    let folders = [
        format!("{device}/msi_irqs"),
        format!("{device}/../msi_irqs"),
    ];
    let numbers = folders
        .iter()
        .find_map(|folder| machine.names_in(folder).ok());
    let name = format!("{card} interrupts");
    let Some(mut numbers) = numbers else {
        let why = format!("{}: not there", folders[0]);
        return Row::fact(name, Err(why), WHY);
    };
    numbers.sort_by_key(|number| number.parse::<u64>().unwrap_or(u64::MAX));
    let read = |number: &String| machine.value(&format!("/proc/irq/{number}/smp_affinity_list"));
    let lists: Known<Vec<String>> = numbers.iter().map(read).collect();
    // Two and more queues, all on one processor.
    let queues = machine.names_in(&format!("/sys/class/net/{card}/queues"));
    let receive = queues.map_or(0, |names| {
        names.iter().filter(|n| n.starts_with("rx-")).count()
    });
    let crowded = lists.as_ref().is_ok_and(|lists| {
        let first = lists.first();
        let single = first.is_some_and(|list| list.bytes().all(|b| b.is_ascii_digit()));
        single && lists.iter().all(|list| Some(list) == first)
    });
    let several = machine.cores().is_ok_and(|cores| cores > 1);
    let shown = lists.map(|lists| {
        let pairs = numbers.iter().zip(&lists);
        let pairs = pairs.map(|(number, list)| format!("{number}: {list}"));
        pairs.collect::<Vec<_>>().join("; ")
    });
    Row::fact(name, shown, WHY)
        .propose(
            crowded && receive > 1 && several,
            Verdict::Consider,
            "spread over the processors",
        )
        .risk(
            "A daemon like irqbalance may move them again. By hand: echo N > \
               /proc/irq/NUMBER/smp_affinity_list, another N for each.",
        )
}
