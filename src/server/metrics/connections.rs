//! Metrics of connections, of the memory and pipes that they use, and of limits in time.

use super::cells::Deadline;
use super::family::{Family, Samples};
use super::text::Kind;

/// Their table.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "toron_client_connections",
        kind: Kind::Gauge,
        help: "Client connections; idle between requests, or active.",
        labels: &["state"],
        samples: Samples::Once(|view, out| {
            let idle = view.totals.idle_sessions;
            out.sample(&[("state", "idle")], idle);
            out.sample(
                &[("state", "active")],
                view.totals.sessions.saturating_sub(idle),
            );
        }),
    },
    Family {
        name: "toron_client_connections_accepted_total",
        kind: Kind::Counter,
        help: "Client connections accepted, those refused at once included.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.sum(|cells| cells.connections.get()))),
    },
    Family {
        name: "toron_upstream_connections",
        kind: Kind::Gauge,
        help: "Connections to upstreams; in use (being dialled, too) or idle.",
        labels: &["state"],
        samples: Samples::Once(|view, out| {
            let idle = view.totals.upstream_idle;
            let used = view.totals.upstream_connections.saturating_sub(idle);
            out.sample(&[("state", "in_use")], used);
            out.sample(&[("state", "idle")], idle);
        }),
    },
    Family {
        name: "toron_upstream_connects_total",
        kind: Kind::Counter,
        help:
            "How requests got their upstream connection: an idle one was reused, one was dialled, \
               or dialling failed.",
        labels: &["how"],
        samples: Samples::Once(|view, out| {
            out.sample(&[("how", "reused")], view.sum(|cells| cells.reused.get()));
            out.sample(&[("how", "dialled")], view.sum(|cells| cells.dialled.get()));
            out.sample(
                &[("how", "failed")],
                view.sum(|cells| cells.dials_failed.get()),
            );
        }),
    },
    Family {
        name: "toron_upstream_out_of_resources_total",
        kind: Kind::Counter,
        help:
            "Dials of upstreams that failed because this machine had no descriptor, port or memory \
               left; among those that failed.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.totals.out_of_resources)),
    },
    Family {
        name: "toron_deadlines_total",
        kind: Kind::Counter,
        help: "Deadlines that passed, by the setting they come from.",
        labels: &["kind"],
        samples: Samples::Once(|view, out| {
            for which in Deadline::ALL {
                let sum = view.sum(|cells| cells.deadlines(which));
                out.sample(&[("kind", which.as_str())], sum);
            }
        }),
    },
    Family {
        name: "toron_buffers_in_use",
        kind: Kind::Gauge,
        help: "64 KiB buffers out of the pools.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.totals.buffers)),
    },
    Family {
        name: "toron_buffers_most",
        kind: Kind::Gauge,
        help: "The most buffers that were out at the end of a turn, added up over the reactors.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.totals.buffers_most)),
    },
    Family {
        name: "toron_pipes_in_use",
        kind: Kind::Gauge,
        help: "Pipes out of the pools.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.totals.pipes)),
    },
    Family {
        name: "toron_pipes_most",
        kind: Kind::Gauge,
        help: "The most pipes that were out at the end of a turn, added up over the reactors.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.totals.pipes_most)),
    },
    Family {
        name: "toron_collected_body_bytes",
        kind: Kind::Gauge,
        help: "Bytes that collected request bodies take.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.shared.memory.used())),
    },
    Family {
        name: "toron_collected_body_limit_bytes",
        kind: Kind::Gauge,
        help: "Bytes that collected request bodies may take (server.buffer_memory).",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.snapshot.settings.buffer_memory)),
    },
];
