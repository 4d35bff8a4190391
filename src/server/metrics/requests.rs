//! Metrics of requests, most of them by route.

use super::family::{route_label, Family, Samples, View, NO_ROUTE};
use super::text::{Kind, Text};
use crate::http::Reason;
use crate::policy::counter::Counter;
use crate::policy::pool::Standing;
use crate::policy::route_stats::{Class, RouteStats, LATENCY};
use crate::policy::settings::Route;

/// Their table.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "toron_requests_received_total",
        kind: Kind::Counter,
        help: "Requests whose head came whole, was refused, or was cut off.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.totals.received)),
    },
    Family {
        name: "toron_requests_ended_total",
        kind: Kind::Counter,
        help: "Requests that are over. Those received less those in flight.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.totals.requests)),
    },
    Family {
        name: "toron_requests_in_flight",
        kind: Kind::Gauge,
        help: "Requests on their way to an upstream or back.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.totals.exchanges)),
    },
    Family {
        name: "toron_requests_total",
        kind: Kind::Counter,
        help:
            "Requests that are over, by route and class of the status sent; class \"none\" if none \
               was, route \"\" if no route took it.",
        labels: &["route", "class"],
        samples: Samples::Requests(unrouted_ended, ended),
    },
    Family {
        name: "toron_refusals_total",
        kind: Kind::Counter,
        help: "Requests and connections that were refused or cut off, by route and reason.",
        labels: &["route", "reason"],
        samples: Samples::Requests(unrouted_refusals, refusals),
    },
    Family {
        name: "toron_request_fields_dropped_total",
        kind: Kind::Counter,
        help: "Request fields that were not passed on because of an underscore in their name.",
        labels: &[],
        samples: Samples::Once(|view, out| out.value(view.sum(|cells| cells.underscores.get()))),
    },
    Family {
        name: "toron_response_head_seconds",
        kind: Kind::Histogram,
        help:
            "From the request head read to the response head, of requests that went to an upstream.",
        labels: &["route"],
        samples: Samples::Routes(heads),
    },
    Family {
        name: "toron_request_duration_seconds",
        kind: Kind::Histogram,
        help: "From the request head read to the last byte, of requests that went to an upstream; \
               without tunnels.",
        labels: &["route"],
        samples: Samples::Routes(durations),
    },
    Family {
        name: "toron_request_body_bytes_total",
        kind: Kind::Counter,
        help:
            "Bytes of request bodies taken from clients, decoded; added when the request is over.",
        labels: &["route"],
        samples: Samples::Routes(bytes_in),
    },
    Family {
        name: "toron_response_bytes_total",
        kind: Kind::Counter,
        help: "Bytes sent to clients by requests that went to an upstream, heads included; added \
               when the request is over.",
        labels: &["route"],
        samples: Samples::Routes(bytes_out),
    },
    Family {
        name: "toron_route_requests_in_flight",
        kind: Kind::Gauge,
        help: "Slots taken, of routes that have a cap or have been used.",
        labels: &["route"],
        samples: Samples::Routes(in_flight),
    },
    Family {
        name: "toron_route_requests_in_flight_limit",
        kind: Kind::Gauge,
        help: "Slots that there are (max_concurrency), of routes that have a cap.",
        labels: &["route"],
        samples: Samples::Routes(cap),
    },
    Family {
        name: "toron_target_healthy",
        kind: Kind::Gauge,
        help: "1 if the target takes requests of the route, 0 if it is out or on trial.",
        labels: &["route", "target"],
        samples: Samples::Routes(health),
    },
];

fn stats<'a>(view: &'a View<'_>, id: usize) -> Option<&'a RouteStats> {
    view.snapshot.stats(id).map(|stats| &**stats)
}

fn ended(view: &View<'_>, id: usize, route: &Route, out: &mut Text<'_>) {
    if let Some(counts) = stats(view, id).and_then(RouteStats::ended) {
        classes(route_label(route), counts, out);
    }
}

fn classes(route: (&'static str, &str), counts: [u64; Class::ALL.len()], out: &mut Text<'_>) {
    for (class, count) in Class::ALL.into_iter().zip(counts) {
        if count > 0 {
            out.sample(&[route, ("class", class.as_str())], count);
        }
    }
}

fn unrouted_ended(view: &View<'_>, out: &mut Text<'_>) {
    let mut sums = [0; Class::ALL.len()];
    for cells in view.cells() {
        let counts = cells.unrouted.counts();
        sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
    }
    classes(NO_ROUTE, sums, out);
}

fn unrouted_refusals(view: &View<'_>, out: &mut Text<'_>) {
    for reason in Reason::ALL {
        let sum = view.sum(|cells| cells.refusals.get(reason.index()).map_or(0, Counter::get));
        if sum > 0 {
            out.sample(&[NO_ROUTE, ("reason", reason.code())], sum);
        }
    }
}

fn refusals(view: &View<'_>, id: usize, route: &Route, out: &mut Text<'_>) {
    let counts = stats(view, id).into_iter().flat_map(RouteStats::refusals);
    for (reason, count) in counts {
        out.sample(&[route_label(route), ("reason", reason.code())], count);
    }
}

fn heads(view: &View<'_>, id: usize, route: &Route, out: &mut Text<'_>) {
    if let Some(values) = stats(view, id).and_then(RouteStats::heads) {
        out.histogram(&[route_label(route)], &LATENCY, &values);
    }
}

fn durations(view: &View<'_>, id: usize, route: &Route, out: &mut Text<'_>) {
    if let Some(values) = stats(view, id).and_then(RouteStats::durations) {
        out.histogram(&[route_label(route)], &LATENCY, &values);
    }
}

fn bytes_in(view: &View<'_>, id: usize, route: &Route, out: &mut Text<'_>) {
    if let Some((taken, _)) = stats(view, id).and_then(RouteStats::bytes) {
        out.sample(&[route_label(route)], taken);
    }
}

fn bytes_out(view: &View<'_>, id: usize, route: &Route, out: &mut Text<'_>) {
    if let Some((_, sent)) = stats(view, id).and_then(RouteStats::bytes) {
        out.sample(&[route_label(route)], sent);
    }
}

fn in_flight(view: &View<'_>, id: usize, route: &Route, out: &mut Text<'_>) {
    let slots = view.snapshot.in_flight_of(route);
    let used = slots > 0 || stats(view, id).is_some_and(RouteStats::is_used);
    if used || route.limits.max_concurrency.is_some() {
        out.sample(&[route_label(route)], slots);
    }
}

/// A target that is listed twice is told of once: both have the same address.
fn health(view: &View<'_>, id: usize, route: &Route, out: &mut Text<'_>) {
    let states = view.snapshot.pool(id).map(|pool| pool.targets());
    let mut told: Vec<String> = Vec::new();
    for (target, state) in route.targets().iter().zip(states.unwrap_or_default()) {
        let url = target.url();
        if !told.contains(&url) {
            let is_up = state.standing() == Standing::Up;
            out.sample(&[route_label(route), ("target", &url)], u8::from(is_up));
            told.push(url);
        }
    }
}

fn cap(_: &View<'_>, _: usize, route: &Route, out: &mut Text<'_>) {
    if let Some(cap) = route.limits.max_concurrency {
        out.sample(&[route_label(route)], cap);
    }
}
