//! A plot of settings: energy over tail latency, as the published study draws it.
//! Promises: plain SVG without scripts or fonts of its own, on a white background. A circle is a setting: its size is
//! the delay of interrupts, its shade the clock (darker is slower); x is the least energy, + the lowest tail, both of
//! settings that keep the SLA, and the dashed rule is the SLA.

use std::fmt::Write as _;

use crate::setting::Setting;

/// One setting with its run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The setting.
    pub setting: Setting,
    /// Tail latency.
    pub p99_us: f64,
    /// Energy of the run.
    pub joules: f64,
}

/// The points of one system at one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Title of the panel.
    pub title: String,
    /// All points; one that is beyond the axis is left out.
    pub points: Vec<Point>,
}

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;
/// The longest latency of the axis, over the SLA.
const AXIS_OVER_SLA: f64 = 1.3;
/// Unit of the energy axis.
const JOULES_STEP: f64 = 100.0;
const RADIUS_LEAST: f64 = 2.5;
const RADIUS_MOST: f64 = 8.0;

/// Draws the plots beside each other, `columns` in a row, with common axes.
pub fn svg(plots: &[Plot], columns: usize, sla_p99_us: f64) -> String {
    let columns = columns.clamp(1, plots.len().max(1));
    let rows = plots.len().div_ceil(columns);
    let axes = Axes::of(plots, sla_p99_us);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        WIDTH * columns as f64,
        HEIGHT * rows as f64
    );
    for (index, plot) in plots.iter().enumerate() {
        let (x, y) = (WIDTH * (index % columns) as f64, HEIGHT * (index / columns) as f64);
        let _ = writeln!(out, "<g transform=\"translate({x} {y})\">");
        panel(&mut out, plot, &axes);
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

/// Ranges that all panels share.
struct Axes {
    sla_p99_us: f64,
    joules: (f64, f64),
    clocks: (f64, f64),
    delay_most: f64,
}

impl Axes {
    fn of(plots: &[Plot], sla_p99_us: f64) -> Self {
        let shown = plots
            .iter()
            .flat_map(|plot| &plot.points)
            .filter(|point| point.p99_us <= sla_p99_us * AXIS_OVER_SLA);
        let range = |read: fn(&Point) -> f64| {
            let bounds = (f64::INFINITY, f64::NEG_INFINITY);
            let (low, high) =
                shown.clone().map(read).fold(bounds, |(low, high), value| (low.min(value), high.max(value)));
            if low < high { (low, high) } else { (0.0, high.max(1.0)) }
        };
        Self {
            sla_p99_us,
            joules: rounded(range(|point| point.joules)),
            clocks: range(|point| point.setting.clock_ghz),
            delay_most: range(|point| point.setting.delay_us().unwrap_or(0.0)).1,
        }
    }

    fn x(&self, latency_us: f64) -> f64 {
        LEFT + latency_us / (self.sla_p99_us * AXIS_OVER_SLA) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, joules: f64) -> f64 {
        let (low, high) = self.joules;
        HEIGHT - BOTTOM - (joules - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    }
}

/// A range that is not smaller, whose quarters are multiples of `JOULES_STEP`.
fn rounded((low, high): (f64, f64)) -> (f64, f64) {
    let low = (low / JOULES_STEP).floor() * JOULES_STEP;
    (low, low + ((high - low) / (4.0 * JOULES_STEP)).ceil() * 4.0 * JOULES_STEP)
}

fn panel(out: &mut String, plot: &Plot, axes: &Axes) {
    let bottom = HEIGHT - BOTTOM;
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"18\" font-size=\"13\">{}</text>", escaped(&plot.title));
    for step in 0..=4 {
        let share = f64::from(step) / 4.0;
        let (low, high) = axes.joules;
        let joules = low + (high - low) * share;
        let y = axes.y(joules);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{joules:.0}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0
        );
        let latency = axes.sla_p99_us * share;
        let x = axes.x(latency);
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{latency:.0}</text>",
            bottom + 16.0
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{:.1}\">p99 in µs; energy in J, modelled</text>\
         <line x1=\"{1:.1}\" x2=\"{1:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\" stroke=\"#333\" stroke-dasharray=\"5 4\"/>",
        HEIGHT - 10.0,
        axes.x(axes.sla_p99_us)
    );
    for point in plot.points.iter().filter(|point| point.p99_us <= axes.sla_p99_us * AXIS_OVER_SLA) {
        circle(out, point, axes);
    }
    let kept = || plot.points.iter().filter(|point| point.p99_us <= axes.sla_p99_us);
    let marks = [
        ("x", kept().min_by(|left, right| left.joules.total_cmp(&right.joules))),
        ("+", kept().min_by(|left, right| left.p99_us.total_cmp(&right.p99_us))),
    ];
    for (mark, point) in marks {
        let Some(point) = point else { continue };
        let (x, y) = (axes.x(point.p99_us), axes.y(point.joules) + 6.0);
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" font-size=\"18\" font-weight=\"bold\" \
             fill=\"#c00\">{mark}</text>"
        );
    }
}

fn circle(out: &mut String, point: &Point, axes: &Axes) {
    let (slow, fast) = axes.clocks;
    let lightness = 25.0 + 55.0 * (point.setting.clock_ghz - slow) / (fast - slow);
    let delay = point.setting.delay_us().unwrap_or(0.0) / axes.delay_most.max(1.0);
    let _ = writeln!(
        out,
        "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{:.1}\" fill=\"hsl(140 45% {lightness:.0}%)\" fill-opacity=\"0.8\" \
         stroke=\"#fff\" stroke-width=\"0.5\"/>",
        axes.x(point.p99_us),
        axes.y(point.joules),
        RADIUS_LEAST + (RADIUS_MOST - RADIUS_LEAST) * delay.clamp(0.0, 1.0)
    );
}

/// Text without characters that mean something in SVG.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::{Plot, Point, svg};
    use crate::setting::Setting;

    #[test]
    fn marks_are_at_the_best_settings_within_the_sla() {
        let point = |clock, delay, p99_us, joules| Point {
            setting: Setting::interrupts(clock, delay),
            p99_us,
            joules,
        };
        let points = vec![
            point(2.9, 50.0, 100.0, 2000.0),
            point(1.3, 400.0, 450.0, 1400.0),
            point(1.2, 400.0, 550.0, 1300.0),
            point(1.2, 400.0, 9000.0, 1000.0),
        ];
        let text = svg(&[Plot { title: "a < b".to_owned(), points }], 3, 500.0);
        assert_eq!(text.matches("<circle").count(), 3, "one is beyond the axis: {text}");
        let attribute = |line: &str, name: &str| -> String {
            let rest = line.split(&format!(" {name}=\"")).nth(1).expect("it has the attribute");
            rest.split('"').next().expect("it ends").to_owned()
        };
        let circles: Vec<&str> = text.lines().filter(|line| line.starts_with("<circle")).collect();
        for (mark, circle) in [(">x<", circles[1]), (">+<", circles[0])] {
            let mark = text.lines().find(|line| line.contains(mark)).expect("the mark is drawn");
            assert_eq!(attribute(mark, "x"), attribute(circle, "cx"));
        }
        assert!(attribute(circles[1], "r") > attribute(circles[0], "r"), "the size is the delay");
        assert!(text.contains("a &lt; b"));
    }
}
