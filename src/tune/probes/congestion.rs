//! How fast TCP sends, and the queue in front of the interface.

use super::Context;
use crate::tune::row::{Effect, Row, Verdict};

pub(super) fn rows(cx: &Context<'_>) -> Vec<Row> {
    let machine = cx.machine;
    let control = machine.sysctl("net.ipv4.tcp_congestion_control");
    let is_bbr = control.as_deref() == Ok("bbr");
    let available = machine
        .sysctl("net.ipv4.tcp_available_congestion_control")
        .unwrap_or_else(|why| format!("unknown ({why})"));
    let mut rows = vec![Row::sysctl(
        machine,
        "net.ipv4.tcp_congestion_control",
        "Decides how fast answers are sent to clients. cubic and bbr are both sound; bbr holds its \
         speed on lines that lose packets. Which one serves your clients better only a measurement \
         with their lines can tell, so none is proposed.",
    )
    .evidence(format!("Available: {available}."))];
    let qdisc = machine.sysctl("net.core.default_qdisc");
    let why = if is_bbr {
        "The queue of interfaces that come up from now on. bbr spaces out its packets: fq does \
         that in the queue; with another one each connection has a timer of its own, which costs \
         CPU time when thousands send."
    } else {
        "The queue of interfaces that come up from now on. Only bbr asks for a particular one (fq)."
    };
    rows.push(
        Row::sysctl(machine, "net.core.default_qdisc", why)
            .propose(
                is_bbr && qdisc.is_ok_and(|name| name != "fq"),
                Verdict::Consider,
                "fq",
            )
            .effect(Effect::Interfaces)
            .risk(
                "Needs the module sch_fq; interfaces that are up keep their queue (tc qdisc \
                 replace dev NAME root fq).",
            ),
    );
    rows.push(super::nic::queueing(cx));
    let restart = machine.number("net.ipv4.tcp_slow_start_after_idle");
    rows.push(
        Row::sysctl(
            machine,
            "net.ipv4.tcp_slow_start_after_idle",
            "With 1, a kept-alive connection that was silent for a moment starts slowly again: a \
             large answer then takes some round trips more. Clients and upstream connections \
             behind toron are kept alive, so this is the common case.",
        )
        .propose(restart.is_ok_and(|n| n != 0), Verdict::Consider, "0")
        .risk(
            "After a pause the old speed may be too high for the line now: some packets may be \
               lost at once.",
        ),
    );
    rows
}
