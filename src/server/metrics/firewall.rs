//! Metrics of the connection firewall.

use super::family::{Family, Samples};
use super::text::Kind;
use crate::policy::firewall::BlockedFor;

/// Their table.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "toron_firewall_connections",
        kind: Kind::Gauge,
        help: "Client connections that count for max_connections_total.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.shared.firewall.connections())),
    },
    Family {
        name: "toron_firewall_tracked_addresses",
        kind: Kind::Gauge,
        help: "Addresses of which something is known.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.shared.firewall.stats().tracked)),
    },
    Family {
        name: "toron_firewall_blocked_addresses",
        kind: Kind::Gauge,
        help: "Addresses under a block that is enforced, those that still have connections open \
               left out.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.shared.firewall.blocked_now(view.now))),
    },
    Family {
        name: "toron_firewall_evicted_addresses_total",
        kind: Kind::Counter,
        help: "Addresses that were forgotten to make room for others.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.shared.firewall.stats().evicted)),
    },
    Family {
        name: "toron_firewall_untracked_total",
        kind: Kind::Counter,
        help: "Times that an address was let in without an account because there was no room.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.shared.firewall.stats().untracked)),
    },
    Family {
        name: "toron_firewall_refused_total",
        kind: Kind::Counter,
        help: "Connections and requests that the firewall refused.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.totals.refused)),
    },
    Family {
        name: "toron_firewall_observed_total",
        kind: Kind::Counter,
        help:
            "Connections and requests that it would have refused, had it not been told to observe.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.totals.observed)),
    },
    Family {
        name: "toron_firewall_violations_total",
        kind: Kind::Counter,
        help: "Violations, by what they were: requests beyond the rate, or slowness.",
        labels: &["kind"],
        samples: Samples::Once(|view, out| {
            let (rate, slow) = (
                view.sum(|cells| cells.rate_violations.get()),
                view.sum(|cells| cells.slowness_violations.get()),
            );
            out.sample(&[("kind", "rate")], rate);
            out.sample(&[("kind", "slowness")], slow);
        }),
    },
    Family {
        name: "toron_firewall_blocks_total",
        kind: Kind::Counter,
        help: "Blocks, by the violation that led to them; manual are those by hand.",
        labels: &["kind"],
        samples: Samples::Once(|view, out| {
            let (rate, slow) = (
                view.sum(|cells| cells.rate_blocks.get()),
                view.sum(|cells| cells.slowness_blocks.get()),
            );
            out.sample(&[("kind", "rate")], rate);
            out.sample(&[("kind", "slowness")], slow);
            let by_hand = view.shared.firewall.blocks_by_hand();
            out.sample(&[("kind", BlockedFor::Hand.as_str())], by_hand);
        }),
    },
];
