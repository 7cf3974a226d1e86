//! Processes and threads of a segment.

use std::vec::Vec;

use super::*;
use crate::limits::{CALL_DEPTH_MAX, PROCESSES_MAX, THREADS_MAX};
use crate::segment::{Segment, SegmentConfig};

fn members() -> Members {
    let config = SegmentConfig { slots: 128, arena_bytes: 4096, huge_pages: false };
    let (segment, _file) = Segment::create(&config).expect("memory files exist");
    segment.members().expect("memory")
}

#[test]
fn a_process_joins_once_and_leaves() {
    let members = members();
    assert!(members.process().is_none() && members.add_thread().is_none());
    let process = members.join().expect("the table is empty");
    assert_eq!((members.join(), members.reap()), (Some(process), 1));
    assert!(members.is_alive(process));
    members.leave();
    assert_eq!((members.process(), members.is_alive(process), members.reap()), (None, false, 0));
    let next = members.join().expect("the table is empty");
    assert!(next != process && !members.is_alive(process), "a number is not used again");
}

#[test]
fn a_process_with_the_number_of_a_dead_one_is_another_one() {
    let members = members();
    let process = members.join().expect("the table is empty");
    let words = &members.threads.processes[0];
    let birth = words.birth.load(Ordering::Relaxed);
    if birth >> 24 != 0 {
        words.birth.store(birth ^ 1 << 30, Ordering::Relaxed);
        assert!(!members.is_alive(process));
    }
}

#[test]
fn a_process_of_another_namespace_counts_as_alive() {
    let members = members();
    let process = members.join().expect("the table is empty");
    let words = &members.threads.processes[0];
    words.birth.store(0, Ordering::Relaxed);
    words.identity.fetch_or(0x7fff_ffff << 32, Ordering::Relaxed);
    words.namespace.fetch_xor(1 << 30, Ordering::Relaxed);
    assert!(members.is_alive(process), "its number says nothing here");
    words.namespace.fetch_xor(1 << 30, Ordering::Relaxed);
    assert!(!members.is_alive(process), "no process has the number");
}

#[test]
fn full_tables_add_no_member() {
    let members = members();
    members.join().expect("the table is empty");
    let threads: Vec<_> = core::iter::from_fn(|| members.add_thread()).collect();
    assert_eq!(threads.len() as u32, THREADS_MAX);
    let reserved: Vec<_> = core::iter::from_fn(|| members.reserve()).collect();
    assert_eq!(reserved.len() as u32, PROCESSES_MAX - 1);
    threads.into_iter().for_each(|thread| members.remove_thread(thread));
    reserved.into_iter().for_each(|reservation| members.withdraw(reservation));
    assert!(members.add_thread().is_some() && members.reserve().is_some());
}

#[test]
fn calls_of_signal_handlers_are_nested_up_to_a_limit() {
    let members = members();
    members.join().expect("the table is empty");
    let member = members.add_thread().expect("there are few");
    let end = |slot| EndNumber::new(slot, 0, false);
    let enter = |slot| member.enter(end(slot), Fencing::Both);
    let calls: Vec<_> = (0..CALL_DEPTH_MAX as u32).map(|slot| enter(slot).expect("it is free")).collect();
    assert!((0..4).all(|slot| members.threads.is_busy(0, end(slot))));
    assert_eq!(enter(9), Err(Refused::Nested), "too many handlers");
    member.leave(calls[3]);
    assert_eq!((enter(1), enter(7).is_ok()), (Err(Refused::Nested), true), "a call at the same end");
    assert!(!members.threads.is_busy(0, end(3)));
}
