//! Programs that know nothing of flick, with `flick accel --move` beside the same programs without it: round trips,
//! packet filters, redis, nginx, and a page of three tiers.
//!
//! Promises: both sides run the same programs with the same arguments; every byte that comes out of a filter is
//! compared; each round runs every side once; the share of bytes that went through rings is read in a round of its own,
//! which is not timed.
//! Not here: cores. The kernel puts the processes on them, for every side alike.

mod filters;
mod page;
mod round_trips;
mod servers;
mod setting;

use std::fmt::Write as _;
use std::io;

use crate::cli::AccelArgs;
use crate::machine::Machine;
use crate::page as results;
use crate::stats::Spread;

use page::Web;
use round_trips::Medium;
use servers::Served;
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
    /// A page of three tiers that makes this number of round trips to redis.
    Page(Web, usize),
}

/// Round trips of a page from which on there is a goal.
const PAGE_GOAL_MIN: usize = 8;
/// Connections of `redis-benchmark` and of wrk.
const CONNECTIONS: [usize; 2] = [1, 50];

impl Figure {
    fn all(lengths: &[usize]) -> Vec<Figure> {
        let round_trips = Medium::ALL.map(Figure::RoundTrip);
        let packets = lengths.iter().map(|length| Figure::Packets(*length));
        let stdio = lengths.iter().map(|length| Figure::Stdio(*length));
        let servers = [Figure::Redis, Figure::Nginx, Figure::NginxAlone].map(|of| CONNECTIONS.map(of));
        let pages = [Web::Node, Web::Php]
            .into_iter()
            .flat_map(|web| page::ROUND_TRIPS.map(|round_trips| Figure::Page(web, round_trips)));
        let servers = servers.into_iter().flatten().chain(pages);
        round_trips.into_iter().chain(packets).chain(stdio).chain(servers).collect()
    }

    fn name(self) -> String {
        match self {
            Figure::RoundTrip(medium) => format!("round trip of 8 bytes, {}", medium.name()),
            Figure::Packets(length) => format!("packet by packet, {length} filter(s)"),
            Figure::Stdio(length) => format!("stdio, {length} filter(s)"),
            Figure::Redis(clients) => format!("redis GET, {clients} client(s)"),
            Figure::Nginx(connections) => format!("nginx, {connections} connection(s) of wrk"),
            Figure::NginxAlone(connections) => format!("nginx, {connections} connection(s) of a plain wrk"),
            Figure::Page(web, round_trips) => format!("page, {}, {round_trips} round trip(s)", web.name()),
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
            // A third of the time.
            (Figure::Page(_, round_trips), _) if round_trips >= PAGE_GOAL_MIN => Some(3.0),
            _ => None,
        }
    }

    /// Runs one side.
    fn measure(self, setting: &Setting<'_>, side: Mode) -> io::Result<Measured> {
        let rate = match self {
            Figure::Page(web, round_trips) => {
                let served = page::measure(setting, side, web, round_trips)?;
                return Ok(Measured { rate: served.rate, served: Some(served) });
            }
            Figure::RoundTrip(medium) => round_trips::measure(setting, side, medium),
            Figure::Packets(length) => filters::measure(setting, side, "packets", length),
            Figure::Stdio(length) => filters::measure(setting, side, "stdio", length),
            Figure::Redis(clients) => servers::redis(setting, side, clients),
            Figure::Nginx(connections) => servers::nginx(setting, side, side, connections),
            Figure::NginxAlone(connections) => servers::nginx(setting, side, Mode::Plain, connections),
        };
        Ok(Measured { rate: rate?, served: None })
    }
}

/// Figures of a round of one side.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Per second.
    rate: f64,
    served: Option<Served>,
}

/// One side of a figure, with its rounds.
struct Row {
    side: Mode,
    rate: Spread,
    /// Medians.
    served: Option<Served>,
}

impl Row {
    fn of(side: Mode, rounds: &[Measured]) -> Self {
        let median = |of: fn(&Served) -> f64| {
            let values: Vec<f64> = rounds.iter().filter_map(|round| round.served.as_ref().map(of)).collect();
            (!values.is_empty()).then(|| Spread::of(values.into_iter()).median)
        };
        let rate = Spread::of(rounds.iter().map(|round| round.rate));
        let served = median(|served| served.cpu_us).zip(median(|served| served.kernel_share));
        let served = served.map(|(cpu_us, kernel_share)| Served { rate: rate.median, cpu_us, kernel_share });
        Self { side, rate, served }
    }
}

/// Runs all figures, prints the table, and writes the page.
pub(crate) fn run(args: &AccelArgs) -> io::Result<()> {
    let mut table = String::from(
        "| figure | side | per second | accelerated / side | goal | bytes through rings | servers' time, in the kernel |\n\
         |--|--|--:|--:|--|--:|--:|\n",
    );
    let is_chosen = |figure: &Figure| args.only.as_ref().is_none_or(|only| figure.name().contains(only));
    for figure in Figure::all(&args.lengths).into_iter().filter(is_chosen) {
        let setting = Setting::new(args)?;
        let failed = |error| io::Error::other(format!("{}: {error}", figure.name()));
        setting.look_at_rings();
        figure.measure(&setting, Mode::Accelerated).map_err(failed)?;
        let ring_share = setting.ring_share();
        let mut rows: Vec<(Mode, Vec<Measured>)> =
            figure.sides().iter().map(|side| (*side, Vec::new())).collect();
        for _ in 0..args.run.rounds.max(1) {
            for (side, rounds) in &mut rows {
                rounds.push(figure.measure(&setting, *side).map_err(failed)?);
            }
        }
        let rows: Vec<Row> = rows.iter().map(|(side, rounds)| Row::of(*side, rounds)).collect();
        let text = lines(figure, &rows, ring_share);
        print!("{text}");
        table.push_str(&text);
    }
    let Some(directory) = &args.run.results else { return Ok(()) };
    let machine = Machine::describe(&args.run.flick.path());
    let text = format!(
        "# Unmodified programs with and without `flick accel --move`\n\nMedians of {} rounds, extremes in brackets; the \
         sides alternate. Goals are ratios. Method: [METHOD.md](../METHOD.md#accel).\n\n- Linux {}, {}, {} cores\n\n{table}",
        args.run.rounds, machine.kernel, machine.cpu, machine.cores,
    );
    results::write(directory, "accel.md", &text)
}

/// The lines of one figure.
fn lines(figure: Figure, rows: &[Row], ring_share: f64) -> String {
    let own = rows[0].rate.median;
    let mut text = String::new();
    for Row { side, rate: Spread { median, min, max }, served } in rows {
        let ratio = own / median;
        let goal = figure.goal(*side).map_or_else(String::new, |least| {
            format!("≥ {least} {}", if ratio >= least { "✓" } else { "✗" })
        });
        let rings =
            if *side == Mode::Accelerated { format!("{:.0} %", ring_share * 100.0) } else { String::new() };
        let time = served.map_or_else(String::new, |served| {
            format!("{:.1} µs, {:.0} %", served.cpu_us, served.kernel_share * 100.0)
        });
        let (name, side) = (figure.name(), side.name());
        let _ = writeln!(
            text,
            "| {name} | {side} | {median:.0} ({min:.0}–{max:.0}) | {ratio:.2} | {goal} | {rings} | {time} |"
        );
    }
    text
}
