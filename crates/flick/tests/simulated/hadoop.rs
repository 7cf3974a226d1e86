//! Listing 3 under injected faults from seeds: mappers that break off, stall, lie about their order or send
//! nonsense, reducers that go away, and networks that cut and reset. What must hold: a complete result is that of some
//! streams, all of them whole, none of them twice; a mapper that saw success is in one; every connection ends;
//! when the faults are over, a job goes through.
//!
//! A run plays 100 seeds; `cargo xtask faults --seeds 10000` plays as many. Every tenth is played by both engines,
//! which must give the same.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flick_net::sim::{SimConfig, SimRng};
use flick_testkit::service::merging::{Fate, MapperEnd, MergeConfig, MergeService, Received, Reducer};
use flick_testkit::service::{MS, Subject, seeds};

use super::pairs::{pair, take_pair};
use super::subject;

/// Seeds of an ordinary run.
const SEEDS: u64 = 100;
/// One in this many seeds is run by both engines.
const BOTH_EVERY: u64 = 10;
/// Begins the key of which each stream has one of its own.
const MARK: &str = "~stream-";

type Counts = BTreeMap<String, u64>;

/// Pairs of a result, each key once and in order.
///
/// Errors: it is none.
fn counts_of(mut bytes: &[u8]) -> Result<Counts, String> {
    let mut found = Counts::new();
    while !bytes.is_empty() {
        let (key, value) = take_pair(&mut bytes).ok_or("it ends inside a pair")?;
        let (key, value) = (String::from_utf8_lossy(key).into_owned(), String::from_utf8_lossy(value));
        let value = value.parse().map_err(|_| format!("`{value}` for `{key}` is no number"))?;
        if found.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return Err(format!("`{key}` is out of order"));
        }
        found.insert(key, value);
    }
    Ok(found)
}

/// Flaw of a stream or of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    BreaksOff,
    Resets,
    Stalls,
    Disorder,
    Nonsense,
}

impl Flaw {
    fn random(rng: &mut SimRng, per_mille: u32) -> Self {
        if !rng.chance(per_mille) {
            return Self::None;
        }
        let flaws = [Self::BreaksOff, Self::Resets, Self::Stalls, Self::Disorder, Self::Nonsense];
        flaws[rng.between(0, flaws.len() as u64 - 1) as usize]
    }
}

/// A mapper's words, and what became of it.
struct Mapper {
    words: Counts,
    flaw: Flaw,
    fate: Rc<RefCell<Fate>>,
}

fn words(rng: &mut SimRng, number: usize) -> Counts {
    let mut words = Counts::new();
    let len = if rng.chance(100) { rng.between(1_000, 4_000) } else { rng.between(0, 80) };
    for _ in 0..len {
        let mut word = String::new();
        for _ in 0..rng.between(1, 3) {
            word.push(char::from(b'a' + rng.between(0, 9) as u8));
        }
        *words.entry(if rng.chance(20) { word.repeat(60) } else { word }).or_default() +=
            rng.between(1, 1_000);
    }
    words.insert(format!("{MARK}{number:04}"), 1);
    words
}

fn mapper(service: &mut MergeService, rng: &mut SimRng, number: usize, at_ns: u64, flaw: Flaw) -> Mapper {
    let words = words(rng, number);
    let mut bytes: Vec<u8> =
        words.iter().flat_map(|(word, count)| pair(word.as_bytes(), count.to_string().as_bytes())).collect();
    let end = match flaw {
        Flaw::None if rng.chance(500) => MapperEnd::Leaves,
        Flaw::None => MapperEnd::Closes,
        Flaw::BreaksOff => {
            // Inside the last pair at the latest: a cut between two pairs cannot be detected.
            let last = pair(format!("{MARK}{number:04}").as_bytes(), b"1").len() as u64;
            bytes.truncate(bytes.len() - rng.between(1, last - 1) as usize);
            MapperEnd::Closes
        }
        Flaw::Resets => MapperEnd::Resets,
        Flaw::Stalls => MapperEnd::Stalls,
        Flaw::Disorder => {
            bytes.extend(pair(b"Z", b"1"));
            MapperEnd::Closes
        }
        Flaw::Nonsense => {
            bytes.extend([0x87; 9]);
            MapperEnd::Closes
        }
    };
    let fate = service.mapper(at_ns, &bytes, end);
    Mapper { words, flaw, fate }
}

/// Returns the streams that a complete result is made of.
///
/// Errors: it is not the result of whole streams.
fn streams_of(job: &Received, mappers: &[Mapper]) -> Result<BTreeSet<usize>, String> {
    let counts = counts_of(&job.bytes)?;
    let numbers = counts.keys().filter_map(|key| key.strip_prefix(MARK)?.parse::<usize>().ok());
    let numbers: BTreeSet<usize> = numbers.collect();
    let mut expected = Counts::new();
    for number in &numbers {
        let mapper = mappers.get(*number).ok_or_else(|| format!("stream {number} is invented"))?;
        if mapper.flaw != Flaw::None {
            return Err(format!("stream {number} ({:?}) is in a complete result", mapper.flaw));
        }
        mapper.words.iter().for_each(|(word, count)| *expected.entry(word.clone()).or_default() += count);
    }
    if counts != expected {
        return Err(format!("the result of {numbers:?} is not the sum of its streams"));
    }
    Ok(numbers)
}

/// Plays one seed. What the reducer has seen.
///
/// Errors: what did not hold.
fn play(seed: u64, subject: &Subject) -> Result<Vec<Received>, String> {
    let mut rng = SimRng::new(seed ^ 0x4ad0);
    let streams = rng.between(1, 6) as usize;
    let mut config = MergeConfig::new(seed * 3 + 1, rng.between(1, 3) as usize, streams);
    let (flaws_per_mille, resets_per_mille) = match seed % 4 {
        0 => (0, 0),
        1 => (0, 100),
        _ => (150, 0),
    };
    config.sim = SimConfig { reset_per_mille: resets_per_mille, ..SimConfig::hostile() };
    config.reducer = if seed.is_multiple_of(4) { Reducer::ReadsLate } else { Reducer::Moody };
    let mut service = MergeService::new(&config, subject);
    let count = streams * rng.between(1, 4) as usize + rng.between(0, 2) as usize;
    let mut mappers = Vec::new();
    for number in 0..count {
        let at_ns = rng.between(0, 40 * MS);
        let flaw = Flaw::random(&mut rng, flaws_per_mille);
        mappers.push(mapper(&mut service, &mut rng, number, at_ns, flaw));
    }
    service.run_for(1_500);
    service.calm();
    // Mappers that are left over may wait for others: a job completes when enough have connected.
    let before = service.totals().merges_completed;
    for _ in 0..streams.max(count) + streams {
        if service.totals().merges_completed > before && resets_per_mille == 0 {
            break;
        }
        let at_ns = service.now_ns();
        mappers.push(mapper(&mut service, &mut rng, mappers.len(), at_ns, Flaw::None));
        service.run_for(1_200);
    }
    let jobs = service.jobs();
    if resets_per_mille == 0 && service.totals().merges_completed == before {
        return Err(format!("no job goes through after the faults: {:?}", service.totals()));
    }
    let mut in_results = BTreeSet::new();
    for job in jobs.iter().filter(|job| job.complete) {
        for number in streams_of(job, &mappers)? {
            if !in_results.insert(number) {
                return Err(format!("stream {number} is in two results"));
            }
        }
    }
    if flaws_per_mille == 0 && resets_per_mille == 0 && in_results.len() < count / streams * streams {
        return Err(format!(
            "{} of {count} streams are in results though nothing was wrong",
            in_results.len()
        ));
    }
    for (number, mapper) in mappers.iter().enumerate() {
        let fate = *mapper.fate.borrow();
        if fate.closed && !fate.reset && mapper.flaw == Flaw::None && !in_results.contains(&number) {
            return Err(format!("mapper {number} saw success and is in no result"));
        }
    }
    service.shared.drain(std::time::Duration::from_millis(100));
    service.run_out();
    Ok(jobs)
}

#[test]
fn hadoop_wordcount() {
    let (native, interpreted) = subject::example("hadoop_wordcount/hadoop_wordcount.flick");
    let mut complete = 0;
    for seed in seeds(SEEDS) {
        let jobs = play(seed, &native).unwrap_or_else(|what| panic!("FLICK_SEED={seed}: {what}"));
        if seed.is_multiple_of(BOTH_EVERY) {
            assert_eq!(Ok(&jobs), play(seed, &interpreted).as_ref(), "FLICK_SEED={seed}: the engines differ");
        }
        complete += jobs.iter().filter(|job| job.complete).count();
    }
    assert!(complete > 0, "the test does something");
    println!("| hadoop_wordcount/hadoop_wordcount.flick | {complete} |");
}
