//! Line charts as SVG that stand alone.

use std::fmt::Write as _;

/// Size in user units; a page scales it.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 46.0;
/// Colours that people with any colour vision tell apart (Okabe and Ito, 2008).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];
/// Ticks of a linear axis, about.
const TICKS: f64 = 5.0;

/// How values lie on an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By their logarithm.
    Log,
}

/// An axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// What is shown, and its unit.
    pub label: &'static str,
    /// How.
    pub scale: Scale,
    /// A tick's text.
    pub tick: fn(f64) -> String,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

/// Text for XML and HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The part of an axis that is shown.
struct Range {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Range {
    fn of(values: impl Iterator<Item = f64>, scale: Scale) -> Range {
        let usable = values.filter(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0));
        let (low, high) = usable.fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
        if low > high {
            let low = if scale == Scale::Log { 1.0 } else { 0.0 };
            return Range {
                low,
                high: 10.0,
                scale,
            };
        }
        match scale {
            Scale::Linear => Range {
                low: low.min(0.0),
                high: if high > 0.0 { high * 1.05 } else { 1.0 },
                scale,
            },
            Scale::Log => {
                let low = 10_f64.powf(low.log10().floor());
                let high = 10_f64.powf(high.log10().ceil());
                Range {
                    low,
                    high: high.max(low * 10.0),
                    scale,
                }
            }
        }
    }

    /// 0 at the low end, 1 at the high one.
    fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
        };
        place.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Log => {
                let decades = (self.high / self.low).log10().round() as i32;
                (0..=decades).map(|n| self.low * 10_f64.powi(n)).collect()
            }
            Scale::Linear => {
                let rough = (self.high - self.low) / TICKS;
                let magnitude = 10_f64.powf(rough.log10().floor());
                let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * magnitude);
                let step = steps.into_iter().find(|s| *s >= rough).unwrap_or(rough);
                let count = ((self.high - self.low) / step).floor() as i32;
                (0..=count)
                    .map(|n| self.low + f64::from(n) * step)
                    .collect()
            }
        }
    }
}

fn across(x: &Range, value: f64) -> f64 {
    LEFT + x.place(value) * (WIDTH - LEFT - RIGHT)
}

fn up(y: &Range, value: f64) -> f64 {
    HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM)
}

impl Chart {
    /// The chart as a document of its own.
    #[must_use]
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|s| &s.points);
        let x = Range::of(points().map(|p| p.0), self.x.scale);
        let y = Range::of(points().map(|p| p.1), self.y.scale);
        let title = escape(&self.title);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{title}\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"18\" font-size=\"15\" font-weight=\"600\" fill=\"#111\">{title}</text>\n"
        );
        self.legend(&mut out);
        self.grid(&mut out, &x, &y);
        for (i, series) in self.series.iter().enumerate() {
            let mut path = String::new();
            for (px, py) in series
                .points
                .iter()
                .filter(|p| p.0.is_finite() && p.1.is_finite())
            {
                let _ = write!(path, "{:.1},{:.1} ", across(&x, *px), up(&y, *py));
            }
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" \
                 stroke-linejoin=\"round\"/>",
                path.trim_end(),
                colour(i)
            );
        }
        out.push_str("</svg>\n");
        out
    }

    fn legend(&self, out: &mut String) {
        let mut at = LEFT;
        for (i, series) in self.series.iter().enumerate() {
            let name = escape(&series.name);
            let _ = writeln!(
                out,
                "<rect x=\"{at:.0}\" y=\"29\" width=\"14\" height=\"4\" fill=\"{}\"/>\
                 <text x=\"{:.0}\" y=\"36\" fill=\"#333\">{name}</text>",
                colour(i),
                at + 18.0
            );
            // About so many units for a letter of this size.
            at += 34.0 + 7.5 * series.name.chars().count() as f64;
        }
    }

    fn grid(&self, out: &mut String, x: &Range, y: &Range) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for value in y.ticks() {
            let at = up(y, value);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                escape(&(self.y.tick)(value))
            );
        }
        for value in x.ticks() {
            let at = across(x, value);
            let _ = writeln!(
                out,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#eee\"/>\
                 <text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
                bottom + 16.0,
                escape(&(self.x.tick)(value))
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#333\">{}</text>\
             <text transform=\"translate(14 {:.0}) rotate(-90)\" text-anchor=\"middle\" \
             fill=\"#333\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 8.0,
            escape(self.x.label),
            (TOP + bottom) / 2.0,
            escape(self.y.label)
        );
    }
}

fn colour(index: usize) -> &'static str {
    COLOURS
        .get(index % COLOURS.len())
        .copied()
        .unwrap_or("#000")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(value: f64) -> String {
        format!("{value}")
    }

    fn chart(scale: Scale, points: Vec<(f64, f64)>) -> Chart {
        Chart {
            title: "a < b".into(),
            x: Axis {
                label: "x",
                scale: Scale::Linear,
                tick: plain,
            },
            y: Axis {
                label: "y",
                scale,
                tick: plain,
            },
            series: vec![Series {
                name: "<s>".into(),
                points,
            }],
        }
    }

    #[test]
    fn points_lie_where_their_values_say() {
        let svg = chart(Scale::Log, vec![(0.0, 1.0), (50.0, 10.0), (100.0, 100.0)]).svg();
        // The x axis ends 5% behind the largest value; the y axis has two decades.
        let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        let middle = (LEFT + width / 2.1, HEIGHT - BOTTOM - height / 2.0);
        assert!(
            svg.contains(&format!("{:.1},{:.1}", middle.0, middle.1)),
            "{svg}"
        );
        assert!(svg.contains("a &lt; b") && svg.contains("&lt;s&gt;") && !svg.contains("<s>"));
    }

    #[test]
    fn nothing_and_nonsense_are_drawn_too() {
        for points in [vec![], vec![(f64::NAN, f64::INFINITY)], vec![(0.0, 0.0)]] {
            for scale in [Scale::Linear, Scale::Log] {
                let svg = chart(scale, points.clone()).svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn ticks_are_round() {
        let range = Range::of([0.0, 950.0].into_iter(), Scale::Linear);
        assert_eq!(range.ticks(), [0.0, 200.0, 400.0, 600.0, 800.0]);
        let range = Range::of([30.0, 2_000.0].into_iter(), Scale::Log);
        assert_eq!(range.ticks(), [10.0, 100.0, 1_000.0, 10_000.0]);
    }
}
