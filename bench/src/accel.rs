//! Programs that know nothing of flick, with `flick accel --move` beside the same programs without it: round trips,
//! packet filters, redis and nginx.
//!
//! Promises: both sides run the same programs with the same arguments; every byte that comes out of a filter is
//! compared; each round runs every side once; the share of bytes that went through rings is read in a round of its own,
//! which is not timed.
//! Not here: cores. The kernel puts the processes on them, for every side alike.

mod filters;
mod round_trips;
mod servers;
mod setting;

use std::fmt::Write as _;
use std::io;

use crate::cli::AccelArgs;
use crate::machine::Machine;
use crate::page;
use crate::stats::Spread;

use round_trips::Medium;
use setting::{Mode, Setting};

/// Something that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    /// A message of 8 bytes and its echo.
    RoundTrip(Medium),
    /// Records through filters that read and write one packet at a time.
    Packets(usize),
    /// The same through filters that use stdio.
    Stdio(usize),
    /// GET of 8 bytes by `redis-benchmark`.
    Redis(usize),
    /// A short page by `wrk`.
    Nginx(usize),
    /// The same by a `wrk` that is not accelerated.
    NginxAlone(usize),
}

/// Connections of `redis-benchmark` and of wrk.
const CONNECTIONS: [usize; 2] = [1, 50];

impl Figure {
    fn all(lengths: &[usize]) -> Vec<Figure> {
        let round_trips = Medium::ALL.map(Figure::RoundTrip);
        let packets = lengths.iter().map(|length| Figure::Packets(*length));
        let stdio = lengths.iter().map(|length| Figure::Stdio(*length));
        let servers = [Figure::Redis, Figure::Nginx, Figure::NginxAlone].map(|of| CONNECTIONS.map(of));
        round_trips.into_iter().chain(packets).chain(stdio).chain(servers.into_iter().flatten()).collect()
    }

    fn name(self) -> String {
        match self {
            Figure::RoundTrip(medium) => format!("round trip of 8 bytes, {}", medium.name()),
            Figure::Packets(length) => format!("packet by packet, {length} filter(s)"),
            Figure::Stdio(length) => format!("stdio, {length} filter(s)"),
            Figure::Redis(clients) => format!("redis GET, {clients} client(s)"),
            Figure::Nginx(connections) => format!("nginx, {connections} connection(s) of wrk"),
            Figure::NginxAlone(connections) => format!("nginx, {connections} connection(s) of a plain wrk"),
        }
    }

    fn sides(self) -> &'static [Mode] {
        match self {
            Figure::Packets(_) => &[Mode::Accelerated, Mode::Plain, Mode::PlainTcp],
            _ => &[Mode::Accelerated, Mode::Plain],
        }
    }

    /// Least rate of the accelerated side, in those of another.
    fn goal(self, side: Mode) -> Option<f64> {
        match (self, side) {
            (_, Mode::Accelerated) => None,
            (Figure::RoundTrip(Medium::Tcp), _) => Some(30.0),
            (Figure::Packets(_) | Figure::Stdio(_), Mode::Plain) => Some(15.0),
            (Figure::Packets(_), Mode::PlainTcp) => Some(20.0),
            // A mean that is 64 % lower.
            (Figure::Redis(_), _) => Some(2.8),
            // 2 % may be lost.
            (Figure::NginxAlone(_), _) => Some(0.98),
            _ => None,
        }
    }

    /// Runs one side, and returns the rate per second.
    fn measure(self, setting: &Setting<'_>, side: Mode) -> io::Result<f64> {
        match self {
            Figure::RoundTrip(medium) => round_trips::measure(setting, side, medium),
            Figure::Packets(length) => filters::measure(setting, side, "packets", length),
            Figure::Stdio(length) => filters::measure(setting, side, "stdio", length),
            Figure::Redis(clients) => servers::redis(setting, side, clients),
            Figure::Nginx(connections) => servers::nginx(setting, side, side, connections),
            Figure::NginxAlone(connections) => servers::nginx(setting, side, Mode::Plain, connections),
        }
    }
}

/// Runs all figures, prints the table, and writes the page.
pub(crate) fn run(args: &AccelArgs) -> io::Result<()> {
    let mut table = String::from(
        "| figure | side | per second | accelerated / side | goal | bytes through rings |\n|--|--|--:|--:|--|--:|\n",
    );
    let is_chosen = |figure: &Figure| args.only.as_ref().is_none_or(|only| figure.name().contains(only));
    for figure in Figure::all(&args.lengths).into_iter().filter(is_chosen) {
        let setting = Setting::new(args)?;
        let failed = |error| io::Error::other(format!("{}: {error}", figure.name()));
        setting.look_at_rings();
        figure.measure(&setting, Mode::Accelerated).map_err(failed)?;
        let ring_share = setting.ring_share();
        let mut rows: Vec<(Mode, Vec<f64>)> = figure.sides().iter().map(|side| (*side, Vec::new())).collect();
        for _ in 0..args.run.rounds.max(1) {
            for (side, rates) in &mut rows {
                rates.push(figure.measure(&setting, *side).map_err(failed)?);
            }
        }
        let rows: Vec<(Mode, Spread)> =
            rows.into_iter().map(|(side, rates)| (side, Spread::of(rates.into_iter()))).collect();
        let text = lines(figure, &rows, ring_share);
        print!("{text}");
        table.push_str(&text);
    }
    let Some(results) = &args.run.results else { return Ok(()) };
    let machine = Machine::describe(&args.run.flick.path());
    let text = format!(
        "# Unmodified programs with and without `flick accel --move`\n\nMedians of {} rounds, extremes in brackets; the \
         sides alternate. Goals are ratios. Method: [METHOD.md](../METHOD.md#accel).\n\n- Linux {}, {}, {} cores\n\n{table}",
        args.run.rounds, machine.kernel, machine.cpu, machine.cores,
    );
    page::write(results, "accel.md", &text)
}

/// The lines of one figure.
fn lines(figure: Figure, rows: &[(Mode, Spread)], ring_share: f64) -> String {
    let own = rows[0].1.median;
    let mut text = String::new();
    for (side, Spread { median, min, max }) in rows {
        let ratio = own / median;
        let goal = figure.goal(*side).map_or_else(String::new, |least| {
            format!("≥ {least} {}", if ratio >= least { "✓" } else { "✗" })
        });
        let rings =
            if *side == Mode::Accelerated { format!("{:.0} %", ring_share * 100.0) } else { String::new() };
        let (name, side) = (figure.name(), side.name());
        let _ = writeln!(
            text,
            "| {name} | {side} | {median:.0} ({min:.0}–{max:.0}) | {ratio:.2} | {goal} | {rings} |"
        );
    }
    text
}
