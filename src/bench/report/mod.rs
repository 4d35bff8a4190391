//! The page with the plots: one HTML file that needs nothing else.

mod svg;

use std::fmt::Write as _;

use self::svg::{escape, Axis, Chart, Scale, Series};
use super::json::stages_of;
use super::measurement::{per_second, Point};
use super::output::Outcome;
use super::text::{grouped, short_time};
use super::verdict::Grade;

/// Steps of the percentile curve for each halving of the distance to 100%.
const STEPS: u32 = 8;
/// A linear latency axis would squeeze smaller values than this part of the largest.
const SPREAD: f64 = 20.0;

/// What a page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The measurements, at least one.
    pub outcomes: &'a [Outcome],
    /// The generator's engine.
    pub engine: &'a str,
    /// The text of the terminal.
    pub text: &'a str,
    /// The machine's description.
    pub machine: &'a [(String, String)],
}

const STYLE: &str = "\
:root{color-scheme:light}*{box-sizing:border-box}\
body{margin:0 auto;max-width:1240px;padding:16px;font:16px/1.5 system-ui,sans-serif;color:#111;background:#f6f7f9}\
h1{font-size:1.4rem;margin:.2em 0;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:1.6em 0 .4em}p{margin:.4em 0;overflow-wrap:anywhere}\
.box{background:#fff;border:1px solid #d9dce1;border-radius:8px;padding:12px}.box+.box{margin-top:12px}.plots .box{margin:0}\
.good{border-left:6px solid #009e73}.strained{border-left:6px solid #e69f00}.bottleneck{border-left:6px solid #d55e00}\
.plots{display:grid;gap:12px;grid-template-columns:repeat(auto-fit,minmax(min(100%,360px),1fr))}\
.plots svg{display:block;width:100%;height:auto}.wide{overflow-x:auto}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
th,td{padding:4px 10px;text-align:right;border-bottom:1px solid #e6e8ec;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}.facts td{white-space:normal;text-align:left;overflow-wrap:anywhere}\
pre{margin:0;font:13px/1.45 ui-monospace,monospace}";

/// The page.
#[must_use]
pub fn html(page: &Page<'_>) -> String {
    let names: Vec<String> = page.outcomes.iter().map(|o| escape(&o.url)).collect();
    let mut names = names;
    names.dedup();
    let title = format!("toron bench: {}", names.join(", "));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n\
         </head>\n<body>\n<h1>{title}</h1>\n"
    );
    verdicts(&mut out, page);
    out.push_str("<h2>Latency</h2>\n<div class=\"box wide\">\n");
    latencies(&mut out, page);
    out.push_str("</div>\n<h2>Requests</h2>\n<div class=\"box wide\">\n");
    requests(&mut out, page);
    out.push_str("</div>\n<h2>Plots</h2>\n<div class=\"plots\">\n");
    for (_, svg) in plots(page) {
        let _ = writeln!(out, "<div class=\"box\">{svg}</div>");
    }
    let text = escape(page.text.trim_matches('\n'));
    let _ = write!(
        out,
        "</div>\n<h2>As on the terminal</h2>\n<div class=\"box wide\"><pre>{text}</pre></div>\n\
         <h2>Machine</h2>\n<div class=\"box\"><table class=\"facts\">\n"
    );
    for (name, value) in page.machine {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td></tr>",
            escape(name),
            escape(value)
        );
    }
    out.push_str("</table></div>\n</body>\n</html>\n");
    out
}

fn verdicts(out: &mut String, page: &Page<'_>) {
    for outcome in page.outcomes {
        let class = match outcome.verdict.grade {
            Grade::Good => "good",
            Grade::Strained => "strained",
            Grade::Bottleneck => "bottleneck",
        };
        let head = super::text::introduction(&outcome.url, page.engine, &outcome.plan);
        let head = head.lines().nth(1).unwrap_or_default();
        let rounds =
            outcome.measured.elapsed.as_secs_f64() / outcome.plan.load.duration().as_secs_f64();
        let rounds = match rounds.round() {
            n if n >= 2.0 => format!("{n} rounds of "),
            _ => String::new(),
        };
        let _ = write!(
            out,
            "<div class=\"box {class}\">\n<p><strong>{}</strong>: {rounds}{}</p>\n<p>Verdict: {}.</p>\n",
            escape(&outcome.name),
            escape(head),
            escape(outcome.verdict.headline(&outcome.plan))
        );
        for sentence in outcome.verdict.reasons.iter().chain(&outcome.verdict.notes) {
            let _ = writeln!(out, "<p>{}</p>", escape(sentence));
        }
        out.push_str("</div>\n");
    }
}

fn row(out: &mut String, cell: &str, cells: &[String]) {
    out.push_str("<tr>");
    for text in cells {
        let _ = write!(out, "<{cell}>{}</{cell}>", escape(text));
    }
    out.push_str("</tr>\n");
}

fn latencies(out: &mut String, page: &Page<'_>) {
    let shown = [
        ("p50", 0.5),
        ("p90", 0.9),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("p99.99", 0.9999),
        ("max", 1.0),
    ];
    out.push_str("<table>\n");
    let head = std::iter::once(String::new()).chain(shown.map(|(name, _)| name.to_owned()));
    row(out, "th", &head.collect::<Vec<_>>());
    for outcome in page.outcomes {
        let total = &outcome.measured.total;
        for (what, histogram) in [
            ("latency", &total.latency),
            ("first byte", &total.first_byte),
            ("connect", &total.connect),
        ] {
            let values = shown.map(|(_, q)| match histogram.is_empty() {
                true => "–".to_owned(),
                false => short_time(histogram.value_at_quantile(q)),
            });
            let name = format!("{}, {what}", outcome.name);
            row(
                out,
                "td",
                &std::iter::once(name).chain(values).collect::<Vec<_>>(),
            );
        }
    }
    out.push_str("</table>\n");
}

fn requests(out: &mut String, page: &Page<'_>) {
    out.push_str("<table>\n");
    let head = [
        "",
        "started",
        "answered",
        "timed out",
        "failed",
        "offered/s",
        "answered/s",
        "statuses",
        "errors",
    ];
    row(out, "th", &head.map(str::to_owned));
    for outcome in page.outcomes {
        let measured = &outcome.measured;
        let counts = &measured.total.counts;
        let statuses = measured.total.statuses.iter();
        let statuses: Vec<String> = statuses
            .map(|(s, n)| format!("{s}: {}", grouped(n)))
            .collect();
        let errors = counts.failures();
        let errors: Vec<String> = errors
            .map(|(e, n)| format!("{}: {}", e.name(), grouped(n)))
            .collect();
        row(
            out,
            "td",
            &[
                outcome.name.clone(),
                grouped(counts.started),
                grouped(counts.answered),
                grouped(counts.timed_out),
                grouped(counts.failed),
                format!("{:.0}", per_second(counts.started, measured.elapsed)),
                format!("{:.0}", measured.rate()),
                statuses.join(", "),
                match errors.is_empty() {
                    true => "none".to_owned(),
                    false => errors.join(", "),
                },
            ],
        );
    }
    out.push_str("</table>\n");
}

/// The plots with names for files.
#[must_use]
pub fn plots(page: &Page<'_>) -> Vec<(&'static str, String)> {
    let mut plots = vec![
        ("percentiles", percentile_curve(page.outcomes)),
        ("latency", latency_over_time(page.outcomes)),
        ("throughput", throughput(page.outcomes)),
        ("errors", errors(page.outcomes)),
    ];
    if let [outcome] = page.outcomes {
        if stages_of(&outcome.plan).len() > 1 {
            plots.push(("stages", by_rate(outcome)));
        }
    }
    plots
        .into_iter()
        .map(|(name, chart)| (name, chart.svg()))
        .collect()
}

fn time_tick(nanos: f64) -> String {
    match nanos {
        n if n >= 1e9 => format!("{} s", n / 1e9),
        n if n >= 1e6 => format!("{} ms", n / 1e6),
        n if n >= 1e3 => format!("{} µs", n / 1e3),
        0.0 => "0".to_owned(),
        n => format!("{n} ns"),
    }
}

fn plain_tick(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v => format!("{}", (v * 1000.0).round() / 1000.0),
    }
}

/// `1/(1-q)` as a percentile: 10 is 90%, 100 is 99%.
fn percentile_tick(inverse: f64) -> String {
    let percent = 100.0 * (1.0 - 1.0 / inverse);
    let nines = inverse.log10().round() as usize;
    format!("{percent:.*}%", nines.saturating_sub(2))
}

const SECONDS: Axis = Axis {
    label: "seconds",
    scale: Scale::Linear,
    tick: plain_tick,
};

/// A latency axis that shows all of these lines.
fn latency_axis(series: &[Series]) -> Axis {
    let values = || {
        series
            .iter()
            .flat_map(|s| &s.points)
            .map(|p| p.1)
            .filter(|v| *v > 0.0)
    };
    let low = values().fold(f64::MAX, f64::min);
    let high = values().fold(0.0, f64::max);
    Axis {
        label: "latency",
        scale: if high > low * SPREAD {
            Scale::Log
        } else {
            Scale::Linear
        },
        tick: time_tick,
    }
}

fn percentile_curve(outcomes: &[Outcome]) -> Chart {
    let curve = |histogram: &hdrhistogram::Histogram<u64>| {
        let most = histogram.len().max(1) as f64;
        histogram
            .iter_quantiles(STEPS)
            .map(|step| {
                let left = 1.0 - step.quantile_iterated_to();
                let inverse = if left > 0.0 { 1.0 / left } else { most };
                (inverse.min(most), step.value_iterated_to() as f64)
            })
            .collect()
    };
    let mut series: Vec<Series> = outcomes
        .iter()
        .map(|outcome| Series {
            name: outcome.name.clone(),
            points: curve(&outcome.measured.total.latency),
        })
        .collect();
    if let ([only], [outcome]) = (&mut series[..], outcomes) {
        only.name = "latency".to_owned();
        if !stages_of(&outcome.plan).is_empty() {
            series.push(Series {
                name: "service (not corrected)".to_owned(),
                points: curve(&outcome.measured.total.service),
            });
        }
    }
    Chart {
        title: "Latency by percentile".to_owned(),
        x: Axis {
            label: "percentile",
            scale: Scale::Log,
            tick: percentile_tick,
        },
        y: latency_axis(&series),
        series,
    }
}

/// One line for each outcome.
fn over_time(outcomes: &[Outcome], value: impl Fn(&Point) -> f64) -> Vec<Series> {
    let line = |outcome: &Outcome| Series {
        name: outcome.name.clone(),
        points: outcome
            .measured
            .within()
            .map(|point| (point.at.as_secs_f64(), value(point)))
            .collect(),
    };
    outcomes.iter().map(line).collect()
}

/// A line of a plot over time: its name and its value.
type Line = (&'static str, fn(&Point) -> u64);

fn latency_over_time(outcomes: &[Outcome]) -> Chart {
    let mut title = "Latency over time, p99".to_owned();
    let mut series = over_time(outcomes, |point| point.p99 as f64);
    if outcomes.len() == 1 {
        title = "Latency over time".to_owned();
        let lines: [Line; 3] = [("p50", |p| p.p50), ("p99", |p| p.p99), ("max", |p| p.max)];
        series = lines
            .into_iter()
            .flat_map(|(name, value)| {
                let mut lines = over_time(outcomes, |point| value(point) as f64);
                lines
                    .iter_mut()
                    .for_each(|line| line.name = name.to_owned());
                lines
            })
            .collect();
    }
    // A slice without a sample has no latency.
    for line in &mut series {
        line.points.retain(|(_, nanos)| *nanos > 0.0);
    }
    Chart {
        title,
        x: SECONDS,
        y: latency_axis(&series),
        series,
    }
}

fn throughput(outcomes: &[Outcome]) -> Chart {
    Chart {
        title: "Answers per second".to_owned(),
        x: SECONDS,
        y: Axis {
            label: "answers/s",
            scale: Scale::Linear,
            tick: plain_tick,
        },
        series: over_time(outcomes, |point| per_second(point.answered, point.length)),
    }
}

fn errors(outcomes: &[Outcome]) -> Chart {
    Chart {
        title: "Failures and time-outs per second".to_owned(),
        x: SECONDS,
        y: Axis {
            label: "lost/s",
            scale: Scale::Linear,
            tick: plain_tick,
        },
        series: over_time(outcomes, |point| per_second(point.lost, point.length)),
    }
}

fn by_rate(outcome: &Outcome) -> Chart {
    let stages = stages_of(&outcome.plan);
    let line = |name: &str, quantile: f64| Series {
        name: name.to_owned(),
        points: stages
            .iter()
            .zip(&outcome.measured.stages)
            .filter(|(_, part)| !part.latency.is_empty())
            .map(|(stage, part)| (stage.to, part.latency.value_at_quantile(quantile) as f64))
            .collect(),
    };
    let series = vec![line("p50", 0.5), line("p99", 0.99)];
    Chart {
        title: "Latency by offered rate".to_owned(),
        x: Axis {
            label: "requests/s offered",
            scale: Scale::Linear,
            tick: plain_tick,
        },
        y: latency_axis(&series),
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_written_as_people_do() {
        let ticks = [1.0, 10.0, 100.0, 1_000.0, 10_000.0].map(percentile_tick);
        assert_eq!(ticks, ["0%", "90%", "99%", "99.9%", "99.99%"]);
        assert_eq!(time_tick(200_000.0), "200 µs");
        assert_eq!(plain_tick(20_000.0), "20k");
    }
}
