//! The cases. Each is generic over the world, so that every driver keeps the same promises.

use flick_buffers::Slice;
use flick_net::{ConnFault, Driver, DriverEvent, DriverLimits, Handle};

use crate::script::{Gate, Step, pattern};
use crate::world::{Kind, LIMITS, World, pool, run, run_busy};

/// Makes a test of every case for one driver.
macro_rules! on_every_driver {
    ($name:ident, $world:ty) => {
        mod $name {
            use crate::cases;
            use super::*;

            $crate::cases::on_every_driver!(@tests $world:
                echo_v4 echo_v6 echo_unix
                ten_megabytes_come_back_unchanged
                a_peer_that_does_not_read_fills_the_backlog_and_drains_it
                receive_off_returns_no_data_and_no_eof
                a_half_closed_peer_still_gets_its_reply
                shutdown_ends_our_side_only
                corked_output_is_sent_on_uncork_and_on_shutdown
                close_sends_corked_output
                abort_after_close_drops_the_rest_of_the_output
                a_lingering_connection_is_evicted_for_a_new_peer
                shutdown_while_connecting_follows_the_output
                a_reset_while_receiving_is_off_is_reported
                close_sends_what_was_appended_first
                close_lets_a_sending_peer_read_the_final_output
                a_reset_peer_is_a_fault
                abort_resets_the_peer
                connect_exchanges_data_with_a_server
                the_end_of_a_peer_that_closed_before_the_connect_was_reported_was_lost
                output_appended_while_connecting_is_sent
                connect_to_a_closed_port_is_refused
                many_connections_share_few_buffers
                a_full_table_pauses_the_listener
                too_much_output_is_a_fault
                a_dead_handle_does_nothing
                an_empty_pool_pauses_receiving
                pausing_at_random_loses_nothing
            );
        }
    };
    (@tests $world:ty: $($case:ident)*) => {
        $(#[test] fn $case() {
            match <$world as $crate::world::World>::unavailable() {
                None => cases::$case::<$world>(),
                Some(why) => eprintln!("not tested: {why}"),
            }
        })*
    };
}
pub(crate) use on_every_driver;

fn world<W: World>() -> W {
    W::with_limits(LIMITS)
}

fn send(step: &[u8]) -> Step {
    Step::Send(step.to_vec())
}

fn expect(step: &[u8]) -> Step {
    Step::Expect(step.to_vec())
}

/// Echoes until the peer's end of stream, then closes. Returns whether `count` connections are closed.
fn echo_until_eof<D: Driver>(count: usize) -> impl FnMut(&mut D, Option<DriverEvent>) -> bool {
    let mut closed = 0;
    move |driver, event| {
        match event {
            Some(DriverEvent::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(DriverEvent::Data { conn, data }) => {
                assert!(!data.is_empty());
                driver.send(conn, data);
            }
            Some(DriverEvent::Eof { conn }) => {
                closed += 1;
                driver.close(conn);
            }
            Some(DriverEvent::Woken) | None => {}
            Some(other) => panic!("unexpected {other:?}"),
        }
        closed == count
    }
}

fn echo<W: World>(kind: Kind) {
    let mut world = world::<W>();
    let at = world.fresh(kind);
    let listener = world.driver().listen(&at).unwrap();
    let at = world.driver().local_addr(listener).unwrap();
    let steps = [send(b"hello"), expect(b"hello"), send(b"again"), expect(b"again")];
    world.connect(&at, [&steps[..], &[Step::ShutdownWrite, Step::ExpectEof]].concat());
    run(&mut world, &pool(), echo_until_eof(1));
}

pub fn echo_v4<W: World>() {
    echo::<W>(Kind::V4);
}

pub fn echo_v6<W: World>() {
    echo::<W>(Kind::V6);
}

pub fn echo_unix<W: World>() {
    echo::<W>(Kind::Unix);
}

/// Listens on a fresh IPv4 address and lets one peer connect to it.
fn with_client<W: World>(world: &mut W, steps: Vec<Step>) {
    let at = world.fresh(Kind::V4);
    let listener = world.driver().listen(&at).unwrap();
    let at = world.driver().local_addr(listener).unwrap();
    world.connect(&at, steps);
}

/// The peer sends a chunk before it reads any, so both directions wait for each other: the app stops receiving at the
/// high watermark and resumes on `Drained`.
pub fn ten_megabytes_come_back_unchanged<W: World>() {
    let mut world = world::<W>();
    world.driver().set_watermarks(512 << 10, 64 << 10);
    let bytes = pattern(10 << 20);
    let chunks = bytes.chunks(world.unread_bytes()).flat_map(|chunk| [send(chunk), expect(chunk)]);
    let steps = chunks.chain([Step::ShutdownWrite, Step::ExpectEof]).collect();
    with_client(&mut world, steps);
    let mut echo = echo_until_eof(1);
    let mut paused = 0;
    run(&mut world, &pool(), |driver, event| match event {
        Some(DriverEvent::Drained { conn }) => {
            driver.receive(conn, true);
            false
        }
        Some(DriverEvent::Data { conn, data }) => {
            driver.send(conn, data);
            if driver.backlog_bytes(conn) >= 512 << 10 {
                paused += 1;
                driver.receive(conn, false);
            }
            false
        }
        other => echo(driver, other),
    });
    let _ = paused;
}

pub fn a_peer_that_does_not_read_fills_the_backlog_and_drains_it<W: World>() {
    let mut world = world::<W>();
    world.driver().set_watermarks(6 << 20, 1 << 20);
    let bytes = pattern(12 << 20);
    let gate = Gate::default();
    with_client(
        &mut world,
        vec![send(b"go"), Step::Wait(gate.clone()), Step::Expect(bytes.clone()), Step::Close],
    );
    let source = flick_buffers::Pool::new(flick_buffers::PoolConfig {
        small_count: 0,
        large_count: 1024,
        huge_count: 0,
    });
    let mut drained = false;
    let mut ended = false;
    run(&mut world, &pool(), |driver, event| {
        match event {
            Some(DriverEvent::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(DriverEvent::Data { conn, .. }) => {
                for chunk in bytes.chunks(16384) {
                    let buf = source.alloc(flick_buffers::BufClass::Large).unwrap();
                    buf.append(chunk);
                    driver.send(conn, buf.slice(0..buf.len()));
                }
                assert_eq!(driver.backlog_bytes(conn), bytes.len());
                gate.open();
            }
            Some(DriverEvent::Drained { conn }) => {
                assert!(driver.backlog_bytes(conn) <= 1 << 20);
                assert!(!std::mem::replace(&mut drained, true), "one rise above the high mark, one report");
            }
            Some(DriverEvent::Eof { conn }) => {
                driver.close(conn);
                ended = true;
            }
            _ => {}
        }
        ended
    });
    assert!(drained);
    assert_eq!(source.live_count(flick_buffers::BufClass::Large), 0, "sent buffers come back");
}

/// Listens on a fresh IPv4 address and lets several peers connect it.
fn with_clients<W: World>(world: &mut W, scripts: Vec<Vec<Step>>) {
    let at = world.fresh(Kind::V4);
    let listener = world.driver().listen(&at).unwrap();
    let at = world.driver().local_addr(listener).unwrap();
    for steps in scripts {
        world.connect(&at, steps);
    }
}

/// A second peer's visit is the time in which the first one's bytes must not show.
pub fn receive_off_returns_no_data_and_no_eof<W: World>() {
    let mut world = world::<W>();
    let gate = Gate::default();
    let held_back =
        vec![send(b"one"), Step::Wait(gate.clone()), send(b"two"), Step::ShutdownWrite, Step::ExpectEof];
    let visitor = vec![Step::Wait(gate.clone()), send(b"tick"), expect(b"tock"), Step::Close];
    with_clients(&mut world, vec![held_back, visitor]);
    let pool = pool();
    let (mut got, mut tick, mut held, mut visits, mut closed) = (Vec::new(), Vec::new(), None, 0, false);
    run(&mut world, &pool, |driver, event| {
        match event {
            Some(DriverEvent::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(DriverEvent::Data { conn, data }) if held.is_some_and(|held| held != conn) => {
                tick.extend_from_slice(data.bytes());
                if tick == b"tick" {
                    reply(driver, conn, b"tock");
                }
            }
            Some(DriverEvent::Data { conn, data }) => {
                assert!(held.is_none() || visits == 1, "data of a paused connection");
                got.extend_from_slice(data.bytes());
                if got == b"one" {
                    driver.receive(conn, false);
                    held = Some(conn);
                    gate.open();
                }
            }
            Some(DriverEvent::Eof { conn }) if Some(conn) == held => {
                assert_eq!((&got[..], visits), (&b"onetwo"[..], 1));
                driver.close(conn);
                closed = true;
            }
            Some(DriverEvent::Eof { conn }) => {
                driver.close(conn);
                visits += 1;
                driver.receive(held.unwrap(), true);
            }
            Some(other) => assert!(matches!(other, DriverEvent::Woken), "{other:?}"),
            None => {}
        }
        closed
    });
}

/// Sends a few bytes from a buffer of their own.
fn reply<D: Driver>(driver: &mut D, conn: Handle, bytes: &[u8]) {
    let pool =
        flick_buffers::Pool::new(flick_buffers::PoolConfig { small_count: 1, large_count: 0, huge_count: 0 });
    let buf = pool.alloc(flick_buffers::BufClass::Small).unwrap();
    assert_eq!(buf.append(bytes) as usize, bytes.len());
    driver.send(conn, buf.slice(0..buf.len()));
}

/// Runs one connecting peer; `app` handles its events and returns whether it is done.
fn check<W: World>(steps: Vec<Step>, mut app: impl FnMut(&mut W::Driver, DriverEvent) -> bool) {
    let mut world = world::<W>();
    with_client(&mut world, steps);
    let mut done = false;
    run(&mut world, &pool(), |driver, event| {
        match event {
            Some(DriverEvent::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(DriverEvent::Woken) | None => {}
            Some(other) => done = app(driver, other),
        }
        done
    });
}

pub fn a_half_closed_peer_still_gets_its_reply<W: World>() {
    check::<W>(
        vec![send(b"ask"), Step::ShutdownWrite, expect(b"answer"), Step::ExpectEof],
        |driver, event| {
            if let DriverEvent::Eof { conn } = event {
                reply(driver, conn, b"answer");
                driver.close(conn);
                return true;
            }
            assert!(matches!(event, DriverEvent::Data { .. }), "{event:?}");
            false
        },
    );
}

pub fn shutdown_ends_our_side_only<W: World>() {
    let mut got = Vec::new();
    let steps = vec![send(b"ask"), expect(b"last reply"), Step::ExpectEof, send(b"more input"), Step::Close];
    check::<W>(steps, |driver, event| {
        match event {
            DriverEvent::Data { conn, data } => {
                got.extend_from_slice(data.bytes());
                if got == b"ask" {
                    reply(driver, conn, b"last reply");
                    driver.shutdown(conn);
                    reply(driver, conn, b"never sent");
                    assert_eq!(driver.backlog_bytes(conn), 10);
                }
            }
            DriverEvent::Eof { conn } => {
                assert_eq!(got, b"askmore input");
                driver.close(conn);
                return true;
            }
            other => panic!("unexpected {other:?}"),
        }
        false
    });
}

/// Polls in which corked output must not be sent.
const CORKED_POLLS: usize = 20;

pub fn corked_output_is_sent_on_uncork_and_on_shutdown<W: World>() {
    let mut world = world::<W>();
    let steps = vec![send(b"go"), expect(b"cork"), expect(b" back"), Step::ExpectEof, Step::Close];
    with_client(&mut world, steps);
    let (mut peer, mut polls, mut ended) = (None, 0, false);
    run_busy(&mut world, &pool(), |driver, event| {
        match event {
            Some(DriverEvent::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(DriverEvent::Data { conn, .. }) => {
                peer = Some(conn);
                driver.set_corked(conn, true);
                reply(driver, conn, b"cork");
            }
            Some(DriverEvent::Eof { conn }) => {
                driver.close(conn);
                ended = true;
            }
            Some(_) => {}
            None => {
                let Some(conn) = peer.filter(|_| !ended && polls <= CORKED_POLLS) else { return ended };
                let left = driver.backlog_bytes(conn);
                assert!(left == 4 || polls == CORKED_POLLS, "{left} bytes are corked in poll {polls}");
                if polls < CORKED_POLLS - 1 {
                    polls += 1;
                } else if left == 4 {
                    polls = CORKED_POLLS;
                    driver.set_corked(conn, false);
                } else if left == 0 {
                    polls += 1;
                    driver.set_corked(conn, true);
                    reply(driver, conn, b" back");
                    driver.shutdown(conn);
                }
            }
        }
        ended
    });
}

pub fn close_sends_what_was_appended_first<W: World>() {
    let bytes = pattern(1 << 20);
    let source = flick_buffers::Pool::new(flick_buffers::PoolConfig {
        small_count: 0,
        large_count: 64,
        huge_count: 0,
    });
    check::<W>(vec![send(b"go"), Step::Expect(bytes.clone()), Step::ExpectEof], |driver, event| {
        let DriverEvent::Data { conn, .. } = event else { panic!("unexpected {event:?}") };
        for chunk in bytes.chunks(16384) {
            let buf = source.alloc(flick_buffers::BufClass::Large).unwrap();
            buf.append(chunk);
            driver.send(conn, buf.slice(0..buf.len()));
        }
        driver.close(conn);
        assert_eq!(driver.backlog_bytes(conn), 0, "the handle is dead at once");
        true
    });
}

/// Closing with unread input makes the kernel send a reset, which would destroy what the peer has not read yet.
pub fn close_lets_a_sending_peer_read_the_final_output<W: World>() {
    let upload = pattern(600 << 10);
    check::<W>(vec![Step::Send(upload), expect(b"too large"), Step::ExpectEof], |driver, event| {
        if let DriverEvent::Data { conn, .. } = event {
            reply(driver, conn, b"too large");
            driver.close(conn);
        }
        true
    });
}

pub fn close_sends_corked_output<W: World>() {
    check::<W>(vec![send(b"go"), expect(b"corked"), Step::ExpectEof], |driver, event| {
        let DriverEvent::Data { conn, .. } = event else { panic!("unexpected {event:?}") };
        driver.set_corked(conn, true);
        reply(driver, conn, b"corked");
        driver.close(conn);
        true
    });
}

pub fn abort_after_close_drops_the_rest_of_the_output<W: World>() {
    let mut is_aborted = false;
    check::<W>(vec![send(b"go"), Step::ExpectReset], |driver, event| {
        let DriverEvent::Data { conn, data } = event else { panic!("unexpected {event:?}") };
        if !std::mem::replace(&mut is_aborted, true) {
            driver.send(conn, data);
            driver.close(conn);
            assert!(driver.is_flushing());
            driver.abort(conn);
            assert!(!driver.is_flushing(), "an aborted connection sends nothing more");
        }
        true
    });
}

/// The first peer stays connected after the driver has closed, so its connection lingers in the only slot.
pub fn a_lingering_connection_is_evicted_for_a_new_peer<W: World>() {
    let gate = Gate::default();
    let mut world = W::with_limits(DriverLimits { conns_max: 1, ..LIMITS });
    let stays = vec![send(b"x"), expect(b"x"), Step::ExpectEof, Step::Wait(gate.clone()), Step::Close];
    let comes = vec![send(b"x"), expect(b"x"), Step::ExpectEof];
    with_clients(&mut world, vec![stays, comes]);
    let mut served = 0;
    run(&mut world, &pool(), |driver, event| {
        match event {
            Some(DriverEvent::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(DriverEvent::AcceptFailed { listener, .. }) => driver.accept(listener, true),
            Some(DriverEvent::Data { conn, data }) => {
                driver.send(conn, data);
                driver.close(conn);
                served += 1;
            }
            other => assert!(matches!(other, None | Some(DriverEvent::Woken)), "{other:?}"),
        }
        if served == 2 {
            gate.open();
        }
        served == 2
    });
}

pub fn shutdown_while_connecting_follows_the_output<W: World>() {
    let mut world = world::<W>();
    let at = world.fresh(Kind::V4);
    let steps = vec![expect(b"early"), Step::ExpectEof, send(b"late"), Step::Close];
    let at = world.serve(&at, vec![steps]);
    let conn = world.driver().connect(&at).unwrap();
    reply(world.driver(), conn, b"early");
    world.driver().shutdown(conn);
    reply(world.driver(), conn, b"never sent");
    world.driver().receive(conn, true);
    let (mut got, mut is_connected, mut ended) = (Vec::new(), false, false);
    run(&mut world, &pool(), |driver, event| {
        match event {
            Some(DriverEvent::Connected { .. }) => is_connected = true,
            Some(DriverEvent::Data { data, .. }) => got.extend_from_slice(data.bytes()),
            Some(DriverEvent::Eof { conn }) => {
                assert!(is_connected && got == b"late", "{got:?}");
                driver.close(conn);
                ended = true;
            }
            other => assert!(matches!(other, None | Some(DriverEvent::Woken)), "{other:?}"),
        }
        ended
    });
}

/// A second peer's visit is the time in which the reset may or may not be reported; resuming reports it.
pub fn a_reset_while_receiving_is_off_is_reported<W: World>() {
    let mut world = world::<W>();
    let gate = Gate::default();
    let resets = vec![send(b"one"), Step::Wait(gate.clone()), Step::Reset];
    let visitor = vec![Step::Wait(gate.clone()), send(b"x"), expect(b"x"), Step::Close];
    with_clients(&mut world, vec![resets, visitor]);
    let (mut paused, mut failed, mut visits) = (None, false, 0);
    run(&mut world, &pool(), |driver, event| {
        match event {
            Some(DriverEvent::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(DriverEvent::Data { conn, data }) if paused.is_some() => driver.send(conn, data),
            Some(DriverEvent::Data { conn, data }) => {
                if data.bytes().ends_with(b"e") {
                    driver.receive(conn, false);
                    paused = Some(conn);
                    gate.open();
                }
            }
            Some(DriverEvent::Eof { conn }) => {
                assert_ne!(Some(conn), paused, "a reset is no end of stream");
                driver.close(conn);
                visits += 1;
                driver.receive(paused.unwrap(), true);
            }
            Some(DriverEvent::Failed { conn, fault }) => {
                assert_eq!((Some(conn), fault), (paused, ConnFault::Reset));
                failed = true;
            }
            other => assert!(matches!(other, None | Some(DriverEvent::Woken)), "{other:?}"),
        }
        failed && visits == 1
    });
}

pub fn a_reset_peer_is_a_fault<W: World>() {
    check::<W>(vec![send(b"x"), expect(b"y"), Step::Reset], |driver, event| match event {
        DriverEvent::Data { conn, .. } => {
            reply(driver, conn, b"y");
            false
        }
        DriverEvent::Failed { conn, fault } => {
            assert_eq!(fault, ConnFault::Reset);
            assert_eq!(driver.backlog_bytes(conn), 0);
            true
        }
        other => panic!("unexpected {other:?}"),
    });
}

pub fn abort_resets_the_peer<W: World>() {
    check::<W>(vec![send(b"x"), Step::ExpectReset], |driver, event| {
        let DriverEvent::Data { conn, data } = event else { panic!("unexpected {event:?}") };
        driver.send(conn, data);
        driver.abort(conn);
        true
    });
}

pub fn connect_exchanges_data_with_a_server<W: World>() {
    for kind in [Kind::V4, Kind::V6, Kind::Unix] {
        let mut world = world::<W>();
        let at = world.fresh(kind);
        let steps = vec![expect(b"ask"), send(b"answer"), Step::ExpectEof];
        let at = world.serve(&at, vec![steps.clone(), steps]);
        let (mut answered, mut answers) = (0, std::collections::HashMap::new());
        world.driver().connect(&at).unwrap();
        world.driver().connect(&at).unwrap();
        run(&mut world, &pool(), |driver, event| {
            match event {
                Some(DriverEvent::Connected { conn }) => {
                    driver.receive(conn, true);
                    reply(driver, conn, b"ask");
                }
                Some(DriverEvent::Data { conn, data }) => {
                    let got = answers.entry(conn).or_insert_with(Vec::new);
                    got.extend_from_slice(data.bytes());
                    if got == b"answer" {
                        answered += 1;
                        driver.close(conn);
                    }
                }
                other => assert!(matches!(other, None | Some(DriverEvent::Woken)), "{other:?}"),
            }
            answered == 2
        });
    }
}

/// An overloaded server says so and closes at once: before the first poll, where that needs no poll of the driver.
pub fn the_end_of_a_peer_that_closed_before_the_connect_was_reported_was_lost<W: World>() {
    for kind in [Kind::V4, Kind::V6, Kind::Unix] {
        let (mut world, gate) = (world::<W>(), Gate::default());
        let at = world.fresh(kind);
        let at = world.serve(&at, vec![vec![send(b"421 busy"), Step::Wait(gate.clone()), Step::Close]]);
        world.driver().connect(&at).unwrap();
        world.let_peers_end(&gate);
        let (mut got, mut ended) = (Vec::new(), false);
        run(&mut world, &pool(), |driver, event| {
            match event {
                Some(DriverEvent::Connected { conn }) => driver.receive(conn, true),
                Some(DriverEvent::Data { data, .. }) => {
                    got.extend_from_slice(data.bytes());
                    gate.open();
                }
                Some(DriverEvent::Eof { conn }) => {
                    assert_eq!(got, b"421 busy");
                    driver.close(conn);
                    ended = true;
                }
                other => assert!(matches!(other, None | Some(DriverEvent::Woken)), "{other:?}"),
            }
            ended
        });
    }
}

pub fn output_appended_while_connecting_is_sent<W: World>() {
    let mut world = world::<W>();
    let at = world.fresh(Kind::V4);
    let at = world.serve(&at, vec![vec![expect(b"early"), Step::ExpectEof]]);
    let conn = world.driver().connect(&at).unwrap();
    reply(world.driver(), conn, b"early");
    assert_eq!(world.driver().backlog_bytes(conn), 5);
    world.driver().close(conn);
    run(&mut world, &pool(), |_, event| {
        assert!(matches!(event, None | Some(DriverEvent::Woken)), "{event:?}");
        true
    });
}

pub fn connect_to_a_closed_port_is_refused<W: World>() {
    for kind in [Kind::V4, Kind::Unix] {
        let mut world = world::<W>();
        let at = world.fresh(kind);
        // The address of a closed listener is free.
        let listener = world.driver().listen(&at).unwrap();
        let at = world.driver().local_addr(listener).unwrap();
        world.driver().close_listener(listener);
        let connecting = world.driver().connect(&at).unwrap();
        let mut refused = false;
        run(&mut world, &pool(), |_, event| {
            if let Some(DriverEvent::Failed { conn, fault }) = event {
                assert_eq!((conn, fault), (connecting, ConnFault::Refused));
                refused = true;
            }
            refused
        });
        assert_eq!(world.driver().backlog_bytes(connecting), 0);
    }
}

/// The slices of 128 small requests are held at once, in a few large buffers.
pub fn many_connections_share_few_buffers<W: World>() {
    const PEERS: usize = 128;
    let mut world = world::<W>();
    let request = pattern(60);
    let steps =
        vec![Step::Send(request.clone()), Step::Expect(request), Step::ShutdownWrite, Step::ExpectEof];
    with_clients(&mut world, vec![steps; PEERS]);
    let pool = pool();
    let mut held = Vec::new();
    let mut echo = echo_until_eof(PEERS);
    let mut most = 0;
    run(&mut world, &pool, |driver, event| {
        if let Some(DriverEvent::Data { conn, data }) = event {
            held.push((conn, data));
            most = most.max(pool.live_count(flick_buffers::BufClass::Large));
            let held_bytes: u32 = held.iter().map(|(_, data): &(Handle, Slice)| data.len()).sum();
            if held_bytes as usize == PEERS * 60 {
                held.drain(..).for_each(|(conn, data)| driver.send(conn, data));
            }
            return false;
        }
        echo(driver, event)
    });
    // Those that io_uring holds for sockets, and one of shared memory.
    let limit = u32::from(flick_net::limits::PROVIDED_BUFS_MAX) + 1;
    assert!(most <= limit, "{PEERS} requests of 60 bytes took {most} large buffers");
}

pub fn a_full_table_pauses_the_listener<W: World>() {
    let mut world = W::with_limits(DriverLimits { conns_max: 2, ..LIMITS });
    let steps = vec![send(b"x"), expect(b"x"), Step::ShutdownWrite, Step::ExpectEof];
    with_clients(&mut world, vec![steps; 6]);
    let (mut paused, mut failures, mut closed) = (None, 0, 0);
    // No peer gets a reply, so none leaves, until the table has been full.
    let mut unanswered = Vec::new();
    run(&mut world, &pool(), |driver, event| {
        match event {
            Some(DriverEvent::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(DriverEvent::AcceptFailed { listener, errno }) => {
                assert_eq!(errno, 23, "ENFILE");
                unanswered.drain(..).for_each(|(conn, data)| driver.send(conn, data));
                paused = Some(listener);
                failures += 1;
            }
            Some(DriverEvent::Data { conn, data }) if failures == 0 => unanswered.push((conn, data)),
            Some(DriverEvent::Data { conn, data }) => driver.send(conn, data),
            Some(DriverEvent::Eof { conn }) => {
                driver.close(conn);
                closed += 1;
                if let Some(listener) = paused.take() {
                    driver.accept(listener, true);
                }
            }
            Some(DriverEvent::Woken) | None => {}
            Some(other) => panic!("unexpected {other:?}"),
        }
        closed == 6
    });
    assert!((1..=6).contains(&failures), "{failures} failures: a pause, not a busy loop");
}

/// The peer must not take what it got for the whole, also if the platform closes before it learns of the fault.
pub fn too_much_output_is_a_fault<W: World>() {
    let mut world = W::with_limits(DriverLimits { output_slices_max: 4, ..LIMITS });
    let steps = vec![send(b"x"), Step::ExpectReset];
    with_clients(&mut world, vec![steps.clone(), steps]);
    let (mut is_first, mut failed) = (true, false);
    run(&mut world, &pool(), |driver, event| {
        match event {
            Some(DriverEvent::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(DriverEvent::Data { conn, .. }) => {
                (0..5).for_each(|_| reply(driver, conn, b"too many pieces"));
                if std::mem::take(&mut is_first) {
                    driver.close(conn);
                }
            }
            Some(DriverEvent::Failed { fault, .. }) => {
                assert_eq!(fault, ConnFault::Exhausted);
                failed = true;
            }
            other => assert!(matches!(other, None | Some(DriverEvent::Woken)), "{other:?}"),
        }
        failed
    });
}

pub fn a_dead_handle_does_nothing<W: World>() {
    let steps = vec![send(b"x"), expect(b"x"), Step::ExpectEof];
    let mut world = W::with_limits(DriverLimits { conns_max: 1, ..LIMITS });
    with_clients(&mut world, vec![steps.clone(), steps]);
    let mut old: Vec<Handle> = Vec::new();
    run(&mut world, &pool(), |driver, event| {
        match event {
            Some(DriverEvent::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(DriverEvent::AcceptFailed { listener, .. }) => driver.accept(listener, true),
            Some(DriverEvent::Data { conn, data }) => {
                assert!(!old.contains(&conn), "a handle names one connection only");
                for &dead in &old {
                    driver.abort(dead);
                    driver.close(dead);
                    driver.receive(dead, false);
                    driver.send(dead, data.clone());
                    assert_eq!(driver.backlog_bytes(dead), 0);
                }
                driver.send(conn, data);
                driver.close(conn);
                old.push(conn);
            }
            other => assert!(matches!(other, None | Some(DriverEvent::Woken)), "{other:?}"),
        }
        old.len() == 2
    });
}

pub fn an_empty_pool_pauses_receiving<W: World>() {
    let mut world = world::<W>();
    let bytes = pattern(256 << 10);
    with_client(&mut world, vec![Step::Send(bytes.clone()), Step::ShutdownWrite, Step::ExpectEof]);
    let pool =
        flick_buffers::Pool::new(flick_buffers::PoolConfig { small_count: 0, large_count: 2, huge_count: 0 });
    let (mut held, mut got, mut closed) = (Vec::new(), Vec::new(), false);
    run(&mut world, &pool, |driver, event| {
        match event {
            Some(DriverEvent::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(DriverEvent::Data { data, .. }) => held.push(data),
            Some(DriverEvent::Eof { conn }) => {
                driver.close(conn);
                closed = true;
            }
            // The end of an iteration: the platform drops its slices only when the pool is empty.
            None if pool.free_count(flick_buffers::BufClass::Large) == 0 || closed => {
                held.drain(..).for_each(|data| got.extend_from_slice(data.bytes()));
            }
            _ => {}
        }
        closed
    });
    held.drain(..).for_each(|data| got.extend_from_slice(data.bytes()));
    assert_eq!(got, bytes);
}

/// Sixteen peers echo through few buffers while the platform pauses and resumes them at random, from a seed.
pub fn pausing_at_random_loses_nothing<W: World>() {
    const PEERS: usize = 16;
    let mut world = world::<W>();
    world.driver().set_watermarks(64 << 10, 16 << 10);
    let scripts = (0..PEERS).map(|peer| {
        let bytes = pattern((64 << 10) + peer * 1000);
        let chunks = bytes.chunks(5000 + peer * 700).flat_map(|chunk| [send(chunk), expect(chunk)]);
        chunks.chain([Step::ShutdownWrite, Step::ExpectEof]).collect()
    });
    with_clients(&mut world, scripts.collect());
    let pool = flick_buffers::Pool::new(flick_buffers::PoolConfig {
        small_count: 0,
        large_count: 24,
        huge_count: 0,
    });
    let mut rng = flick_net::sim::SimRng::new(7);
    // Paused in this iteration, in which more of its data may have been delivered already; and in the one before.
    let (mut paused, mut held) = (Vec::<Handle>::new(), Vec::<Handle>::new());
    let mut echo = echo_until_eof(PEERS);
    run_busy(&mut world, &pool, |driver, event| {
        if let Some(DriverEvent::Data { conn, data }) = event {
            assert!(!held.contains(&conn), "data of a connection paused before this poll");
            driver.send(conn, data);
            if rng.chance(400) && !paused.contains(&conn) {
                driver.receive(conn, false);
                if rng.chance(300) {
                    driver.receive(conn, true);
                } else {
                    paused.push(conn);
                }
            }
            return false;
        }
        let is_iteration_end = event.is_none();
        let done = echo(driver, event.filter(|event| !matches!(event, DriverEvent::Drained { .. })));
        if is_iteration_end {
            held.drain(..).for_each(|conn| driver.receive(conn, true));
            std::mem::swap(&mut held, &mut paused);
        }
        done
    });
}
