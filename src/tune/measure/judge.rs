//! What a setting does, from the figures of its rounds.

use serde::Serialize;

use super::chance::{self, Difference};

/// Differences below are not worth a setting, however sure. (Failures are: each is one too many.)
const LEAST: f64 = 0.01;

/// What the kernel counts (by the names of `nstat(8)`) and shows why a setting helps.
pub const EVENTS: [&str; 8] = [
    "TcpExtListenOverflows",
    "TcpExtListenDrops",
    "TcpExtTCPReqQFullDrop",
    "TcpExtTCPReqQFullDoCookies",
    "TcpExtTCPTimeWaitOverflow",
    "TcpExtTCPMemoryPressures",
    "TcpExtTCPAbortOnMemory",
    "TcpRetransSegs",
];

/// What one part of a round showed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Part {
    /// Requests that were due.
    pub due: u64,
    /// … of them without a good answer: failed, timed out, or answered with 5xx.
    pub bad: u64,
    /// Good answers per second.
    pub rate: f64,
    /// 99th percentile of the latency, nanoseconds.
    pub p99: f64,
    /// Processor time of toron per answer, nanoseconds.
    pub cpu: Option<f64>,
    /// [`EVENTS`] meanwhile.
    pub events: [u64; EVENTS.len()],
    /// The generator says that the figures are its own.
    pub strained: bool,
}

/// A round: the old value and the new one, whichever came first.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Round {
    /// With the old value.
    pub old: Part,
    /// With the new one.
    pub new: Part,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// The share of the requests that were answered well.
    Answered,
    /// Good answers per second.
    Throughput,
    /// The 99th percentile of the latency.
    P99,
    /// Processor time per answer.
    Cpu,
}

impl Figure {
    /// All, in the order of the output.
    pub const ALL: [Figure; 4] = [
        Figure::Answered,
        Figure::Throughput,
        Figure::P99,
        Figure::Cpu,
    ];

    /// Its name in the output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Figure::Answered => "answered",
            Figure::Throughput => "throughput",
            Figure::P99 => "p99 latency",
            Figure::Cpu => "CPU/answer",
        }
    }

    /// Of a part; `None` where it was not measured.
    #[must_use]
    pub fn of(self, part: &Part) -> Option<f64> {
        match self {
            Figure::Answered => {
                let good = part.due.saturating_sub(part.bad);
                (part.due > 0).then(|| good as f64 / part.due as f64)
            }
            Figure::Throughput => Some(part.rate),
            Figure::P99 => Some(part.p99),
            Figure::Cpu => part.cpu,
        }
    }

    fn more_is_better(self) -> bool {
        matches!(self, Figure::Answered | Figure::Throughput)
    }
}

/// What a figure says about the new value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Says {
    /// It is better, surely.
    Better,
    /// It is worse, surely.
    Worse,
    /// Neither is sure, or the difference is below 1%.
    NoDifference,
}

/// A compared figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Compared {
    /// Which one.
    pub figure: Figure,
    /// Its mean over the rounds with the old value.
    pub old: f64,
    /// … and with the new one.
    pub new: f64,
    /// How they differ; `None` if both are zero.
    pub difference: Option<Difference>,
    /// What that means.
    pub says: Says,
}

/// What a setting does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// Something is better, nothing worse. More good answers outweigh what they cost.
    Helps,
    /// Something is worse, nothing better.
    Hurts,
    /// Both.
    Mixed,
    /// Nothing can be told from chance.
    NoDifference,
    /// Too few rounds to tell anything from chance.
    TooFewRounds,
}

impl Judgement {
    /// In words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Judgement::Helps => "helps",
            Judgement::Hurts => "hurts",
            Judgement::Mixed => "has two sides",
            Judgement::NoDifference => "no difference shown",
            Judgement::TooFewRounds => "too few rounds",
        }
    }
}

/// What was counted in all rounds with one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// Requests that were due.
    pub due: u64,
    /// … of them without a good answer.
    pub bad: u64,
    /// [`EVENTS`].
    pub events: [u64; EVENTS.len()],
}

impl Sum {
    /// Of parts.
    #[must_use]
    pub fn of<'p>(parts: impl Iterator<Item = &'p Part>) -> Self {
        parts.fold(Sum::default(), |mut sum, part| {
            sum.due += part.due;
            sum.bad += part.bad;
            for (sum, count) in sum.events.iter_mut().zip(part.events) {
                *sum += count;
            }
            sum
        })
    }
}

/// Compares all figures of a setting, when so many comparisons are made of all settings together.
#[must_use]
pub fn compare(rounds: &[Round], comparisons: usize, seed: u64) -> Vec<Compared> {
    let of = |figure: Figure| {
        let pair = |round: &Round| figure.of(&round.old).zip(figure.of(&round.new));
        let pairs: Vec<(f64, f64)> = rounds.iter().filter_map(pair).collect();
        let count = pairs.len() as f64;
        let sum = pairs
            .iter()
            .fold((0.0, 0.0), |(old, new), pair| (old + pair.0, new + pair.1));
        let difference = chance::compare(&pairs, comparisons, seed);
        (count > 0.0).then(|| Compared {
            figure,
            old: sum.0 / count,
            new: sum.1 / count,
            difference,
            says: says(figure, difference.as_ref()),
        })
    };
    Figure::ALL.into_iter().filter_map(of).collect()
}

fn says(figure: Figure, difference: Option<&Difference>) -> Says {
    let Some(difference) = difference.filter(|difference| difference.is_sure) else {
        return Says::NoDifference;
    };
    if figure != Figure::Answered && !difference.is_at_least(LEAST) {
        return Says::NoDifference;
    }
    match difference.is_more() == figure.more_is_better() {
        true => Says::Better,
        false => Says::Worse,
    }
}

/// What all figures together say. Failures come first: a request that is refused at once has a
/// short latency and costs little, which is no merit.
#[must_use]
pub fn judge(compared: &[Compared], rounds: usize, comparisons: usize) -> Judgement {
    if rounds < chance::rounds_needed(comparisons) as usize {
        return Judgement::TooFewRounds;
    }
    let answered = compared.iter().find(|c| c.figure == Figure::Answered);
    match answered.map(|answered| answered.says) {
        Some(Says::Better) => return Judgement::Helps,
        Some(Says::Worse) => return Judgement::Hurts,
        Some(Says::NoDifference) | None => {}
    }
    let any = |says: Says| compared.iter().any(|c| c.says == says);
    match (any(Says::Better), any(Says::Worse)) {
        (true, false) => Judgement::Helps,
        (false, true) => Judgement::Hurts,
        (true, true) => Judgement::Mixed,
        (false, false) => Judgement::NoDifference,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bad: u64, rate: f64, p99: f64, cpu: f64) -> Part {
        Part {
            due: 1000,
            bad,
            rate,
            p99,
            cpu: Some(cpu),
            ..Part::default()
        }
    }

    /// Ten rounds with a little noise of both.
    fn rounds(old: Part, new: Part) -> Vec<Round> {
        let noisy = |part: Part, n: u32| {
            let factor = 1.0 + f64::from(n * 7 % 5) / 500.0;
            Part {
                rate: part.rate * factor,
                p99: part.p99 * factor,
                cpu: part.cpu.map(|cpu| cpu * factor),
                ..part
            }
        };
        (0..10)
            .map(|n| Round {
                old: noisy(old, n),
                new: noisy(new, n + 3),
            })
            .collect()
    }

    fn of(old: Part, new: Part) -> Judgement {
        let rounds = rounds(old, new);
        judge(&compare(&rounds, 4, 1), rounds.len(), 4)
    }

    #[test]
    fn figures_make_a_judgement() {
        let base = part(0, 100.0, 5e6, 3e4);
        for (new, wanted) in [
            (base, Judgement::NoDifference),
            (part(0, 150.0, 5e6, 3e4), Judgement::Helps),
            (part(0, 100.0, 4e6, 3e4), Judgement::Helps),
            (part(0, 100.0, 5e6, 4e4), Judgement::Hurts),
            (part(0, 100.0, 4e6, 4e4), Judgement::Mixed),
            (part(10, 100.0, 4e6, 3e4), Judgement::Hurts),
            // Sure, but not worth it.
            (part(0, 100.0, 5e6, 2.99e4), Judgement::NoDifference),
        ] {
            assert_eq!(of(base, new), wanted, "{new:?}");
        }
    }

    /// Answers in place of quick refusals take longer and cost more: they help all the same.
    #[test]
    fn failures_come_first() {
        let failing = part(400, 60.0, 1e6, 1e4);
        let whole = part(0, 100.0, 5e6, 3e4);
        assert_eq!(of(failing, whole), Judgement::Helps);
        assert_eq!(of(whole, failing), Judgement::Hurts);
        assert_eq!(of(part(1000, 0.0, 1e6, 1e4), whole), Judgement::Helps);
        // However few they are.
        assert_eq!(
            of(part(1, 1.0, 1.0, 1.0), part(0, 1.0, 1.0, 2.0)),
            Judgement::Helps
        );
    }

    #[test]
    fn few_rounds_tell_nothing() {
        let rounds = rounds(part(900, 1.0, 1.0, 1.0), part(0, 1.0, 1.0, 1.0));
        let compared = compare(&rounds[..7], 4, 1);
        assert_eq!(judge(&compared, 7, 4), Judgement::TooFewRounds);
        assert!(compared.iter().all(|c| c.says == Says::NoDifference));
    }

    #[test]
    fn without_a_process_there_is_no_processor_time() {
        let bare = |part: Part| Part { cpu: None, ..part };
        let rounds: Vec<Round> = rounds(part(0, 1.0, 1.0, 1.0), part(0, 1.0, 1.0, 1.0))
            .iter()
            .map(|round| Round {
                old: bare(round.old),
                new: bare(round.new),
            })
            .collect();
        let figures: Vec<Figure> = compare(&rounds, 3, 1).iter().map(|c| c.figure).collect();
        assert_eq!(figures, Figure::ALL[..3]);
    }
}
