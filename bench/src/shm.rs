//! Streams in shared memory beside TCP, Unix sockets, pipes and a bare ring: round trips, messages and streams.
//!
//! Promises: all transports have the same threads, cores and bytes in each round, and each round runs every transport
//! once; the number in every message is compared.
//! Not here: services. The two sides are threads of one process, for every transport alike; each side of a stream in
//! shared memory has a mapping of its own.

mod transport;

use std::fmt::Write as _;
use std::io;
use std::time::Instant;

use crate::bars::{self, BarGroup};
use crate::cli::ShmArgs;
use crate::machine::Machine;
use crate::page;
use crate::process::pin_this_thread;
use crate::stats::Spread;
use transport::{Kind, Side, sides};

/// Bytes of a short message.
const SHORT_BYTES: usize = 8;
/// Messages before those that are measured, as a fraction of them.
const WARM_UP: u64 = 10;

/// Part of the messages that `--quick` exchanges.
const QUICK_PART: u64 = 100;

/// Exchange that a figure measures.
#[derive(Clone, Copy)]
enum Exchange {
    /// Round trips of short messages: as many between sides that busy-poll, and between others.
    RoundTrips { polled: u64, blocking: u64 },
    /// Messages in one direction, of as many bytes and in this number.
    OneWay { bytes: usize, messages: u64 },
}

/// Most nanoseconds of a figure, or most times those of another transport.
struct Goal {
    kind: Kind,
    reference: Option<Kind>,
    most: f64,
}

const fn at_most(kind: Kind, most: f64, reference: Kind) -> Goal {
    Goal { kind, reference: Some(reference), most }
}

struct Figure {
    name: &'static str,
    is_one_core: bool,
    exchange: Exchange,
    kinds: &'static [Kind],
    goals: &'static [Goal],
}

const ROUND_TRIPS: Exchange = Exchange::RoundTrips { polled: 200_000, blocking: 10_000 };

const STREAMS: &[Kind] = &[
    Kind::BlockingTcp,
    Kind::PolledTcp,
    Kind::UnixSocket,
    Kind::Pipe,
    Kind::PolledShm,
    Kind::DefaultShm,
    Kind::AsleepShm,
];

const FIGURES: &[Figure] = &[
    Figure {
        name: "8-byte round trip",
        is_one_core: false,
        exchange: ROUND_TRIPS,
        kinds: &[
            Kind::BlockingTcp,
            Kind::PolledTcp,
            Kind::UnixSocket,
            Kind::Pipe,
            Kind::BareRing,
            Kind::BareLine,
            Kind::BareFutex,
            Kind::PolledShm,
            Kind::DefaultShm,
            Kind::AsleepShm,
        ],
        goals: &[
            Goal { kind: Kind::PolledShm, reference: None, most: 600.0 },
            at_most(Kind::PolledShm, 0.01, Kind::BlockingTcp),
            at_most(Kind::PolledShm, 1.0 / 30.0, Kind::PolledTcp),
            at_most(Kind::PolledShm, 2.0, Kind::BareRing),
            at_most(Kind::AsleepShm, 0.6, Kind::BlockingTcp),
        ],
    },
    Figure {
        name: "8-byte round trip on one core",
        is_one_core: true,
        exchange: ROUND_TRIPS,
        kinds: &[
            Kind::BlockingTcp,
            Kind::UnixSocket,
            Kind::Pipe,
            Kind::BareFutex,
            Kind::DefaultShm,
            Kind::AsleepShm,
        ],
        goals: &[
            at_most(Kind::DefaultShm, 0.35, Kind::BlockingTcp),
            at_most(Kind::AsleepShm, 0.35, Kind::BlockingTcp),
        ],
    },
    Figure {
        name: "messages of 8 bytes, one direction",
        is_one_core: false,
        exchange: Exchange::OneWay { bytes: SHORT_BYTES, messages: 500_000 },
        kinds: STREAMS,
        goals: &[
            at_most(Kind::PolledShm, 0.05, Kind::BlockingTcp),
            at_most(Kind::DefaultShm, 0.05, Kind::BlockingTcp),
        ],
    },
    Figure {
        name: "stream in pieces of 16 KiB",
        is_one_core: false,
        exchange: Exchange::OneWay { bytes: 16 << 10, messages: 65_536 },
        kinds: STREAMS,
        goals: &[
            at_most(Kind::PolledShm, 0.5, Kind::BlockingTcp),
            at_most(Kind::DefaultShm, 0.5, Kind::BlockingTcp),
        ],
    },
    Figure {
        name: "stream in pieces of 1 MiB",
        is_one_core: false,
        exchange: Exchange::OneWay { bytes: 1 << 20, messages: 1_024 },
        kinds: STREAMS,
        goals: &[
            at_most(Kind::PolledShm, 0.5, Kind::BlockingTcp),
            at_most(Kind::DefaultShm, 0.5, Kind::BlockingTcp),
        ],
    },
];

/// Runs all figures whose names contain the selection, prints the table, writes the page and plots it.
pub(crate) fn run(args: &ShmArgs) -> io::Result<()> {
    let _boost = args.run.cores.take()?;
    let is_chosen =
        |figure: &&Figure| args.only.as_ref().is_none_or(|only| figure.name.contains(only.as_str()));
    let figures: Vec<&Figure> = FIGURES.iter().filter(is_chosen).collect();
    let mut rows: Vec<Vec<Vec<f64>>> =
        figures.iter().map(|figure| vec![Vec::new(); figure.kinds.len()]).collect();
    for _ in 0..args.run.rounds.max(1) {
        for (figure, row) in figures.iter().zip(&mut rows) {
            for (kind, times) in figure.kinds.iter().zip(row) {
                times.push(measure(figure, *kind, args)?);
            }
        }
    }
    let mut groups = Vec::with_capacity(figures.len());
    let mut table = String::from(
        "| figure | transport | ns | of TCP, blocking | of TCP, polled | goals |\n|---|---|--:|--:|--:|---|\n",
    );
    for (figure, row) in figures.iter().zip(rows) {
        let spreads: Vec<Spread> = row.into_iter().map(|times| Spread::of(times.into_iter())).collect();
        for (kind, spread) in figure.kinds.iter().zip(&spreads) {
            let of = |reference| {
                median(figure, &spreads, reference)
                    .map_or_else(String::new, |median| format!("{:.3}", spread.median / median))
            };
            let Spread { median, min, max } = spread;
            let _ = writeln!(
                table,
                "| {} | {} | {median:.0} ({min:.0}–{max:.0}) | {} | {} | {} |",
                figure.name,
                kind.name(),
                of(Kind::BlockingTcp),
                of(Kind::PolledTcp),
                goals(figure, *kind, &spreads)
            );
        }
        let bars = figure.kinds.iter().map(|kind| kind.name()).zip(spreads).collect();
        groups.push(BarGroup { name: figure.name.to_owned(), bars });
    }
    print!("{table}");
    if let Some(results) = &args.run.results {
        let machine = Machine::describe(&args.run.flick.path());
        let text = format!(
            "# Shared memory beside TCP\n\nTwo threads on two cores, or on one; nanoseconds of a round trip or of a \
             message. Medians of {} rounds, extremes in brackets. *Polled* sides never sleep; *asleep* ones sleep \
             whenever they have to wait; *default* ones busy-poll for a bounded time first. See METHOD.md.\n\n\
             - Linux {}, {}, {} cores\n\n![Shared memory beside TCP](shm.svg)\n\n{table}",
            args.run.rounds, machine.kernel, machine.cpu, machine.cores,
        );
        page::write(results, "shm.md", &text)?;
        let plot = bars::svg("Nanoseconds of a round trip or of a message", &groups, |name| {
            name.starts_with("shared memory")
        });
        std::fs::write(results.join("shm.svg"), plot)?;
    }
    Ok(())
}

fn median(figure: &Figure, spreads: &[Spread], kind: Kind) -> Option<f64> {
    figure.kinds.iter().zip(spreads).find(|(other, _)| **other == kind).map(|(_, spread)| spread.median)
}

/// Goals of a transport, each with whether it is met.
fn goals(figure: &Figure, kind: Kind, spreads: &[Spread]) -> String {
    let mut shown = Vec::new();
    for goal in figure.goals.iter().filter(|goal| goal.kind == kind) {
        let Some(own) = median(figure, spreads, kind) else { continue };
        let most = goal.most;
        let (is_met, bound) = match goal.reference {
            None => (own <= most, format!("≤ {most:.0} ns")),
            Some(reference) => {
                let ratio = own / median(figure, spreads, reference).unwrap_or(f64::NAN);
                (ratio <= most, format!("≤ {most:.3} of {}: {ratio:.3}", reference.name()))
            }
        };
        shown.push(format!("{bound} {}", if is_met { "✓" } else { "✗" }));
    }
    shown.join("; ")
}

/// Nanoseconds of a message or a round trip, in one round of one transport.
fn measure(figure: &Figure, kind: Kind, args: &ShmArgs) -> io::Result<f64> {
    let (mut near, mut far) = sides(kind)?;
    let cores = &args.run.cores;
    let far_core = if figure.is_one_core { cores.server_core } else { cores.load_core };
    let (bytes, count) = match figure.exchange {
        Exchange::RoundTrips { polled, blocking } => (None, if kind.is_polled() { polled } else { blocking }),
        Exchange::OneWay { bytes, messages } => (Some(bytes), messages),
    };
    let count = if args.quick { count.div_ceil(QUICK_PART) } else { count };
    std::thread::scope(|scope| {
        let answering = scope.spawn(move || -> io::Result<()> {
            pin_this_thread(far_core)?;
            for count in [count / WARM_UP, count] {
                match bytes {
                    None => echo(&mut *far, count)?,
                    Some(bytes) => sink(&mut *far, bytes, count)?,
                }
            }
            Ok(())
        });
        pin_this_thread(cores.server_core)?;
        let mut elapsed = 0;
        for count in [count / WARM_UP, count] {
            let begun = Instant::now();
            match bytes {
                None => ask(&mut *near, count)?,
                Some(bytes) => pour(&mut *near, bytes, count)?,
            }
            elapsed = begun.elapsed().as_nanos();
        }
        answering.join().map_err(|_| io::Error::other("the other side panicked"))??;
        Ok(elapsed as f64 / count as f64)
    })
}

fn ask(side: &mut dyn Side, trips: u64) -> io::Result<()> {
    let mut reply = [0; SHORT_BYTES];
    for trip in 0..trips {
        side.send_all(&trip.to_le_bytes())?;
        side.receive_all(&mut reply)?;
        if reply != trip.to_le_bytes() {
            return Err(io::Error::other("a wrong reply"));
        }
    }
    Ok(())
}

fn echo(side: &mut dyn Side, trips: u64) -> io::Result<()> {
    let mut request = [0; SHORT_BYTES];
    for _ in 0..trips {
        side.receive_all(&mut request)?;
        side.send_all(&request)?;
    }
    Ok(())
}

/// Sends all messages, and waits for the answer that says that they arrived.
fn pour(side: &mut dyn Side, bytes: usize, count: u64) -> io::Result<()> {
    let mut message = vec![7; bytes];
    for number in 0..count {
        message[..SHORT_BYTES].copy_from_slice(&number.to_le_bytes());
        side.send_all(&message)?;
    }
    side.receive_all(&mut [0; SHORT_BYTES])
}

fn sink(side: &mut dyn Side, bytes: usize, count: u64) -> io::Result<()> {
    let mut message = vec![0; bytes];
    for number in 0..count {
        side.receive_all(&mut message)?;
        if message[..SHORT_BYTES] != number.to_le_bytes() {
            return Err(io::Error::other("a wrong message"));
        }
    }
    side.send_all(&[1; SHORT_BYTES])
}
