//! The page of a figure: medians by number of connections, and flick's ratio to each rival.

use std::fmt::Write as _;

use super::{Figure, Point, Round};
use crate::cli::SweepArgs;
use crate::machine::Machine;
use crate::stats::Spread;

/// Writes the page.
pub(super) fn page(figure: &Figure, args: &SweepArgs, points: &[Point], machine: &Machine) -> String {
    let (name, cores) = (&figure.name, &args.run.cores);
    let mut text = format!("# {}\n\n{}\n\n", figure.title, figure.load);
    let _ = writeln!(
        text,
        "Default settings, one worker. {} rounds of {} s after {} s of warm-up; server on core {}, load and backends on\n\
         core {}{}. Medians, extremes in brackets. Method: [METHOD.md](../METHOD.md#sweeps).\n",
        args.run.rounds.max(1),
        args.seconds,
        args.warmup_seconds,
        cores.server_core,
        cores.load_core,
        if cores.boost { ", before other work of the machine" } else { "" }
    );
    if args.run.results.is_some() {
        let _ = writeln!(text, "![{}]({name}.svg)\n", figure.title);
    }
    text.push_str(&figures(points));
    text.push_str(&ratios(points));
    let _ = writeln!(text, "\n- Linux {}, {} cores of {}", machine.kernel, machine.cores, machine.cpu);
    for (program, version) in &machine.versions {
        let _ = writeln!(text, "- {program}: {version}");
    }
    text
}

/// One row for each side and number of connections.
fn figures(points: &[Point]) -> String {
    let mut text = String::from(
        "| connections | side | requests/s | CPU µs per request | user | system | core | p50 µs | p99 µs |\n\
         |--:|---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for point in points {
        let cell = |digits: usize, read: fn(&Round) -> f64| {
            let spread = spread(point, read);
            let extremes = format!("{:.digits$}–{:.digits$}", spread.min, spread.max);
            format!("{:.digits$} ({extremes})", spread.median)
        };
        let plain = |read: fn(&Round) -> f64| format!("{:.2}", spread(point, read).median);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            point.connections,
            point.side,
            cell(0, |round| round.requests_per_s),
            cell(2, Round::cpu_us),
            plain(|round| round.user_us),
            plain(|round| round.system_us),
            plain(|round| round.core_share),
            cell(0, |round| round.p50_us),
            cell(0, |round| round.p99_us),
        );
    }
    text
}

/// flick over each rival, of the same number of connections; empty without both.
fn ratios(points: &[Point]) -> String {
    let flick =
        |connections| points.iter().find(|point| point.side == "flick" && point.connections == connections);
    let mut text = String::new();
    for rival in points.iter().filter(|point| point.side != "flick") {
        let Some(flick) = flick(rival.connections) else { continue };
        let ratio = |read: fn(&Round) -> f64| spread(flick, read).median / spread(rival, read).median;
        let _ = writeln!(
            text,
            "| {} | flick / {} | {:.2} | {:.2} | {:.2} | {:.2} |",
            rival.connections,
            rival.side,
            ratio(|round| round.requests_per_s),
            ratio(Round::cpu_us),
            ratio(|round| round.p50_us),
            ratio(|round| round.p99_us),
        );
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "\n| connections | ratio of medians | requests/s | CPU per request | p50 | p99 |\n|--:|---|--:|--:|--:|--:|\n{text}"
    )
}

/// Median and extremes of one figure.
pub(super) fn spread(point: &Point, read: fn(&Round) -> f64) -> Spread {
    Spread::of(point.rounds.iter().map(read))
}

#[cfg(test)]
mod tests {
    use super::{figures, ratios};
    use crate::sweep::{Point, Round};

    fn point(side: &'static str, connections: usize, scale: f64) -> Point {
        let round = |factor: f64| Round {
            requests_per_s: 1000.0 * scale * factor,
            user_us: 2.0 / scale,
            system_us: 3.0 / scale,
            core_share: 0.5,
            p50_us: 100.0 / scale,
            p99_us: 200.0 / scale,
        };
        Point { side, connections, rounds: vec![round(1.0), round(0.9), round(1.2)] }
    }

    #[test]
    fn rows_have_medians_with_extremes() {
        let text = figures(&[point("flick", 10, 1.0)]);
        let row = "| 10 | flick | 1000 (900–1200) | 5.00 (5.00–5.00) | 2.00 | 3.00 | 0.50 | 100 (100–100) | 200 (200–200) |";
        assert_eq!(text.lines().last(), Some(row));
    }

    #[test]
    fn ratios_are_between_equal_numbers_of_connections() {
        let points = [point("flick", 1, 2.0), point("nginx", 1, 1.0), point("nginx", 2, 1.0)];
        let text = ratios(&points);
        assert_eq!(text.lines().count(), 4);
        assert_eq!(text.lines().last(), Some("| 1 | flick / nginx | 2.00 | 0.50 | 0.50 | 0.50 |"));
        assert_eq!(ratios(&points[1..]), "");
    }
}
