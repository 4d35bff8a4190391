//! Metrics of the discovery of containers. There are no samples while it is off.

use super::family::{Family, Samples, View};
use super::text::{Kind, Text};
use crate::policy::discovery::DiscoveryView;

/// One sample of what discovery shows, if it is on.
fn sample(view: &View<'_>, out: &mut Text<'_>, of: impl Fn(&DiscoveryView) -> u64) {
    if let Some(discovery) = view.shared.discovery.load().as_deref() {
        out.value(of(discovery));
    }
}

/// Their table.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "toron_discovery_connected",
        kind: Kind::Gauge,
        help: "Whether the stream of events of the container engine is open (1) or not (0).",
        labels: &[],
        samples: Samples::Once(|view, out| sample(view, out, |d| u64::from(d.connected))),
    },
    Family {
        name: "toron_discovery_stale",
        kind: Kind::Gauge,
        help:
            "Whether the last look at the containers failed (1), so that routes may be older than \
               what runs.",
        labels: &[],
        samples: Samples::Once(|view, out| sample(view, out, |d| u64::from(d.stale))),
    },
    Family {
        name: "toron_discovery_last_sync_timestamp_seconds",
        kind: Kind::Gauge,
        help: "When the containers were last seen, in seconds of Unix time; 0 is never.",
        labels: &[],
        samples: Samples::Once(|view, out| {
            sample(view, out, |d| d.last_sync.unwrap_or(0) / 1000);
        }),
    },
    Family {
        name: "toron_discovery_containers",
        kind: Kind::Gauge,
        help: "Containers with the label toron.enable.",
        labels: &[],
        samples: Samples::Once(|view, out| sample(view, out, |d| d.containers.len() as u64)),
    },
    Family {
        name: "toron_discovery_routed_containers",
        kind: Kind::Gauge,
        help: "Containers that requests go to.",
        labels: &[],
        samples: Samples::Once(|view, out| sample(view, out, |d| d.routed() as u64)),
    },
    Family {
        name: "toron_discovery_ignored_constraints",
        kind: Kind::Gauge,
        help: "Labels of header constraints that cannot be read: their containers take requests \
               that were not meant for them.",
        labels: &[],
        samples: Samples::Once(|view, out| sample(view, out, |d| d.ignored_constraints as u64)),
    },
    Family {
        name: "toron_discovery_lists_total",
        kind: Kind::Counter,
        help: "Lists of containers that were read.",
        labels: &[],
        samples: Samples::Once(|view, out| sample(view, out, |d| d.lists)),
    },
    Family {
        name: "toron_discovery_failed_lists_total",
        kind: Kind::Counter,
        help: "Looks at the containers that failed.",
        labels: &[],
        samples: Samples::Once(|view, out| sample(view, out, |d| d.failed_lists)),
    },
    Family {
        name: "toron_discovery_connects_total",
        kind: Kind::Counter,
        help: "Connections to the socket of the container engine, failed attempts included.",
        labels: &[],
        samples: Samples::Once(|view, out| sample(view, out, |d| d.connects)),
    },
];
