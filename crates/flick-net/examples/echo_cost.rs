//! Cost of a driver per request: clients on the same thread send small requests over loopback, and the driver echoes
//! them. `keep` reuses the connections; `short` opens one per request, and the driver closes it after the reply.
//!
//! Times: `cargo run --release -p flick-net --example echo_cost -- epoll keep 64 5000` (driver, mode, clients, rounds).
//! System calls: `strace -c -f target/release/examples/echo_cost epoll keep 64 1000`.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use flick_buffers::{Pool, PoolConfig};
use flick_net::{AnyDriver, Driver, DriverEvent, DriverLimits, IoKind};

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 4096,
    shm_conns_max: 0,
    output_slices_max: 4096,
    events_max: 256,
    receive_bytes: 16384,
};
const REQUEST_BYTES: usize = 100;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, mode, clients, rounds] = args.as_slice() else {
        return eprintln!("usage: echo_cost epoll|uring keep|short CLIENTS ROUNDS");
    };
    let kind: IoKind = kind.parse().expect("`epoll` or `uring`");
    let (clients, rounds): (usize, usize) =
        (clients.parse().expect("a number"), rounds.parse().expect("a number"));
    let is_short = mode == "short";
    let mut driver = AnyDriver::open(kind, LIMITS).expect("the kernel grants this driver");
    let pool = Pool::new(PoolConfig { small_count: 64, large_count: 256, huge_count: 0 });
    let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
    let at = driver.local_addr(listener).expect("just opened").to_string();
    let connect = || {
        let client = TcpStream::connect(&at).expect("the driver listens");
        client.set_nonblocking(true).expect("a socket may be non-blocking");
        client.set_nodelay(true).expect("TCP");
        client
    };
    let mut peers: Vec<TcpStream> = (0..clients).map(|_| connect()).collect();
    let mut events = Vec::with_capacity(LIMITS.events_max);
    let mut received = vec![0; LIMITS.conns_max as usize];
    let mut round = |peers: &mut Vec<TcpStream>| {
        if is_short {
            *peers = (0..clients).map(|_| connect()).collect();
        }
        peers.iter_mut().for_each(|peer| peer.write_all(&[7; REQUEST_BYTES]).expect("the connection is up"));
        let mut owed = clients * REQUEST_BYTES;
        let mut reply = [0; 4096];
        while owed > 0 {
            driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
            for event in events.drain(..) {
                match event {
                    DriverEvent::Accepted { conn, .. } => {
                        received[conn.index as usize] = 0;
                        driver.receive(conn, true);
                    }
                    DriverEvent::Data { conn, data } => {
                        received[conn.index as usize] += data.len() as usize;
                        driver.send(conn, data);
                        if is_short && received[conn.index as usize] == REQUEST_BYTES {
                            driver.close(conn);
                        }
                    }
                    DriverEvent::Eof { conn } => driver.close(conn),
                    _ => {}
                }
            }
            for peer in &mut *peers {
                match peer.read(&mut reply) {
                    Ok(bytes) => owed -= bytes,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "the connection is up"),
                }
            }
        }
    };
    (0..rounds / 10).for_each(|_| round(&mut peers));
    let begun = Instant::now();
    (0..rounds).for_each(|_| round(&mut peers));
    let ns = begun.elapsed().as_nanos() as f64 / (rounds * clients) as f64;
    println!("{} {mode}: {ns:.0} ns per request with {clients} clients", driver.name());
}
