//! Budgets on a clock of the test's own.

use super::*;

/// Time of a simulated machine, all of it.
const SPAN_NS: u64 = 2_000_000_000;

struct Random(u64);

impl Random {
    /// As of the time of a turn that a machine makes longer than it was to be, now and then by far.
    fn used_ns(&mut self, length_ns: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = self.0 >> 33;
        match draw % 50 {
            0 => length_ns + draw % LONGEST_NS,
            _ => length_ns / 2 + draw % (length_ns + 1),
        }
    }
}

/// The longest turns are about so long.
const LONGEST_NS: u64 = 3_000_000;

/// Quanta of a service that always has work, or nearly always if `is_idle`: when each ended, and the time it used.
fn flooded(max_percent: u32, is_idle: bool, seed: u64) -> Vec<(u64, u64)> {
    let (mut budget, mut random) = (CpuShare::new(CPU_WEIGHT, max_percent), Random(seed));
    let (mut now_ns, mut round, mut iterations) = (1_000_000_000, 0, Vec::new());
    let end_ns = now_ns + SPAN_NS;
    while now_ns < end_ns {
        if let Some(until_ns) = budget.held_until_ns(now_ns) {
            assert!(until_ns > now_ns, "seed {seed}: it is held until it may");
            now_ns = until_ns;
            continue;
        }
        round += 1;
        if is_idle && round % 97 == 0 {
            // It has nothing to do for a while, and saves up what it may.
            now_ns += 3 * CPU_WINDOW_NS;
            continue;
        }
        if budget.pay(round).is_none() {
            continue;
        }
        assert!(budget.lone_quantum().is_none(), "it never gets long quanta");
        let used_ns = random.used_ns(budget.quantum().length_ns);
        budget.spend(used_ns);
        now_ns += used_ns;
        iterations.push((now_ns, used_ns));
    }
    iterations
}

#[test]
fn a_part_of_the_thread_is_not_exceeded_over_any_time() {
    for seed in 0..20 {
        for percent in [1, 10, 50, 99] {
            let iterations = flooded(percent, seed % 2 == 0, seed);
            let longest = iterations.iter().map(|(_, used_ns)| *used_ns).max().unwrap_or(0);
            let saved = CPU_WINDOW_NS * u64::from(percent) / 100;
            for begin in (0..iterations.len()).step_by(iterations.len() / 50 + 1) {
                let (begun_ns, mut used) = (iterations[begin].0 - iterations[begin].1, 0);
                for (ended_ns, used_ns) in &iterations[begin..] {
                    used += used_ns;
                    let most = (ended_ns - begun_ns) * u64::from(percent) / 100 + saved + longest;
                    assert!(used <= most, "seed {seed}, {percent} %: {used} ns, and {most} were allowed");
                }
            }
        }
    }
}

#[test]
fn a_part_of_the_thread_is_there_to_be_had() {
    for seed in 0..20 {
        for percent in [1, 10, 50] {
            let used: u64 = flooded(percent, false, seed).iter().map(|(_, used_ns)| used_ns).sum();
            let least = SPAN_NS * u64::from(percent) / 100 * 9 / 10;
            assert!(used >= least, "seed {seed}, {percent} %: {used} ns of {least}");
        }
    }
}

#[test]
fn two_who_always_have_something_to_do_share_by_weight() {
    for seed in 0..20 {
        let mut both = [CpuShare::new(CPU_WEIGHT, 100), CpuShare::new(3 * CPU_WEIGHT, 100)];
        let (mut random, mut used) = (Random(seed), [0; 2]);
        for round in 1..20_000 {
            for (budget, used) in both.iter_mut().zip(&mut used) {
                if budget.pay(round).is_some() {
                    let spent_ns = random.used_ns(budget.quantum().length_ns);
                    budget.spend(spent_ns);
                    *used += spent_ns;
                }
            }
        }
        let ratio = used[1] as f64 / used[0] as f64;
        assert!((2.4..3.6).contains(&ratio), "seed {seed}: {used:?}, {ratio:.2}");
    }
}

#[test]
fn a_quantum_that_was_too_long_is_subtracted_from_the_next() {
    let mut budget = CpuShare::new(CPU_WEIGHT, 100);
    assert_eq!(budget.pay(1), Some(QUANTUM_NS as i64));
    assert_eq!(budget.pay(1), Some(QUANTUM_NS as i64), "once in a round");
    budget.spend(4 * QUANTUM_NS);
    assert_eq!(budget.pay(1), None);
    let paid: Vec<bool> = (2..7).map(|round| budget.pay(round).is_some()).collect();
    assert_eq!(paid, [false, false, false, true, true], "three turns that it had ahead");
}

#[test]
fn time_that_no_other_service_wanted_is_no_debt() {
    let mut budget = CpuShare::new(CPU_WEIGHT, 100);
    let quantum = budget.lone_quantum().expect("its share is not bounded");
    assert_eq!((quantum.length_ns, quantum.events_max), (LONE_QUANTUM_NS, EVENTS_SHARED_MAX));
    budget.spend_lone(LONE_QUANTUM_NS);
    assert_eq!(budget.pay(1), Some(QUANTUM_NS as i64));
}

#[test]
fn events_are_fewer_where_they_make_iterations_too_long() {
    let mut budget = CpuShare::new(CPU_WEIGHT, 100);
    let mut events = |used_ns| {
        budget.spend(used_ns);
        budget.quantum().events_max
    };
    let many = (0..1_000).map(|_| events(QUANTUM_NS / 2)).last();
    assert_eq!(many, Some(EVENTS_SHARED_MAX));
    assert_eq!(events(2 * QUANTUM_NS), EVENTS_SHARED_MAX / 2);
    let few = (0..20).map(|_| events(2 * QUANTUM_NS)).last();
    assert_eq!(few, Some(EVENTS_SHARED_MIN));
}

#[test]
fn quanta_that_the_events_of_a_flood_make_long_take_fewer_events_also_while_others_are_quiet() {
    let mut budget = CpuShare::new(CPU_WEIGHT, 100);
    // Each event takes the kernel and the driver so long, whatever its tasks do.
    let event_ns = 20_000;
    let mut longest_ns = 0;
    for round in 0..1_000 {
        assert!(budget.pay(round + 1).is_some());
        let quantum = budget.lone_quantum().expect("its share is not bounded");
        let used_ns = LONE_QUANTUM_NS + quantum.events_max as u64 * event_ns;
        if round > 10 {
            longest_ns = longest_ns.max(used_ns);
        }
        budget.spend_lone(used_ns);
    }
    assert!(longest_ns <= 3 * LONE_QUANTUM_NS, "{longest_ns} ns");
}
