//! Network interfaces: queues, who serves them, and what the card does by itself.

use std::io;

use super::{told, Context};
use crate::control::machine::{Known, Machine};
use crate::tune::netlink::ethtool::{Ethtool, Features, Sizes};
use crate::tune::netlink::qdisc;
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
        rows.push(deferral(cx.machine, &card));
        rows.extend(hardware(cx, &card));
    }
    rows
}

/// The queueing discipline that each interface has now.
pub(super) fn queueing(cx: &Context<'_>) -> Row {
    const WHY: &str =
        "The queue that each interface has now. mq is one queue for each of the card's, \
                       with what stands behind it in each.";
    let kinds = asked(cx.machine, qdisc::kinds);
    let shown = kinds.map(|kinds| {
        let shown = kinds
            .iter()
            .map(|(name, kinds)| format!("{name} {}", kinds.join(" of ")));
        shown.collect::<Vec<_>>().join(", ")
    });
    Row::fact("qdisc", shown, WHY)
}

/// The answer of the kernel, which only the machine itself has.
fn asked<T>(machine: &Machine, ask: impl FnOnce() -> io::Result<T>) -> Known<T> {
    if !machine.is_here() {
        return Err("can only be asked of the machine itself, not of a copy of its files".into());
    }
    ask().map_err(|error| format!("netlink: {error}"))
}

/// What ethtool(8) tells.
fn hardware(cx: &Context<'_>, card: &str) -> Vec<Row> {
    let machine = cx.machine;
    let rings = asked(machine, || Ethtool::open()?.rings(card));
    let channels = asked(machine, || Ethtool::open()?.channels(card));
    let features = asked(machine, || Ethtool::open()?.features(card));
    vec![
        ring_row(machine, card, &rings),
        channel_row(machine, card, &channels),
        offload_row(card, &features),
    ]
}

/// `256 of 1024 receive, 256 of 1024 send`.
fn sizes(sizes: &Sizes) -> String {
    let parts = [
        (sizes.receive, "receive"),
        (sizes.send, "send"),
        (sizes.combined, "combined"),
    ];
    let shown = parts
        .iter()
        .filter_map(|(pair, what)| pair.map(|(now, most)| format!("{now} of {most} {what}")));
    match shown.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "none".to_owned(),
        shown => shown,
    }
}

fn ring_row(machine: &Machine, card: &str, rings: &Known<Sizes>) -> Row {
    let count = |name: &str| machine.number_in(&format!("/sys/class/net/{card}/statistics/{name}"));
    let lost = ["rx_missed_errors", "rx_fifo_errors"];
    let lost = lost.map(|name| (name, count(name)));
    let overran = lost
        .iter()
        .any(|(_, count)| count.as_ref().is_ok_and(|n| *n > 0));
    let larger = rings
        .as_ref()
        .ok()
        .and_then(|rings| rings.receive)
        .filter(|(now, most)| now < most)
        .map_or(0, |(_, most)| most);
    let evidence = lost.map(|(name, count)| format!("{name}: {}", told(count)));
    Row::fact(
        format!("{card} rings"),
        rings.as_ref().map(sizes).map_err(Clone::clone),
        "Packets that the card can put down before the kernel fetches them, of how many it could. \
         A burst that does not fit is lost; the counters tell whether that happens.",
    )
    .evidence(format!("{}.", evidence.join(", ")))
    .propose(
        overran && larger > 0,
        Verdict::Consider,
        format!("{larger} receive"),
    )
    .risk(format!(
        "The card is down for a moment; more memory. By hand: ethtool -G {card} rx {larger}."
    ))
}

fn channel_row(machine: &Machine, card: &str, channels: &Known<Sizes>) -> Row {
    let cores = machine.cores().unwrap_or(1);
    let combined = channels
        .as_ref()
        .ok()
        .and_then(|channels| channels.combined);
    let (now, most) = combined.map_or((0, 0), |(now, most)| (u64::from(now), u64::from(most)));
    let wanted = cores.min(most);
    Row::fact(
        format!("{card} channels"),
        channels.as_ref().map(sizes).map_err(Clone::clone),
        "Pairs of queues with an interrupt each, of how many the card could have. With one for each \
         processor, all of them share the work of receiving.",
    )
    .propose(now < wanted, Verdict::Consider, format!("{wanted} combined"))
    .risk(format!(
        "The card is down for a moment. By hand: ethtool -L {card} combined {wanted}."
    ))
}

fn offload_row(card: &str, features: &Known<Features>) -> Row {
    /// Short names, the kernel's name, and the word that ethtool sets them by.
    const WANTED: [(&str, &str); 4] = [
        ("tso", "tx-tcp-segmentation"),
        ("gso", "tx-generic-segmentation"),
        ("gro", "rx-gro"),
        ("sg", "tx-scatter-gather"),
    ];
    let on = |name: &str, list: &[String]| list.iter().any(|feature| feature == name);
    let shown = features.as_ref().map(|features| {
        let shown = WANTED.map(|(short, name)| {
            let state = if on(name, &features.active) {
                "on"
            } else {
                "off"
            };
            format!("{short} {state}")
        });
        shown.join(", ")
    });
    let off: Vec<&str> = features.as_ref().map_or(Vec::new(), |features| {
        let is_off = |name: &str| !on(name, &features.active) && !on(name, &features.fixed);
        let off = WANTED.iter().filter(|(_, name)| is_off(name));
        off.map(|(short, _)| *short).collect()
    });
    let words: Vec<String> = off.iter().map(|short| format!("{short} on")).collect();
    Row::fact(
        format!("{card} offloads"),
        shown.map_err(Clone::clone),
        "Whether many packets of a connection are handled as one: cut apart by the card (tso) or \
         late in the kernel (gso), put together on arrival (gro), sent from where they lie (sg). \
         Without them large bodies cost a multiple of CPU time.",
    )
    .propose(!off.is_empty(), Verdict::Consider, words.join(", "))
    .risk(format!(
        "Some drivers have faults in them, which may be why they are off. By hand: ethtool -K \
         {card} {}.",
        words.join(" ")
    ))
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
    // The kernel has none for a card with one queue, although the file is there.
    let xps = match tx.len() {
        1 => Ok("one queue, so no choice".to_owned()),
        _ => values(&tx, "xps_cpus").map(|masks| masks.join(" ")),
    };
    rows.push(Row::fact(
        format!("{card} xps_cpus"),
        xps,
        "Masks of the processors that use each send queue (XPS).",
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

/// How long interrupts of the card are put off (NAPI), for programs that ask it themselves.
fn deferral(machine: &Machine, card: &str) -> Row {
    let names = ["napi_defer_hard_irqs", "gro_flush_timeout", "threaded"];
    let read = |name: &str| machine.number_in(&format!("/sys/class/net/{card}/{name}"));
    let values: Known<Vec<u64>> = names.into_iter().map(read).collect();
    let puts_off = values
        .as_ref()
        .is_ok_and(|values| values.iter().take(2).all(|value| *value > 0));
    let shown = values.map(|values| {
        let pairs = names.iter().zip(values);
        let pairs = pairs.map(|(name, value)| format!("{name} {value}"));
        pairs.collect::<Vec<_>>().join(", ")
    });
    Row::fact(
        format!("{card} napi"),
        shown,
        "How often the card's interrupts are put off (napi_defer_hard_irqs), by how many nanoseconds \
         (gro_flush_timeout), and whether a kernel thread takes its packets (threaded). Putting off \
         serves programs that ask the card themselves; toron does not, so that its packets wait.",
    )
    .propose(
        puts_off,
        Verdict::Consider,
        "napi_defer_hard_irqs 0, gro_flush_timeout 0",
    )
    .risk(format!(
        "More interrupts under load. By hand: echo 0 > /sys/class/net/{card}/gro_flush_timeout, and \
         the same for napi_defer_hard_irqs."
    ))
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
