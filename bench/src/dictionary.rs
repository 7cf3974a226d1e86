//! Reads of the shared dictionary beside `papaya`, a concurrent map used directly from Rust: the same keys, values,
//! order and threads, each read copies the value out.
//!
//! The figure is processor time of the reading threads, which holds where other work shares the machine. Values are
//! checked; a read that finds nothing or another value ends the run.

use std::hash::BuildHasher;
use std::io;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use flick_dict::{DictConfig, Dictionary, Evict, Seed};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::cli::DictionaryArgs;
use crate::machine::Machine;
use crate::page;
use crate::process::{Boost, pin_this_thread};
use crate::stats::Spread;

/// Length of a key; `key:` and a number.
const KEY_BYTES: usize = 20;
/// Length of a value.
const VALUE_BYTES: usize = 32;
/// Reads between two readings of the clock, and reads for which `papaya-held` holds its guard.
const BATCH: usize = 1_000;

type Key = [u8; KEY_BYTES];
type Value = [u8; VALUE_BYTES];
type Papaya = papaya::HashMap<Box<[u8]>, Value, foldhash::fast::RandomState>;

/// One side of the comparison, filled.
enum Side {
    Flick(Box<Dictionary>),
    /// A guard for each read: what a worker does that reads once for a message.
    Papaya(Papaya),
    /// A guard for each `BATCH` reads.
    PapayaHeld(Papaya),
}

const SIDES: [&str; 3] = ["flick", "papaya", "papaya-held"];

fn key_of(number: usize) -> Key {
    let mut key = *b"key:0000000000000000";
    let digits = format!("{number:016}");
    key[4..].copy_from_slice(digits.as_bytes());
    key
}

/// The key as a slice whose length the compiler does not know, as that of a key out of a message.
fn text(key: &Key) -> &[u8] {
    std::hint::black_box(key.as_slice())
}

fn value_of(number: usize) -> Value {
    let mut value = [number as u8; VALUE_BYTES];
    value[..8].copy_from_slice(&(number as u64).to_le_bytes());
    value
}

impl Side {
    fn filled(name: &str, entries: usize) -> io::Result<Side> {
        if name == "flick" {
            let config = DictConfig {
                entries_max: entries as u64,
                bytes_max: None,
                key_bytes_max: KEY_BYTES as u32,
                value_bytes_max: VALUE_BYTES as u32,
                expire_ns: None,
                evict: Evict::Lru,
                seed: Seed::Random,
            };
            let dictionary = Dictionary::new(config).map_err(io::Error::other)?;
            (0..entries).for_each(|number| {
                dictionary.put(&key_of(number), &value_of(number), 1);
            });
            return Ok(Side::Flick(Box::new(dictionary)));
        }
        let map = Papaya::with_capacity_and_hasher(entries, foldhash::fast::RandomState::default());
        let guard = map.pin();
        for number in 0..entries {
            guard.insert(key_of(number).into(), value_of(number));
        }
        drop(guard);
        Ok(if name == "papaya" { Side::Papaya(map) } else { Side::PapayaHeld(map) })
    }

    /// Reads all `keys` once and returns the sum of the values' first words.
    fn read(&self, keys: &[Key]) -> u64 {
        match self {
            Side::Flick(dictionary) => read_flick(dictionary, keys),
            Side::Papaya(map) => read_papaya(map, keys),
            Side::PapayaHeld(map) => read_papaya_held(map, keys),
        }
    }
}

// A function for each side, so that none is laid out at the expense of another.

#[inline(never)]
fn read_flick(dictionary: &Dictionary, keys: &[Key]) -> u64 {
    let (mut out, mut sum) = ([0; VALUE_BYTES], 0);
    for key in keys {
        if dictionary.get(text(key), 1, &mut out).is_some() {
            sum = add(sum, &out);
        }
    }
    sum
}

#[inline(never)]
fn read_papaya(map: &Papaya, keys: &[Key]) -> u64 {
    let (mut out, mut sum) = ([0; VALUE_BYTES], 0);
    for key in keys {
        let guard = map.pin();
        if let Some(value) = guard.get(text(key)) {
            out = *value;
            sum = add(sum, &out);
        }
    }
    std::hint::black_box(&out);
    sum
}

#[inline(never)]
fn read_papaya_held(map: &Papaya, keys: &[Key]) -> u64 {
    let (mut out, mut sum) = ([0; VALUE_BYTES], 0);
    let guard = map.pin();
    for key in keys {
        if let Some(value) = guard.get(text(key)) {
            out = *value;
            sum = add(sum, &out);
        }
    }
    std::hint::black_box(&out);
    sum
}

/// Adds the value's first word, from memory that the whole value was copied to.
fn add(sum: u64, out: &Value) -> u64 {
    let out = std::hint::black_box(out);
    sum.wrapping_add(out.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word)))
}

/// Figures of one side under one load.
#[derive(Debug, Serialize)]
struct Row {
    side: &'static str,
    entries: usize,
    threads: usize,
    /// Processor time of one read, in nanoseconds.
    read_ns: Spread,
    /// `read_ns` of `papaya` over this side's, medians: above 1 is faster than `papaya`.
    speed_to_papaya: f64,
}

#[derive(Debug, Serialize)]
struct Results {
    load: String,
    machine: Machine,
    rows: Vec<Row>,
}

/// Compares the sides and writes the result down.
///
/// Errors: a wrong value, fewer than two cores, results that cannot be written.
pub(crate) fn run(args: &DictionaryArgs) -> io::Result<()> {
    let _boost = args.boost.then(Boost::new).transpose()?;
    let mut rows = Vec::new();
    for entries in [1_000, 100_000] {
        for threads in [1, 2] {
            rows.extend(compare(args, entries, threads)?);
        }
    }
    let load = format!(
        "keys of {KEY_BYTES} bytes, values of {VALUE_BYTES} bytes, all keys read in random order; {} rounds of {} s \
         of each side in turn; thread n on core n; processor time of the reading threads",
        args.rounds, args.seconds
    );
    let results = Results { load, machine: Machine::describe(Path::new("flick")), rows };
    let text = markdown(&results);
    print!("{text}");
    let directory = args.results.clone().unwrap_or_else(|| Path::new("bench/results").to_owned());
    page::write(&directory, "dictionary.md", &text)?;
    std::fs::write(directory.join("dictionary.json"), serde_json::to_string_pretty(&results)? + "\n")
}

/// All sides in turn, `rounds` times.
fn compare(args: &DictionaryArgs, entries: usize, threads: usize) -> io::Result<Vec<Row>> {
    let mut times = [const { Vec::new() }; SIDES.len()];
    let sides = SIDES.map(|name| Side::filled(name, entries).map(Arc::new));
    let sides = sides.into_iter().collect::<io::Result<Vec<_>>>()?;
    for _ in 0..args.rounds.max(1) {
        for (side, times) in sides.iter().zip(&mut times) {
            times.push(round(side, entries, threads, args.seconds)?);
        }
    }
    let spreads = times.map(|times| Spread::of(times.into_iter()));
    let papaya = spreads[1].median;
    let row = |(side, read_ns): (&'static str, Spread)| Row {
        side,
        entries,
        threads,
        read_ns,
        speed_to_papaya: papaya / read_ns.median,
    };
    Ok(SIDES.into_iter().zip(spreads).map(row).collect())
}

/// One round of one side: every thread reads all keys, in an order of its own, until its time is over. Returns
/// processor nanoseconds for each read.
fn round(side: &Arc<Side>, entries: usize, threads: usize, seconds: f64) -> io::Result<f64> {
    let start = Arc::new(Barrier::new(threads));
    let readers: Vec<_> = (0..threads)
        .map(|thread| {
            let (side, start) = (Arc::clone(side), Arc::clone(&start));
            std::thread::spawn(move || {
                pin_this_thread(thread)?;
                let keys = shuffled(entries, thread);
                let expected = (0..entries as u64).fold(0, u64::wrapping_add);
                let once = || keys.chunks(BATCH).map(|keys| side.read(keys)).fold(0, u64::wrapping_add);
                once();
                start.wait();
                let (begin, mut reads) = (thread_time(), 0_u64);
                let took = loop {
                    if once() != expected {
                        return Err(io::Error::other("a read found nothing, or another value"));
                    }
                    reads += entries as u64;
                    let took = thread_time() - begin;
                    if took.as_secs_f64() >= seconds {
                        break took;
                    }
                };
                Ok((took.as_nanos() as f64, reads))
            })
        })
        .collect();
    let (mut took_ns, mut reads) = (0.0, 0);
    for reader in readers {
        let (ns, count) = reader.join().map_err(|_| io::Error::other("a reader panicked"))??;
        took_ns += ns;
        reads += count;
    }
    Ok(took_ns / reads as f64)
}

/// All keys in an order that differs for each thread.
fn shuffled(entries: usize, thread: usize) -> Vec<Key> {
    let order = foldhash::fast::FixedState::with_seed(thread as u64);
    let mut numbers: Vec<usize> = (0..entries).collect();
    numbers.sort_by_key(|number| order.hash_one(number));
    numbers.into_iter().map(key_of).collect()
}

/// Processor time that this thread has used.
fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn markdown(results: &Results) -> String {
    let mut text = format!(
        "# Dictionary: reads beside papaya\n\n{}.\n\nNanoseconds: median of the rounds, with the least and the greatest in brackets. The last \
         column is the time of `papaya` over that of the side.\n\n| entries | threads | side | ns a read | speed to \
         papaya |\n|---|---|---|---|---|\n",
        results.load
    );
    for Row { side, entries, threads, read_ns, speed_to_papaya } in &results.rows {
        let Spread { median, min, max } = read_ns;
        text.push_str(&format!(
            "| {entries} | {threads} | {side} | {median:.1} ({min:.1}–{max:.1}) | {speed_to_papaya:.2} |\n"
        ));
    }
    let Machine { kernel, cpu, cores, memory_mib, .. } = &results.machine;
    text.push_str(&format!(
        "\n`papaya` takes a guard for each read, as a worker would that reads once for a message; `papaya-held` holds one \
         for {BATCH} reads.\n\n## Machine\n\n- kernel {kernel}, {cores} cores of {cpu}\n- {memory_mib} MiB of memory\n"
    ));
    text
}
