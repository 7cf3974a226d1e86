//! A process that pairs correctly and then writes any value to any word that it can reach.

use std::sync::atomic::Ordering;

use flick_shm::conn::RingConn;
use flick_shm::segment::SegmentConfig;

use crate::random::{Random, number};
use crate::raw::RawPeer;
use crate::service::Honest;
use crate::with_services;

/// Processes that one test starts, one after the other.
const SESSIONS: u64 = 100;
const CONNS_MAX: u64 = 8;

#[test]
fn a_process_that_overwrites_any_word_harms_its_own_connections_only() {
    let seed = number("FLICK_NET_HOSTILE_SEED", 1);
    with_services(|service| {
        let honest = Honest::start(service);
        for session in 0..SESSIONS {
            let seed = seed + session;
            println!("seed {seed}");
            overwrite(&service.shm, Random(seed));
        }
        honest.check("overwriting");
    });
}

fn overwrite(name: &str, mut random: Random) {
    let config = SegmentConfig { slots: 128, arena_bytes: 1 << 20, huge_pages: false };
    let mut peer = RawPeer::paired(name, &config);
    let mut pair = peer.pair();
    let conns = 1 + random.below(CONNS_MAX);
    let mut conns: Vec<RingConn> = (0..conns).map(|_| pair.open(4096).expect("the pair is new")).collect();
    let mut bytes = [0xee; 3000];
    for round in 0..number("FLICK_NET_HOSTILE_ROUNDS", 100) {
        for conn in &mut conns {
            // Any result is right: this process breaks its own view too.
            let len = random.below(bytes.len() as u64) as usize;
            let _ = conn.send(&bytes[..len]);
            let _ = conn.receive(&mut bytes);
            bytes.fill(0xee);
        }
        for _ in 0..1 + random.below(4) {
            write_any_word(&peer, &mut random);
        }
        if random.below(8) == 0 {
            peer.signal();
        }
        if random.below(16) == 0 {
            let conn = conns.swap_remove(random.below(conns.len() as u64) as usize);
            pair.close(conn);
            pair.reclaim();
            conns.extend(pair.open(4096));
        }
        if conns.is_empty() {
            break;
        }
        // The driver looks between some of the changes.
        if round % 8 == 0 {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }
}

/// Overwrites a word of the header, of the ready bitmaps, of a used slot, or of a ring.
fn write_any_word(peer: &RawPeer, random: &mut Random) {
    let slot = random.below(CONNS_MAX) as usize;
    let at = match random.below(16) {
        0 => random.below(128) * 8,
        1 => 4096 + random.below(8) * 8,
        2 => (2 << 20) + random.below(1 << 16) * 8,
        _ => (peer.slot_at(slot) as u64) + random.below(64) * 8,
    } as usize;
    let is_in_arena = at >= 2 << 20;
    let word = peer.map.wide(at);
    let value = random.word_instead_of(word.load(Ordering::Relaxed));
    // A connection that begins with such bytes is echoed, whatever follows.
    let value = if is_in_arena { value | 0x8080_8080_8080_8080 } else { value };
    if random.below(4) == 0 {
        peer.map.narrow(at + 4 * random.below(2) as usize).store(value as u32, Ordering::Release);
    } else {
        word.store(value, Ordering::Release);
    }
}
