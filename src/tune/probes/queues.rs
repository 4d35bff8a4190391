//! Connections before they are accepted.

use super::Context;
use crate::tune::row::{Effect, Means, Row, Verdict};

pub(super) fn rows(cx: &Context<'_>) -> Vec<Row> {
    let machine = cx.machine;
    let mut rows = Vec::new();
    rows.extend(cx.need("net.core.somaxconn", Means::Sysctl).map(|row| {
        row.evidence(format!(
            "Since the machine (or this network namespace) started: {}, {}, of all listeners.",
            cx.count("TcpExtListenOverflows"),
            cx.count("TcpExtListenDrops"),
        ))
        .effect(Effect::Start)
        .risk("Small: a longer queue lets clients wait instead of trying again.")
    }));
    let cookies = machine.number("net.ipv4.tcp_syncookies");
    rows.push(
        Row::sysctl(
            machine,
            "net.ipv4.tcp_syncookies",
            "When more handshakes are begun than the queue holds (a SYN flood), the kernel answers \
             without remembering them, so that real clients still get through. 0 drops them \
             instead; 2 is for tests.",
        )
        .evidence(format!(
            "{}, {}.",
            cx.count("TcpExtTCPReqQFullDoCookies"),
            cx.count("TcpExtTCPReqQFullDrop")
        ))
        .propose(
            matches!(cookies, Ok(0 | 2)),
            Verdict::Better,
            "1",
        )
        .risk("None: it acts only when the queue is full."),
    );
    rows.push(half_open(cx, cookies.as_ref().is_ok_and(|n| *n == 0)));
    let abort = machine.number("net.ipv4.tcp_abort_on_overflow");
    rows.push(
        Row::sysctl(
            machine,
            "net.ipv4.tcp_abort_on_overflow",
            "With 0, a client that finds toron's accept queue full tries again and mostly gets \
             through a moment later; with 1 it is reset at once and sees a failure.",
        )
        .propose(abort.is_ok_and(|n| n != 0), Verdict::Consider, "0")
        .risk("Under lasting overload clients wait longer before they give up."),
    );
    rows
}

/// The limit of half-open connections matters only without SYN cookies (`tcp_conn_request` in the
/// kernel): with them the listener's own queue is the limit.
fn half_open(cx: &Context<'_>, matters: bool) -> Row {
    const NAME: &str = "net.ipv4.tcp_max_syn_backlog";
    let wanted = u64::from(crate::policy::demand::BACKLOG);
    let why = if matters {
        "SYN cookies are off, so connections whose handshake is not finished are limited by this: \
         past three quarters of it new clients are dropped. toron's queue has 4,096 places."
    } else {
        "Limits connections whose handshake is not finished, but only where SYN cookies are off. \
         They are on: toron's own queue is the limit."
    };
    let present = cx.machine.number(NAME);
    Row::sysctl(cx.machine, NAME, why)
        .propose(
            matters && present.is_ok_and(|n| n < wanted),
            Verdict::Better,
            wanted.to_string(),
        )
        .risk("Some hundred bytes for each half-open connection.")
}
