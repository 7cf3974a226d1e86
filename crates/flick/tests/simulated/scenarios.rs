//! The scenarios of `tests/scenarios`, each on every stage: the simulator with both engines, epoll, io_uring, shared
//! memory, and shared memory in simulated time.

use std::path::{Path, PathBuf};

use flick_net::IoKind;
use flick_testkit::scenario::stage::{QUIET_SEED, Simulated, Sockets, Transport};
use flick_testkit::scenario::{Scenario, parse, play};
use flick_testkit::service::Subject;

use super::subject;

/// Seeds of the delays of wake-ups; the first one has none to speak of.
pub(super) const RING_SEEDS: std::ops::RangeInclusive<u64> = QUIET_SEED..=3;
/// Fewest scenarios there must be, so that a wrong path is no silent success.
const SCENARIOS_MIN: usize = 12;

fn scenarios() -> Vec<(String, Scenario)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let entries = std::fs::read_dir(&folder).expect("the scenarios are there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "scn"));
    paths.sort();
    assert!(paths.len() >= SCENARIOS_MIN, "only {} scenarios in {}", paths.len(), folder.display());
    let read = |path: PathBuf| {
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a scenario is text");
        let scenario = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, scenario)
    };
    paths.into_iter().map(read).collect()
}

/// Plays every scenario that can be played there; reports all that fail.
fn check(stage: &str, mut play_one: impl FnMut(&Scenario) -> Result<(), String>) {
    let failed: Vec<String> = scenarios()
        .iter()
        .filter_map(|(name, scenario)| Some(format!("{name} ({stage}): {}", play_one(scenario).err()?)))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn simulated(stage: &str, subject: &Subject) {
    check(stage, |scenario| play(scenario, &mut Simulated::new(scenario, subject)?));
}

fn on_sockets(stage: &str, io: IoKind, transport: Transport) {
    let subject = subject::native();
    check(stage, |scenario| {
        if !transport.plays(scenario) {
            return Ok(());
        }
        if !Sockets::play(scenario, &subject, io, transport)? {
            eprintln!("not played: this machine does not grant {stage}");
        }
        Ok(())
    });
}

#[test]
fn scenarios_pass_in_the_simulator() {
    simulated("compiled, simulator", &subject::native());
}

#[test]
fn scenarios_pass_with_the_interpreter() {
    simulated("interpreted, simulator", &subject::interpreted());
}

#[test]
fn scenarios_pass_on_epoll() {
    on_sockets("epoll", IoKind::Epoll, Transport::Tcp);
}

#[test]
fn scenarios_pass_on_io_uring() {
    on_sockets("io_uring", IoKind::Uring, Transport::Tcp);
}

#[test]
fn scenarios_pass_on_shared_memory() {
    on_sockets("shared memory and epoll", IoKind::Epoll, Transport::SharedMemory);
    on_sockets("shared memory and io_uring", IoKind::Uring, Transport::SharedMemory);
}

#[test]
fn scenarios_pass_on_simulated_rings() {
    let subject = subject::native();
    for seed in RING_SEEDS {
        check(&format!("simulated rings, seed {seed}"), |scenario| {
            let plays = Transport::SharedMemory.plays(scenario);
            if plays { Sockets::play_simulated(scenario, &subject, seed) } else { Ok(()) }
        });
    }
}
