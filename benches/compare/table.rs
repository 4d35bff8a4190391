//! Figures of several contenders, round by round, and the goals they are held to.

use std::collections::BTreeMap;

/// Which figure of whom.
pub type Place = (&'static str, &'static str);

/// A column of a table.
#[derive(Clone, Copy)]
pub struct Column {
    /// Its key.
    pub key: &'static str,
    /// Its heading, unit included.
    pub title: &'static str,
    /// Digits behind the point.
    pub digits: usize,
}

/// What is to be reached.
pub struct Goal {
    /// In the words of a user.
    pub text: String,
    /// The figure in question.
    pub of: Place,
    /// The best of these is the measure; none: the bound is a figure itself.
    pub against: Vec<Place>,
    /// Most that the ratio, or the figure, may be.
    pub most: f64,
}

/// A row of the comparison.
pub struct Table {
    /// Its name on the command line.
    pub name: &'static str,
    /// What was done, with which load.
    pub title: String,
    /// In order.
    pub columns: Vec<Column>,
    /// In order.
    pub contenders: Vec<&'static str>,
    samples: BTreeMap<Place, Vec<f64>>,
    /// In order.
    pub goals: Vec<Goal>,
}

/// Median, least and most.
#[derive(Clone, Copy)]
pub struct Summary {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Table {
    /// A table without figures.
    pub fn new(name: &'static str, title: String, columns: &[Column]) -> Table {
        Table {
            name,
            title,
            columns: columns.to_vec(),
            contenders: Vec::new(),
            samples: BTreeMap::new(),
            goals: Vec::new(),
        }
    }

    /// The figure of one more round.
    pub fn add(&mut self, contender: &'static str, column: &'static str, value: f64) {
        if !self.contenders.contains(&contender) {
            self.contenders.push(contender);
        }
        self.samples
            .entry((contender, column))
            .or_default()
            .push(value);
    }

    /// A goal: `of` at most `most` times the best of `against`.
    pub fn goal(&mut self, text: &str, of: Place, against: &[Place], most: f64) {
        self.goals.push(Goal {
            text: text.to_owned(),
            of,
            against: against.to_vec(),
            most,
        });
    }

    /// The figures of a place.
    pub fn summary(&self, place: Place) -> Option<Summary> {
        let mut samples = self.samples.get(&place)?.clone();
        samples.sort_by(f64::total_cmp);
        Some(Summary {
            median: median(&samples)?,
            least: *samples.first()?,
            most: *samples.last()?,
        })
    }

    /// What a goal's figure is: the median of the ratios of neighbouring rounds.
    pub fn reached(&self, goal: &Goal) -> Option<f64> {
        let own = self.samples.get(&goal.of)?;
        if goal.against.is_empty() {
            return self.summary(goal.of).map(|s| s.median);
        }
        let ratios = own.iter().enumerate().filter_map(|(round, figure)| {
            let others = goal.against.iter();
            let others = others.filter_map(|place| self.samples.get(place)?.get(round));
            let best = others.copied().min_by(f64::total_cmp)?;
            (best > 0.0).then_some(figure / best)
        });
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        median(&ratios)
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => sorted.get(middle).copied(),
        _ => Some((sorted.get(middle - 1)? + sorted.get(middle)?) / 2.0),
    }
}
