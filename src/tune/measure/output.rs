//! What was measured, for people and for machines.

use std::fmt::Write as _;

use serde_json::{json, Value};

use super::chance::risk_of_each;
use super::judge::{Compared, Figure, Says, Sum, EVENTS};
use super::{Measured, Study, Tried};
use crate::bench::text::{grouped, short_time};

/// The first line of what stands below a row, and the others.
pub(in crate::tune) fn lines(tried: &Tried) -> (String, Vec<String>) {
    match tried {
        Tried::Not(why) => (format!("not measured: {why}"), Vec::new()),
        Tried::Measured(measured) => {
            let kept = if measured.kept { ", kept" } else { "" };
            let rounds = match measured.rounds {
                1 => "1 round".to_owned(),
                n => format!("{n} rounds"),
            };
            let head = format!("{}{kept} ({rounds})", measured.judgement.as_str());
            let figures = measured.compared.iter().map(figure);
            let more = counted(measured).into_iter().chain(measured.notes.clone());
            (head, figures.chain(more).collect())
        }
    }
}

/// Failures and events, if there were any.
fn counted(measured: &Measured) -> Option<String> {
    let [old, new] = &measured.sums;
    let pair = |name: &str, old: u64, new: u64| {
        (old > 0 || new > 0).then(|| format!("{name} {} → {}", grouped(old), grouped(new)))
    };
    let events = EVENTS.iter().zip(old.events).zip(new.events);
    let events = events.filter_map(|((name, old), new)| {
        pair(
            name.trim_start_matches("TcpExt").trim_start_matches("Tcp"),
            old,
            new,
        )
    });
    let bad = pair("without a good answer", old.bad, new.bad);
    let all: Vec<String> = bad.into_iter().chain(events).collect();
    (!all.is_empty()).then(|| format!("Counted: {}.", all.join(", ")))
}

fn figure(compared: &Compared) -> String {
    let [old, new] = [compared.old, compared.new].map(|value| shown(compared.figure, value));
    let values = format!("{old} → {new}");
    let mut line = format!("{:12} {values:22}", compared.figure.name());
    let Some(difference) = &compared.difference else {
        return line.trim_end().to_owned();
    };
    let ratio = difference.ratio;
    let factor = ratio.map_or("-".to_owned(), |ratio| times(ratio.ratio));
    let interval = ratio.and_then(|ratio| ratio.interval);
    let interval = interval.map_or("no interval".to_owned(), |(low, high)| {
        format!("({} to {})", times(low), times(high))
    });
    let says = match compared.says {
        Says::Better => "better",
        Says::Worse => "worse",
        Says::NoDifference if difference.is_sure => "below 1%",
        Says::NoDifference => "may be chance",
    };
    let _ = write!(line, " × {factor:6} {interval:18} {says}");
    line
}

/// A ratio with three digits that count.
fn times(ratio: f64) -> String {
    match ratio {
        r if r >= 100.0 => format!("{r:.0}"),
        r if r >= 10.0 => format!("{r:.1}"),
        r if r >= 0.1 => format!("{r:.3}"),
        r => format!("{r:.4}"),
    }
}

fn shown(figure: Figure, value: f64) -> String {
    match figure {
        Figure::Answered => format!("{:.2}%", value * 100.0),
        Figure::Throughput => format!("{}/s", grouped(value.round() as u64)),
        Figure::P99 | Figure::Cpu => short_time(value.round() as u64),
    }
}

/// How to read the figures.
pub(in crate::tune) fn method(study: &Study) -> String {
    let confidence = 100.0 * (1.0 - risk_of_each(study.comparisons));
    format!(
        "Old → new value, × their ratio with its {confidence:.2}% interval (together 95% for {} \
         comparisons). Better or worse is what the interval and a randomisation test over the \
         rounds both tell from chance; answered are good answers, 5xx is none. Where more is \
         answered, the rest does not count against it.",
        study.comparisons
    )
}

/// What stands now, and how to go on.
pub(in crate::tune) fn ending(study: &Study) -> String {
    if study.unrestored > 0 {
        return format!(
            "{} could not be put back (see below); toron tune --undo tries again.",
            study.unrestored
        );
    }
    match study.kept() {
        0 => "All values are as they were.".to_owned(),
        n => format!(
            "{n} kept; toron tune --undo puts the old values back, as does a restart of the \
             machine; toron tune --emit DIR writes files that set them at every start."
        ),
    }
}

/// For the JSON of a setting.
pub(in crate::tune) fn json(tried: &Tried, study: &Study) -> Value {
    match tried {
        Tried::Not(why) => json!({ "judgement": "not_measured", "reason": why }),
        Tried::Measured(measured) => measured_json(measured, study),
    }
}

fn measured_json(measured: &Measured, study: &Study) -> Value {
    let figures = measured.compared.iter().map(|compared| {
        let difference = compared.difference.as_ref();
        let interval = difference.and_then(|d| d.ratio?.interval);
        json!({
            "figure": compared.figure,
            "old": compared.old,
            "new": compared.new,
            "ratio": difference.and_then(|d| Some(d.ratio?.ratio)),
            "low": interval.map(|i| i.0),
            "high": interval.map(|i| i.1),
            "chance": difference.map(|d| d.chance),
            "says": compared.says,
        })
    });
    let [old, new] = &measured.sums;
    let counts = |sum: &Sum| {
        let mut counts = json!({ "due": sum.due, "bad": sum.bad });
        for (name, count) in EVENTS.iter().zip(sum.events) {
            counts[name] = json!(count);
        }
        counts
    };
    json!({
        "judgement": measured.judgement,
        "kept": measured.kept,
        "rounds": measured.rounds,
        "confidence": 1.0 - risk_of_each(study.comparisons),
        "figures": figures.collect::<Vec<_>>(),
        "counted": { "old": counts(old), "new": counts(new) },
        "notes": measured.notes,
    })
}
