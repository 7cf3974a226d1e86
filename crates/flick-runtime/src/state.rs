//! State of a program that all workers of its service share: dictionaries, counters and gauges.
//! Promises: everything is allocated by `new`; counting writes to memory of the worker alone; reading a dictionary
//! writes to none that is shared.
//! Refuses: clocks (times come from the workers' driver), and disks (`state/snapshots.rs`).

mod earlier;
pub mod snapshots;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use earlier::Earlier;
use flick_abi::Program;
use flick_buffers::advise_huge_pages;
use flick_dict::{DictConfig, DictError, Dictionary, Seed};
use flick_stats::{CounterValue, DictionaryStats};

use crate::observe::counter::Counter;
use crate::observe::counters::Counters;

/// Nanoseconds from 1970 to the moment at which the simulator's clocks begin: 2026-01-01, 00:00 UTC.
pub const SIMULATED_EPOCH_NS: i64 = 1_767_225_600_000_000_000;

/// Source of the state's clock and random numbers.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// The system's clock and randomness; with what the workers' drivers show now (`Driver::now_ns`).
    System(u64),
    /// Fixed, so that a run can be repeated: the clock begins at [`SIMULATED_EPOCH_NS`], randomness with a seed.
    Simulated(u64),
}

/// The shared state of a service.
#[derive(Debug)]
pub struct State {
    dicts: Vec<Dict>,
    counters: Vec<(String, bool)>,
    gauges: Vec<Arc<Gauge>>,
    workers: Arc<[WorkerState]>,
    /// Counters of each worker of each service of the program.
    observed: RwLock<Vec<Arc<Counters>>>,
    /// Set when the workers of this state have ended, and write no more what they alone write.
    is_over: Arc<AtomicBool>,
    earlier: Earlier,
    /// Held while snapshots are written: two threads would write the same files.
    saving: Mutex<()>,
    /// Set when a successor writes the snapshots.
    is_left: AtomicBool,
    clock_offset_ns: i64,
    seed: u64,
}

/// A dictionary with what the program says of it.
#[derive(Debug)]
pub(crate) struct Dict {
    pub(crate) shape: flick_abi::Dict,
    pub(crate) dictionary: Arc<Dictionary>,
    /// It is that of an earlier state, with what is in it.
    pub(crate) is_inherited: bool,
}

/// A gauge of all workers, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Gauge(AtomicI64);

/// Words of two cache lines, which a processor may load together.
const DISTANCE_WORDS: usize = 16;

/// State that only one worker writes: its counters, and its use of each dictionary.
#[derive(Debug)]
#[repr(align(128))]
struct WorkerState {
    /// With [`DISTANCE_WORDS`] more behind them, which keep them from the cache lines of the next worker's.
    counters: Arc<[AtomicU64]>,
    dicts: Vec<DictUse>,
    /// Keeps the vectors' ends from the next worker's cache lines.
    _distance: [u64; DISTANCE_WORDS],
}

/// Hits and misses of one worker's look-ups in a dictionary.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct DictUse {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
}

/// Bytes that the dictionaries of a program take; saturates.
pub fn dict_bytes(program: &Program) -> u64 {
    program.dicts.iter().map(dict_bytes_of).fold(0, u64::saturating_add)
}

/// Bytes that one dictionary takes.
pub fn dict_bytes_of(dict: &flick_abi::Dict) -> u64 {
    flick_dict::memory_bytes(&DictConfig::of(dict, Seed::Random))
}

impl State {
    /// Allocates the state of a program.
    ///
    /// Errors: the name of a dictionary that cannot be, and why.
    pub fn new(program: &Program, workers: usize, origin: Origin) -> Result<Self, (String, DictError)> {
        Self::after(program, workers, origin, None)
    }

    /// Allocates the state of a program that succeeds another: they share what both declare alike.
    ///
    /// Errors: as [`State::new`].
    pub fn after(
        program: &Program,
        workers: usize,
        origin: Origin,
        before: Option<&State>,
    ) -> Result<Self, (String, DictError)> {
        let (clock_offset_ns, seed) = match (before, origin) {
            // The clock goes on, too: what a dictionary holds carries its times.
            (Some(before), _) => (before.clock_offset_ns, None),
            (None, Origin::System(driver_now_ns)) => (wall_ns().wrapping_sub(driver_now_ns as i64), None),
            (None, Origin::Simulated(seed)) => (SIMULATED_EPOCH_NS, Some(seed)),
        };
        let open = |(index, dict): (usize, &flick_abi::Dict)| {
            if let Some(dictionary) = before.and_then(|before| before.dictionary_like(dict)) {
                return Ok(Dict { shape: dict.clone(), dictionary, is_inherited: true });
            }
            let seed = seed.map_or(Seed::Random, |seed| {
                Seed::Fixed(crate::backend_set::load_balancer::mix(seed ^ index as u64))
            });
            let dictionary = Dictionary::with_advice(DictConfig::of(dict, seed), advise_huge_pages)
                .map_err(|error| (dict.name.clone(), error))?;
            Ok(Dict { shape: dict.clone(), dictionary: Arc::new(dictionary), is_inherited: false })
        };
        let dicts = program.dicts.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        let worker = |_| WorkerState {
            counters: (0..program.counters.len() + DISTANCE_WORDS).map(|_| AtomicU64::default()).collect(),
            dicts: program.dicts.iter().map(|_| DictUse::default()).collect(),
            _distance: [0; DISTANCE_WORDS],
        };
        Ok(Self {
            dicts,
            counters: program
                .counters
                .iter()
                .map(|counter| (counter.name.clone(), counter.is_gauge))
                .collect(),
            gauges: program
                .counters
                .iter()
                .map(|counter| before.and_then(|before| before.gauge_like(counter)).unwrap_or_default())
                .collect(),
            workers: (0..workers.max(1)).map(worker).collect(),
            observed: RwLock::default(),
            is_over: Arc::default(),
            earlier: before.map_or_else(Earlier::default, |before| Earlier::of(before, program)),
            saving: Mutex::default(),
            is_left: AtomicBool::default(),
            clock_offset_ns,
            seed: seed.unwrap_or_else(|| before.map_or_else(os_random, |before| before.seed)),
        })
    }

    /// Returns the wall-clock time at which a driver's clock shows `driver_now_ns`, in nanoseconds since 1970. The
    /// offset is set once, at the start: later corrections of the system's clock do not reach a running service, so
    /// time never goes backwards in it.
    pub fn wall_ns(&self, driver_now_ns: u64) -> i64 {
        self.clock_offset_ns.wrapping_add(driver_now_ns as i64)
    }

    /// Seed of the random numbers of a worker.
    pub fn seed_of(&self, worker: usize) -> u64 {
        crate::backend_set::load_balancer::mix(self.seed.wrapping_add(worker as u64 + 1))
    }

    /// Returns the number of workers that it was made for.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn dicts(&self) -> &[Dict] {
        &self.dicts
    }

    pub(crate) fn dict(&self, dict: u32) -> &Dictionary {
        &self.dicts[dict as usize].dictionary
    }

    pub(crate) fn dict_use(&self, worker: usize, dict: u32) -> &DictUse {
        &self.workers[worker].dicts[dict as usize]
    }

    #[inline]
    pub(crate) fn counter_add(&self, worker: usize, counter: u32, amount: i64) {
        let index = counter as usize;
        if self.counters[index].1 {
            self.gauges[index].0.fetch_add(amount, Ordering::Relaxed);
        } else {
            let counter = &self.workers[worker].counters[index];
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount as u64), Ordering::Relaxed);
        }
    }

    /// The program's counters of a worker, by number. Only that worker adds to them; gauges among them are not used.
    pub(crate) fn counters_of(&self, worker: usize) -> &Arc<[AtomicU64]> {
        &self.workers[worker].counters
    }

    pub(crate) fn gauge_set(&self, gauge: u32, value: i64) {
        self.gauges[gauge as usize].0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn counter_get(&self, counter: u32) -> i64 {
        let index = counter as usize;
        if self.counters[index].1 {
            return self.gauges[index].0.load(Ordering::Relaxed);
        }
        let sum =
            |sum: u64, worker: &WorkerState| sum.wrapping_add(worker.counters[index].load(Ordering::Relaxed));
        self.workers.iter().fold(self.earlier.counter(index), sum) as i64
    }

    /// Adds the counters of a worker that is built.
    pub(crate) fn observe(&self, counters: Arc<Counters>) {
        self.observed.write().unwrap_or_else(PoisonError::into_inner).push(counters);
    }

    /// Returns the number of client connections that its workers have open.
    pub(crate) fn open_clients(&self) -> i64 {
        let observed = self.observed.read().unwrap_or_else(PoisonError::into_inner);
        observed.iter().map(|counters| counters.connections_open.get()).sum::<u64>() as i64
    }

    /// All counters and gauges now, in the order of the program.
    pub fn counters(&self) -> Vec<CounterValue> {
        let report = |(index, (name, is_gauge)): (usize, &(String, bool))| CounterValue {
            name: name.clone(),
            help: String::new(),
            is_gauge: *is_gauge,
            value: self.counter_get(index as u32),
        };
        self.counters.iter().enumerate().map(report).collect()
    }

    /// All dictionaries now, in the order of the program.
    pub fn dict_reports(&self) -> Vec<DictionaryStats> {
        let report = |(index, dict): (usize, &Dict)| {
            let counts = dict.dictionary.counts();
            let sum = |read: fn(&DictUse) -> u64| -> u64 {
                let own: u64 = self.workers.iter().map(|worker| read(&worker.dicts[index])).sum();
                own + self.earlier.dict_use(index, read)
            };
            DictionaryStats {
                name: dict.shape.name.clone(),
                entries: dict.dictionary.len(),
                entries_max: dict.shape.entries_max,
                bytes: flick_dict::memory_bytes(dict.dictionary.config()),
                bytes_used: dict.dictionary.bytes_used(),
                hits: sum(|used| used.hits.get()),
                misses: sum(|used| used.misses.get()),
                evictions: counts.evictions,
                expirations: counts.expirations,
                refusals: counts.refusals,
                snapshot_errors: counts.snapshot_errors,
            }
        };
        self.dicts.iter().enumerate().map(report).collect()
    }
}

/// The wall's clock, in nanoseconds since 1970; 0 where it shows a time before that.
fn wall_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos().min(i64::MAX as u128) as i64)
}

/// A number from the system's source of randomness, which std's maps take their keys from.
fn os_random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
