//! A plot of horizontal bars in groups, on a logarithmic scale: figures of several sides that differ by decades.
//! Promises: plain SVG without scripts or fonts of its own, readable on light and dark pages; the bar of each side ends
//! at the median, a line shows the extremes.

use std::fmt::Write as _;

use crate::stats::Spread;

/// Bars of one figure.
pub(crate) struct BarGroup<'a> {
    pub(crate) name: String,
    pub(crate) bars: Vec<(&'a str, Spread)>,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 280.0;
const RIGHT: f64 = 770.0;
const TOP: f64 = 40.0;
const BAR_HEIGHT: f64 = 16.0;
const GROUP_GAP: f64 = 34.0;
const OWN: &str = "#c55a11";
const OTHER: &str = "#9db7d5";

/// Draws the groups below each other; bars of sides for which `is_own` holds are in another colour.
pub(crate) fn svg(title: &str, groups: &[BarGroup<'_>], is_own: impl Fn(&str) -> bool) -> String {
    let all = || groups.iter().flat_map(|group| &group.bars).map(|(_, spread)| spread);
    let first = all().map(|spread| spread.min).fold(f64::INFINITY, f64::min).max(1e-9).log10().floor();
    let last = all().map(|spread| spread.max).fold(0.0, f64::max).max(1e-9).log10().ceil().max(first + 1.0);
    let x = |value: f64| LEFT + (value.max(1e-9).log10() - first) / (last - first) * (RIGHT - LEFT);
    let bars: usize = groups.iter().map(|group| group.bars.len()).sum();
    let height = TOP + groups.len() as f64 * GROUP_GAP + bars as f64 * BAR_HEIGHT + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"14\">{title}</text>\n"
    );
    for power in first as i32..=last as i32 {
        let value = 10_f64.powi(power);
        let _ = writeln!(
            out,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{1:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{0:.1}\" y=\"{2:.1}\" text-anchor=\"middle\">{3}</text>",
            x(value),
            height - 26.0,
            height - 10.0,
            short(value)
        );
    }
    let mut y = TOP;
    for group in groups {
        y += GROUP_GAP;
        let _ = writeln!(
            out,
            "<text x=\"16\" y=\"{:.1}\" font-weight=\"bold\">{}</text>",
            y - 8.0,
            escaped(&group.name)
        );
        for (side, spread) in &group.bars {
            bar(&mut out, &x, y, side, *spread, if is_own(side) { OWN } else { OTHER });
            y += BAR_HEIGHT;
        }
    }
    out.push_str("</svg>\n");
    out
}

fn bar(out: &mut String, x: &impl Fn(f64) -> f64, y: f64, side: &str, spread: Spread, colour: &str) {
    let (middle, end) = (y + BAR_HEIGHT / 2.0 - 1.0, x(spread.median));
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\
         <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke=\"#333\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        LEFT - 8.0,
        middle + 4.0,
        escaped(side),
        (end - LEFT).max(0.0),
        BAR_HEIGHT - 3.0,
        x(spread.min),
        x(spread.max),
        x(spread.max) + 6.0,
        middle + 4.0,
        short(spread.median)
    );
}

/// A number with three digits that count.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{} M", digits(value / 1e6)),
        value if value >= 1e3 => format!("{} k", digits(value / 1e3)),
        value => digits(value),
    }
}

fn digits(value: f64) -> String {
    let decimals = if value >= 100.0 { 0 } else { 1 };
    let text = format!("{value:.decimals$}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Text without characters that mean something in SVG.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::{BarGroup, short, svg};
    use crate::stats::Spread;

    #[test]
    fn decades_are_as_far_apart_as_each_other() {
        let spread = |median: f64| Spread { median, min: median, max: median };
        let bars = vec![("TCP", spread(10.0)), ("rings", spread(100.0)), ("pipes", spread(1000.0))];
        let text = svg("ns", &[BarGroup { name: "a < b".to_owned(), bars }], |side| side == "rings");
        let widths: Vec<f64> = text
            .lines()
            .filter(|line| line.contains("text-anchor=\"end\""))
            .filter_map(|line| line.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        let [first, second, third] = widths[..] else { panic!("three bars in {text}") };
        assert!((third - second - (second - first)).abs() < 0.3 && second > first, "{widths:?}");
        assert!(text.contains("a &lt; b") && text.contains("#c55a11"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(["1.4 M", "14 k", "236", "0.5"], [1_400_000.0, 14_000.0, 236.0, 0.5].map(short));
    }
}
