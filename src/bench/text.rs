//! What was measured, for people.

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::json::stages_of;
use super::measurement::{per_second, Measurement};
use super::plan::{Load, Plan};
use super::profile::Arrivals;
use super::stages::knee;
use super::verdict::Verdict;
use crate::control::config::values::show_duration;

/// A number with separators: `1,234,567`.
#[must_use]
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time with three digits that count: `812 ns`, `45.2 µs`, `1.20 ms`, `3.05 s`.
#[must_use]
pub fn short_time(nanos: u64) -> String {
    let (value, unit) = match nanos {
        0..=999 => return format!("{nanos} ns"),
        1_000..=999_999 => (nanos as f64 / 1e3, "µs"),
        1_000_000..=999_999_999 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    let decimals = match value {
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// Bytes per second, decimal units.
#[must_use]
pub fn short_rate(bytes: f64) -> String {
    for (factor, unit) in [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")] {
        if bytes >= factor {
            return format!("{:.2} {unit}", bytes / factor);
        }
    }
    format!("{bytes:.0} B/s")
}

/// The percentiles shown.
const SHOWN: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("max", 1.0),
];

fn table_head(out: &mut String) {
    let _ = write!(out, "  {:<12}", "");
    for (name, _) in SHOWN {
        let _ = write!(out, "{name:>10}");
    }
    let _ = writeln!(out, "{:>10}", "mean");
}

fn row(out: &mut String, name: &str, histogram: &Histogram<u64>) {
    if histogram.is_empty() {
        return;
    }
    let _ = write!(out, "  {name:<12}");
    for (_, q) in SHOWN {
        let value = match q {
            1.0 => histogram.max(),
            q => histogram.value_at_quantile(q),
        };
        let _ = write!(out, "{:>10}", short_time(value));
    }
    let _ = writeln!(out, "{:>10}", short_time(histogram.mean() as u64));
}

/// What is about to be done, in two lines.
#[must_use]
pub fn introduction(url: &str, engine: &str, plan: &Plan) -> String {
    let s = |n: usize| if n == 1 { "" } else { "s" };
    let mut out = format!(
        "toron bench {url} ({}, {engine}, {} thread{}, {} connection{})\n",
        plan.addr,
        plan.threads,
        s(plan.threads),
        plan.connections,
        s(plan.connections),
    );
    let time = show_duration(plan.load.duration());
    let load = match &plan.load {
        Load::Closed { .. } => format!(
            "CLOSED LOOP for {time}: requests wait for answers; latency counts from the actual start \
             and hides stalls"
        ),
        Load::Open { profile, arrivals } => {
            let stages = profile.stages();
            let from = stages.first().map_or(0.0, |s| s.from);
            let to = stages.last().map_or(0.0, |s| s.to);
            let rate = match stages.len() {
                1 => format!("{from}/s"),
                n => format!("{from}/s to {to}/s in {n} stages"),
            };
            let arrivals = match arrivals {
                Arrivals::Constant => "",
                Arrivals::Poisson => ", Poisson arrivals",
            };
            format!("open loop, {rate}{arrivals}, for {time}; latency counts from the intended start")
        }
    };
    let warmup = match plan.warmup.is_zero() {
        true => "no warm-up".to_owned(),
        false => format!(
            "{} of warm-up before, not counted",
            show_duration(plan.warmup)
        ),
    };
    let _ = writeln!(out, "{load}; {warmup}");
    out
}

/// The whole result.
#[must_use]
pub fn result(plan: &Plan, measured: &Measurement, verdict: &Verdict) -> String {
    let mut out = String::new();
    let counts = &measured.total.counts;
    if measured.interrupted {
        let after = show_duration(Duration::from_millis(measured.elapsed.as_millis() as u64));
        let _ = writeln!(
            out,
            "INTERRUPTED after {after}; what was measured until then:"
        );
    }
    let _ = writeln!(
        out,
        "\n  requests    {} started, {} answered, {} timed out, {} failed",
        grouped(counts.started),
        grouped(counts.answered),
        grouped(counts.timed_out),
        grouped(counts.failed)
    );
    let offered = match plan.load {
        Load::Open { .. } => {
            let offered = per_second(counts.started, measured.elapsed);
            format!(" of {offered:.1}/s offered")
        }
        Load::Closed { .. } => String::new(),
    };
    let _ = writeln!(
        out,
        "  throughput  {:.1}/s answered{offered}",
        measured.rate()
    );
    let _ = writeln!(
        out,
        "  bytes       {} received, {} sent",
        short_rate(measured.receive_rate()),
        short_rate(measured.send_rate())
    );
    statuses_and_errors(&mut out, measured);
    out.push('\n');
    table_head(&mut out);
    row(&mut out, "latency", &measured.total.latency);
    row(&mut out, "first byte", &measured.total.first_byte);
    if matches!(plan.load, Load::Open { .. }) {
        row(&mut out, "service", &measured.total.service);
    }
    row(&mut out, "connect", &measured.total.connect);
    parts(&mut out, plan, measured);
    conclusion(&mut out, plan, verdict);
    out
}

fn statuses_and_errors(out: &mut String, measured: &Measurement) {
    let counts = &measured.total.counts;
    let statuses: Vec<String> = measured
        .total
        .statuses
        .iter()
        .map(|(status, n)| format!("{status}: {}", grouped(n)))
        .collect();
    if !statuses.is_empty() {
        let _ = writeln!(out, "  statuses    {}", statuses.join(", "));
    }
    let mut errors: Vec<String> = counts
        .failures()
        .map(|(kind, n)| format!("{}: {}", kind.name(), grouped(n)))
        .collect();
    if counts.timed_out > 0 {
        errors.push(format!("timeout: {}", grouped(counts.timed_out)));
    }
    let errors = match errors.is_empty() {
        true => "none".to_owned(),
        false => errors.join(", "),
    };
    let _ = writeln!(out, "  errors      {errors}");
    if counts.connects > measured.open as u64 {
        let _ = writeln!(out, "  connects    {}", grouped(counts.connects));
    }
}

fn parts(out: &mut String, plan: &Plan, measured: &Measurement) {
    let stages = stages_of(plan);
    if stages.len() > 1 {
        out.push('\n');
        for (stage, part) in stages.iter().zip(&measured.stages) {
            let _ = writeln!(
                out,
                "  {:>9.0}/s  {:>10} started {:>8} lost   p50 {:>8}  p99 {:>8}  max {:>8}",
                stage.to,
                grouped(part.started),
                grouped(part.lost),
                short_time(part.latency.value_at_quantile(0.5)),
                short_time(part.latency.value_at_quantile(0.99)),
                short_time(part.latency.max())
            );
        }
        let _ = match knee(&stages, &measured.stages) {
            Some(rate) => writeln!(out, "  knee        {rate:.0}/s was the last good rate"),
            None => writeln!(out, "  knee        not within these rates"),
        };
    }
    if measured.requests.len() > 1 {
        out.push('\n');
        for (request, part) in plan.requests.iter().zip(&measured.requests) {
            row(out, &request.name, &part.latency);
        }
    }
}

fn conclusion(out: &mut String, plan: &Plan, verdict: &Verdict) {
    let _ = writeln!(out, "\n  verdict     {}", verdict.headline(plan));
    for sentence in verdict.reasons.iter().chain(&verdict.notes) {
        let _ = writeln!(out, "              {sentence}");
    }
    let mut own = vec![format!("{:.2}% of starts late", verdict.late * 100.0)];
    if let Some(cpu) = verdict.cpu {
        own.push(format!("busiest thread {:.0}% of a processor", cpu * 100.0));
    }
    if let Some(time) = verdict.cpu_per_request {
        own.push(format!(
            "{} CPU per answer",
            short_time(time.as_nanos() as u64)
        ));
    }
    let turn = short_time(verdict.turn.as_nanos() as u64);
    let _ = writeln!(
        out,
        "  generator   {}, p99 of a turn {turn}",
        own.join(", ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        for (nanos, text) in [
            (812, "812 ns"),
            (45_200, "45.2 µs"),
            (1_204_000, "1.20 ms"),
            (200_000_000, "200 ms"),
            (3_050_000_000, "3.05 s"),
        ] {
            assert_eq!(short_time(nanos), text);
        }
        assert_eq!(short_rate(1_500.0), "1.50 kB/s");
    }
}
