//! Local ports for connections to upstreams.

use super::{told, Context};
use crate::control::config::values::show_duration;
use crate::control::needs::{grouped, local_ports};
use crate::tune::row::{Effect, Means, Row, Verdict};

pub(super) fn rows(cx: &Context<'_>) -> Vec<Row> {
    let machine = cx.machine;
    let mut rows = Vec::new();
    rows.extend(
        cx.need("net.ipv4.ip_local_port_range", Means::Sysctl)
            .map(|row| {
                row.evidence(format!(
                    "{} local ports without the reserved ones; {} connections in TIME_WAIT now.",
                    told(local_ports(machine)),
                    told(machine.sockets("TCP", "tw"))
                ))
                .risk(
                    "A service that starts later may find its port taken by a connection: list \
                     such ports in net.ipv4.ip_local_reserved_ports.",
                )
            }),
    );
    rows.push(reuse(cx));
    rows.push(
        Row::sysctl(
            machine,
            "net.ipv4.tcp_timestamps",
            "tcp_tw_reuse works only with TCP timestamps; they also detect old packets. 1 and 2 \
             are on.",
        )
        .propose(
            machine
                .number("net.ipv4.tcp_timestamps")
                .is_ok_and(|n| n == 0)
                && cx.demand.targets > 0,
            Verdict::Consider,
            "1",
        )
        .effect(Effect::Connections)
        .risk("12 bytes in every packet."),
    );
    rows.push(
        Row::sysctl(
            machine,
            "net.ipv4.tcp_max_tw_buckets",
            "Connections that may be in TIME_WAIT at a time; beyond it the kernel forgets them \
             early, which costs toron nothing.",
        )
        .evidence(format!("{}.", cx.count("TcpExtTCPTimeWaitOverflow"))),
    );
    rows
}

/// Whether ports of closed connections are needed again before their minute is over.
fn reuse(cx: &Context<'_>) -> Row {
    const NAME: &str = "net.ipv4.tcp_tw_reuse";
    let (machine, demand) = (cx.machine, cx.demand);
    let at_once = demand.in_flight_to_one;
    let closed_in_a_burst = at_once.saturating_sub(demand.idle_per_target);
    let wanted = demand
        .connections_to_one_target()
        .saturating_add(closed_in_a_burst);
    let ports = local_ports(machine);
    let waiting = machine.sockets("TCP", "tw");
    let short = ports.as_ref().is_ok_and(|have| *have < wanted);
    let busy = matches!((&ports, &waiting), (Ok(have), Ok(waiting)) if *waiting > have / 2);
    let off = match machine.number(NAME) {
        Ok(0) => true,
        Ok(2) => !demand.targets_are_local,
        _ => false,
    };
    let per_second = ports.as_ref().map_or(0, |ports| ports / 60);
    let why = if demand.targets == 0 {
        "Lets new connections to an upstream take ports of closed ones; no route leads to an \
         upstream."
            .to_owned()
    } else {
        format!(
            "A port stays taken for a minute after toron has closed its connection (TIME_WAIT). \
             toron keeps at most {} idle connections per target for {}; after a burst of {} \
             requests it closes up to {}. Without reuse it can open about {} new connections a \
             second to one address. 1 reuses such ports after a second, 2 only on loopback.",
            grouped(demand.idle_per_target),
            show_duration(demand.idle_kept),
            grouped(at_once),
            grouped(closed_in_a_burst),
            grouped(per_second),
        )
    };
    let row = Row::sysctl(machine, NAME, why)
        .evidence(format!(
            "{} in TIME_WAIT now, {} ports.",
            told(waiting),
            told(ports)
        ))
        .risk(
            "Small: both sides must use TCP timestamps; connections in only one direction (to \
               upstreams) are concerned.",
        );
    match demand.targets {
        0 => row,
        _ if short || busy => row.propose(off, Verdict::Better, "1"),
        _ => row.propose(off, Verdict::Consider, "1"),
    }
}
