//! Memory of rings in shared memory: it is part of the memory that a service may use.

use std::net::SocketAddr;

use flick_shm::client::{ClientAddress, ClientConfig, ClientEvent, ClientSet};
use flick_shm::conn::RingRead;

use crate::common::http::Backend;
use crate::common::service::{Service, seen};
use crate::common::wait;
use crate::machine;

const MIB: u64 = 1 << 20;
/// Few enough that buffers are left while none reads: else the service disconnects the client that holds most.
const CLIENTS: u32 = 32;
const PAGE_BYTES: usize = 2_000_000;
/// An eighth of the buffer memory of the test.
const RINGS_BYTES_MAX: u64 = 2 * MIB;

fn ring_bytes(service: &Service) -> u64 {
    let (_, text) = seen(service.admin_address(), "/metrics");
    let line = text.lines().find(|line| line.starts_with("flick_shm_ring_bytes"));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    value.unwrap_or_else(|| panic!("no metric in\n{text}")) as u64
}

/// Clients that read nothing make the service's rings grow. Each then reads its whole reply.
#[test]
fn growing_rings_exceeded_the_memory_that_a_service_may_use() {
    let _machine = machine::alone();
    for io in ["epoll", "uring"] {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let backend = Backend::start_at(any, |_, _| vec![b'x'; PAGE_BYTES], 0).expect("a free port");
        let program = crate::common::root().join("examples/http_balancer/round_robin.flick");
        let name = format!("ring-memory-{io}-{}", std::process::id());
        let listen = format!("client=127.0.0.1:0,shm:{name}");
        let connect = format!("backends={}", backend.address);
        let program = program.to_str().expect("a path of the repository");
        let options = ["--workers", "1", "--io", io, "--admin", "0"];
        let memory = ["--max-memory", "128MiB", "--buffer-memory", "16MiB", "--max-connections", "500"];
        let args = ["run", program, "--listen", &listen, "--connect", &connect];
        let service = Service::start(&[&args[..], &options, &memory].concat());

        let mut clients = ClientSet::new(&ClientConfig::new(CLIENTS)).expect("an epoll");
        let to = ClientAddress::Shm(name);
        (0..CLIENTS).for_each(|token| clients.connect(token, &to).expect("the service pairs"));
        let mut events = Vec::with_capacity(CLIENTS as usize);
        let mut asked = 0;
        wait::until("all clients to be connected", || {
            clients.wait(&mut events, Some(SHORT)).expect("an epoll");
            for event in &events {
                assert!(!matches!(event, ClientEvent::Failed(_)), "{io}: {event:?}");
                if let ClientEvent::Connected(token) = event {
                    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
                    assert_eq!(clients.send(*token, request).ok(), Some(request.len()));
                    asked += 1;
                }
            }
            (asked == CLIENTS).then_some(())
        });
        let grown = wait::until("the rings to grow", || {
            let bytes = ring_bytes(&service);
            (bytes > RINGS_BYTES_MAX / 8).then_some(bytes)
        });
        let mut most = grown;
        let mut received = vec![0; CLIENTS as usize];
        let mut out = vec![0; 64 << 10];
        let mut resident = 0;
        let mut rounds = 0_u32;
        wait::until("all replies", || {
            if rounds.is_multiple_of(64) {
                most = most.max(ring_bytes(&service));
                resident = machine::resident_bytes(service.pid()).max(resident);
            }
            rounds += 1;
            for (token, received) in received.iter_mut().enumerate() {
                match clients.receive(token as u32, &mut out) {
                    Ok(RingRead::Bytes(bytes)) => *received += bytes,
                    Ok(RingRead::Empty) => {}
                    other => panic!("{io}: client {token} after {received} bytes: {other:?}"),
                }
            }
            clients.wait(&mut events, Some(SHORT)).expect("an epoll");
            received.iter().all(|bytes| *bytes > PAGE_BYTES).then_some(())
        });
        println!("{io}: rings {} KiB, resident {} MiB", most >> 10, resident / MIB);
        assert!(most <= RINGS_BYTES_MAX, "{io}: rings of {most} bytes");
        assert!(resident < 128 * MIB, "{io}: {} MiB", resident / MIB);
        (0..CLIENTS).for_each(|token| clients.close(token));
        wait::until("the rings to return", || {
            clients.wait(&mut events, Some(SHORT)).expect("an epoll");
            (ring_bytes(&service) == 0).then_some(())
        });
        drop(clients);
        service.drained();
        backend.stop();
    }
}

/// Time for which the clients wait at once.
const SHORT: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
