//! Clients that ask for much and do not read it: they cost bounded memory, and others are served.

use std::io::Write;
use std::time::{Duration, Instant};

use flick_load::binary::Status;

use crate::common::peers::{self, Memcached};
use crate::common::service::Service;
use crate::machine::{self, Lateness};
use crate::wire::{self, Client, get, key_on, set};

const MIB: u64 = 1 << 20;
const READERS: usize = 300;
/// What one of them may hold when memory is short: a bound of the platform, and what one receive brings beyond it.
const READER_BYTES_MAX: u64 = 256 * 1024 + 64 * 1024;
/// Memory for buffers, and the share of it that slow readers may take before it counts as short.
const BUFFERS: u64 = 256 * MIB;
const PLENTY_BYTES: u64 = BUFFERS * 3 / 4 / 4;

#[test]
fn m13_slow_readers_of_large_values_cost_bounded_memory() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let lateness = Lateness::watch();
        let servers = Memcached::several(2);
        let backends = peers::addresses(&servers);
        let service = Service::proxy(&backends, &["--workers", "1", "--io", io, "--buffer-memory", "256MiB"]);
        let (large, small) = (key_on(0, 2, "large"), key_on(0, 2, "small"));
        let elsewhere = key_on(1, 2, "elsewhere");
        let mut healthy = Client::connect(service.address);
        let value = vec![b'v'; MIB as usize - 1_000];
        for (key, value) in [(&large, &value[..]), (&small, b"s"), (&elsewhere, b"e")] {
            assert_eq!(healthy.ask(&set(1, key, value)).status(), Some(Status::NoError));
        }
        assert_eq!(healthy.ask(&get(1, &large)).value().len(), value.len());
        let before = machine::resident_bytes(service.pid());
        let asked: Vec<u8> = (0..3).flat_map(|opaque| get(opaque, &large)).collect();
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let mut reader = wire::connect_narrow(service.address);
                reader.write_all(&asked).expect("the service reads");
                reader
            })
            .collect();
        let (begun, mut most, mut slowest) = (Instant::now(), 0, [Duration::ZERO; 2]);
        let mut rounds = 0;
        while begun.elapsed() < Duration::from_secs(6) {
            for (slowest, key) in slowest.iter_mut().zip([&small, &elsewhere]) {
                let asked = Instant::now();
                assert_eq!(healthy.ask(&get(rounds, key)).outcome(), (Some(Status::NoError), rounds), "{io}");
                *slowest = (*slowest).max(asked.elapsed());
            }
            rounds += 1;
            most = machine::resident_bytes(service.pid()).saturating_sub(before).max(most);
        }
        println!(
            "{io}: memory grew by {} MiB for {READERS} readers; {rounds} healthy rounds, slowest {:?} on their \
             backend, {:?} on another",
            most / MIB,
            slowest[0],
            slowest[1]
        );
        assert!(most < PLENTY_BYTES + READERS as u64 * READER_BYTES_MAX, "{io}: {most} bytes");
        // A machine that has other things to do is late with every wake-up, and a slow reader costs its backend
        // several.
        let late = lateness.allowance();
        assert!(slowest[0] < Duration::from_secs(4) + 4 * late, "{io}: their own backend: {:?}", slowest[0]);
        assert!(slowest[1] < Duration::from_millis(500) + late, "{io}: another backend: {:?}", slowest[1]);
        drop((readers, healthy));
        service.drained();
    }
}

/// Large values to several clients that read at once: none is taken for a slow reader.
#[test]
fn large_values_of_several_backends_reach_their_clients() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let servers = Memcached::several(4);
        let backends = peers::addresses(&servers);
        let service = Service::proxy(&backends, &["--workers", "1", "--io", io]);
        let keys: Vec<String> = (0..4).map(|backend| key_on(backend, 4, "large")).collect();
        let value = vec![b'v'; MIB as usize - 1_000];
        let mut writer = Client::connect(service.address);
        for key in &keys {
            assert_eq!(writer.ask(&set(1, key, &value)).status(), Some(Status::NoError), "{io}");
        }
        std::thread::scope(|scope| {
            for client in 0..4_usize {
                let (address, keys, len) = (service.address, &keys, value.len());
                scope.spawn(move || {
                    let mut reader = Client::connect(address);
                    for round in 0..5_u32 {
                        // Each begins at another backend, so that they get into each other's way.
                        let asked =
                            (0..8).flat_map(|at| get(round * 8 + at, &keys[(client + at as usize) % 4]));
                        reader.send(&asked.collect::<Vec<u8>>());
                        for at in 0..8 {
                            let reply = reader.reply();
                            assert_eq!(reply.outcome(), (Some(Status::NoError), round * 8 + at), "{io}");
                            assert_eq!(reply.value().len(), len, "{io}");
                        }
                    }
                });
            }
        });
        drop(writer);
        service.drained();
    }
}
