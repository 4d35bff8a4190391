//! Keep-alive, busy polling, the path of received packets, connection tracking.

use toron_reactor::SocketOptions;

use super::{told, Context};
use crate::control::machine::{Known, Machine};
use crate::control::needs::grouped;
use crate::tune::row::{Effect, Means, Row, Verdict};

pub(super) fn keep_alive(cx: &Context<'_>) -> Vec<Row> {
    let own = SocketOptions::default();
    let settings = [
        (
            "net.ipv4.tcp_keepalive_time",
            "Seconds of silence after which the kernel asks whether a peer is still there",
            format!("{} s", own.keepalive_idle),
        ),
        (
            "net.ipv4.tcp_keepalive_intvl",
            "Seconds until it asks again",
            format!("{} s", own.keepalive_interval),
        ),
        (
            "net.ipv4.tcp_keepalive_probes",
            "Questions without an answer after which a peer counts as gone",
            own.keepalive_probes.to_string(),
        ),
    ];
    let row = |(name, what, own): (&str, &str, String)| {
        let why = format!("{what}. Not used: toron sets {own} on its own connections.");
        Row::sysctl(cx.machine, name, why)
    };
    settings.map(row).into()
}

pub(super) fn busy_polling(cx: &Context<'_>) -> Vec<Row> {
    let row = |name: &str, what: &str, effect| {
        let why = format!(
            "Microseconds for which a thread that waits in {what} asks the network card again and \
             again instead of sleeping. It saves some microseconds of delay and keeps a core busy; \
             toron's threads have work for the cores (and do not ask io_uring for it)."
        );
        let on = cx.machine.number(name).is_ok_and(|n| n > 0);
        Row::sysctl(cx.machine, name, why)
            .propose(on, Verdict::Consider, "0")
            .effect(effect)
            .risk("Delays grow by some microseconds on an idle machine.")
    };
    vec![
        row("net.core.busy_poll", "poll or epoll", Effect::Now),
        // A connection has it from the socket that listens.
        row("net.core.busy_read", "a read", Effect::Start),
    ]
}

/// Sums of /proc/net/softnet_stat over all processors: packets, drops, budgets used up.
fn softnet(machine: &Machine) -> Known<[u64; 3]> {
    const PATH: &str = "/proc/net/softnet_stat";
    let text = machine.text(PATH)?;
    let mut sums = [0u64; 3];
    for line in text.lines() {
        let mut columns = line
            .split_whitespace()
            .map(|column| u64::from_str_radix(column, 16));
        for sum in &mut sums {
            match columns.next() {
                Some(Ok(count)) => *sum = sum.saturating_add(count),
                _ => return Err(format!("{PATH}: not three columns of numbers")),
            }
        }
    }
    Ok(sums)
}

pub(super) fn receiving(cx: &Context<'_>) -> Vec<Row> {
    let machine = cx.machine;
    let stats = softnet(machine);
    let evidence = match &stats {
        Ok([packets, dropped, squeezed]) => format!(
            "{} packets, {} dropped here, {} times the budget ran out.",
            grouped(*packets),
            grouped(*dropped),
            grouped(*squeezed)
        ),
        Err(why) => format!("Counters unknown ({why})."),
    };
    let [packets, dropped, squeezed] = stats.unwrap_or_default();
    let backlog = machine.number("net.core.netdev_max_backlog");
    let double = |value: &Known<u64>| {
        value
            .as_ref()
            .map_or(0, |n| n.saturating_mul(2))
            .to_string()
    };
    // Once in ten thousand packets is noise.
    let often = |count: u64| count > packets / 10_000;
    let budget = machine.number("net.core.netdev_budget");
    let time = machine.number("net.core.netdev_budget_usecs");
    vec![
        Row::sysctl(
            machine,
            "net.core.netdev_max_backlog",
            "Packets that may wait per core before TCP sees them, on loopback and with RPS. What \
             does not fit is dropped and sent again after a delay.",
        )
        .propose(often(dropped), Verdict::Better, double(&backlog))
        .evidence(&evidence)
        .risk("Packets may wait longer when a core cannot keep up."),
        Row::sysctl(
            machine,
            "net.core.netdev_budget",
            "Packets that a core takes from its network cards in one go before others get their \
             turn. If it runs out often, packets wait in the card.",
        )
        .propose(often(squeezed), Verdict::Consider, double(&budget))
        .evidence(&evidence)
        .risk("toron's threads wait longer for the core while packets arrive."),
        Row::sysctl(
            machine,
            "net.core.netdev_budget_usecs",
            "The longest time in microseconds for which a core takes packets from its network cards \
             in one go, however few they are.",
        )
        .propose(often(squeezed), Verdict::Consider, double(&time))
        .evidence(&evidence)
        .risk("toron's threads wait longer for the core while packets arrive."),
    ]
}

pub(super) fn tracking(cx: &Context<'_>) -> Vec<Row> {
    let machine = cx.machine;
    let count = machine.number("net.netfilter.nf_conntrack_count");
    let tracked = cx.need("net.netfilter.nf_conntrack_max", Means::Sysctl);
    let Some(row) = tracked else {
        let why = "The firewall of the kernel does not remember connections here, so no table of \
                   them can be full.";
        let present = machine.sysctl("net.netfilter.nf_conntrack_max");
        return vec![Row::fact("net.netfilter.nf_conntrack_max", present, why)];
    };
    let idle = count.as_ref().is_ok_and(|count| *count == 0);
    let note = match idle {
        true => " Loaded, but without rules that make use of it.",
        false => "",
    };
    vec![row
        .evidence(format!("{} entries now.{note}", told(count)))
        .risk("About 320 bytes of kernel memory for each entry in use.")]
}
