//! State that a program takes over from its predecessor: dictionaries and gauges are shared, counters go on from their
//! last values.
//! Promises: a worker's counters still have one writer, as old and new workers count separately and are added up; the
//! counts of ended generations are one number, so that a thousand reloads cost no more than two.
//! Refuses: anything whose declaration differs: it starts empty, or with its snapshot, and the log says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flick_abi::{Counter, Dict, Program};
use flick_dict::Dictionary;

use super::{DictUse, Gauge, State, WorkerState};

/// Counts of earlier states, by index of this state's counters and dictionaries.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    counters: Vec<u64>,
    /// Hits and misses.
    dicts: Vec<(u64, u64)>,
    /// Earlier states whose workers may count still.
    running: Vec<Running>,
}

/// The workers of an earlier state.
#[derive(Debug)]
struct Running {
    workers: Arc<[WorkerState]>,
    is_over: Arc<AtomicBool>,
    /// By our counter: theirs.
    counters: Vec<Option<usize>>,
    /// By our dictionary: theirs.
    dicts: Vec<Option<usize>>,
}

impl Running {
    fn counter(&self, index: usize) -> u64 {
        let Some(index) = self.counters[index] else { return 0 };
        self.workers
            .iter()
            .fold(0, |sum, worker| sum.wrapping_add(worker.counters[index].load(Ordering::Relaxed)))
    }

    fn dict_use(&self, index: usize, read: fn(&DictUse) -> u64) -> u64 {
        let Some(index) = self.dicts[index] else { return 0 };
        self.workers.iter().map(|worker| read(&worker.dicts[index])).sum()
    }
}

impl Earlier {
    /// Collects the counts of `before` and of the states before it, where `program` declares the same counter or
    /// dictionary.
    pub(super) fn of(before: &State, program: &Program) -> Self {
        let counters: Vec<Option<usize>> =
            program.counters.iter().map(|counter| before.counter_like(counter)).collect();
        let dicts: Vec<Option<usize>> = program.dicts.iter().map(|dict| before.dict_like(dict)).collect();
        let mut made = Self {
            counters: counters.iter().map(|at| at.map_or(0, |at| before.earlier.ended(at))).collect(),
            dicts: dicts.iter().map(|at| at.map_or((0, 0), |at| before.earlier.dicts_ended(at))).collect(),
            running: Vec::new(),
        };
        let through = |ours: &[Option<usize>], theirs: &[Option<usize>]| -> Vec<Option<usize>> {
            ours.iter().map(|at| at.and_then(|at| theirs[at])).collect()
        };
        for earlier in &before.earlier.running {
            made.add(Running {
                workers: Arc::clone(&earlier.workers),
                is_over: Arc::clone(&earlier.is_over),
                counters: through(&counters, &earlier.counters),
                dicts: through(&dicts, &earlier.dicts),
            });
        }
        let (workers, is_over) = (Arc::clone(&before.workers), Arc::clone(&before.is_over));
        made.add(Running { workers, is_over, counters, dicts });
        made
    }

    /// Adds workers: their sums if they have ended, or themselves.
    fn add(&mut self, of: Running) {
        if !of.is_over.load(Ordering::Acquire) {
            self.running.push(of);
            return;
        }
        for (index, sum) in self.counters.iter_mut().enumerate() {
            *sum = sum.wrapping_add(of.counter(index));
        }
        for (index, (hits, misses)) in self.dicts.iter_mut().enumerate() {
            *hits += of.dict_use(index, |used| used.hits.get());
            *misses += of.dict_use(index, |used| used.misses.get());
        }
    }

    fn ended(&self, index: usize) -> u64 {
        self.counters.get(index).copied().unwrap_or(0)
    }

    fn dicts_ended(&self, index: usize) -> (u64, u64) {
        self.dicts.get(index).copied().unwrap_or_default()
    }

    /// A counter, over all earlier workers.
    pub(super) fn counter(&self, index: usize) -> u64 {
        self.running.iter().fold(self.ended(index), |sum, of| sum.wrapping_add(of.counter(index)))
    }

    /// Hits or misses of a dictionary, over all earlier workers.
    pub(super) fn dict_use(&self, index: usize, read: fn(&DictUse) -> u64) -> u64 {
        let (hits, misses) = self.dicts_ended(index);
        let ended = DictUse::default();
        ended.hits.add(hits);
        ended.misses.add(misses);
        self.running.iter().fold(read(&ended), |sum, of| sum + of.dict_use(index, read))
    }
}

impl State {
    /// The workers that count here have ended.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Names of what `program` declares differently, and of what it does not declare any more, and so loses.
    pub(crate) fn differences(&self, program: &Program) -> Vec<String> {
        let is_kept = |dict: &super::Dict| program.dicts.iter().any(|other| is_alike(&dict.shape, other));
        let dicts = self.dicts.iter().filter(|dict| !is_kept(dict)).map(|dict| dict.shape.name.clone());
        let is_counted = |(name, is_gauge): &(String, bool)| {
            program.counters.iter().any(|other| other.name == *name && other.is_gauge == *is_gauge)
        };
        let counters =
            self.counters.iter().filter(|counter| !is_counted(counter)).map(|(name, _)| name.clone());
        dicts.chain(counters).collect()
    }

    /// Whether the snapshot of `dict` has the name of a file that is written here.
    pub(crate) fn writes_file_of(&self, dict: &Dict) -> bool {
        let mut own = self.dicts.iter().filter_map(|own| own.shape.snapshot.as_ref());
        dict.snapshot.as_ref().is_some_and(|snapshot| own.any(|own| own.file == snapshot.file))
    }

    pub(crate) fn dictionary_like(&self, dict: &Dict) -> Option<Arc<Dictionary>> {
        self.dict_like(dict).map(|index| Arc::clone(&self.dicts[index].dictionary))
    }

    pub(super) fn gauge_like(&self, counter: &Counter) -> Option<Arc<Gauge>> {
        self.counter_like(counter).map(|index| Arc::clone(&self.gauges[index]))
    }

    fn dict_like(&self, dict: &Dict) -> Option<usize> {
        self.dicts.iter().position(|known| is_alike(&known.shape, dict))
    }

    fn counter_like(&self, counter: &Counter) -> Option<usize> {
        self.counters
            .iter()
            .position(|(name, is_gauge)| *name == counter.name && *is_gauge == counter.is_gauge)
    }
}

/// Whether two programs declare the same dictionary: the same name, types and bounds. Where it is kept across restarts
/// may differ.
fn is_alike(a: &Dict, b: &Dict) -> bool {
    let bounds = |dict: &Dict| {
        (
            dict.entries_max,
            dict.bytes_max,
            dict.key_bytes_max,
            dict.value_bytes_max,
            dict.expire_ns,
            dict.layout,
        )
    };
    a.name == b.name && a.evict == b.evict && bounds(a) == bounds(b)
}
