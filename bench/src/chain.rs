//! Chains of packet filters: flick processes joined by shared memory, by pipes and by TCP, one flick process that holds
//! the whole chain, and filters written by hand that read packet by packet, on pipes and on TCP.
//!
//! Promises: every side filters the same records, and every byte that comes out is compared; the clock starts when the
//! first message has passed the whole chain; each round runs every side once.
//! Not here: cores. There are more processes than cores, so the kernel places them, for every side alike.

mod filter;
mod side;

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::time::Instant;

use crate::bars::{self, BarGroup};
use crate::cli::ChainArgs;
use crate::machine::Machine;
use crate::page;
use crate::process::ScratchDir;
use crate::stats::Spread;

pub(crate) use filter::run as filter;
pub(crate) use side::joint;
use side::{Chain, ChainKind};

/// Bytes of the header of a capture, and of a record with its packet.
const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 16 + PACKET_BYTES;
/// Bytes of a packet.
const PACKET_BYTES: usize = 64;
/// Place of the byte that is changed, in a packet, and its new value.
const EDITED_AT: usize = 22;
const EDITED_TO: u8 = 64;
/// Bytes that are written to a chain at once, a whole number of records.
const WRITE_BYTES: usize = RECORD_BYTES * 819;

/// Least throughput of shared memory, in those of others.
const GOALS: &[(ChainKind, f64)] = &[
    (ChainKind::FlickPipes, 15.0),
    (ChainKind::FlickTcp, 20.0),
    (ChainKind::HandPipes, 15.0),
    (ChainKind::HandTcp, 20.0),
];

/// Runs all sides on all lengths, prints the table, writes the page and plots it.
pub(crate) fn run(args: &ChainArgs) -> io::Result<()> {
    let scratch = ScratchDir::new("chain")?;
    let input = capture(args.records);
    let mut groups = Vec::with_capacity(args.lengths.len());
    let mut table =
        String::from("| filters | side | records/s | shared memory / side | goal |\n|--:|---|--:|--:|---|\n");
    for length in &args.lengths {
        let sides = ChainKind::ALL.iter().filter(|side| side.has_joint(*length));
        let mut rows: Vec<(ChainKind, Vec<f64>)> = sides.map(|side| (*side, Vec::new())).collect();
        for _ in 0..args.run.rounds.max(1) {
            for (side, rates) in &mut rows {
                let records = args.records / side.slowness();
                let rate =
                    measure(args, *side, *length, &input[..HEADER_BYTES + records * RECORD_BYTES], &scratch);
                let failed = |error| io::Error::other(format!("{length} filters, {}: {error}", side.name()));
                rates.push(rate.map_err(failed)?);
            }
        }
        let spreads: Vec<(ChainKind, Spread)> =
            rows.into_iter().map(|(side, rates)| (side, Spread::of(rates.into_iter()))).collect();
        write_rows(&mut table, *length, &spreads);
        let bars = spreads.into_iter().map(|(side, spread)| (side.name(), spread)).collect();
        let name = if *length == 1 { "1 filter".to_owned() } else { format!("{length} filters") };
        groups.push(BarGroup { name, bars });
    }
    print!("{table}");
    if let Some(results) = &args.run.results {
        let machine = Machine::describe(&args.run.flick.path());
        let text = format!(
            "# Chains of packet filters\n\nRecords of {PACKET_BYTES} bytes through a chain of filters, which change a \
             byte and count in turn. Medians of {} rounds, extremes in brackets. See METHOD.md.\n\n\
             - Linux {}, {}, {} cores\n\n![Chains of packet filters](chain.svg)\n\n{table}",
            args.run.rounds, machine.kernel, machine.cpu, machine.cores,
        );
        page::write(results, "chain.md", &text)?;
        let own = ChainKind::FlickRings.name();
        let plot = bars::svg("Records per second through a chain", &groups, |side| side == own);
        std::fs::write(results.join("chain.svg"), plot)?;
    }
    Ok(())
}

fn write_rows(table: &mut String, length: usize, spreads: &[(ChainKind, Spread)]) {
    let rings = spreads
        .iter()
        .find(|(side, _)| *side == ChainKind::FlickRings)
        .map_or(f64::NAN, |(_, own)| own.median);
    for (side, Spread { median, min, max }) in spreads {
        let ratio = rings / median;
        let goal = GOALS.iter().find(|(of, _)| of == side).map_or_else(String::new, |(_, least)| {
            format!("≥ {least:.0} {}", if ratio >= *least { "✓" } else { "✗" })
        });
        let name = side.name();
        let _ =
            writeln!(table, "| {length} | {name} | {median:.0} ({min:.0}–{max:.0}) | {ratio:.2} | {goal} |");
    }
}

/// A capture of this many records.
pub(crate) fn capture(records: usize) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1]);
    for number in 0..records as u32 {
        bytes.extend(words(&[number, 0, PACKET_BYTES as u32, PACKET_BYTES as u32]));
        bytes.extend([number as u8; PACKET_BYTES]);
    }
    bytes
}

/// Records per second of a chain.
fn measure(
    args: &ChainArgs,
    side: ChainKind,
    length: usize,
    input: &[u8],
    scratch: &ScratchDir,
) -> io::Result<f64> {
    let mut chain = Chain::start(args, side, length, scratch)?;
    let (mut to, mut from) = chain.ends()?;
    to.write_all(&input[..HEADER_BYTES])?;
    let mut header = [0; HEADER_BYTES];
    from.read_exact(&mut header)?;
    let records = &input[HEADER_BYTES..];
    let begun = Instant::now();
    let written = std::thread::scope(|scope| {
        let writer =
            scope.spawn(move || records.chunks(WRITE_BYTES).try_for_each(|chunk| to.write_all(chunk)));
        let compared = compare(&mut from, records);
        let written = writer.join().map_err(|_| io::Error::other("the writer panicked"))?;
        compared.and(written)
    });
    let elapsed = begun.elapsed();
    written?;
    chain.finish()?;
    Ok((records.len() / RECORD_BYTES) as f64 / elapsed.as_secs_f64())
}

/// Reads records, and compares each with the one that went in.
fn compare(from: &mut impl Read, records: &[u8]) -> io::Result<()> {
    let mut got = vec![0; WRITE_BYTES];
    for chunk in records.chunks(WRITE_BYTES) {
        let got = &mut got[..chunk.len()];
        from.read_exact(got)?;
        for (got, sent) in got.chunks(RECORD_BYTES).zip(chunk.chunks(RECORD_BYTES)) {
            let (at, end) = (16 + EDITED_AT, got.len());
            if got[..at] != sent[..at] || got[at] != EDITED_TO || got[at + 1..end] != sent[at + 1..end] {
                return Err(io::Error::other("a record came out wrong"));
            }
        }
    }
    Ok(())
}
