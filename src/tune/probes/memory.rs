//! Memory of sockets.

use super::{told, Context};
use crate::control::config::values::show_size;
use crate::control::machine::Known;
use crate::control::needs::{grouped, page_size, show_clients};
use crate::tune::row::{Row, Verdict};

pub(super) fn rows(cx: &Context<'_>) -> Vec<Row> {
    let machine = cx.machine;
    let rmem = machine.numbers::<3>("net.ipv4.tcp_rmem");
    let wmem = machine.numbers::<3>("net.ipv4.tcp_wmem");
    let mut rows = vec![
        buffer(
            cx,
            "net.ipv4.tcp_rmem",
            &rmem,
            "from",
            "a client that uploads",
        ),
        buffer(
            cx,
            "net.ipv4.tcp_wmem",
            &wmem,
            "to",
            "a client that downloads",
        ),
        in_all(cx, &rmem, &wmem),
    ];
    let grows = machine.number("net.ipv4.tcp_moderate_rcvbuf");
    rows.push(
        Row::sysctl(
            machine,
            "net.ipv4.tcp_moderate_rcvbuf",
            "Lets receive buffers grow with the speed of each connection. toron sets no sizes of \
             its own, so with 0 every upload stays at the initial size, however long the line.",
        )
        .propose(grows.is_ok_and(|n| n == 0), Verdict::Better, "1")
        .risk("None known; buffers grow only where bytes arrive fast."),
    );
    rows.push(orphans(cx));
    for name in ["net.core.rmem_max", "net.core.wmem_max"] {
        rows.push(Row::sysctl(
            machine,
            name,
            "Bounds programs that set the size of their sockets' buffers by hand. toron does not.",
        ));
    }
    rows
}

/// Smallest, initial and largest size of a buffer.
fn buffer(
    cx: &Context<'_>,
    name: &'static str,
    sizes: &Known<[u64; 3]>,
    direction: &str,
    who: &str,
) -> Row {
    /// Below it a line of 100 Mbit/s over 80 ms is not filled.
    const LEAST: u64 = 1 << 20;
    let [least, initial, most] = sizes.as_ref().map_or([0; 3], |sizes| *sizes);
    // Bits a second over 100 ms.
    let mbit = most.saturating_mul(8) / 100_000;
    let why = format!(
        "Smallest, initial and largest buffer of a socket, in bytes. The largest ({}) bounds the \
         speed {direction} one connection: about {} Mbit/s for {who} at 100 ms of round trip. \
         Idle connections take none of it.",
        show_size(most),
        grouped(mbit)
    );
    let wanted = sizes.is_ok() && most < LEAST;
    Row::sysctl(cx.machine, name, why)
        .propose(
            wanted,
            Verdict::Better,
            format!("{least} {} {}", initial.min(LEAST), 4 * LEAST),
        )
        .risk("More memory while many slow clients are sent large bodies.")
}

/// The total that all TCP sockets may have.
fn in_all(cx: &Context<'_>, rmem: &Known<[u64; 3]>, wmem: &Known<[u64; 3]>) -> Row {
    const NAME: &str = "net.ipv4.tcp_mem";
    let (machine, demand) = (cx.machine, cx.demand);
    let page = page_size();
    let initial = |sizes: &Known<[u64; 3]>| sizes.as_ref().map_or(0, |[_, initial, _]| *initial);
    // A connection that carries a body has it in the receive buffer of one side and in the send
    // buffer of the other.
    let each = initial(rmem).saturating_add(initial(wmem));
    let wanted = demand.clients.saturating_mul(each);
    let pages = wanted.div_ceil(page);
    let why = format!(
        "Pages of {} KiB for the buffers of all TCP sockets: past the second value the kernel \
         shrinks them, past the third it drops what arrives. {} that each move a body, with both \
         buffers full at their initial sizes ({} together), hold {} pages.",
        page / 1024,
        show_clients(demand),
        show_size(each),
        grouped(pages)
    );
    let row = Row::sysctl(machine, NAME, why).evidence(format!(
        "{} pages in use now; {}, {}.",
        told(machine.sockets("TCP", "mem")),
        cx.count("TcpExtTCPMemoryPressures"),
        cx.count("TcpExtTCPAbortOnMemory")
    ));
    // A quarter of the memory at most: the rest is for pipes, buffers and everybody else.
    let ceiling = machine.memory().map_or(0, |bytes| bytes / 4 / page);
    let pressure = pages.min(ceiling / 3 * 2);
    let present = machine.numbers::<3>(NAME);
    let short = present.is_ok_and(|[_, present, _]| present < pages && present < pressure);
    row.propose(
        short && each > 0,
        Verdict::Consider,
        format!("{} {pressure} {}", pressure / 4 * 3, pressure / 2 * 3),
    )
    .risk(
        "That memory is taken from everything else while it is in use; the proposal stays within \
           a quarter of the machine's.",
    )
}

fn orphans(cx: &Context<'_>) -> Row {
    const NAME: &str = "net.ipv4.tcp_max_orphans";
    let (machine, demand) = (cx.machine, cx.demand);
    let present = machine.number(NAME);
    let why = format!(
        "Connections that toron has closed while the end of the answer is still on its way to the \
         client. Beyond the limit the kernel resets them and answers are cut; at worst {} close \
         at once.",
        show_clients(demand)
    );
    let wanted = demand
        .clients
        .saturating_mul(2)
        .checked_next_power_of_two()
        .unwrap_or(u64::MAX);
    Row::sysctl(machine, NAME, why)
        .evidence(format!("{} now.", told(machine.sockets("TCP", "orphan"))))
        .propose(
            present.is_ok_and(|n| n < demand.clients),
            Verdict::Better,
            wanted.to_string(),
        )
        .risk("Up to 64 KiB of kernel memory for each.")
}
