//! The ring against a queue of the standard library, and two real threads that rest whenever they can.
#![cfg(not(any(loom, shuttle)))]

use std::collections::VecDeque;
use std::thread;

use flick_ring::{Consumer, Producer, ring};
use proptest::prelude::*;

/// What a test does next.
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

/// Bytes that records of these lengths take.
fn taken(records: &VecDeque<Vec<u8>>) -> usize {
    records.iter().map(|record| 8 + record.len().next_multiple_of(8)).sum()
}

fn check(ops: &[Op]) {
    let (mut producer, mut consumer) = ring(128);
    let (mut staged, mut visible, mut popped) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
    for op in ops {
        match op {
            Op::Push(record) => {
                let used = taken(&staged) + taken(&visible) + taken(&popped);
                let fits = used + 8 + record.len().next_multiple_of(8) <= 128;
                assert_eq!(producer.push(record), fits, "with {used} bytes in use");
                if fits {
                    staged.push_back(record.clone());
                }
            }
            Op::Publish => {
                assert!(!producer.publish(), "nobody rests");
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
                assert!(!consumer.release(), "nobody rests");
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
            if producer.wait() {
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
            if consumer.wait() {
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
fn two_threads_that_rest_lose_nothing() {
    // Miri takes milliseconds for each.
    const RECORDS: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let (producer, consumer) = ring(256);
    let reader = thread::current();
    let writer = thread::spawn(move || push_all(producer, RECORDS, &reader));
    let handle = writer.thread().clone();
    pop_all(consumer, RECORDS, &handle);
    writer.join().expect("the writer ends");
}

#[test]
fn a_record_of_the_longest_length_fits_where_half_of_the_ring_is_free() {
    let large = if cfg!(miri) { 1 << 10 } else { 1 << 16 };
    for (bytes, most) in [(32, 8), (128, 56), (large, large / 2 - 8)] {
        let (mut producer, mut consumer) = ring(bytes);
        assert_eq!(producer.record_bytes_max(), most, "of a ring of {bytes}");
        let longest = vec![7; most];
        assert!(producer.push(&longest) && producer.push(&longest) && !producer.push(&[]));
        assert!(!producer.publish(), "nobody rests");
        let mut out = vec![0; most];
        assert_eq!((consumer.pop(&mut out), out.as_slice()), (Some(most), longest.as_slice()));
        assert!(!consumer.release(), "nobody rests");
        assert!(producer.push(&longest));
    }
}

#[test]
fn who_rests_is_called_once() {
    let (mut producer, mut consumer) = ring(32);
    assert!(consumer.wait(), "nothing is there");
    assert!(producer.push(b"a") && producer.publish(), "the consumer rests");
    assert!(producer.push(b"b") && !producer.publish(), "it has been called");
    assert!(!producer.push(b"c") && producer.wait(), "there is no room");
    let mut out = [0; 8];
    assert_eq!(consumer.pop(&mut out), Some(1));
    assert!(consumer.release(), "the producer rests, and half of the ring is free");
    assert_eq!(consumer.pop(&mut out), Some(1));
    assert!(!consumer.release(), "it has been called");
}
