//! Where a rising load becomes too much.

use super::profile::Stage;
use super::record::Part;

/// A stage of which more is lost than this share is too much.
const LOST: f64 = 0.01;
/// A stage whose median is this many times the best median before it is too much: then a queue
/// grows. (The median, since a single hiccup moves the high percentiles of a short stage.)
const SLOWER: u64 = 10;
/// … but not below this, in nanoseconds.
const SLOW: u64 = 5_000_000;

/// The highest rate, per second, that was still answered well, once a later stage was not; `None`
/// if all stages were answered well (the knee lies higher), or not even the first (it lies lower).
#[must_use]
pub fn knee(stages: &[Stage], parts: &[Part]) -> Option<f64> {
    if stages.len() < 2 {
        return None;
    }
    let mut best = u64::MAX;
    let mut good = None;
    for (stage, part) in stages.iter().zip(parts) {
        let median = part.latency.value_at_quantile(0.5);
        let slow = median > SLOW && median > best.saturating_mul(SLOWER);
        let lost = part.lost as f64 > part.started as f64 * LOST;
        if slow || lost {
            return good;
        }
        if !part.latency.is_empty() {
            best = best.min(median);
        }
        good = Some(stage.to);
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stages() -> Vec<Stage> {
        [100.0, 200.0, 300.0]
            .map(|rate| Stage {
                from: rate,
                to: rate,
                length: Duration::from_secs(1),
            })
            .into()
    }

    fn part(median_ms: u64, lost: u64) -> Part {
        let mut part = Part {
            started: 100,
            answered: 100 - lost,
            lost,
            ..Part::default()
        };
        part.latency.record_n(median_ms * 1_000_000, 100).unwrap();
        part
    }

    #[test]
    fn the_last_good_stage_before_a_bad_one() {
        let parts = |last: Part| vec![part(1, 0), part(2, 1), last];
        assert_eq!(knee(&stages(), &parts(part(30, 0))), Some(200.0));
        assert_eq!(knee(&stages(), &parts(part(2, 2))), Some(200.0));
        assert_eq!(knee(&stages(), &parts(part(9, 0))), None);
        assert_eq!(
            knee(&stages(), &[part(1, 50), part(1, 0), part(1, 0)]),
            None
        );
        assert_eq!(knee(&stages()[..1], &[part(1, 0)]), None);
    }
}
