//! The model beside the published figures, polling beside interrupts, and the search beside the grid.
//! The constants were fitted to 200,000 requests/s; all that is asked here of higher loads is predicted.

use std::sync::OnceLock;

use flick_tune::published::{LIBOS, LINUX, LOADS, Measured, Panel, SLA_P99_US};
use flick_tune::{
    CLOCKS_GHZ, DELAYS_US, Delivery, Machine, OfferedLoad, Path, RunResult, Search, Setting, Trial,
};
use flick_tune::{grid, simulate};

fn load(requests_per_s: f64, requests: usize, seed: u64) -> OfferedLoad {
    OfferedLoad { requests_per_s, requests, seed }
}

fn run(path: &Path, setting: Setting, requests_per_s: f64) -> RunResult {
    simulate(&Machine::published(), path, setting, load(requests_per_s, 40_000, 1))
}

/// Simulated grids: Linux, then the library OS, one for each load.
fn grids() -> &'static [[Measured; 3]; 2] {
    static GRIDS: OnceLock<[[Measured; 3]; 2]> = OnceLock::new();
    GRIDS.get_or_init(|| {
        let machine = Machine::published();
        [Path::linux(), Path::libos()]
            .map(|path| LOADS.map(|rate| Measured::simulate(&machine, &path, load(rate, 40_000, 1))))
    })
}

/// Simulated panels beside the published ones.
fn panels() -> Vec<(Panel, Panel)> {
    let simulated = grids().iter().flatten().map(Measured::panel);
    simulated.zip(LINUX.into_iter().chain(LIBOS)).collect()
}

/// Ratios of the savings of Linux to those of the library OS.
fn linux_over_libos(load_index: usize) -> [f64; 4] {
    let [linux, libos] = [0, 1].map(|path: usize| grids()[path][load_index].panel().savings());
    std::array::from_fn(|index| linux[index] / libos[index])
}

#[test]
fn the_fitted_panels_are_near_the_published_ones() {
    for (own, published) in [panels()[0], panels()[3]] {
        for (own, published) in own.savings().into_iter().zip(published.savings()) {
            assert!((own - published).abs() < 75.0, "{own:.0} J, published {published} J");
        }
    }
}

#[test]
fn predicted_savings_are_near_the_published_ones() {
    for (own, published) in panels() {
        for (own, published) in own.savings().into_iter().zip(published.savings()) {
            let ratio = own / published;
            let is_near = (0.6..1.5).contains(&ratio) || (own - published).abs() < 40.0;
            assert!(is_near, "{own:.0} J, published {published} J");
        }
    }
}

#[test]
fn the_clock_saves_two_to_ten_times_as_much_as_the_delay() {
    for (own, published) in panels() {
        let ratio = own.clock_over_delay();
        assert!((2.0..10.0).contains(&ratio), "{ratio:.2}, published {:.2}", published.clock_over_delay());
    }
}

#[test]
fn at_a_slow_clock_the_delay_saves_little() {
    let mean = |read: fn(&Panel) -> f64| panels().iter().map(|(own, _)| read(own)).sum::<f64>() / 6.0;
    let [slow, fast] = [mean(|panel| panel.delay_at_slow_clock), mean(|panel| panel.delay_at_fast_clock)];
    assert!((slow / 55.2 - 1.0).abs() < 0.33, "{slow:.1} J, published 55.2 J");
    assert!((fast / 343.0 - 1.0).abs() < 0.33, "{fast:.1} J, published 343.0 J");
}

#[test]
fn linux_saves_more_than_the_library_os_until_the_sla_stops_its_clock() {
    // Published: 1.02 to 3.55. The model misses one of the eight, the delay's saving at a fast clock and 200,000
    // requests/s: 0.93 instead of 1.07.
    let [low, middle] = [linux_over_libos(0), linux_over_libos(1)];
    let below: Vec<f64> = low.into_iter().chain(middle).filter(|ratio| *ratio <= 1.0).collect();
    assert!(below.len() == 1 && below[0] > 0.85, "{low:.2?} {middle:.2?}");
    // Published: 0.79 and 0.76 by the clock, and more than 1 by the delay.
    let [short, long, slow, fast] = linux_over_libos(2);
    assert!((0.6..0.9).contains(&short) && (0.6..0.9).contains(&long), "{short:.2} {long:.2}");
    assert!(slow > 1.0 && fast > 1.0, "{slow:.2} {fast:.2}");
}

#[test]
fn the_tail_of_the_library_os_depends_on_the_clock_only_near_its_peak() {
    let tail = |clock, delay, rate| run(&Path::libos(), Setting::interrupts(clock, delay), rate).p99_us;
    for delay in DELAYS_US {
        for rate in [200e3, 400e3, 600e3] {
            let ratio = tail(1.3, delay, rate) / tail(2.9, delay, rate);
            assert!(ratio < 1.3, "{rate} {delay}: {ratio:.2}");
        }
        let ratio = tail(1.3, delay, 1500e3) / tail(2.9, delay, 1500e3);
        assert!(ratio > 1.5, "1,500,000 {delay}: {ratio:.2}");
    }
}

#[test]
fn at_600_k_a_long_delay_violates_the_sla_of_linux_at_faster_clocks() {
    let kept = |path: usize, delay: f64| {
        let points = grids()[path][2].points.iter();
        points.filter(|(setting, run)| setting.delay_us() == Some(delay) && run.p99_us <= SLA_P99_US).count()
    };
    assert!(
        kept(0, 400.0) < kept(0, 300.0) && kept(0, 300.0) < kept(0, 200.0),
        "{:?}",
        DELAYS_US.map(|d| kept(0, d))
    );
    assert!(DELAYS_US.iter().all(|delay| kept(1, *delay) == CLOCKS_GHZ.len()), "the library OS keeps it");
}

#[test]
fn fast_interrupts_have_the_lowest_tail_and_the_highest_energy() {
    for (setting, index) in [(Setting::interrupts(2.9, 50.0), 0), (Setting::interrupts(2.9, 50.0), 1)] {
        for grid in &grids()[index] {
            let (_, fast) = grid.points.iter().find(|(own, _)| *own == setting).expect("it is in the grid");
            for (_, other) in &grid.points {
                assert!(other.p99_us >= fast.p99_us && other.watts <= fast.watts + 1e-9);
            }
        }
    }
}

#[test]
fn the_least_energy_is_at_a_slow_clock_and_a_long_delay() {
    // Linux at 600,000 requests/s: both are slowed down, neither to the end.
    let best = |path: usize, index: usize| -> Setting {
        let kept = grids()[path][index].points.iter().filter(|(_, run)| run.p99_us <= SLA_P99_US);
        kept.min_by(|(_, left), (_, right)| left.watts.total_cmp(&right.watts)).expect("one keeps the SLA").0
    };
    assert_eq!(best(0, 0), Setting::interrupts(1.3, 400.0));
    assert_eq!(best(1, 2), Setting::interrupts(1.3, 400.0));
    let joint = best(0, 2);
    assert!((1.5..2.0).contains(&joint.clock_ghz), "{joint:?}");
    assert!(joint.delay_us().is_some_and(|delay| (200.0..400.0).contains(&delay)), "{joint:?}");
}

/// Least power, and its tail, of Linux with any clock and one of these deliveries.
fn least(deliveries: &[Delivery], rate: f64) -> (f64, f64) {
    let settings = CLOCKS_GHZ.iter().flat_map(|clock_ghz| {
        deliveries.iter().map(|delivery| Setting { clock_ghz: *clock_ghz, delivery: *delivery })
    });
    let runs =
        settings.map(|setting| run(&Path::linux(), setting, rate)).filter(|run| run.p99_us <= SLA_P99_US);
    let least = runs.min_by(|left, right| left.watts.total_cmp(&right.watts)).expect("one keeps the SLA");
    (least.watts, least.p99_us)
}

#[test]
fn polling_wins_above_half_of_the_peak() {
    let interrupts = DELAYS_US.map(|delay_us| Delivery::Interrupt { delay_us });
    for (rate, wins) in [(100e3, false), (300e3, false), (400e3, false), (500e3, true), (700e3, true)] {
        let (polling, tail) = least(&[Delivery::BusyPoll], rate);
        let (tuned, tuned_tail) = least(&interrupts, rate);
        assert_eq!(polling < tuned, wins, "{rate}: {polling:.1} W polling, {tuned:.1} W with interrupts");
        assert!(tail < tuned_tail, "{rate}: the tail of polling is lower");
    }
}

#[test]
fn suspended_and_adaptive_interrupts_cost_at_most_what_interrupts_cost() {
    let interrupts = DELAYS_US.map(|delay_us| Delivery::Interrupt { delay_us });
    let suspended = DELAYS_US.map(|delay_us| Delivery::Suspend { delay_us });
    let adaptive = DELAYS_US.map(|delay_us| Delivery::AdaptivePoll { delay_us, window_us: 20.0 });
    for (rate, gain) in [(100e3, 0.0), (400e3, 0.0), (600e3, 0.05)] {
        let limit = least(&interrupts, rate).0 * (1.0 - gain);
        for watts in [least(&suspended, rate).0, least(&adaptive, rate).0] {
            assert!(watts < limit * 1.02, "{rate}: {watts:.1} W, {limit:.1} W");
        }
    }
}

#[test]
fn the_same_seed_returns_the_same_run() {
    let run = |seed| {
        let setting = Setting::interrupts(2.1, 100.0);
        simulate(&Machine::published(), &Path::linux(), setting, load(400e3, 5_000, seed))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).p99_us, run(2).p99_us);
}

#[test]
fn a_search_of_25_trials_is_within_5_percent_of_the_grid() {
    let clocks: Vec<f64> = (12..=29).map(|tenths| f64::from(tenths) / 10.0).collect();
    let delays: Vec<f64> = (1..=16).map(|steps| f64::from(steps) * 25.0).collect();
    let settings = grid(&clocks, &delays);
    let share = |setting: &Setting| {
        vec![(setting.clock_ghz - 1.2) / 1.7, (setting.delay_us().unwrap_or(0.0) - 25.0) / 375.0]
    };
    let (machine, path) = (Machine::published(), Path::linux());
    for rate in [400e3, 600e3] {
        let truth: Vec<RunResult> = settings
            .iter()
            .map(|setting| simulate(&machine, &path, *setting, load(rate, 20_000, 1)))
            .collect();
        let kept = truth.iter().filter(|run| run.p99_us <= SLA_P99_US);
        let best = kept.map(|run| run.watts).fold(f64::INFINITY, f64::min);
        let is_near = |seed: u64| {
            let mut search = Search::new(settings.iter().map(share).collect(), SLA_P99_US, seed);
            for trial in 0..25 {
                let candidate = search.next_candidate();
                let noisy = load(rate, 10_000, seed * 1000 + trial);
                let run = simulate(&machine, &path, settings[candidate], noisy);
                search.observe(Trial { candidate, cost: run.watts, limited: run.p99_us });
            }
            let found = search.best().map(|candidate| &truth[candidate]);
            if std::env::var("V").is_ok() {
                println!("{rate} {seed} {:?} best {best:.1}", found.map(|f| (f.watts, f.p99_us)));
            }
            found.is_some_and(|run| run.watts <= best * 1.05 && run.p99_us <= SLA_P99_US)
        };
        let near = (1..=20).filter(|seed| is_near(*seed)).count();
        assert!(near >= 19, "{rate}: {near} of 20 seeds");
    }
}
