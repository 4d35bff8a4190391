//! Everything that was measured, as JSON.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{json, Map, Value};

use super::measurement::{per_second, Measurement, Point};
use super::mix::Prepared;
use super::plan::{Load, Plan};
use super::profile::{Arrivals, Stage};
use super::record::Part;
use super::stages::knee;
use super::verdict::Verdict;

/// Microseconds with three decimals.
fn micros(nanos: u64) -> Value {
    json!(nanos as f64 / 1e3)
}

fn seconds(time: Duration) -> Value {
    json!(time.as_secs_f64())
}

/// A number with two decimals.
fn rounded(n: f64) -> Value {
    json!((n * 100.0).round() / 100.0)
}

/// Percentiles in microseconds; all `null` when there is no sample.
#[must_use]
pub fn percentiles(histogram: &Histogram<u64>) -> Value {
    let at = |q: f64| match histogram.is_empty() {
        true => Value::Null,
        false => micros(histogram.value_at_quantile(q)),
    };
    let of = |value: f64| match histogram.is_empty() {
        true => Value::Null,
        false => rounded(value / 1e3),
    };
    json!({
        "count": histogram.len(),
        "min": at(0.0),
        "mean": of(histogram.mean()),
        "stdev": of(histogram.stdev()),
        "p50": at(0.5),
        "p75": at(0.75),
        "p90": at(0.9),
        "p95": at(0.95),
        "p99": at(0.99),
        "p999": at(0.999),
        "p9999": at(0.9999),
        "max": of(histogram.max() as f64),
    })
}

/// Everything about one measurement of one target.
#[must_use]
pub fn measurement(
    url: &str,
    engine: &str,
    plan: &Plan,
    measured: &Measurement,
    verdict: &Verdict,
) -> Value {
    let total = &measured.total;
    let counts = &total.counts;
    let statuses: Map<String, Value> = total
        .statuses
        .iter()
        .map(|(status, n)| (status.to_string(), json!(n)))
        .collect();
    let mut errors: Map<String, Value> = counts
        .failures()
        .map(|(kind, n)| (kind.name().to_owned(), json!(n)))
        .collect();
    if counts.timed_out > 0 {
        errors.insert("timeout".to_owned(), json!(counts.timed_out));
    }
    json!({
        "toron": env!("CARGO_PKG_VERSION"),
        "mode": plan.load.mode(),
        "url": url,
        "address": plan.addr.to_string(),
        "engine": engine,
        "settings": settings(plan),
        "duration_s": seconds(measured.elapsed),
        "interrupted": measured.interrupted,
        "requests": {
            "started": counts.started,
            "answered": counts.answered,
            "timed_out": counts.timed_out,
            "never_sent": counts.never_sent,
            "failed": counts.failed,
            "unfinished": measured.unfinished,
            "waited_for_a_connection": counts.queued,
        },
        "offered_per_s": rounded(per_second(counts.started, measured.elapsed)),
        "requests_per_s": rounded(measured.rate()),
        "bytes": { "received": counts.received, "sent": counts.sent },
        "bytes_per_s": {
            "received": rounded(measured.receive_rate()),
            "sent": rounded(measured.send_rate()),
        },
        "status": statuses,
        "errors": errors,
        "latency_us": percentiles(&total.latency),
        "first_byte_us": percentiles(&total.first_byte),
        "service_us": percentiles(&total.service),
        "connect_us": percentiles(&total.connect),
        "connections": {
            "at_start": measured.open,
            "made": counts.connects,
            "closed_idle_by_peer": counts.closed_idle,
        },
        "generator": generator(measured, verdict),
        "stages": stages(plan, &measured.stages),
        "knee_per_s": knee(&stages_of(plan), &measured.stages),
        "kinds": kinds(&plan.requests, &measured.requests),
        "series": measured.series.iter().map(point).collect::<Vec<_>>(),
    })
}

fn settings(plan: &Plan) -> Value {
    let (rate, arrivals) = match &plan.load {
        Load::Closed { .. } => (Value::Null, Value::Null),
        Load::Open { profile, arrivals } => {
            let stages = profile.stages();
            let ends = [stages.first().map(|s| s.from), stages.last().map(|s| s.to)];
            let arrivals = match arrivals {
                Arrivals::Constant => "constant",
                Arrivals::Poisson => "poisson",
            };
            (json!(ends), json!(arrivals))
        }
    };
    json!({
        "rate_per_s": rate,
        "arrivals": arrivals,
        "connections": plan.connections,
        "threads": plan.threads,
        "duration_s": seconds(plan.load.duration()),
        "warmup_s": seconds(plan.warmup),
        "timeout_s": seconds(plan.timeout),
        "pipeline": plan.pipeline,
        "keep_alive": plan.keep_alive,
        "seed": plan.seed,
    })
}

fn generator(measured: &Measurement, verdict: &Verdict) -> Value {
    json!({
        "verdict": verdict.grade.name(),
        "reasons": verdict.reasons,
        "notes": verdict.notes,
        "late_starts": measured.total.counts.late,
        "lateness_us": percentiles(&measured.total.lateness),
        "turn_us": percentiles(&measured.busy),
        "cpu_share_of_busiest_thread": verdict.cpu.map(rounded),
        "waiting_for_cpu_share": verdict.starved.map(rounded),
        "cpu_us_per_request": verdict.cpu_per_request.map(|t| rounded(t.as_secs_f64() * 1e6)),
    })
}

/// The stages of the plan's profile.
#[must_use]
pub fn stages_of(plan: &Plan) -> Vec<Stage> {
    match &plan.load {
        Load::Open { profile, .. } => profile.stages().to_vec(),
        Load::Closed { .. } => Vec::new(),
    }
}

fn stages(plan: &Plan, parts: &[Part]) -> Value {
    let stages = stages_of(plan);
    if stages.len() < 2 {
        return json!([]);
    }
    let one = |(stage, part): (&Stage, &Part)| {
        json!({
            "from_per_s": rounded(stage.from),
            "to_per_s": rounded(stage.to),
            "length_s": seconds(stage.length),
            "started": part.started,
            "answered": part.answered,
            "lost": part.lost,
            "latency_us": percentiles(&part.latency),
        })
    };
    stages.iter().zip(parts).map(one).collect()
}

fn kinds(requests: &[Prepared], parts: &[Part]) -> Value {
    let one = |(request, part): (&Prepared, &Part)| {
        json!({
            "name": request.name,
            "requests": part.started,
            "answered": part.answered,
            "lost": part.lost,
            "latency_us": percentiles(&part.latency),
        })
    };
    requests.iter().zip(parts).map(one).collect()
}

fn point(point: &Point) -> Value {
    json!({
        "at_s": seconds(point.at),
        "answered": point.answered,
        "lost": point.lost,
        "received": point.received,
        "sent": point.sent,
        "p50_us": micros(point.p50),
        "p99_us": micros(point.p99),
        "max_us": micros(point.max),
    })
}
