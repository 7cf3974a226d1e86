//! `kill -9` of a backend under load: only its keys fail, at once and in the protocol; all is well soon after its
//! return.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::client::{ask, connect};
use common::lateness::Lateness;
use common::peers::{Memcached, addresses};
use common::service::Service;
use common::wait;
use flick_load::binary::{Opcode, Status};

const BACKENDS: u64 = 4;
const VICTIM: usize = 2;
const CLIENTS: u32 = 8;
const KEYS: u64 = 400;
/// Longest wait of a request for a dead backend for its answer.
const ERROR_WITHIN: Duration = Duration::from_millis(100);
/// Longest time from the return of a backend until it serves again.
const WHOLE_WITHIN: Duration = Duration::from_secs(1);
/// Load before the kill, while the backend is away, and after it is whole again.
const SPELL: Duration = Duration::from_millis(300);

/// One request that did not get what a healthy backend would say.
struct Failed {
    backend: u64,
    at: Instant,
    took: Duration,
    status: u16,
}

/// Returns the index of the backend that Listing 1 sends a key to.
fn backend_of(key: &str) -> u64 {
    flick_abi::hash::hash(key.as_bytes()) % BACKENDS
}

/// Reads and writes keys of all backends until told to stop; what failed, and how many requests were answered.
fn client(address: SocketAddr, number: u32, stop: &AtomicBool) -> (Vec<Failed>, u64) {
    let mut stream = connect(address);
    let (mut failed, mut answered, mut opaque) = (Vec::new(), 0, number << 20);
    while !stop.load(Ordering::Relaxed) {
        opaque += 1;
        let key = format!("key {}", (u64::from(opaque) * 7 + u64::from(number)) % KEYS);
        let asked = Instant::now();
        let opcode = if opaque % 4 == 0 { Opcode::Set } else { Opcode::Get };
        let value: &[u8] = if opcode == Opcode::Set { b"a value" } else { b"" };
        let reply = ask(&mut stream, opcode, opaque, key.as_bytes(), value);
        answered += 1;
        // After its return a backend has forgotten its keys, which is its right.
        if !reply.is(Status::NoError) && !reply.is(Status::KeyNotFound) {
            let backend = backend_of(&key);
            failed.push(Failed { backend, at: Instant::now(), took: asked.elapsed(), status: reply.status });
        }
    }
    (failed, answered)
}

#[test]
fn killed_backend_fails_only_its_keys_until_it_returns() {
    let mut servers = Memcached::several(usize::try_from(BACKENDS).expect("it is small"));
    let service = Service::proxy(&addresses(&servers), &["--workers", "2"]);
    let lateness = Lateness::watch();
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (address, stop) = (service.address, Arc::clone(&stop));
            std::thread::spawn(move || client(address, number, &stop))
        })
        .collect();
    let pause = |length: Duration| {
        let _: Option<()> = wait::within(length, || None);
    };
    pause(SPELL);
    let victim = servers.remove(VICTIM);
    let address = victim.address;
    let killed = Instant::now();
    victim.kill();
    pause(SPELL);
    let revived = wait::until("the port to be free again", || Memcached::start_at(address));
    let back = Instant::now();
    pause(WHOLE_WITHIN + SPELL);
    stop.store(true, Ordering::Relaxed);
    let mut failures = Vec::new();
    for client in clients {
        let (failed, answered) = client.join().expect("a client is never cut off");
        assert!(answered > 100, "a client was held up: {answered} replies");
        failures.extend(failed);
    }
    assert!(!failures.is_empty(), "a dead backend answers nothing");
    let late_wakeup = lateness.allowance();
    for failed in &failures {
        let since = failed.at.saturating_duration_since(killed);
        assert_eq!(failed.backend, VICTIM as u64, "a key of another backend failed {since:?} after the kill");
        assert!(
            failed.took <= ERROR_WITHIN + late_wakeup,
            "an error took {:?}, {since:?} after the kill",
            failed.took
        );
        assert!(failed.at >= killed, "a request failed before the kill with status {:#06x}", failed.status);
        let late = failed.at.saturating_duration_since(back);
        assert!(late <= WHOLE_WITHIN, "still failing {late:?} after the backend came back");
    }
    drop(revived);
    service.drained();
}
