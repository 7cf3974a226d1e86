//! The upgrade of connections of TCP and of Unix sockets to rings and back, between two drivers of one thread, byte by
//! byte.
//! `FLICK_NET_UPGRADE_ROUNDS` sets the connections of each run, `FLICK_NET_UPGRADE_SEED` the first seed.

mod hostile;
mod killed;
mod world;

use std::sync::atomic::{AtomicU32, Ordering};

use flick_net::{AnyDriver, Detached, Driver, DriverEvent, Endpoint, IoKind, PlainReason, TransportKind};
use world::{Side, World};

/// Longest time to the second upgrade of a connection.
const TIME_MAX: std::time::Duration = std::time::Duration::from_secs(20);

const KINDS: [IoKind; 2] = [IoKind::Epoll, IoKind::Uring];

fn for_drivers(at: &Endpoint, run: impl Fn(&mut World)) {
    for client in KINDS {
        for server in KINDS {
            if let Some(mut world) = World::new(client, server, at) {
                run(&mut world);
            }
        }
    }
}

fn for_tcp(run: impl Fn(&mut World)) {
    for_drivers(&"127.0.0.1:0".parse().expect("an endpoint"), run);
}

fn for_all(run: impl Fn(&mut World)) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for_tcp(&run);
    let name = format!("flick-upgrade-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    for_drivers(&Endpoint::Unix(path.clone()), run);
    let _ = std::fs::remove_file(path);
}

#[test]
fn a_connection_moves_to_rings_after_its_third_exchange() {
    for_all(|world| {
        world.connect();
        (0..3).for_each(|_| world.exchange(100));
        world.run_until(|world| world.is_upgraded());
        let [client, server] = world.stats();
        assert_eq!((client.upgraded, server.upgraded), (1, 1));
        let before = world.ring_bytes_received();
        (0..10).for_each(|_| world.exchange(5000));
        assert!(world.ring_bytes_received() >= before + 2 * 10 * 5000);
        // A connection that is idle is no longer looked at.
        (0..200).for_each(|_| world.poll());
        world.exchange(100);
        for transport in world.transports() {
            assert!(matches!(transport, TransportKind::Upgraded { wake_ups: 1.. }), "{transport:?}");
        }
        world.end();
    });
}

#[test]
fn a_connection_with_fewer_exchanges_does_not_ask() {
    for_all(|world| {
        world.connect();
        (0..2).for_each(|_| world.exchange(100));
        (0..50).for_each(|_| world.poll());
        assert_eq!(world.stats().map(|stats| (stats.upgrades, stats.pairs)), [(0, 0); 2]);
        let plain = [PlainReason::FewExchanges, PlainReason::NotAsked].map(TransportKind::Kernel);
        assert_eq!(world.transports(), plain);
        world.end();
        assert_eq!(world.stats().map(|stats| stats.plain_short_lived), [1, 0]);
    });
}

#[test]
fn worker_without_memory_for_rings_counted_as_one_without_the_connection() {
    for_all(|world| {
        world.connect();
        (0..3).for_each(|_| world.exchange(100));
        world.run_until(|world| world.is_upgraded());
        world.driver(Side::Server).limit_rings(0);
        world.connect();
        (0..3).for_each(|_| world.exchange(100));
        let limit = TransportKind::Kernel(PlainReason::Limit);
        world.run_until(|world| world.transports()[0] == limit);
        world.exchange(100);
        for stats in world.stats() {
            assert_eq!((stats.upgrades, stats.plain_limit, stats.plain_refused, stats.refused), (1, 1, 0, 0));
        }
    });
}

#[test]
fn every_byte_arrives_once_while_traffic_flows_through_the_upgrade() {
    for_all(|world| {
        for _ in 0..world.rounds() {
            world.connect();
            while !world.is_upgraded() {
                world.random_traffic();
            }
            (0..200).for_each(|_| world.random_traffic());
            world.end();
        }
        assert_eq!(world.stats().map(|stats| stats.upgraded), [0; 2]);
    });
}

#[test]
fn either_side_ends_its_stream_at_any_time() {
    for_all(|world| {
        for _ in 0..world.rounds() {
            world.connect();
            (0..3).for_each(|_| world.exchange(100));
            let steps = world.random(40);
            (0..steps).for_each(|_| world.random_traffic());
            world.end();
        }
    });
}

#[test]
fn a_connection_that_closes_while_it_asks_leaves_nothing_behind() {
    for_all(|world| {
        for polls in 0..world.rounds() {
            world.connect();
            (0..3).for_each(|_| world.exchange(100));
            world.run_until(|world| world.stats()[0].conns > 0);
            (0..polls).for_each(|_| world.poll_only(Side::Client));
            (0..polls % 3).for_each(|_| world.poll());
            world.close(Side::Client);
            world.end_closed(Side::Server);
        }
    });
}

#[test]
fn a_detached_connection_returns_to_the_kernel_first() {
    for_all(|world| {
        for round in 0..world.rounds() {
            world.connect();
            while !world.is_upgraded() {
                world.random_traffic();
            }
            let steps = world.random(20);
            (0..steps).for_each(|_| world.random_traffic());
            let side = if round % 2 == 0 { Side::Server } else { Side::Client };
            world.move_conn(side);
            (0..20).for_each(|_| world.random_traffic());
            world.end();
        }
        let [client, server] = world.stats();
        assert!(client.downgrades >= 1 && server.downgrades >= 1, "{client:?} {server:?}");
    });
}

#[test]
fn bytes_behind_a_ring_wait_until_those_before_it_are_read() {
    for_all(|world| {
        world.connect();
        (0..3).for_each(|_| world.exchange(100));
        world.set_receiving(Side::Client, false);
        world.send(Side::Server, 100_000);
        world.run_until(|world| world.is_upgraded());
        let conn = world.conn(Side::Server);
        world.set_receiving(Side::Server, false);
        for _ in 0..20 {
            assert!(matches!(world.driver(Side::Server).detach(conn), Detached::Busy | Detached::HasInput));
            world.send(Side::Server, 1000);
            world.poll();
        }
        world.end();
    });
}

#[test]
fn a_connection_that_moved_to_another_driver_is_upgraded_again() {
    for_tcp(|world| {
        world.connect();
        (0..3).for_each(|_| world.exchange(100));
        world.run_until(|world| world.is_upgraded());
        world.exchange(100_000);
        world.move_conn(Side::Server);
        // The side that connected asks again after a second.
        let begun = std::time::Instant::now();
        while !world.is_upgraded() {
            world.exchange(10);
            assert!(begun.elapsed() < TIME_MAX, "{:?}", world.stats());
        }
        (0..20).for_each(|_| world.random_traffic());
        world.end();
    });
}

#[test]
fn a_peer_that_does_not_answer_keeps_a_connection_from_being_detached() {
    for_all(|world| {
        world.connect();
        (0..3).for_each(|_| world.exchange(100));
        world.run_until(|world| world.is_upgraded());
        world.exchange(100);
        let conn = world.conn(Side::Server);
        world.set_receiving(Side::Server, false);
        assert!(world.driver(Side::Server).can_detach(conn));
        while world.driver(Side::Server).can_detach(conn) {
            assert!(matches!(world.driver(Side::Server).detach(conn), Detached::Busy));
            world.poll_only(Side::Server);
        }
        // The other side answers late: nothing is lost.
        world.set_receiving(Side::Server, true);
        (0..20).for_each(|_| world.random_traffic());
        world.end();
    });
}

#[test]
fn a_reset_follows_the_bytes_of_the_ring() {
    for_all(|world| {
        world.connect();
        (0..3).for_each(|_| world.exchange(100));
        world.run_until(|world| world.is_upgraded());
        // The ring grows, so that one poll of the other side does not read all of it.
        (0..5).for_each(|_| world.exchange(100_000));
        world.send(Side::Client, 200_000);
        (0..10).for_each(|_| world.poll_only(Side::Client));
        let (client, server) = (world.conn(Side::Client), world.conn(Side::Server));
        world.driver(Side::Client).abort(client);
        world.poll_only(Side::Client);
        let failed = world.run_for_event(Side::Server, |event| matches!(event, DriverEvent::Failed { .. }));
        assert!(matches!(failed, DriverEvent::Failed { conn, .. } if conn == server));
        assert_eq!(world.owed(Side::Server), 0, "all was delivered before");
    });
}

#[test]
fn many_connections_to_a_unix_socket_are_not_mixed_up() {
    let path = std::env::temp_dir().join(format!("flick-upgrade-many-{}", std::process::id()));
    for_drivers(&Endpoint::Unix(path.clone()), |world| {
        world.connect_others(8);
        world.connect();
        (0..3).for_each(|_| world.exchange(100));
        world.run_until(|world| world.is_upgraded());
        (0..200).for_each(|_| world.random_traffic());
        world.end();
    });
    let _ = std::fs::remove_file(path);
}

#[test]
fn a_driver_without_upgrades_counts_the_connections_that_could_have_one() {
    let limits = world::LIMITS;
    let mut driver = AnyDriver::open(IoKind::Epoll, limits).expect("every kernel has epoll");
    assert_eq!(driver.shm_stats(), None);
    // No process listens there.
    driver.connect(&"127.0.0.1:1".parse().expect("an endpoint")).expect("a slot is free");
    driver.connect(&"unix:/nowhere".parse().expect("an endpoint")).expect("a slot is free");
    assert_eq!(driver.shm_stats().map(|stats| stats.plain_off), Some(2));
}
