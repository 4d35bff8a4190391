//! Must-haves: what the machine has to allow so that the configured limits can be reached at all.
//!
//! `toron serve` logs each that is missing, `toron tune` lists them all beside what would merely be
//! better. They stand on this floor because both use them.

use crate::policy::demand::{Demand, BACKLOG};
use crate::policy::settings::EngineChoice;

use super::machine::{Known, Limit, Machine, CAP_IPC_LOCK, CAP_SYS_ADMIN, CAP_SYS_RESOURCE};

/// Pages of locked memory that the kernel charges for the ring of a reactor: 18 for 1,024
/// submission slots and 4,096 completions, 16 for the submissions, 1 for the ring of buffers.
/// Measured on Linux 6.18: `ulimit -l 140` is enough for one, 136 is not.
const RING_PAGES: u64 = 35;

/// One must-have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// A kernel setting's dotted name, or what `toron tune` calls it.
    pub name: &'static str,
    /// The present value, or why it cannot be read.
    pub present: Known<String>,
    /// The value to set; `None` where the present one is enough.
    pub proposed: Option<String>,
    /// What it bounds, with the figures of this configuration: one sentence.
    pub bounds: String,
    /// What happens beyond it, for whoever wants to know more.
    pub more: String,
}

impl Need {
    /// The present value, and another one if it is too small.
    fn new(
        name: &'static str,
        present: Known<u64>,
        (least, propose): (u64, u64),
        [bounds, more]: [String; 2],
    ) -> Self {
        let missing = present.as_ref().is_ok_and(|have| *have < least);
        Need {
            name,
            present: present.map(show_limit),
            proposed: missing.then(|| propose.to_string()),
            bounds,
            more,
        }
    }

    /// A line for the log, if it is missing.
    #[must_use]
    pub fn shortfall(&self) -> Option<String> {
        let (Ok(present), Some(proposed)) = (&self.present, &self.proposed) else {
            return None;
        };
        let present = present.split_whitespace().collect::<Vec<_>>().join(" ");
        Some(format!(
            "{} is {present} and should be {proposed}: {}",
            self.name, self.bounds
        ))
    }
}

/// All must-haves of a configuration on a machine.
#[must_use]
pub fn must_haves(machine: &Machine, demand: &Demand) -> Vec<Need> {
    let cores = machine.cores().unwrap_or(1);
    let mut needs = vec![
        descriptors(machine, demand, cores),
        most_descriptors(machine, demand, cores),
        files(machine, demand, cores),
        accept_queue(machine, demand),
        ports(machine, demand),
        pipe_pages(machine, demand, cores),
        threads(machine, demand),
        tasks(machine, demand),
    ];
    needs.extend(ring_allowed(machine, demand));
    needs.extend(ring_memory(machine, demand, cores));
    needs.extend(tracked(machine, demand));
    needs
}

/// `10,000 clients`.
#[must_use]
pub fn show_clients(demand: &Demand) -> String {
    format!("{} clients", grouped(demand.clients))
}

/// `10,000 clients (firewall.max_connections_total)`.
#[must_use]
pub fn show_clients_and_source(demand: &Demand) -> String {
    let from = match demand.clients_are_limited {
        true => "firewall.max_connections_total",
        false => "planned; no limit is configured",
    };
    format!("{} ({from})", show_clients(demand))
}

/// A number with commas: `10,000`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A limit as a person writes it.
#[must_use]
pub fn show_limit(limit: u64) -> String {
    match limit {
        u64::MAX => "unlimited".to_owned(),
        limit => limit.to_string(),
    }
}

/// The next multiple of 1,024.
fn rounded(number: u64) -> u64 {
    number.checked_next_multiple_of(1024).unwrap_or(u64::MAX)
}

/// Descriptors to ask for: so many that transfers have their pipes, too.
#[must_use]
pub fn descriptors_to_ask_for(demand: &Demand, cores: u64) -> u64 {
    rounded(demand.descriptors_ample(cores))
}

/// Bytes of locked memory to ask for: twice what the rings take, since all processes of the user
/// share it, and not less than what the kernel gives by itself.
#[must_use]
pub fn locked_to_ask_for(demand: &Demand, cores: u64) -> u64 {
    let rings = RING_PAGES * page_size();
    let all = rings.saturating_mul(demand.active_reactors(cores));
    let twice = all.saturating_mul(2).checked_next_power_of_two();
    twice.unwrap_or(u64::MAX).max(8 << 20)
}

fn descriptors(machine: &Machine, demand: &Demand, cores: u64) -> Need {
    let least = demand.descriptors_least(cores);
    let behind = match demand.targets {
        0 => String::new(),
        _ => format!(
            ", {} connections to upstreams in use and {} idle ones",
            grouped(demand.in_flight),
            grouped(demand.idle_upstreams())
        ),
    };
    let bounds = format!(
        "{}{behind} need {} descriptors",
        show_clients(demand),
        grouped(least),
    );
    let more = "At the limit toron stops accepting until other connections end. Pipes for large \
                bodies take two more each. toron raises its own soft limit to the hard one.";
    let present = machine.limit("Max open files").map(|limit| limit.hard);
    let propose = descriptors_to_ask_for(demand, cores);
    Need::new(
        "limit nofile",
        present,
        (least, propose),
        [bounds, more.to_owned()],
    )
}

fn most_descriptors(machine: &Machine, demand: &Demand, cores: u64) -> Need {
    let least = demand.descriptors_least(cores);
    let propose = descriptors_to_ask_for(demand, cores);
    let bounds = format!(
        "no process can have more descriptors than this, and toron needs {}",
        grouped(least)
    );
    let more = "Limits of descriptors (LimitNOFILE, ulimit -n) cannot be raised beyond it.";
    let present = machine.number("fs.nr_open");
    Need::new(
        "fs.nr_open",
        present,
        (least, propose),
        [bounds, more.to_owned()],
    )
}

fn files(machine: &Machine, demand: &Demand, cores: u64) -> Need {
    let own = demand.descriptors_least(cores);
    let open = machine
        .numbers::<3>("fs.file-nr")
        .map_or(0, |[open, _, _]| open);
    let all = own.saturating_add(open);
    // The administrator may go beyond (`alloc_empty_file` in the kernel asks for CAP_SYS_ADMIN).
    let exempt = machine.is_capable(CAP_SYS_ADMIN).unwrap_or(false);
    let bounds = format!(
        "all processes together have {} files open now, and toron may add {}",
        grouped(open),
        grouped(own),
    );
    let more = format!(
        "Beyond it toron can neither accept nor dial{}.",
        exempt_text(exempt)
    );
    let present = machine.number("fs.file-max");
    let least = if exempt { 0 } else { all };
    let propose = rounded(all.saturating_mul(2));
    Need::new("fs.file-max", present, (least, propose), [bounds, more])
}

fn exempt_text(exempt: bool) -> &'static str {
    match exempt {
        true => " (this user is exempt from the limit)",
        false => "",
    }
}

fn accept_queue(machine: &Machine, demand: &Demand) -> Need {
    let asked = u64::from(BACKLOG);
    let bounds = format!(
        "the kernel cuts the queue of connections that wait to be accepted to this, and toron asks \
         for {} places per listener",
        grouped(asked),
    );
    let more = "Who finds the queue full in a burst is not answered and tries again after a \
                second or more.";
    let present = machine.number("net.core.somaxconn");
    Need::new(
        "net.core.somaxconn",
        present,
        (asked.min(demand.clients), asked),
        [bounds, more.to_owned()],
    )
}

/// Local ports that connections may come from: those of the range without the reserved ones.
pub fn local_ports(machine: &Machine) -> Known<u64> {
    let [low, high] = machine.numbers::<2>("net.ipv4.ip_local_port_range")?;
    let reserved = machine
        .sysctl("net.ipv4.ip_local_reserved_ports")
        .unwrap_or_default();
    let parts = reserved.split(',').filter_map(|part| {
        let part = part.trim();
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some((from.parse::<u64>().ok()?, to.parse::<u64>().ok()?))
    });
    let taken = parts.fold(0u64, |taken, (from, to)| {
        let end = to.min(high).saturating_add(1);
        taken.saturating_add(end.saturating_sub(from.max(low)))
    });
    let all = high.saturating_add(1).saturating_sub(low);
    Ok(all.saturating_sub(taken))
}

fn ports(machine: &Machine, demand: &Demand) -> Need {
    const NAME: &str = "net.ipv4.ip_local_port_range";
    let least = demand.connections_to_one_target();
    let have = local_ports(machine);
    let bounds = if demand.targets == 0 {
        "connections to an upstream each need a local port; no route leads to an upstream"
            .to_owned()
    } else {
        format!(
            "each connection to the same upstream address needs a local port of its own: {} \
             requests at a time and {} idle connections may want {}, the range has {}",
            grouped(demand.in_flight_to_one),
            grouped(demand.idle_per_target),
            grouped(least),
            grouped(have.as_ref().map_or(0, |have| *have)),
        )
    };
    let more = match least > 64_512 {
        true => {
            "Without a port a request is answered with 503. No range has so many: give the \
                 target more addresses."
        }
        false => "Without a port a request is answered with 503.",
    };
    let missing = have.is_ok_and(|have| have < least);
    Need {
        name: NAME,
        present: machine.sysctl(NAME),
        proposed: missing.then(|| format!("{} 65535", lowest_port(least))),
        bounds,
        more: more.to_owned(),
    }
}

/// The start of a range to 65535 with a quarter more ports than needed; even, because the kernel
/// wants start and end to differ in parity.
fn lowest_port(needed: u64) -> u64 {
    let width = needed.saturating_add(needed / 4);
    (65_536u64.saturating_sub(width) & !1023).max(1024)
}

/// Whether the quotas of pipe pages hold for this user.
pub fn has_pipe_quota(machine: &Machine) -> bool {
    let may = |capability| machine.is_capable(capability).unwrap_or(false);
    !may(CAP_SYS_RESOURCE) && !may(CAP_SYS_ADMIN)
}

fn pipe_pages(machine: &Machine, demand: &Demand, cores: u64) -> Need {
    const NAME: &str = "fs.pipe-user-pages-soft";
    let page = page_size();
    let pages = demand.pipe_bytes(cores).div_ceil(page);
    let holds = has_pipe_quota(machine);
    let bounds = format!(
        "large bodies go from socket to socket through a pipe of 64 KiB, without being copied, and \
         {} requests at a time may hold {} pages of {} KiB",
        grouped(demand.spliced()),
        grouped(pages),
        page / 1024,
    );
    let more = format!(
        "Beyond this quota of a user the kernel makes pipes too small, and toron copies those \
         bodies instead, at more CPU time each{}.",
        exempt_text(!holds)
    );
    let present = machine.number(NAME);
    // 0 is no quota.
    let least = match present {
        Ok(1..) if holds => pages,
        _ => 0,
    };
    Need::new(NAME, present, (least, rounded(pages)), [bounds, more])
}

/// Bytes of a page of memory.
#[must_use]
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

fn threads(machine: &Machine, demand: &Demand) -> Need {
    let least = demand.threads();
    let exempt = [CAP_SYS_RESOURCE, CAP_SYS_ADMIN]
        .iter()
        .any(|capability| machine.is_capable(*capability).unwrap_or(false));
    let bounds = format!(
        "all processes of a user together may have so many threads, and toron starts {} \
         (server.worker_pool_size is {})",
        grouped(least),
        grouped(demand.reactors),
    );
    let more = format!("It does not run without them{}.", exempt_text(exempt));
    let present = machine.limit("Max processes").map(|limit| limit.soft);
    let needed = if exempt { 0 } else { least };
    let propose = rounded(least.saturating_mul(2));
    Need::new("limit nproc", present, (needed, propose), [bounds, more])
}

fn tasks(machine: &Machine, demand: &Demand) -> Need {
    let least = demand.threads();
    let bounds = format!(
        "the processes of a control group (a service, a container) together may have so many \
         threads, and toron starts {}",
        grouped(least)
    );
    let more = "It does not run without them.".to_owned();
    let present = machine
        .group_limit("pids", "pids.max", "pids.max")
        .map(|limit| limit.unwrap_or(u64::MAX));
    let propose = rounded(least.saturating_mul(2));
    Need::new("cgroup pids.max", present, (least, propose), [bounds, more])
}

/// Only where io_uring is demanded: `auto` takes epoll otherwise.
fn ring_allowed(machine: &Machine, demand: &Demand) -> Option<Need> {
    const NAME: &str = "kernel.io_uring_disabled";
    if demand.engine != EngineChoice::IoUring {
        return None;
    }
    let present = machine.number(NAME);
    let privileged = machine.is_capable(CAP_SYS_ADMIN).unwrap_or(false);
    let forbidden = match present {
        Ok(0) | Err(_) => false,
        Ok(1) => !privileged,
        Ok(_) => true,
    };
    Some(Need {
        name: NAME,
        present: present.map(|n| n.to_string()),
        proposed: forbidden.then(|| "0".to_owned()),
        bounds: "server.engine is io_uring, and toron does not start where the kernel forbids it"
            .to_owned(),
        more: "1 forbids it to ordinary users, 2 to all.".to_owned(),
    })
}

fn ring_memory(machine: &Machine, demand: &Demand, cores: u64) -> Option<Need> {
    if demand.engine == EngineChoice::Epoll {
        return None;
    }
    let each = RING_PAGES * page_size();
    let reactors = demand.active_reactors(cores);
    let least = each.saturating_mul(reactors);
    let exempt = machine.is_capable(CAP_IPC_LOCK).unwrap_or(false);
    let bounds = format!(
        "the kernel charges the rings of io_uring to the locked memory of their user: {} of {} KiB \
         for {}",
        grouped(reactors),
        each / 1024,
        show_clients(demand),
    );
    let more = format!(
        "Past the limit a reactor cannot open its ring and leaves its connections to those that \
         have one. Where not even one for each core can be had, server.engine auto takes epoll, and \
         io_uring does not start{}.",
        exempt_text(exempt)
    );
    let limit = machine.limit("Max locked memory");
    let present = limit.map(|Limit { soft, .. }| soft);
    let needed = if exempt { 0 } else { least };
    let propose = locked_to_ask_for(demand, cores);
    Some(Need::new(
        "limit memlock",
        present,
        (needed, propose),
        [bounds, more],
    ))
}

/// Only where connection tracking is loaded.
fn tracked(machine: &Machine, demand: &Demand) -> Option<Need> {
    const NAME: &str = "net.netfilter.nf_conntrack_max";
    if !machine.has("/proc/sys/net/netfilter/nf_conntrack_max") {
        return None;
    }
    let least = demand.sockets();
    let bounds = format!(
        "the firewall of the kernel remembers every connection: {} and {} connections to \
         upstreams are {} entries",
        show_clients(demand),
        grouped(demand.upstreams()),
        grouped(least)
    );
    let more = "Closed ones stay for two minutes. When the table is full, packets of new \
                connections are dropped.";
    let propose = least.saturating_mul(2).checked_next_power_of_two();
    Some(Need::new(
        NAME,
        machine.number(NAME),
        (least, propose.unwrap_or(u64::MAX)),
        [bounds, more.to_owned()],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn ranges_of_ports_start_even_and_hold_what_is_needed() {
        for (needed, lowest) in [
            (100, 64_512),
            (28_000, 29_696),
            (50_100, 2048),
            (90_000, 1024),
        ] {
            assert_eq!(lowest_port(needed), lowest);
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_shortfall() {
        let need = |present| {
            let words = ["because".to_owned(), "More.".to_owned()];
            Need::new("x", present, (5, 8), words)
        };
        assert_eq!(need(Err("gone".to_owned())).shortfall(), None);
        assert_eq!(need(Ok(5)).shortfall(), None);
        let said = need(Ok(4)).shortfall();
        assert_eq!(said.as_deref(), Some("x is 4 and should be 8: because"));
    }
}
