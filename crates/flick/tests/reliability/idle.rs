//! Sessions that say nothing cost nothing: how often a process with a thousand of them wakes, and what it uses where
//! that is asked for.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::common::Scratch;
use crate::common::service::Service;
use crate::exhaustion::used;
use crate::machine;
use crate::proxy::stores;
use crate::wire::Client;

const IDLE: usize = 1_000;
/// Time that is watched; `FLICK_IDLE_SECONDS` makes it longer, and judges the processor time too.
const WATCHED: Duration = Duration::from_secs(2);
/// Part of a core that may be used: one in this many, 0.5 %. A machine that is busy with others, or shared with other
/// machines, makes every moment longer, so this is judged on request only.
const SHARE: u32 = 200;
/// Times in a second that the process may wake for no client: its control thread looks at its workers five times.
const WAKES_PER_S_MAX: f64 = 40.0;

/// Checks the wake-ups and the processor time of the service while a thousand clients that have been served are idle.
fn check(what: &str, service: &Service, addresses: &[SocketAddr]) {
    let asked = std::env::var("FLICK_IDLE_SECONDS").ok().and_then(|text| text.parse().ok());
    let watched = asked.map_or(WATCHED, Duration::from_secs);
    let address = |number: usize| addresses[number % addresses.len()];
    let clients: Vec<Client> = (0..IDLE).map(|number| used(address(number), number)).collect();
    // What their coming has left to do is done after a moment.
    std::thread::park_timeout(Duration::from_millis(300));
    let (begun, before) =
        (Instant::now(), (machine::processor_time(service.pid()), machine::sleeps(service.pid())));
    std::thread::park_timeout(watched);
    let used = machine::processor_time(service.pid()).saturating_sub(before.0);
    let (wakes, took) = (machine::sleeps(service.pid()).saturating_sub(before.1), begun.elapsed());
    let percent = 100.0 * used.as_secs_f64() / took.as_secs_f64();
    println!(
        "{what}: {used:?} of a core in {took:?} with {IDLE} idle sessions, {percent:.3} %, {wakes} wake-ups"
    );
    let per_s = wakes as f64 / took.as_secs_f64();
    assert!(per_s <= WAKES_PER_S_MAX, "{what}: {per_s:.1} wake-ups a second");
    // Who spins does not sleep either.
    assert!(used < took / 4, "{what}: {percent:.3} % of a core");
    assert!(asked.is_none() || used < took / SHARE, "{what}: {percent:.3} % of a core");
    drop(clients);
}

#[test]
fn thousand_idle_sessions_cause_no_wakeups() {
    let _machine = machine::alone();
    machine::want_descriptors(IDLE as u64 * 2 + 500);
    for io in ["epoll", "uring"] {
        let (_stores, backends) = stores(2);
        let service = Service::proxy(&backends, &["--workers", "2", "--io", io, "--admin", "0"]);
        check(&format!("one service, {io}"), &service, &[service.address]);
        service.drained();
    }
}

#[test]
fn thousand_idle_sessions_of_two_services_cause_no_wakeups() {
    let _machine = machine::alone();
    machine::want_descriptors(IDLE as u64 * 2 + 500);
    for io in ["epoll", "uring"] {
        let scratch = Scratch::new("idle_services");
        let program = crate::common::root().join("examples/key_value_server/binary_server.flick");
        let addresses = [crate::common::peers::free_address(), crate::common::peers::free_address()];
        let section = |name: &str, at: SocketAddr| {
            format!(
                "[[service]]\nname = \"{name}\"\nprogram = {program:?}\nlisten = {{ client = \"{at}\" }}\n"
            )
        };
        let settings = section("one", addresses[0]) + &section("two", addresses[1]);
        let settings = scratch.write("flick.toml", &settings);
        let settings = settings.to_str().expect("the target directory has a plain name");
        let state = scratch.path().join("state");
        let state = state.to_str().expect("as above");
        let args = ["run", "--config", settings, "--workers", "2", "--io", io, "--state-dir", state];
        let service = Service::start(&args);
        check(&format!("two services, {io}"), &service, &addresses);
        service.drained();
    }
}
