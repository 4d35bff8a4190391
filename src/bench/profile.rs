//! When requests are to start: the rate over time, and the moments that follow from it.
//!
//! A profile is a row of [`Stage`]s, each with a rate that is constant or changes linearly. The
//! starts of a whole run are the points of a process of rate 1 (every 1, or with exponential gaps),
//! mapped through the inverse of the number of starts up to a moment. So several threads can share
//! a run without talking: thread *i* of *n* takes every *n*-th start of a constant process, or a
//! Poisson process of an *n*-th of the rate (the sum of which is Poisson again).

use std::time::Duration;

use crate::control::config::values;

/// Stages that a ramp is cut into, so that its knee can be found.
const RAMP_STAGES: u32 = 20;

/// How starts are spread over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Arrivals {
    /// At equal distances.
    #[default]
    Constant,
    /// Independent of each other: exponential distances.
    Poisson,
}

/// A part of a profile.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stage {
    /// Requests per second at its beginning.
    pub from: f64,
    /// Requests per second at its end.
    pub to: f64,
    /// How long it is.
    pub length: Duration,
}

impl Stage {
    /// Starts in the whole stage.
    #[must_use]
    pub fn starts(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.length.as_secs_f64()
    }

    /// The time, in seconds from the stage's beginning, at which `n` starts have been.
    fn when(&self, n: f64) -> f64 {
        let slope = (self.to - self.from) / self.length.as_secs_f64();
        if slope.abs() < 1e-9 {
            return n / self.from;
        }
        ((self.from * self.from + 2.0 * slope * n).max(0.0).sqrt() - self.from) / slope
    }
}

/// The rate over time.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    stages: Vec<Stage>,
}

/// A rate as it stands on the command line, without a duration if it names none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateSpec {
    from: f64,
    to: f64,
    /// `/30s`.
    pub length: Option<Duration>,
    steps: Option<u32>,
}

impl RateSpec {
    /// Reads `N`, `A..B`, `A..B/TIME` (a ramp) or `A..B/TIME/STEPS` (a staircase), in requests per
    /// second. The error is for people.
    pub fn parse(text: &str) -> Result<RateSpec, String> {
        let bad = || format!("bad rate \"{text}\" (N, A..B, A..B/30s or A..B/30s/10)");
        let mut parts = text.split('/');
        let (from, to) = match parts.next().unwrap_or_default().split_once("..") {
            Some((a, b)) => (number(a), number(b)),
            None => {
                let n = number(text.split('/').next().unwrap_or_default());
                (n, n)
            }
        };
        let (from, to) = from.zip(to).ok_or_else(bad)?;
        let length = match parts.next() {
            Some(time) => Some(positive_duration(time).ok_or_else(bad)?),
            None => None,
        };
        let steps = match parts.next() {
            Some(n) => Some(
                n.parse()
                    .ok()
                    .filter(|n| (2..=1000).contains(n))
                    .ok_or_else(bad)?,
            ),
            None => None,
        };
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(RateSpec {
            from,
            to,
            length,
            steps,
        })
    }

    /// The profile of a run of `length` (unless the rate names its own).
    #[must_use]
    pub fn over(&self, length: Duration) -> Profile {
        let length = self.length.unwrap_or(length);
        let stages = match self.steps {
            None if self.from == self.to => vec![Stage {
                from: self.from,
                to: self.to,
                length,
            }],
            None => (0..RAMP_STAGES)
                .map(|i| Stage {
                    from: self.at(f64::from(i) / f64::from(RAMP_STAGES)),
                    to: self.at(f64::from(i + 1) / f64::from(RAMP_STAGES)),
                    length: length / RAMP_STAGES,
                })
                .collect(),
            Some(n) => (0..n)
                .map(|i| {
                    let rate = self.at(f64::from(i) / f64::from(n - 1));
                    Stage {
                        from: rate,
                        to: rate,
                        length: length / n,
                    }
                })
                .collect(),
        };
        Profile { stages }
    }

    /// Whether it is one and the same all the time.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.from == self.to
    }

    fn at(&self, share: f64) -> f64 {
        self.from + (self.to - self.from) * share
    }
}

/// A duration as in the configuration files, above zero.
fn positive_duration(text: &str) -> Option<Duration> {
    let duration = values::duration(text).ok()?;
    (!duration.negative && !duration.length.is_zero()).then_some(duration.length)
}

/// A positive rate; `k` and `M` multiply.
fn number(text: &str) -> Option<f64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1e3),
        b'M' => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let n: f64 = digits.parse().ok()?;
    let n = n * factor;
    (n.is_finite() && n > 0.0 && n <= 1e8).then_some(n)
}

impl Profile {
    /// The stages in order.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The whole time.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.stages.iter().map(|s| s.length).sum()
    }

    /// Starts in the whole time.
    #[must_use]
    pub fn starts(&self) -> f64 {
        self.stages.iter().map(Stage::starts).sum()
    }

    /// The same, but each stage only a part as long.
    #[must_use]
    pub fn part(&self, of: u32) -> Profile {
        let shorter = |stage: &Stage| Stage {
            length: stage.length / of.max(1),
            ..*stage
        };
        Profile {
            stages: self.stages.iter().map(shorter).collect(),
        }
    }

    /// The same with a stage of its first rate in front, for the warm-up.
    #[must_use]
    pub fn warmed_up(&self, warmup: Duration) -> Profile {
        let mut stages = self.stages.clone();
        if let (Some(first), false) = (stages.first().copied(), warmup.is_zero()) {
            stages.insert(
                0,
                Stage {
                    from: first.from,
                    to: first.from,
                    length: warmup,
                },
            );
        }
        Profile { stages }
    }
}

/// The starts of one thread, one after another.
#[derive(Clone, Debug)]
pub struct Schedule {
    stages: Vec<Stage>,
    arrivals: Arrivals,
    random: fastrand::Rng,
    threads: f64,
    /// Points of the process of rate 1 so far.
    points: f64,
    /// The stage at hand, the points before it and the seconds before it.
    stage: usize,
    points_before: f64,
    seconds_before: f64,
}

impl Schedule {
    /// The starts of thread `index` of `threads`.
    #[must_use]
    pub fn new(
        profile: &Profile,
        arrivals: Arrivals,
        (index, threads): (usize, usize),
        seed: u64,
    ) -> Schedule {
        let mut schedule = Schedule {
            stages: profile.stages.clone(),
            arrivals,
            random: fastrand::Rng::with_seed(seed.wrapping_add(index as u64)),
            threads: threads.max(1) as f64,
            points: index as f64,
            stage: 0,
            points_before: 0.0,
            seconds_before: 0.0,
        };
        if arrivals == Arrivals::Poisson {
            schedule.points = 0.0;
            schedule.step();
        }
        schedule
    }

    fn step(&mut self) {
        self.points += self.threads
            * match self.arrivals {
                Arrivals::Constant => 1.0,
                // Exponential with mean 1; 1 - f64() lies in (0, 1].
                Arrivals::Poisson => -(1.0 - self.random.f64()).ln(),
            };
    }
}

impl Iterator for Schedule {
    /// Time from the beginning of the profile, and the stage.
    type Item = (Duration, usize);

    fn next(&mut self) -> Option<(Duration, usize)> {
        loop {
            let stage = self.stages.get(self.stage)?;
            let inside = self.points - self.points_before;
            if inside < stage.starts() {
                let seconds = self.seconds_before + stage.when(inside);
                self.step();
                return Some((Duration::from_secs_f64(seconds), self.stage));
            }
            self.points_before += stage.starts();
            self.seconds_before += stage.length.as_secs_f64();
            self.stage += 1;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn profile(rate: &str, seconds: u64) -> Profile {
        let spec = RateSpec::parse(rate).unwrap();
        spec.over(Duration::from_secs(seconds))
    }

    fn all(profile: &Profile, arrivals: Arrivals, threads: usize) -> Vec<f64> {
        let mut times: Vec<f64> = (0..threads)
            .flat_map(|i| Schedule::new(profile, arrivals, (i, threads), 7))
            .map(|(at, _)| at.as_secs_f64())
            .collect();
        times.sort_by(f64::total_cmp);
        times
    }

    #[test]
    fn a_constant_rate_is_even_over_all_threads() {
        for threads in [1, 3] {
            let times = all(&profile("250", 2), Arrivals::Constant, threads);
            assert_eq!(times.len(), 500);
            for (i, at) in times.iter().enumerate() {
                assert!((at - i as f64 / 250.0).abs() < 1e-6, "{i}: {at}");
            }
        }
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
        let times = all(&profile("1000", 60), Arrivals::Poisson, 2);
        let n = times.len() as f64;
        // 60,000 expected, standard deviation 245; the seed is fixed.
        assert!((n - 60_000.0).abs() < 1_000.0, "{n}");
        let gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03);
        // P(gap > mean) = 1/e.
        let long = gaps.iter().filter(|g| **g > mean).count() as f64 / gaps.len() as f64;
        assert!((long - (-1.0_f64).exp()).abs() < 0.01, "{long}");
    }

    #[test]
    fn a_ramp_starts_as_many_as_its_area() {
        let ramp = profile("100..300/10s", 0);
        assert_eq!(ramp.length(), Duration::from_secs(10));
        let times = all(&ramp, Arrivals::Constant, 1);
        assert_eq!(times.len(), 2000);
        // After half the time: 5 s at 100 to 200, 150 on average.
        assert_eq!(times.iter().filter(|t| **t < 5.0 - 1e-6).count(), 750);
    }

    #[test]
    fn a_staircase_has_its_steps() {
        let steps = profile("100..400/4s/4", 0);
        let rates: Vec<f64> = steps.stages().iter().map(|s| s.from).collect();
        assert_eq!(rates, [100.0, 200.0, 300.0, 400.0]);
        let schedule = Schedule::new(&steps, Arrivals::Constant, (0, 1), 0);
        let mut counts = [0; 4];
        schedule.for_each(|(_, stage)| counts[stage] += 1);
        assert_eq!(counts, [100, 200, 300, 400]);
    }

    #[test]
    fn a_warm_up_comes_in_front_at_the_first_rate() {
        let warmed = profile("10..20/1s", 0).warmed_up(Duration::from_secs(2));
        assert_eq!(warmed.stages()[0].to, 10.0);
        assert_eq!(warmed.length(), Duration::from_secs(3));
    }

    #[test]
    fn rates_are_read_strictly() {
        for text in [
            "",
            "0",
            "-1",
            "x",
            "1..",
            "1..2/",
            "1..2/0s",
            "1..2/1s/1",
            "1/1s/2/3",
        ] {
            assert!(RateSpec::parse(text).is_err(), "{text}");
        }
        assert_eq!(RateSpec::parse("20k").unwrap().from, 20_000.0);
    }
}
