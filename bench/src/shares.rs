//! An innocent client of the memcached proxy beside clients that pipeline requests for long values.
//!
//! Promises: the loads are the same for all sides; the sides alternate within each round; a wrong or missing reply ends
//! the run. The reference is the same memcached, asked without a proxy.
//! Not here: services beside each other (`neighbours.rs`).

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use flick_load::load::{self, KeySize, LoadConfig, ValueSize};

use crate::cli::SharesArgs;
use crate::machine::Machine;
use crate::memcached_proxy::memcached;
use crate::page;
use crate::process::{Server, free_addr, workspace};
use crate::stats::Spread;

/// The sides.
const SIDES: [&str; 2] = ["flick", "direct"];

/// Requests that each of them has in flight.
const DEPTH: usize = 24;

/// Length of their values.
const VALUE_BYTES: usize = 1_000_000;

/// The figures of one round of one case.
struct Round {
    innocent_per_s: f64,
    p99_us: f64,
    heavy_per_s: f64,
}

/// Runs all cases and prints, or writes, the page.
pub(crate) fn run(args: &SharesArgs) -> io::Result<()> {
    let _boost = args.run.cores.take()?;
    // 0 is the innocent one alone.
    let cases = args.long.iter().flat_map(|heavy| SIDES.map(|side| (*heavy, side)));
    let mut rows: Vec<(usize, &str, Vec<Round>)> =
        cases.map(|(heavy, side)| (heavy, side, Vec::new())).collect();
    for number in 1..=args.run.rounds.max(1) {
        for (heavy, side, rounds) in &mut rows {
            let round = round(args, *heavy, side).map_err(|error| {
                io::Error::other(format!("{side}, {heavy} clients, round {number}: {error}"))
            })?;
            eprintln!(
                "round {number} {heavy:>2} heavy, {side:<7} innocent {:.0}/s, p99 {:.0} us, heavy {:.0}/s",
                round.innocent_per_s, round.p99_us, round.heavy_per_s
            );
            rounds.push(round);
        }
    }
    let table = table(&rows);
    print!("{table}");
    if let Some(results) = &args.run.results {
        let machine = Machine::describe(&args.run.flick.path());
        let text = format!(
            "# A client beside clients with long replies\n\nThe memcached proxy with one worker before one memcached, and the same \
             memcached asked directly. One client asks for values of 100 bytes, one after the other; others pipeline {DEPTH} \
             requests each for values of {VALUE_BYTES} bytes{}. The load shares a core with memcached. Medians of {} rounds of \
             {} s, extremes in brackets; see METHOD.md.\n\n- Linux {}, {} cores\n\n{table}",
            args.long_rate.map_or(String::new(), |rate| format!(", {rate} per second together")),
            args.run.rounds,
            args.seconds,
            machine.kernel,
            machine.cores,
        );
        page::write(results, "shares.md", &text)?;
    }
    Ok(())
}

fn round(args: &SharesArgs, heavy: usize, side: &str) -> io::Result<Round> {
    let cores = &args.run.cores;
    let store = memcached(free_addr()?, cores.load_core, cores.load_core)?;
    let proxy = (side == "flick").then(|| start(args, &store)).transpose()?;
    let addr = proxy.as_ref().unwrap_or(&store).ip()?;
    let seconds = Duration::from_secs_f64(args.seconds);
    // Keys of another length are other keys.
    let innocent = LoadConfig {
        connections: 1,
        depth: 1,
        keys: 100,
        key_size: KeySize::Fixed(30),
        get_ratio: 1.0,
        value: ValueSize::Fixed(100),
        warmup: Duration::from_secs(1),
        duration: Some(seconds),
        ..LoadConfig::new(addr)
    };
    let crowd = LoadConfig {
        connections: heavy,
        depth: DEPTH,
        keys: 10,
        key_size: KeySize::Fixed(20),
        get_ratio: 1.0,
        value: ValueSize::Fixed(VALUE_BYTES),
        rate_per_s: args.long_rate,
        warmup: Duration::ZERO,
        duration: Some(seconds + Duration::from_secs(2)),
        ..LoadConfig::new(addr)
    };
    load::populate(&innocent)?;
    let others = if heavy > 0 {
        load::populate(&LoadConfig { connections: 1, depth: 1, ..crowd.clone() })?;
        Some(load::start(crowd)?)
    } else {
        None
    };
    let report = load::start(innocent)?.wait();
    let others = others.map(|others| {
        others.stop();
        others.wait()
    });
    let faults = report.faults() + others.as_ref().map_or(0, load::LoadReport::faults);
    if faults > 0 || report.replies == 0 {
        return Err(io::Error::other(format!("the round is void: {:?}", report.counts)));
    }
    Ok(Round {
        innocent_per_s: report.replies_per_s,
        p99_us: report.latency.p99_us as f64,
        heavy_per_s: others.map_or(0.0, |others| others.replies_per_s),
    })
}

fn start(args: &SharesArgs, store: &Server) -> io::Result<Server> {
    let addr = free_addr()?;
    let mut command = args.run.flick.run(&workspace().join("examples/memcached_proxy/memcached_proxy.flick"));
    command.arg("--listen").arg(format!("client={addr}"));
    command.arg("--connect").arg(format!("backends={}", store.addr));
    Server::start(command, args.run.cores.server_core, args.run.cores.load_core, addr)
}

fn table(rows: &[(usize, &str, Vec<Round>)]) -> String {
    let mut text = String::from(
        "| clients with long replies | asked through | innocent, requests/s | innocent, p99 µs | long replies/s |\n|--:|---|---|---|---|\n",
    );
    for (heavy, side, rounds) in rows {
        let cell = |read: fn(&Round) -> f64| {
            let spread = Spread::of(rounds.iter().map(read));
            format!("{:.0} ({:.0}–{:.0})", spread.median, spread.min, spread.max)
        };
        let _ = writeln!(
            text,
            "| {heavy} | {side} | {} | {} | {} |",
            cell(|round| round.innocent_per_s),
            cell(|round| round.p99_us),
            cell(|round| round.heavy_per_s)
        );
    }
    text
}
