//! The plot of `sharing`: two bars for each policy, as in the paper's Figure 7.
//! Promises: plain SVG without scripts or fonts of its own, readable on light and dark pages.

use std::fmt::Write as _;

/// One policy.
pub(super) struct Bars<'a> {
    pub(super) name: &'a str,
    pub(super) light_s: f64,
    pub(super) light_mean_s: f64,
    pub(super) heavy_s: f64,
    pub(super) heavy_mean_s: f64,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 256.0;
const BAR: f64 = 56.0;
const LIGHT: &str = "#5b9bd5";
const HEAVY: &str = "#c55a11";

/// Draws them.
pub(super) fn svg(all: &[Bars<'_>]) -> String {
    let longest = all.iter().map(|bars| bars.heavy_s.max(bars.light_s)).fold(0.001, f64::max);
    let top = nice(longest);
    let y = |seconds: f64| BOTTOM - seconds / top * (BOTTOM - TOP - 20.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\">Until the last task of its class is done, in seconds; the line: until the average one is</text>\n"
    );
    for step in 0..=4 {
        let at = top * f64::from(step) / 4.0;
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{0:.1}\" y2=\"{0:.1}\" stroke=\"#ddd\"/><text x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\">{at:.2}</text>",
            y(at),
            LEFT - 8.0,
            y(at) + 4.0
        );
    }
    let group = (WIDTH - LEFT) / all.len().max(1) as f64;
    for (index, bars) in all.iter().enumerate() {
        let middle = LEFT + group * (index as f64 + 0.5);
        let each = [(LIGHT, bars.light_s, bars.light_mean_s), (HEAVY, bars.heavy_s, bars.heavy_mean_s)];
        for (bar, (colour, last, mean)) in each.into_iter().enumerate() {
            let x = middle - BAR - 2.0 + bar as f64 * (BAR + 4.0);
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{BAR}\" height=\"{:.1}\" fill=\"{colour}\"/><line x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{3:.1}\" y2=\"{3:.1}\" stroke=\"#000\" stroke-width=\"2\"/><text x=\"{4:.1}\" y=\"{5:.1}\" text-anchor=\"middle\">{last:.2}</text>",
                y(last),
                BOTTOM - y(last),
                x + BAR,
                y(mean),
                x + BAR / 2.0,
                y(last) - 5.0
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 18.0,
            bars.name
        );
    }
    let _ = writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"284\" width=\"12\" height=\"12\" fill=\"{LIGHT}\"/><text x=\"{}\" y=\"295\">items of 1 KiB</text>\
         <rect x=\"220\" y=\"284\" width=\"12\" height=\"12\" fill=\"{HEAVY}\"/><text x=\"238\" y=\"295\">items of 16 KiB</text>\n</svg>",
        LEFT + 18.0
    );
    out
}

/// A round number that is not smaller.
fn nice(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= value)
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::nice;

    #[test]
    fn an_axis_ends_at_a_round_number() {
        for (value, expected) in [(0.5, 0.6), (0.61, 0.8), (1.7, 2.0), (9.0, 10.0)] {
            assert!((nice(value) - expected).abs() < 1e-9, "{value}: {}", nice(value));
        }
    }
}
