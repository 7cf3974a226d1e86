//! The cases. Each is generic over the world, so that each driver answers for the same promises.

use flick_buffers::Slice;
use flick_net::{ConnFault, Driver, DriverLimits, Event, Handle};

use crate::script::{Gate, Step, pattern};
use crate::world::{Kind, LIMITS, World, pool, run, run_busy};

/// Makes one test of every case for a driver.
macro_rules! on_every_driver {
    ($name:ident, $world:ty) => {
        mod $name {
            use crate::cases;
            use super::*;

            $crate::cases::on_every_driver!(@tests $world:
                echo_v4 echo_v6 echo_unix
                ten_megabytes_come_back_unchanged
                a_peer_that_does_not_read_fills_the_backlog_and_drains_it
                receive_off_means_no_data_and_no_end
                a_half_closed_peer_still_gets_its_reply
                shutdown_ends_our_side_only
                held_output_leaves_when_it_is_let_go_and_with_the_last_words
                close_sends_what_was_appended_first
                close_lets_a_peer_that_still_sends_read_the_last_words
                a_reset_peer_is_a_fault
                abort_resets_the_peer
                a_dialled_server_answers
                output_before_the_dial_is_up_is_kept
                a_dial_nobody_answers_is_refused
                many_connections_share_few_buffers
                a_full_table_pauses_the_listener
                too_much_output_is_a_fault
                an_old_handle_does_nothing
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

/// Echoes until the peer's end of stream, then closes. Says when `count` connections were closed.
fn echo_until_eof<D: Driver>(count: usize) -> impl FnMut(&mut D, Option<Event>) -> bool {
    let mut closed = 0;
    move |driver, event| {
        match event {
            Some(Event::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(Event::Data { conn, data }) => {
                assert!(!data.is_empty());
                driver.send(conn, data);
            }
            Some(Event::Eof { conn }) => {
                closed += 1;
                driver.close(conn);
            }
            Some(Event::Woken) | None => {}
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
    world.dial(&at, [&steps[..], &[Step::ShutdownWrite, Step::ExpectEof]].concat());
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

/// Listens on a fresh IPv4 address and lets one peer dial it.
fn with_dialler<W: World>(world: &mut W, steps: Vec<Step>) {
    let at = world.fresh(Kind::V4);
    let listener = world.driver().listen(&at).unwrap();
    let at = world.driver().local_addr(listener).unwrap();
    world.dial(&at, steps);
}

/// The peer sends all before it reads any, so both directions have to wait for each other: the app stops
/// reading at the high mark and goes on when told that the output has drained.
pub fn ten_megabytes_come_back_unchanged<W: World>() {
    let mut world = world::<W>();
    world.driver().set_marks(512 << 10, 64 << 10);
    let bytes = pattern(10 << 20);
    let chunks = bytes.chunks(1 << 20).flat_map(|chunk| [send(chunk), expect(chunk)]);
    let steps = chunks.chain([Step::ShutdownWrite, Step::ExpectEof]).collect();
    with_dialler(&mut world, steps);
    let mut echo = echo_until_eof(1);
    let mut paused = 0;
    run(&mut world, &pool(), |driver, event| match event {
        Some(Event::Drained { conn }) => {
            driver.receive(conn, true);
            false
        }
        Some(Event::Data { conn, data }) => {
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
    world.driver().set_marks(6 << 20, 1 << 20);
    let bytes = pattern(12 << 20);
    let gate = Gate::default();
    with_dialler(
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
            Some(Event::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(Event::Data { conn, .. }) => {
                for chunk in bytes.chunks(16384) {
                    let buf = source.alloc(flick_buffers::Class::Large).unwrap();
                    buf.append(chunk);
                    driver.send(conn, buf.slice(0..buf.len()));
                }
                assert_eq!(driver.backlog_bytes(conn), bytes.len());
                gate.open();
            }
            Some(Event::Drained { conn }) => {
                assert!(driver.backlog_bytes(conn) <= 1 << 20);
                assert!(!std::mem::replace(&mut drained, true), "one rise above the high mark, one report");
            }
            Some(Event::Eof { conn }) => {
                driver.close(conn);
                ended = true;
            }
            _ => {}
        }
        ended
    });
    assert!(drained);
    assert_eq!(source.live_count(flick_buffers::Class::Large), 0, "sent buffers come back");
}

/// Listens on a fresh IPv4 address and lets several peers dial it.
fn with_diallers<W: World>(world: &mut W, scripts: Vec<Vec<Step>>) {
    let at = world.fresh(Kind::V4);
    let listener = world.driver().listen(&at).unwrap();
    let at = world.driver().local_addr(listener).unwrap();
    for steps in scripts {
        world.dial(&at, steps);
    }
}

/// A second peer's visit is the time in which the first one's bytes must not show.
pub fn receive_off_means_no_data_and_no_end<W: World>() {
    let mut world = world::<W>();
    let gate = Gate::default();
    let held_back =
        vec![send(b"one"), Step::Wait(gate.clone()), send(b"two"), Step::ShutdownWrite, Step::ExpectEof];
    let visitor = vec![Step::Wait(gate.clone()), send(b"tick"), expect(b"tock"), Step::Close];
    with_diallers(&mut world, vec![held_back, visitor]);
    let pool = pool();
    let (mut got, mut tick, mut held, mut visits, mut closed) = (Vec::new(), Vec::new(), None, 0, false);
    run(&mut world, &pool, |driver, event| {
        match event {
            Some(Event::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(Event::Data { conn, data }) if held.is_some_and(|held| held != conn) => {
                tick.extend_from_slice(data.bytes());
                if tick == b"tick" {
                    reply(driver, conn, b"tock");
                }
            }
            Some(Event::Data { conn, data }) => {
                assert!(held.is_none() || visits == 1, "data of a paused connection");
                got.extend_from_slice(data.bytes());
                if got == b"one" {
                    driver.receive(conn, false);
                    held = Some(conn);
                    gate.open();
                }
            }
            Some(Event::Eof { conn }) if Some(conn) == held => {
                assert_eq!((&got[..], visits), (&b"onetwo"[..], 1));
                driver.close(conn);
                closed = true;
            }
            Some(Event::Eof { conn }) => {
                driver.close(conn);
                visits += 1;
                driver.receive(held.unwrap(), true);
            }
            Some(other) => assert!(matches!(other, Event::Woken), "{other:?}"),
            None => {}
        }
        closed
    });
}

/// Sends a few bytes from a buffer of their own.
fn reply<D: Driver>(driver: &mut D, conn: Handle, bytes: &[u8]) {
    let pool =
        flick_buffers::Pool::new(flick_buffers::PoolConfig { small_count: 1, large_count: 0, huge_count: 0 });
    let buf = pool.alloc(flick_buffers::Class::Small).unwrap();
    assert_eq!(buf.append(bytes) as usize, bytes.len());
    driver.send(conn, buf.slice(0..buf.len()));
}

/// Runs one dialling peer; `app` answers its events and says when it is done.
fn check<W: World>(steps: Vec<Step>, mut app: impl FnMut(&mut W::Driver, Event) -> bool) {
    let mut world = world::<W>();
    with_dialler(&mut world, steps);
    let mut done = false;
    run(&mut world, &pool(), |driver, event| {
        match event {
            Some(Event::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(Event::Woken) | None => {}
            Some(other) => done = app(driver, other),
        }
        done
    });
}

pub fn a_half_closed_peer_still_gets_its_reply<W: World>() {
    check::<W>(
        vec![send(b"ask"), Step::ShutdownWrite, expect(b"answer"), Step::ExpectEof],
        |driver, event| {
            if let Event::Eof { conn } = event {
                reply(driver, conn, b"answer");
                driver.close(conn);
                return true;
            }
            assert!(matches!(event, Event::Data { .. }), "{event:?}");
            false
        },
    );
}

pub fn shutdown_ends_our_side_only<W: World>() {
    let mut got = Vec::new();
    let steps =
        vec![send(b"ask"), expect(b"last words"), Step::ExpectEof, send(b"still talking"), Step::Close];
    check::<W>(steps, |driver, event| {
        match event {
            Event::Data { conn, data } => {
                got.extend_from_slice(data.bytes());
                if got == b"ask" {
                    reply(driver, conn, b"last words");
                    driver.shutdown(conn);
                    reply(driver, conn, b"never sent");
                    assert_eq!(driver.backlog_bytes(conn), 10);
                }
            }
            Event::Eof { conn } => {
                assert_eq!(got, b"askstill talking");
                driver.close(conn);
                return true;
            }
            other => panic!("unexpected {other:?}"),
        }
        false
    });
}

/// Polls in which output that is held must not leave.
const HELD_POLLS: usize = 20;

pub fn held_output_leaves_when_it_is_let_go_and_with_the_last_words<W: World>() {
    let mut world = world::<W>();
    let steps = vec![send(b"go"), expect(b"held"), expect(b" back"), Step::ExpectEof, Step::Close];
    with_dialler(&mut world, steps);
    let (mut peer, mut polls, mut ended) = (None, 0, false);
    run_busy(&mut world, &pool(), |driver, event| {
        match event {
            Some(Event::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(Event::Data { conn, .. }) => {
                peer = Some(conn);
                driver.hold_output(conn, true);
                reply(driver, conn, b"held");
            }
            Some(Event::Eof { conn }) => {
                driver.close(conn);
                ended = true;
            }
            Some(_) => {}
            None => {
                let Some(conn) = peer.filter(|_| !ended && polls <= HELD_POLLS) else { return ended };
                let left = driver.backlog_bytes(conn);
                assert!(left == 4 || polls == HELD_POLLS, "{left} bytes are held in poll {polls}");
                if polls < HELD_POLLS - 1 {
                    polls += 1;
                } else if left == 4 {
                    polls = HELD_POLLS;
                    driver.hold_output(conn, false);
                } else if left == 0 {
                    polls += 1;
                    driver.hold_output(conn, true);
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
        let Event::Data { conn, .. } = event else { panic!("unexpected {event:?}") };
        for chunk in bytes.chunks(16384) {
            let buf = source.alloc(flick_buffers::Class::Large).unwrap();
            buf.append(chunk);
            driver.send(conn, buf.slice(0..buf.len()));
        }
        driver.close(conn);
        assert_eq!(driver.backlog_bytes(conn), 0, "the handle is dead at once");
        true
    });
}

/// Closing with unread input makes a kernel send a reset, which would destroy what the peer has yet to read.
pub fn close_lets_a_peer_that_still_sends_read_the_last_words<W: World>() {
    let upload = pattern(600 << 10);
    check::<W>(vec![Step::Send(upload), expect(b"too large"), Step::ExpectEof], |driver, event| {
        if let Event::Data { conn, .. } = event {
            reply(driver, conn, b"too large");
            driver.close(conn);
        }
        true
    });
}

pub fn a_reset_peer_is_a_fault<W: World>() {
    check::<W>(vec![send(b"x"), expect(b"y"), Step::Reset], |driver, event| match event {
        Event::Data { conn, .. } => {
            reply(driver, conn, b"y");
            false
        }
        Event::Failed { conn, fault } => {
            assert_eq!(fault, ConnFault::Reset);
            assert_eq!(driver.backlog_bytes(conn), 0);
            true
        }
        other => panic!("unexpected {other:?}"),
    });
}

pub fn abort_resets_the_peer<W: World>() {
    check::<W>(vec![send(b"x"), Step::ExpectReset], |driver, event| {
        let Event::Data { conn, data } = event else { panic!("unexpected {event:?}") };
        driver.send(conn, data);
        driver.abort(conn);
        true
    });
}

pub fn a_dialled_server_answers<W: World>() {
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
                Some(Event::Connected { conn }) => {
                    driver.receive(conn, true);
                    reply(driver, conn, b"ask");
                }
                Some(Event::Data { conn, data }) => {
                    let got = answers.entry(conn).or_insert_with(Vec::new);
                    got.extend_from_slice(data.bytes());
                    if got == b"answer" {
                        answered += 1;
                        driver.close(conn);
                    }
                }
                other => assert!(matches!(other, None | Some(Event::Woken)), "{other:?}"),
            }
            answered == 2
        });
    }
}

pub fn output_before_the_dial_is_up_is_kept<W: World>() {
    let mut world = world::<W>();
    let at = world.fresh(Kind::V4);
    let at = world.serve(&at, vec![vec![expect(b"early"), Step::ExpectEof]]);
    let conn = world.driver().connect(&at).unwrap();
    reply(world.driver(), conn, b"early");
    assert_eq!(world.driver().backlog_bytes(conn), 5);
    world.driver().close(conn);
    run(&mut world, &pool(), |_, event| {
        assert!(matches!(event, None | Some(Event::Woken)), "{event:?}");
        true
    });
}

pub fn a_dial_nobody_answers_is_refused<W: World>() {
    for kind in [Kind::V4, Kind::Unix] {
        let mut world = world::<W>();
        let at = world.fresh(kind);
        // A listener that is closed again leaves an address nobody uses.
        let listener = world.driver().listen(&at).unwrap();
        let at = world.driver().local_addr(listener).unwrap();
        world.driver().close_listener(listener);
        let dialled = world.driver().connect(&at).unwrap();
        let mut refused = false;
        run(&mut world, &pool(), |_, event| {
            if let Some(Event::Failed { conn, fault }) = event {
                assert_eq!((conn, fault), (dialled, ConnFault::Refused));
                refused = true;
            }
            refused
        });
        assert_eq!(world.driver().backlog_bytes(dialled), 0);
    }
}

/// The economy of receive buffers: the views of 128 small requests are held at once, in a few large buffers.
pub fn many_connections_share_few_buffers<W: World>() {
    const PEERS: usize = 128;
    let mut world = world::<W>();
    let request = pattern(60);
    let steps =
        vec![Step::Send(request.clone()), Step::Expect(request), Step::ShutdownWrite, Step::ExpectEof];
    with_diallers(&mut world, vec![steps; PEERS]);
    let pool = pool();
    let mut held = Vec::new();
    let mut echo = echo_until_eof(PEERS);
    let mut most = 0;
    run(&mut world, &pool, |driver, event| {
        if let Some(Event::Data { conn, data }) = event {
            held.push((conn, data));
            most = most.max(pool.live_count(flick_buffers::Class::Large));
            let held_bytes: u32 = held.iter().map(|(_, data): &(Handle, Slice)| data.len()).sum();
            if held_bytes as usize == PEERS * 60 {
                held.drain(..).for_each(|(conn, data)| driver.send(conn, data));
            }
            return false;
        }
        echo(driver, event)
    });
    assert!(most <= 16, "{PEERS} requests of 60 bytes took {most} large buffers");
}

pub fn a_full_table_pauses_the_listener<W: World>() {
    let mut world = W::with_limits(DriverLimits { conns_max: 2, ..LIMITS });
    let steps = vec![send(b"x"), expect(b"x"), Step::ShutdownWrite, Step::ExpectEof];
    with_diallers(&mut world, vec![steps; 6]);
    let (mut paused, mut failures, mut closed) = (None, 0, 0);
    // Nobody is answered, so nobody leaves, until the table has been full.
    let mut unanswered = Vec::new();
    run(&mut world, &pool(), |driver, event| {
        match event {
            Some(Event::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(Event::AcceptFailed { listener, errno }) => {
                assert_eq!(errno, 23, "ENFILE");
                unanswered.drain(..).for_each(|(conn, data)| driver.send(conn, data));
                paused = Some(listener);
                failures += 1;
            }
            Some(Event::Data { conn, data }) if failures == 0 => unanswered.push((conn, data)),
            Some(Event::Data { conn, data }) => driver.send(conn, data),
            Some(Event::Eof { conn }) => {
                driver.close(conn);
                closed += 1;
                if let Some(listener) = paused.take() {
                    driver.accept(listener, true);
                }
            }
            Some(Event::Woken) | None => {}
            Some(other) => panic!("unexpected {other:?}"),
        }
        closed == 6
    });
    assert!((1..=6).contains(&failures), "{failures} failures: a pause, not a spin");
}

pub fn too_much_output_is_a_fault<W: World>() {
    let mut world = W::with_limits(DriverLimits { output_slices_max: 4, ..LIMITS });
    with_dialler(&mut world, vec![send(b"x"), Step::ExpectReset]);
    let mut failed = false;
    run(&mut world, &pool(), |driver, event| {
        match event {
            Some(Event::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(Event::Data { conn, .. }) => (0..5).for_each(|_| reply(driver, conn, b"too many pieces")),
            Some(Event::Failed { fault, .. }) => {
                assert_eq!(fault, ConnFault::Exhausted);
                failed = true;
            }
            other => assert!(matches!(other, None | Some(Event::Woken)), "{other:?}"),
        }
        failed
    });
}

pub fn an_old_handle_does_nothing<W: World>() {
    let steps = vec![send(b"x"), expect(b"x"), Step::ExpectEof];
    let mut world = W::with_limits(DriverLimits { conns_max: 1, ..LIMITS });
    with_diallers(&mut world, vec![steps.clone(), steps]);
    let mut old: Vec<Handle> = Vec::new();
    run(&mut world, &pool(), |driver, event| {
        match event {
            Some(Event::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(Event::AcceptFailed { listener, .. }) => driver.accept(listener, true),
            Some(Event::Data { conn, data }) => {
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
            other => assert!(matches!(other, None | Some(Event::Woken)), "{other:?}"),
        }
        old.len() == 2
    });
}

pub fn an_empty_pool_pauses_receiving<W: World>() {
    let mut world = world::<W>();
    let bytes = pattern(256 << 10);
    with_dialler(&mut world, vec![Step::Send(bytes.clone()), Step::ShutdownWrite, Step::ExpectEof]);
    let pool =
        flick_buffers::Pool::new(flick_buffers::PoolConfig { small_count: 0, large_count: 2, huge_count: 0 });
    let (mut held, mut got, mut closed) = (Vec::new(), Vec::new(), false);
    run(&mut world, &pool, |driver, event| {
        match event {
            Some(Event::Accepted { conn, .. }) => driver.receive(conn, true),
            Some(Event::Data { data, .. }) => held.push(data),
            Some(Event::Eof { conn }) => {
                driver.close(conn);
                closed = true;
            }
            // The end of a turn: the platform lets go of what it held only when the pool is used up.
            None if pool.free_count(flick_buffers::Class::Large) == 0 || closed => {
                held.drain(..).for_each(|data| got.extend_from_slice(data.bytes()));
            }
            _ => {}
        }
        closed
    });
    held.drain(..).for_each(|data| got.extend_from_slice(data.bytes()));
    assert_eq!(got, bytes);
}

/// Sixteen peers echo through few buffers while the platform pauses and resumes them as a seed says.
pub fn pausing_at_random_loses_nothing<W: World>() {
    const PEERS: usize = 16;
    let mut world = world::<W>();
    world.driver().set_marks(64 << 10, 16 << 10);
    let scripts = (0..PEERS).map(|peer| {
        let bytes = pattern((64 << 10) + peer * 1000);
        let chunks = bytes.chunks(5000 + peer * 700).flat_map(|chunk| [send(chunk), expect(chunk)]);
        chunks.chain([Step::ShutdownWrite, Step::ExpectEof]).collect()
    });
    with_diallers(&mut world, scripts.collect());
    let pool = flick_buffers::Pool::new(flick_buffers::PoolConfig {
        small_count: 0,
        large_count: 24,
        huge_count: 0,
    });
    let mut rng = flick_net::sim::Rng::new(7);
    // Paused in this turn, in which more of its data may have been handed out already; and in the one before.
    let (mut paused, mut held) = (Vec::<Handle>::new(), Vec::<Handle>::new());
    let mut echo = echo_until_eof(PEERS);
    run_busy(&mut world, &pool, |driver, event| {
        if let Some(Event::Data { conn, data }) = event {
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
        let is_turn_end = event.is_none();
        let done = echo(driver, event.filter(|event| !matches!(event, Event::Drained { .. })));
        if is_turn_end {
            held.drain(..).for_each(|conn| driver.receive(conn, true));
            std::mem::swap(&mut held, &mut paused);
        }
        done
    });
}
