//! The ring compared with a queue of the standard library, and two real threads that sleep whenever they can.
#![cfg(not(any(loom, shuttle)))]

use std::collections::VecDeque;
use std::thread;

use flick_ring::{Consumer, Producer, ring};
use proptest::prelude::*;

/// One step of a test.
#[derive(Clone, Debug)]
enum Op {
    Push(Vec<u8>),
    Publish,
    Pop,
    Release,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => proptest::collection::vec(any::<u8>(), 0..=56).prop_map(Op::Push),
        2 => Just(Op::Publish),
        3 => Just(Op::Pop),
        2 => Just(Op::Release),
    ]
}

/// Bytes that these records take in the ring.
fn record_bytes(records: &VecDeque<Vec<u8>>) -> usize {
    records.iter().map(|record| 8 + record.len().next_multiple_of(8)).sum()
}

fn check(ops: &[Op]) {
    let (mut producer, mut consumer) = ring(128);
    let (mut staged, mut visible, mut popped) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
    for op in ops {
        match op {
            Op::Push(record) => {
                let used = record_bytes(&staged) + record_bytes(&visible) + record_bytes(&popped);
                let fits = used + 8 + record.len().next_multiple_of(8) <= 128;
                assert_eq!(producer.push(record), fits, "with {used} bytes in use");
                if fits {
                    staged.push_back(record.clone());
                }
            }
            Op::Publish => {
                assert!(!producer.publish(), "the consumer is awake");
                visible.append(&mut staged);
            }
            Op::Pop => {
                let mut out = [0; 56];
                assert_eq!(consumer.front_bytes(), visible.front().map(Vec::len));
                let record = consumer.pop(&mut out).map(|len| out[..len].to_vec());
                assert_eq!(record.as_ref(), visible.front());
                popped.extend(visible.pop_front());
            }
            Op::Release => {
                assert!(!consumer.release(), "the producer is awake");
                popped.clear();
            }
        }
    }
}

proptest! {
    #[test]
    fn behaves_as_a_bounded_queue(ops in proptest::collection::vec(op(), 0..200)) {
        check(&ops);
    }
}

fn push_all(mut producer: Producer, records: u64, reader: &thread::Thread) {
    for number in 0..records {
        let record = vec![number as u8; (number % 41) as usize];
        while !producer.push(&record) {
            if producer.publish() {
                reader.unpark();
            }
            if producer.prepare_wait() {
                thread::park();
            }
        }
        if number % 3 == 0 && producer.publish() {
            reader.unpark();
        }
    }
    if producer.publish() {
        reader.unpark();
    }
}

fn pop_all(mut consumer: Consumer, records: u64, writer: &thread::Thread) {
    let mut out = [0; 64];
    for number in 0..records {
        let len = loop {
            if let Some(len) = consumer.pop(&mut out) {
                break len;
            }
            if consumer.release() {
                writer.unpark();
            }
            if consumer.prepare_wait() {
                thread::park();
            }
        };
        assert_eq!(&out[..len], vec![number as u8; (number % 41) as usize], "record {number}");
    }
    if consumer.release() {
        writer.unpark();
    }
}

#[test]
fn two_threads_that_sleep_lose_nothing() {
    // Miri takes milliseconds per record.
    const RECORDS: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let (producer, consumer) = ring(256);
    let reader = thread::current();
    let writer = thread::spawn(move || push_all(producer, RECORDS, &reader));
    let handle = writer.thread().clone();
    pop_all(consumer, RECORDS, &handle);
    writer.join().expect("the writer ends");
}

#[test]
fn the_longest_record_fits_in_half_of_the_ring() {
    let large = if cfg!(miri) { 1 << 10 } else { 1 << 16 };
    for (bytes, most) in [(32, 8), (128, 56), (large, large / 2 - 8)] {
        let (mut producer, mut consumer) = ring(bytes);
        assert_eq!(producer.record_bytes_max(), most, "of a ring of {bytes}");
        let longest = vec![7; most];
        assert!(producer.push(&longest) && producer.push(&longest) && !producer.push(&[]));
        assert!(!producer.publish(), "the consumer is awake");
        let mut out = vec![0; most];
        assert_eq!((consumer.pop(&mut out), out.as_slice()), (Some(most), longest.as_slice()));
        assert!(!consumer.release(), "the producer is awake");
        assert!(producer.push(&longest));
    }
}

#[test]
fn a_sleeping_side_is_woken_once() {
    let (mut producer, mut consumer) = ring(32);
    assert!(consumer.prepare_wait(), "the ring is empty");
    assert!(producer.push(b"a") && producer.publish(), "the consumer sleeps");
    assert!(producer.push(b"b") && !producer.publish(), "it is woken already");
    assert!(!producer.push(b"c") && producer.prepare_wait(), "the ring is full");
    let mut out = [0; 8];
    assert_eq!(consumer.pop(&mut out), Some(1));
    assert!(consumer.release(), "the producer sleeps, and half of the ring is free");
    assert_eq!(consumer.pop(&mut out), Some(1));
    assert!(!consumer.release(), "it is woken already");
}
