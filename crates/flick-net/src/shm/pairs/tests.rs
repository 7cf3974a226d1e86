//! Tests of the share of ring memory, and of the faults of connects.

use flick_shm::pairing::PairError;

use super::handshake::{fault_of, grant_of, memory_of};
use super::*;

/// Lets processes take all they can, one after the other; returns the bytes of each.
fn take_all(processes: usize, bytes: u64, is_new: bool) -> Vec<u64> {
    let mut total = 0;
    let takers = (0..processes).map(|_| {
        let mut used = 0;
        while is_within_share(SHM_RING_BYTES_MAX, used, total, bytes, is_new) {
            used += bytes;
            total += bytes;
        }
        used
    });
    takers.collect()
}

#[test]
fn a_process_that_takes_all_ring_memory_leaves_as_much_for_others() {
    for is_new in [true, false] {
        let taken = take_all(4, SHM_RING_BYTES_START, is_new);
        assert!(taken.iter().all(|bytes| *bytes > SHM_RING_BYTES_MAX / 64), "{taken:?}");
        assert!(taken.iter().sum::<u64>() < SHM_RING_BYTES_MAX);
    }
    assert_eq!(take_all(1, SHM_RING_BYTES_START, true), [SHM_RING_BYTES_MAX / 2]);
}

#[test]
fn service_of_another_user_appeared_to_refuse_connections() {
    assert_eq!(fault_of(&PairError::User(33)), ConnFault::OtherUser);
}

#[test]
fn large_rings_leave_memory_for_new_connections() {
    let grown = take_all(1, SHM_RING_BYTES_GROWN_MAX, false)[0];
    assert!(is_within_share(SHM_RING_BYTES_MAX, grown, grown, SHM_RING_BYTES_START, true));
    assert!(grown + 64 * SHM_RING_BYTES_GROWN_MAX < SHM_RING_BYTES_MAX / 2);
}

#[test]
fn one_ring_has_a_share_of_the_memory_and_starts_small() {
    for (max, grown) in [
        (0, SHM_RING_BYTES_START),
        (64 << 10, SHM_RING_BYTES_START),
        (200 << 10, 8 << 10),
        (1 << 20, 64 << 10),
        (4 << 20, SHM_RING_BYTES_GROWN_MAX),
        (SHM_RING_BYTES_MAX, SHM_RING_BYTES_GROWN_MAX),
    ] {
        assert_eq!(grown_bytes_max(max), grown, "{max}");
    }
}

#[test]
fn pairs_have_memory_for_ten_thousand_connections_and_less_when_it_is_rare() {
    let sizes = |available, conns| grant_of(available, conns).map(|most| (most.slots, most.arena_bytes));
    assert_eq!(sizes(256 << 20, 10_000), Some((32768, 64 << 20)));
    assert_eq!(sizes(256 << 20, 100), Some((256, 64 << 20)));
    assert_eq!(sizes(2 << 20, 10_000), Some((256, 512 << 10)));
    assert_eq!(sizes(256 << 10, 10_000), None);
    // All of what a process may have is never granted at once.
    for available in (18..40).map(|bits| 1 << bits) {
        let granted = grant_of(available, u32::MAX / 4).map_or(0, |most| memory_of(&most));
        assert!(granted <= available / 2, "{granted} of {available}");
    }
}
