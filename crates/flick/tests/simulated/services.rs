//! Services for the constructs of the language (`tests/services`): each is one program, compiled as a user's would be,
//! and scenarios that say what it must do, played on every stage. Those whose clients the checking clients understand
//! also run under injected faults from seeds.

use std::path::{Path, PathBuf};

use flick_net::IoKind;
use flick_testkit::scenario::stage::{Simulated, Sockets, Transport};
use flick_testkit::scenario::{Scenario, parse, play};
use flick_testkit::service::fault_injection::{self, FaultPlan};
use flick_testkit::service::{Subject, seeds};

use super::scenarios::RING_SEEDS;
use super::subject;

/// Fewest services there must be, so that a wrong path is no silent success.
const SERVICES_MIN: usize = 6;

/// A service and its scenarios by name.
struct SimService {
    name: String,
    native: Subject,
    interpreted: Subject,
    scenarios: Vec<(String, Scenario)>,
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    paths
}

fn name_of(path: &Path) -> String {
    path.file_name().expect("it has a name").to_string_lossy().into_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn service(folder: &Path) -> SimService {
    let name = name_of(folder);
    let program = folder.join(format!("{name}.flick"));
    let (native, interpreted) = subject::both_of(&name_of(&program), &read(&program));
    let is_scenario = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "scn");
    let scenarios = files(folder).into_iter().filter(is_scenario).map(|path| {
        let scenario = parse(&read(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (format!("{name}/{}", name_of(&path)), scenario)
    });
    let scenarios: Vec<_> = scenarios.collect();
    assert!(!scenarios.is_empty(), "{name} has scenarios");
    SimService { name, native, interpreted, scenarios }
}

fn services() -> Vec<SimService> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/services");
    let services: Vec<SimService> = files(&folder).iter().map(|path| service(path)).collect();
    assert!(services.len() >= SERVICES_MIN, "only {} services", services.len());
    services
}

/// Plays every scenario of every service; reports all that fail.
fn check(mut play_one: impl FnMut(&SimService, &Scenario) -> Result<(), String>) {
    let services = services();
    let each = services.iter().flat_map(|service| service.scenarios.iter().map(move |one| (service, one)));
    let failed: Vec<String> = each
        .filter_map(|(service, (name, scenario))| {
            Some(format!("{name}: {}", play_one(service, scenario).err()?))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn on_sockets(io: IoKind, transport: Transport) {
    check(|service, scenario| {
        if !transport.plays(scenario) {
            return Ok(());
        }
        if !Sockets::play(scenario, &service.native, io, transport)? {
            eprintln!("not played: this machine does not grant {io:?}");
        }
        Ok(())
    });
}

#[test]
fn scenarios_of_services_pass_in_the_simulator() {
    check(|service, scenario| play(scenario, &mut Simulated::new(scenario, &service.native)?));
}

#[test]
fn scenarios_of_services_pass_with_the_interpreter() {
    check(|service, scenario| play(scenario, &mut Simulated::new(scenario, &service.interpreted)?));
}

#[test]
fn scenarios_of_services_pass_on_epoll() {
    on_sockets(IoKind::Epoll, Transport::Tcp);
}

#[test]
fn scenarios_of_services_pass_on_io_uring() {
    on_sockets(IoKind::Uring, Transport::Tcp);
}

#[test]
fn scenarios_of_services_pass_on_shared_memory() {
    on_sockets(IoKind::Epoll, Transport::SharedMemory);
    on_sockets(IoKind::Uring, Transport::SharedMemory);
}

#[test]
fn scenarios_of_services_pass_on_simulated_rings() {
    for seed in RING_SEEDS {
        check(|service, scenario| {
            let plays = Transport::SharedMemory.plays(scenario);
            let played =
                if plays { Sockets::play_simulated(scenario, &service.native, seed) } else { Ok(()) };
            played.map_err(|error| format!("seed {seed}: {error}"))
        });
    }
}

/// The services that pass on what backends say: their clients are owed what they asked for.
const IN_FAULT_INJECTION: [&str; 2] = ["failover", "retry"];

#[test]
fn services_that_ask_pass_fault_injection() {
    for service in services().iter().filter(|service| IN_FAULT_INJECTION.contains(&&*service.name)) {
        let servers = if service.native.program.channels[1].is_array { 4 } else { 1 };
        for plan in [FaultPlan::resets(), FaultPlan::everything()] {
            let plan = FaultPlan { servers, keeps_order: false, ..plan };
            for seed in seeds(300) {
                let native = fault_injection::run(seed, &plan, &service.native);
                let native =
                    native.unwrap_or_else(|what| panic!("FLICK_SEED={seed} {}: {what}", service.name));
                if seed % 10 == 0 {
                    let interpreted = fault_injection::run(seed, &plan, &service.interpreted);
                    assert_eq!(Ok(native), interpreted, "FLICK_SEED={seed} {}", service.name);
                }
            }
        }
    }
}
