//! Merging, in the simulator: every arrival order and split gives what sorting gives; a job that is not complete never
//! looks so.

mod pairs;
mod sockets;

use std::cell::RefCell;
use std::rc::Rc;

use flick_testkit::service::merging::{Fate, MapperEnd, MergeConfig, MergeService, Received, Reducer};
use flick_testkit::service::seeds;

use pairs::{BAD_KEY_LEN, Combine, expected, pair, subject};

/// A service that puts the values of equal keys one behind the other.
fn joining(config: &MergeConfig) -> MergeService {
    MergeService::new(config, &subject(Combine::Join, false))
}

/// Sorted streams, some of them empty, with keys of few letters so that many are equal.
fn streams(service: &mut MergeService, count: usize) -> Vec<Vec<u8>> {
    let one = |service: &mut MergeService| {
        let len = service.draw(60);
        let mut keys: Vec<Vec<u8>> = (0..len).map(|_| word(service)).collect();
        keys.sort();
        // The value says where an element came from: a letter of its own for each.
        keys.iter().enumerate().flat_map(|(at, key)| pair(key, &[b'a' + (at % 26) as u8])).collect()
    };
    (0..count).map(|_| one(service)).collect()
}

fn word(service: &mut MergeService) -> Vec<u8> {
    let len = service.draw(3);
    (0..len).map(|_| b'a' + service.draw(6) as u8).collect()
}

/// Lets a service have mappers that come one after the other, so that they are numbered in that order.
fn mappers(service: &mut MergeService, streams: &[Vec<u8>], end: MapperEnd) -> Vec<Rc<RefCell<Fate>>> {
    streams.iter().map(|stream| service.mapper(0, stream, end)).collect()
}

/// Numbers, so that the order of arrival does not matter.
fn counts(streams: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let count = |stream: &Vec<u8>| {
        let pairs = pairs::pairs(stream);
        pairs.iter().flat_map(|(key, value)| pair(key, value[0].to_string().as_bytes())).collect()
    };
    streams.iter().map(count).collect()
}

fn complete(bytes: Vec<u8>) -> Received {
    Received { bytes, complete: true, reset: false }
}

#[test]
fn whatever_order_bytes_arrive_in_the_result_is_that_of_sorting() {
    for seed in seeds(150) {
        println!("seed {seed}");
        let count = 1 + (seed % 9) as usize;
        let mut config = MergeConfig::new(seed * 7 + 1, 1 + (seed % 3) as usize, count);
        config.reducer = if seed % 4 == 0 { Reducer::ReadsLate } else { Reducer::Reads };
        let mut service = MergeService::new(&config, &subject(Combine::Add, false));
        let streams = streams(&mut service, count);
        let streams = counts(&streams);
        let end = if seed % 2 == 0 { MapperEnd::Closes } else { MapperEnd::Leaves };
        let fates = mappers(&mut service, &streams, end);
        service.run(|_, totals| totals.merges_completed == 1);
        service.run_for(20);
        assert_eq!(service.jobs(), [complete(expected(&streams, Combine::Add))]);
        service.expect_quiet();
        for fate in fates {
            assert_eq!(*fate.borrow(), Fate { closed: end == MapperEnd::Closes, reset: false });
        }
    }
}

#[test]
fn equal_elements_are_combined_in_the_order_of_their_streams() {
    for seed in seeds(60) {
        println!("seed {seed}");
        let count = 1 + (seed % 8) as usize;
        let mut service = joining(&MergeConfig::new(seed * 11 + 5, 2, count));
        let streams = streams(&mut service, count);
        for (at, stream) in streams.iter().enumerate() {
            service.mapper(0, stream, MapperEnd::Closes);
            service.run(|_, totals| totals.connections_accepted == at as u64 + 1);
        }
        service.run(|_, totals| totals.merges_completed == 1);
        service.run_for(20);
        assert_eq!(service.jobs(), [complete(expected(&streams, Combine::Join))]);
    }
}

#[test]
fn one_job_follows_another_and_an_early_stream_waits() {
    let mut service = joining(&MergeConfig::new(3, 2, 4));
    let mut expected_jobs = Vec::new();
    let mut all = Vec::new();
    for _ in 0..3 {
        let streams = counts(&streams(&mut service, 4));
        expected_jobs.push(streams.clone());
        all.extend(streams);
    }
    // Which of the twelve share a job depends on who is quick; together they give what all of them give.
    mappers(&mut service, &all, MapperEnd::Closes);
    service.run(|_, totals| totals.merges_completed == 3);
    service.run_for(20);
    let jobs = service.jobs();
    assert_eq!((jobs.len(), jobs.iter().all(|job| job.complete)), (3, true));
    let mut seen: Vec<u8> =
        jobs.iter().flat_map(|job| pairs::pairs(&job.bytes)).flat_map(|(key, _)| key).collect();
    seen.sort_unstable();
    seen.dedup();
    let mut keys: Vec<u8> =
        all.iter().flat_map(|stream| pairs::pairs(stream)).flat_map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(seen, keys);
    service.expect_quiet();
}

#[test]
fn the_result_passes_through_the_last_rule() {
    let config = MergeConfig::new(9, 2, 2);
    let mut service = MergeService::new(&config, &subject(Combine::Join, true));
    mappers(&mut service, &[pair(b"a", b"x"), pair(b"b", b"y")], MapperEnd::Closes);
    service.run(|_, totals| totals.merges_completed == 1);
    service.run_for(20);
    assert_eq!(service.jobs(), [complete([pair(b"A", b"X"), pair(b"B", b"Y")].concat())]);
}

/// A long sorted stream.
fn long() -> Vec<u8> {
    (0..2000u32).flat_map(|n| pair(&n.to_be_bytes(), b"v")).collect()
}

/// Runs a job of three streams, the last of which is `odd`, that must fail; and then one that must not.
fn check_failure(what: &str, config: &MergeConfig, odd: &[u8], end: MapperEnd) {
    for seed in seeds(12) {
        println!("{what}, seed {seed}");
        let mut config = config.clone();
        config.seed = seed * 13 + 1;
        config.workers = 1 + (seed % 2) as usize;
        let mut service = joining(&config);
        let fates = mappers(&mut service, &[long(), long()], MapperEnd::Closes);
        // The odd one comes last: one that fails its job before all have come leaves who comes then to the next.
        service.run(|_, totals| totals.connections_accepted == 2);
        service.mapper(0, odd, end);
        service.run(|_, totals| totals.merges_failed == 1);
        service.run_for(50);
        assert!(service.jobs().iter().all(|job| !job.complete), "{what}: a partial result looks complete");
        service.expect_quiet();
        for fate in fates {
            assert!(fate.borrow().reset, "{what}: a mapper of a failed job is reset");
        }
        if config.reducer == Reducer::Reads {
            let streams = [pair(b"k", b"1"), pair(b"k", b"2"), pair(b"l", b"3")];
            mappers(&mut service, &streams, MapperEnd::Closes);
            service.run(|_, totals| totals.merges_completed == 1);
            service.run_for(20);
            let last = service.jobs().pop().expect("a job");
            assert!(last.complete && pairs::pairs(&last.bytes).len() == 2, "{what}: {last:?}");
            service.expect_quiet();
        }
    }
}

#[test]
fn a_job_that_cannot_be_completed_never_looks_complete() {
    let config = MergeConfig::new(0, 2, 3);
    let truncated = &long()[..776];
    check_failure("a stream ends inside an element", &config, truncated, MapperEnd::Closes);
    check_failure("a stream is reset", &config, &long(), MapperEnd::Resets);
    let nonsense = [&long()[..700], &[BAD_KEY_LEN, 1, 2, 3]].concat();
    check_failure("a stream is not of the grammar", &config, &nonsense, MapperEnd::Never);
    let disorder = [long(), pair(b"", b"late")].concat();
    check_failure("a stream is not sorted", &config, &disorder, MapperEnd::Closes);
    let many: Vec<u8> = (0..40).flat_map(|_| pair(b"same", &[b'x'; 10])).collect();
    check_failure("two elements cannot be combined", &config, &many, MapperEnd::Closes);
    for reducer in [Reducer::Resets, Reducer::Refuses] {
        let config = MergeConfig { reducer, ..config.clone() };
        check_failure("the reducer goes away", &config, &long(), MapperEnd::Closes);
    }
}

#[test]
fn a_service_that_drains_ends_its_job_and_begins_no_other() {
    for seed in seeds(10) {
        println!("seed {seed}");
        let mut service = joining(&MergeConfig::new(seed + 1, 2, 3));
        let streams = counts(&streams(&mut service, 3));
        mappers(&mut service, &streams, MapperEnd::Closes);
        service.run(|_, totals| totals.connections_accepted == 3);
        service.shared.drain(std::time::Duration::from_secs(60));
        service.run_out();
        let totals = service.totals();
        assert_eq!((totals.merges_completed, totals.merges_failed), (1, 0));
    }
}

#[test]
fn a_service_that_drains_gives_a_job_up_that_lacks_streams() {
    let mut service = joining(&MergeConfig::new(1, 2, 3));
    let fate = service.mapper(0, &long(), MapperEnd::Closes);
    service.run(|_, totals| totals.connections_accepted == 1);
    service.shared.drain(std::time::Duration::from_secs(60));
    service.run_out();
    assert_eq!((service.jobs(), service.totals().merges_failed), (Vec::new(), 1));
    service.run_for(10);
    assert!(fate.borrow().reset);
}

/// It was counted nowhere, and its mappers as connected for ever.
#[test]
fn merge_cut_off_at_the_deadline_of_a_drain_was_no_failure() {
    for seed in seeds(10) {
        println!("seed {seed}");
        let mut service = joining(&MergeConfig::new(seed + 1, 2, 3));
        let fates = mappers(&mut service, &[long(), long(), long()], MapperEnd::Never);
        service.run(|_, totals| totals.connections_accepted == 3);
        assert_eq!(service.totals().connections_open, 3);
        service.shared.drain(std::time::Duration::from_millis(50));
        service.run_out();
        let totals = service.totals();
        assert_eq!((totals.merges_failed, totals.merges_completed, totals.connections_open), (1, 0, 0));
        service.run_for(20);
        assert!(fates.iter().all(|fate| fate.borrow().reset), "no mapper takes it for complete");
    }
}

#[test]
fn a_service_that_is_stopped_resets_its_reducer() {
    let mut service = joining(&MergeConfig::new(1, 2, 2));
    mappers(&mut service, &[long(), long()], MapperEnd::Never);
    service.run(|jobs, _| jobs.first().is_some_and(|job| !job.bytes.is_empty()));
    service.shared.stop();
    service.run_out();
    service.run_for(20);
    let job = service.jobs().remove(0);
    assert!(job.reset && !job.complete, "{job:?}");
}

/// Small and large buffers and pieces that are held.
fn held(service: &MergeService) -> Vec<(u32, u32, usize)> {
    let audits = service.workers.iter().map(flick_runtime::Worker::audit);
    audits.map(|audit| (audit.small_bufs, audit.large_bufs, audit.pieces)).collect()
}

#[test]
fn a5_a_mapper_that_says_little_pauses_the_others_and_memory_stays() {
    // Far more than all rings and windows hold.
    let much: Vec<u8> = (0..200_000_u32).flat_map(|n| pair(&n.to_be_bytes(), b"v")).collect();
    for seed in seeds(6) {
        println!("seed {seed}");
        let mut service = joining(&MergeConfig::new(seed * 17 + 1, 1 + (seed % 2) as usize, 3));
        mappers(&mut service, &[much.clone(), much.clone()], MapperEnd::Closes);
        service.mapper(0, &pair(&7_u32.to_be_bytes(), b"v"), MapperEnd::Never);
        service.run(|_, totals| totals.connections_accepted == 3);
        service.run_for(300);
        let (early, elements) = (held(&service), service.totals().merge_elements);
        service.run_for(2_000);
        assert_eq!(held(&service), early, "what is held does not grow");
        assert_eq!(service.totals().merge_elements, elements, "nothing moves before the slow one says more");
        let bufs: u32 = early.iter().map(|(small, large, _)| small + large).sum();
        assert!(bufs <= 32, "{bufs} buffers are held for streams of megabytes");
        assert_eq!((service.totals().merges_completed, service.totals().merges_failed), (0, 0));
        service.shared.stop();
        service.run_out();
    }
}
