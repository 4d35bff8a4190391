//! Metrics of toron itself: reactors, logs, configuration, build, process.

use std::sync::atomic::Ordering;

use super::cells::TURN;
use super::family::{Family, Samples, View};
use super::process::Process;
use super::text::{Kind, Text};
use crate::policy::counter::Distribution;
use crate::server::access_log::AccessLog;

/// Their table. Names that begin with `process_` are those that all programs use.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "toron_reactors",
        kind: Kind::Gauge,
        help: "Reactors; active are those that have ever had a connection.",
        labels: &["state"],
        samples: Samples::Once(|view, out| {
            let active = view.totals.active_reactors;
            let all = view.shared.gauges.len() as u64;
            out.sample(&[("state", "active")], active);
            out.sample(&[("state", "asleep")], all.saturating_sub(active));
        }),
    },
    Family {
        name: "toron_reactor_turns_total",
        kind: Kind::Counter,
        help: "Turns of the reactors' loops.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.totals.turns)),
    },
    Family {
        name: "toron_reactor_turn_seconds",
        kind: Kind::Histogram,
        help: "How long a turn of a reactor's loop took, without the wait for something to do; of \
               every 16th turn.",
        labels: &[],
        samples: Samples::Once(|view, out| {
            let mut sum = Distribution::default();
            view.cells().for_each(|cells| sum.add(&cells.turns));
            out.histogram(&[], &TURN, &sum);
        }),
    },
    Family {
        name: "toron_reactor_system_calls_total",
        kind: Kind::Counter,
        help: "System calls on the data path.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.totals.system_calls)),
    },
    Family {
        name: "toron_access_log_dropped_lines_total",
        kind: Kind::Counter,
        help: "Lines of the access log that were dropped because the writer could not keep up.",
        labels: &[],
        samples: Samples::Once(|view, out| {
            let log = view.shared.access_log.as_ref();
            out.value(log.map_or(0, AccessLog::dropped));
        }),
    },
    Family {
        name: "toron_config_reloads_total",
        kind: Kind::Counter,
        help: "Reloads of the configuration, by outcome.",
        labels: &["outcome"],
        samples: Samples::Once(|view, out| {
            let reloads = &view.shared.reloads;
            out.sample(&[("outcome", "applied")], reloads.applied());
            out.sample(&[("outcome", "rejected")], reloads.rejected());
        }),
    },
    Family {
        name: "toron_config_last_reload_successful",
        kind: Kind::Gauge,
        help: "1 if the configuration in force is that of the last reload, or of the start; 0 if \
               the last one was rejected.",
        labels: &[],
        samples: Samples::Once(|view, out| {
            out.value(u8::from(view.shared.reloads.last_was_applied()));
        }),
    },
    Family {
        name: "toron_config_loaded_timestamp_seconds",
        kind: Kind::Gauge,
        help: "When the configuration in force was loaded, in Unix time.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.shared.reloads.applied_at())),
    },
    Family {
        name: "toron_config_routes",
        kind: Kind::Gauge,
        help: "Routes in force.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.snapshot.table.routes().len())),
    },
    Family {
        name: "toron_draining",
        kind: Kind::Gauge,
        help: "1 after a signal to stop.",
        labels: &[],
        samples: Samples::Once(|view, out| {
            out.value(u8::from(view.shared.draining.load(Ordering::Relaxed)));
        }),
    },
    Family {
        name: "toron_build_info",
        kind: Kind::Gauge,
        help: "1, with what is running as labels.",
        labels: &["version", "commit", "engine"],
        samples: Samples::Once(|view, out| {
            let engine = view.shared.engine.get();
            let labels = [
                ("version", env!("CARGO_PKG_VERSION")),
                ("commit", option_env!("TORON_COMMIT").unwrap_or("unknown")),
                ("engine", engine.copied().unwrap_or("unknown")),
            ];
            out.sample(&labels, 1);
        }),
    },
    Family {
        name: "process_cpu_seconds_total",
        kind: Kind::Counter,
        help: "Processor time in user and kernel mode.",
        labels: &[],
        samples: Samples::Once(|view, out| of_process(view, out, |p| Some(p.cpu_seconds))),
    },
    Family {
        name: "process_resident_memory_bytes",
        kind: Kind::Gauge,
        help: "Memory in use.",
        labels: &[],
        samples: Samples::Once(|view, out| {
            of_process(view, out, |p| Some(p.resident_bytes as f64));
        }),
    },
    Family {
        name: "process_virtual_memory_bytes",
        kind: Kind::Gauge,
        help: "Address space.",
        labels: &[],
        samples: Samples::Once(|view, out| of_process(view, out, |p| Some(p.virtual_bytes as f64))),
    },
    Family {
        name: "process_threads",
        kind: Kind::Gauge,
        help: "Threads.",
        labels: &[],
        samples: Samples::Once(|view, out| of_process(view, out, |p| Some(p.threads as f64))),
    },
    Family {
        name: "process_open_fds",
        kind: Kind::Gauge,
        help: "Open descriptors; from Linux 6.2 on.",
        labels: &[],
        samples: Samples::Once(|view, out| of_process(view, out, |p| p.open_fds.map(|n| n as f64))),
    },
    Family {
        name: "process_max_fds",
        kind: Kind::Gauge,
        help: "How many descriptors may be open.",
        labels: &[],
        samples: Samples::Once(|view, out| of_process(view, out, |p| p.max_fds.map(|n| n as f64))),
    },
    Family {
        name: "process_start_time_seconds",
        kind: Kind::Gauge,
        help: "When the process was started, in Unix time.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.shared.reloads.started_at())),
    },
];

fn of_process(view: &View<'_>, out: &mut Text<'_>, what: fn(&Process) -> Option<f64>) {
    if let Some(value) = view.process().and_then(what) {
        out.value(value);
    }
}
