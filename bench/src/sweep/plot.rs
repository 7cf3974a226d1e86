//! The plot of a figure: throughput, processor time and latency over the number of connections.
//! Promises: plain SVG without scripts or fonts of its own, on a white background.

use std::fmt::Write as _;

use super::report::spread;
use super::{Point, Round};

const WIDTH: f64 = 720.0;
const PANEL_HEIGHT: f64 = 250.0;
const TOP: f64 = 60.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 24.0;
/// Height of a panel's title, and of the labels below its axis.
const PANEL_HEAD: f64 = 26.0;
const PANEL_FOOT: f64 = 30.0;
/// Colours of the sides in their order; flick has the first.
const COLOURS: [&str; 4] = ["#c55a11", "#2e75b6", "#548235", "#7f7f7f"];

/// A curve of a panel.
struct Curve {
    read: fn(&Round) -> f64,
    is_dashed: bool,
}

/// One of the diagrams below each other.
struct Panel {
    title: &'static str,
    curves: &'static [Curve],
    is_logarithmic: bool,
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "requests/s",
        curves: &[Curve { read: |round| round.requests_per_s, is_dashed: false }],
        is_logarithmic: false,
    },
    Panel {
        title: "CPU µs per request (dashed: user time)",
        curves: &[
            Curve { read: Round::cpu_us, is_dashed: false },
            Curve { read: |round| round.user_us, is_dashed: true },
        ],
        is_logarithmic: false,
    },
    Panel {
        title: "p50 in µs (dashed: p99)",
        curves: &[
            Curve { read: |round| round.p50_us, is_dashed: false },
            Curve { read: |round| round.p99_us, is_dashed: true },
        ],
        is_logarithmic: true,
    },
];

/// Draws the figure.
pub(super) fn svg(title: &str, sides: &[&str], points: &[Point]) -> String {
    let height = TOP + PANEL_HEIGHT * PANELS.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{title}</text>\n"
    );
    for (index, side) in sides.iter().enumerate() {
        let x = LEFT + 130.0 * index as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"45\">{side}</text>",
            colour(sides, side),
            x + 18.0
        );
    }
    for (index, panel) in PANELS.iter().enumerate() {
        draw(&mut out, panel, TOP + PANEL_HEIGHT * index as f64, sides, points);
    }
    out.push_str("</svg>\n");
    out
}

/// Draws one panel whose upper edge is at `top`.
fn draw(out: &mut String, panel: &Panel, top: f64, sides: &[&str], points: &[Point]) {
    let (upper, lower) = (top + PANEL_HEAD, top + PANEL_HEIGHT - PANEL_FOOT);
    let values =
        || points.iter().flat_map(|point| panel.curves.iter().map(|curve| spread(point, curve.read).median));
    let ticks = match panel.is_logarithmic {
        true => powers(values().fold(f64::MAX, f64::min), values().fold(1.0, f64::max)),
        false => steps(values().fold(0.0, f64::max)),
    };
    let (least, most) = (ticks[0], ticks[ticks.len() - 1]);
    let scale = |value: f64| if panel.is_logarithmic { value.max(least).log10() } else { value };
    let y =
        |value: f64| lower - (scale(value) - scale(least)) / (scale(most) - scale(least)) * (lower - upper);
    let counts = counts(points);
    let x = |connections: usize| x_of(&counts, connections);
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{:.1}\">{}</text>", top + 16.0, panel.title);
    for tick in &ticks {
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"#ddd\"/><text x=\"{2:.1}\" y=\"{3:.1}\" text-anchor=\"end\">{tick}</text>",
            WIDTH - RIGHT,
            y(*tick),
            LEFT - 8.0,
            y(*tick) + 4.0
        );
    }
    for count in &counts {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{count}</text>",
            x(*count),
            lower + 18.0
        );
    }
    for side in sides {
        for curve in panel.curves {
            let own = points.iter().filter(|point| point.side == *side);
            let path: Vec<String> = own
                .map(|point| {
                    format!("{:.1},{:.1}", x(point.connections), y(spread(point, curve.read).median))
                })
                .collect();
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>",
                path.join(" "),
                colour(sides, side),
                if curve.is_dashed { " stroke-dasharray=\"5 4\"" } else { "" }
            );
        }
    }
}

/// flick's colour is the same in every figure.
fn colour(sides: &[&str], side: &str) -> &'static str {
    let others = sides.iter().filter(|other| **other != "flick");
    let position = others.into_iter().position(|other| *other == side);
    COLOURS[position.map_or(0, |index| 1 + index % (COLOURS.len() - 1))]
}

/// The numbers of connections, in order.
fn counts(points: &[Point]) -> Vec<usize> {
    let mut counts: Vec<usize> = points.iter().map(|point| point.connections).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The horizontal position of a number of connections; the axis is logarithmic.
fn x_of(counts: &[usize], connections: usize) -> f64 {
    let log = |count: usize| (count.max(1) as f64).ln();
    let (first, last) = (log(counts[0]), log(counts[counts.len() - 1]));
    let share = if last > first { (log(connections) - first) / (last - first) } else { 0.5 };
    LEFT + 20.0 + share * (WIDTH - RIGHT - LEFT - 40.0)
}

/// Five ticks from zero to a round number that is not below `most`.
fn steps(most: f64) -> Vec<f64> {
    let power = 10_f64.powf(most.max(0.01).log10().floor());
    let tops = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0];
    let top = tops.into_iter().map(|step| step * power).find(|top| *top >= most).unwrap_or(most);
    (0..=4).map(|step| top * f64::from(step) / 4.0).collect()
}

/// Powers of ten around `least` and `most`, at least two.
fn powers(least: f64, most: f64) -> Vec<f64> {
    let first = least.max(1.0).log10().floor() as i32;
    let last = (most.max(1.0).log10().ceil() as i32).max(first + 1);
    (first..=last).map(|power| 10_f64.powi(power)).collect()
}

#[cfg(test)]
mod tests {
    use super::{colour, powers, steps, svg};
    use crate::sweep::{Point, Round};

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!(steps(70_000.0), [0.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0]);
        assert_eq!(steps(7.0), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(powers(31.0, 4000.0), [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(powers(10.0, 10.0), [10.0, 100.0]);
    }

    #[test]
    fn flick_has_its_colour_wherever_it_stands() {
        assert_eq!(colour(&["flick", "nginx"], "flick"), colour(&["twemproxy", "flick"], "flick"));
        assert_ne!(colour(&["flick", "nginx"], "flick"), colour(&["flick", "nginx"], "nginx"));
    }

    #[test]
    fn a_figure_with_one_point_is_drawn() {
        let round = Round {
            requests_per_s: 1.0,
            user_us: 1.0,
            system_us: 1.0,
            core_share: 1.0,
            p50_us: 1.0,
            p99_us: 1.0,
        };
        let text = svg("a", &["flick"], &[Point { side: "flick", connections: 1, rounds: vec![round] }]);
        assert_eq!(text.matches("<polyline").count(), 5);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
