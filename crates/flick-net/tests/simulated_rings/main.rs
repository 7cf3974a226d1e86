//! Connections that move to rings and back at any byte, between two drivers on a simulated network with real rings: one
//! of them may stop, die, or overwrite the words of a connection. Every run prints its seed.
//! `FLICK_NET_SIM_RUNS` sets the runs of each test, `FLICK_NET_SIM_SEED` the first seed.

#[path = "../common/random.rs"]
mod random;
mod words;
mod world;

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use random::number;
use words::Segment;
use world::{PEER, SERVICE, World};

/// Runs of each test.
const RUNS: u64 = 150;
/// Steps of one run.
const STEPS: u64 = 600;
/// Steps of a run whose connections end soon.
const ENDED_STEPS_MAX: u64 = 200;

/// Longest time until a death is reported: delays of the network, and polls that last.
const DEATH_NS_MAX: u64 = 3_000_000_000;

/// One world at a time: `words.rs` finds the only segment of this process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn seeds() -> Range<u64> {
    let first = number("FLICK_NET_SIM_SEED", 1);
    first..first + number("FLICK_NET_SIM_RUNS", RUNS)
}

#[test]
fn every_byte_arrives_once_while_connections_move_and_sides_stop() {
    let _alone = alone();
    let (mut upgrades, mut downgrades, mut moves, mut ring_bytes) = (0, 0, 0, 0);
    for seed in seeds() {
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step());
        world.settle();
        world.end();
        let stats = world.stats(SERVICE);
        upgrades += stats.upgrades;
        downgrades += stats.downgrades;
        moves += world.moves;
        ring_bytes += stats.received_bytes;
    }
    println!("{upgrades} upgrades, {downgrades} downgrades, {moves} moves, {ring_bytes} bytes through rings");
    assert!(upgrades > 0 && downgrades > 0 && moves > 0 && ring_bytes > 0);
}

#[test]
fn the_end_of_a_stream_follows_all_bytes_at_any_step_of_an_upgrade() {
    let _alone = alone();
    for seed in seeds() {
        let mut world = World::new(seed);
        let steps = world.random.below(ENDED_STEPS_MAX);
        (0..steps).for_each(|_| world.step());
        world.resume();
        world.end();
    }
}

#[test]
fn what_a_process_had_published_arrives_after_its_death_and_then_the_end() {
    let _alone = alone();
    seeds().for_each(die);
}

/// The process had said at which byte it leaves the kernel, and had not sent that byte.
#[test]
fn death_during_an_upgrade_with_output_left_was_never_reported() {
    let _alone = alone();
    die(5);
}

/// The other side had answered the claim, and the pair ended before the last bytes of the socket arrived.
#[test]
fn bytes_in_the_socket_were_lost_when_the_process_died_before_it_had_said_its_offset() {
    let _alone = alone();
    die(170);
}

/// The end of the socket arrived before the side that had asked saw the answer in the ring.
#[test]
fn a_stream_ended_without_the_bytes_that_the_other_side_had_sent_behind_its_answer() {
    let _alone = alone();
    die(3707);
}

/// One process dies after some steps.
fn die(seed: u64) {
    let mut world = World::new(seed);
    let steps = world.random.below(STEPS);
    (0..steps).for_each(|_| world.step());
    let complete = world.kill_peer();
    for stream in 0..world.streams.len() {
        world.streams[stream][SERVICE].is_moving = false;
        world.set_receiving(stream, SERVICE, true);
    }
    let died_ns = world.net.now_ns();
    world.run_until("told of the death", |world| world.streams.iter().all(|ends| ends[SERVICE].has_ended));
    assert!(world.net.now_ns() < died_ns + DEATH_NS_MAX, "it is reported soon");
    for stream in complete {
        assert_eq!(world.owed(stream, SERVICE), 0, "what connection {stream} had published");
    }
    world.close_service();
    world.run_until("over", |world| {
        let stats = world.stats(SERVICE);
        (stats.upgraded, stats.conns, stats.pairs, stats.ring_bytes) == (0, 0, 0, 0)
    });
}

/// Bytes that do not fit any ring.
const MORE_THAN_A_RING: u32 = 1 << 20;
/// Longest time until these bytes have arrived: each full ring takes some delays of wake-ups.
const REFILLS_NS_MAX: u64 = 2_000_000_000;

#[test]
fn sender_of_a_full_ring_slept_on_when_there_was_space() {
    let _alone = alone();
    for seed in seeds().take(20) {
        let mut world = World::new(seed);
        world.upgrade();
        world.set_receiving(0, SERVICE, false);
        world.send(0, PEER, MORE_THAN_A_RING);
        // Both sides sleep now, the receiver with a full ring.
        (0..200).for_each(|round| world.poll(round % 2, 1_000_000));
        world.set_receiving(0, SERVICE, true);
        let begun_ns = world.net.now_ns();
        loop {
            (0..20).for_each(|_| world.poll(SERVICE, 1_000_000));
            if world.owed(0, SERVICE) == 0 {
                break;
            }
            // The ring is empty. A side that is not woken sleeps for longer than all may take.
            world.poll(PEER, 2 * REFILLS_NS_MAX);
            assert!(world.net.now_ns() < begun_ns + REFILLS_NS_MAX, "the sender was not woken");
        }
        world.end();
    }
}

/// Time after which output of a closed connection is given up.
const FLUSH_NS_MAX: u64 = flick_net::limits::FLUSH_NS_MAX;

#[test]
fn backlog_of_a_live_connection_was_reset_a_minute_after_its_peer_had_ended_its_stream() {
    let _alone = alone();
    for seed in seeds().take(20) {
        let mut world = World::new(seed);
        world.upgrade();
        world.set_receiving(0, PEER, false);
        world.send(0, SERVICE, MORE_THAN_A_RING);
        world.finish_sending(0, PEER);
        world.run_until("ended", |world| world.streams[0][SERVICE].has_ended);
        let ended_ns = world.net.now_ns();
        while world.net.now_ns() < ended_ns + FLUSH_NS_MAX {
            [SERVICE, PEER].into_iter().for_each(|side| world.poll(side, 1_000_000_000));
        }
        world.set_receiving(0, PEER, true);
        world.run_until("delivered", |world| world.owed(0, PEER) == 0);
        world.end();
    }
}

#[test]
fn overwritten_words_of_a_connection_harm_no_other() {
    let _alone = alone();
    for seed in seeds() {
        let mut world = World::new(seed);
        world.upgrade();
        let segment = Segment::of_this_process();
        let victim = world.random.below(world.streams.len() as u64) as usize;
        let heads = segment.heads();
        world.send(victim, PEER, 100);
        world.settle();
        let slot = segment.slot_with_other_head(&heads);
        // Another connection that began again could get the slot.
        world.mover = Some(victim);
        world.streams[victim].iter_mut().for_each(|end| end.is_spoilt = true);
        for _ in 0..STEPS {
            if world.random.below(10) == 0 && segment.is_mapped() {
                segment.overwrite_any_word(slot, &mut world.random);
            }
            world.step();
        }
        world.settle();
        let others = (0..world.streams.len()).filter(|stream| *stream != victim);
        assert!(others.clone().all(|stream| !world.streams[stream].iter().any(|end| end.has_ended)));
        world.end();
    }
}
