//! Merging over real connections, on both kernel interfaces and with one and two workers: threads that wait for each
//! other's bells, and ends that the kernel reports.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flick_net::{Endpoint, IoKind};
use flick_runtime::task_counters::TaskKind;
use flick_runtime::{Binding, Limits, Platform, PlatformConfig, Totals};

use crate::pairs::{Combine, Hand, expected, pair, program};

const STREAMS: usize = 8;

fn start(io: IoKind, workers: usize, listen: Vec<(&str, usize)>, reducer: Option<SocketAddr>) -> Platform {
    let any = Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let binding = |(channel, count): (&str, usize)| Binding::new(channel, vec![any.clone(); count]);
    let connect = |at| Binding::new("reducer", vec![Endpoint::Tcp(at)]);
    let config = PlatformConfig {
        workers,
        io,
        limits: Limits { buffer_memory: 64 << 20, merge_ring_bytes: 16 * 1024, ..Limits::default() },
        ..PlatformConfig::new(
            listen.into_iter().map(binding).collect(),
            reducer.map(connect).into_iter().collect(),
        )
    };
    Platform::start(program(false), Arc::new(Hand(Combine::Add)), config).expect("the service starts")
}

fn address(platform: &Platform, channel: &str) -> SocketAddr {
    let mut addresses = platform.addresses().into_iter();
    match addresses.find(|(name, _)| name == channel) {
        Some((_, Endpoint::Tcp(address))) => address,
        other => panic!("`{channel}` listens on TCP: {other:?}"),
    }
}

/// Waits until the counters say so.
fn wait(platform: &Platform, until: impl Fn(&Totals) -> bool) {
    let begun = Instant::now();
    while !until(&platform.snapshot().totals) {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "it never happens: {:?}",
            platform.snapshot().totals
        );
        thread::yield_now();
    }
}

/// Sends a stream; returns when the service has ended the connection: whether in good order.
fn mapper(at: SocketAddr, stream: Vec<u8>) -> JoinHandle<bool> {
    thread::spawn(move || {
        let mut conn = TcpStream::connect(at).expect("the service listens");
        let sent = conn.write_all(&stream).and_then(|()| conn.shutdown(Shutdown::Write));
        sent.is_ok() && matches!(conn.read(&mut [0]), Ok(0))
    })
}

/// Takes one result; `Err` when the connection was reset.
fn reduce(mut conn: TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    conn.read_to_end(&mut bytes).map(|_| bytes)
}

/// Streams with many equal keys, within each and among them.
fn streams() -> Vec<Vec<u8>> {
    let stream = |number: u32| {
        (0..20_000u32)
            .flat_map(move |at| pair(format!("{:06}", at / 3 * (number + 1)).as_bytes(), b"1"))
            .collect()
    };
    (0..STREAMS as u32).map(stream).collect()
}

#[test]
fn eight_streams_become_one_on_every_kernel_interface() {
    let streams = streams();
    let expected = expected(&streams, Combine::Add);
    for io in [IoKind::Epoll, IoKind::Uring] {
        for workers in [1, 2, 3] {
            let reducer = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let at = reducer.local_addr().expect("an address");
            let platform = start(io, workers, vec![("mappers", STREAMS)], Some(at));
            for job in 0..2 {
                let mappers: Vec<_> = streams
                    .iter()
                    .map(|stream| mapper(address(&platform, "mappers"), stream.clone()))
                    .collect();
                let (conn, _) = reducer.accept().expect("the service connects");
                let result = reduce(conn).expect("a good end");
                assert!(result == expected, "{io:?}, {workers} workers, job {job}: another result");
                for mapper in mappers {
                    assert!(mapper.join().expect("a mapper ends"), "{io:?}: a mapper sees a clean close");
                }
            }
            platform.stop();
            let totals = platform.wait().totals;
            assert_eq!((totals.merges_completed, totals.merges_failed), (2, 0), "{io:?}, {workers} workers");
        }
    }
}

/// Mappers of a job that is large enough for both workers.
const MAPPERS: u32 = 16;

/// The input of a merge node does not depend on which stream is late, so neither does the work of each worker.
#[test]
fn both_workers_do_their_part_of_a_merge_of_sixteen_streams() {
    let stream = |number: u32| {
        (0..3_000u32).flat_map(move |at| pair(format!("{:06}", at * (number + 1)).as_bytes(), b"1"))
    };
    let streams: Vec<Vec<u8>> = (0..MAPPERS).map(|number| stream(number).collect()).collect();
    let expected = expected(&streams, Combine::Add);
    for io in [IoKind::Epoll, IoKind::Uring] {
        let reducer = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = reducer.local_addr().expect("an address");
        let platform = start(io, 2, vec![("mappers", MAPPERS as usize)], Some(at));
        let mappers: Vec<_> =
            streams.iter().map(|stream| mapper(address(&platform, "mappers"), stream.clone())).collect();
        let (conn, _) = reducer.accept().expect("the service connects");
        assert!(reduce(conn).expect("a good end") == expected, "{io:?}: another result");
        for mapper in mappers {
            assert!(mapper.join().expect("a mapper ends"), "{io:?}: a mapper sees a clean close");
        }
        wait(&platform, |totals| totals.merges_completed == 1);
        let workers = platform.snapshot().workers;
        let taken: Vec<u64> = workers.iter().map(|worker| worker.totals.merge_elements).collect();
        let [first, second] = taken[..] else { panic!("two workers: {taken:?}") };
        assert!(first.abs_diff(second) * 10 < first + second, "{io:?}: {taken:?} elements, as good as even");
        for worker in &workers {
            let merges = &worker.tasks[TaskKind::Merge as usize];
            assert!(merges.runs > 0, "{io:?}: {merges:?}");
        }
        platform.stop();
        platform.wait();
    }
}

#[test]
fn a_reducer_may_come_to_the_service() {
    let streams = streams();
    let expected = expected(&streams, Combine::Add);
    for io in [IoKind::Epoll, IoKind::Uring] {
        let platform = start(io, 2, vec![("mappers", STREAMS), ("reducer", 1)], None);
        // One that leaves before there is anything for it costs nothing.
        let connect = || TcpStream::connect(address(&platform, "reducer")).expect("the service listens");
        drop(connect());
        wait(&platform, |totals| totals.backend_connections_closed == 1);
        let reducer = connect();
        wait(&platform, |totals| totals.backend_connections_opened == 2);
        let mappers: Vec<_> =
            streams.iter().map(|stream| mapper(address(&platform, "mappers"), stream.clone())).collect();
        // There is one reducer at a time.
        assert!(reduce(connect()).is_err(), "{io:?}: a second reducer is refused");
        let result = reduce(reducer).expect("a good end");
        assert!(result == expected, "{io:?}: another result");
        for mapper in mappers {
            assert!(mapper.join().expect("a mapper ends"), "{io:?}: a mapper sees a clean close");
        }
        platform.stop();
        platform.wait();
    }
}

#[test]
fn a_mapper_that_is_killed_fails_the_job_for_all() {
    for io in [IoKind::Epoll, IoKind::Uring] {
        let reducer = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = reducer.local_addr().expect("an address");
        let platform = start(io, 2, vec![("mappers", 2)], Some(at));
        let good = mapper(address(&platform, "mappers"), streams().remove(0));
        let mut bad = TcpStream::connect(address(&platform, "mappers")).expect("the service listens");
        bad.write_all(&pair(b"000000", b"1")).expect("sends");
        let (conn, _) = reducer.accept().expect("the service connects");
        // Ends inside an element.
        bad.write_all(&[9]).expect("sends");
        drop(bad);
        assert!(reduce(conn).is_err(), "{io:?}: a partial result looks complete");
        assert!(!good.join().expect("a mapper ends"), "{io:?}: a mapper is reset");
        platform.stop();
        assert_eq!(platform.wait().totals.merges_failed, 1, "{io:?}");
    }
}
