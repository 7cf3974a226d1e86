//! How fast compiled parsers are: the memcached header with a view of the key, against the same checks in Rust.
//! Prints nanoseconds per call for both, in alternation, five rounds, and the ratio of the medians.
//! Run: `cargo run --release -p flick-codegen --example parse_speed`

use std::hint::black_box;
use std::time::Instant;

use flick_abi::frame::{SLOT_FLAGS, SLOT_HEAD, SLOT_STATE, SLOT_TOTAL};
use flick_abi::{BytesRef, Engine, Frame, FuncId, Region, RuleCall, Step};
use flick_codegen::{Options, compile};

const HEADER: &str = include_str!("../../flick-ir/fixtures/memcached_header.ir");
const CALLS: usize = 200_000;
const BATCHES: usize = 50;
const ROUNDS: usize = 5;

fn main() {
    let module = flick_ir::text::parse(HEADER).expect("the fixture is of the form");
    let compiled =
        compile(&module, &Options { listings: true, ..Options::default() }).expect("the fixture compiles");
    if std::env::args().any(|arg| arg == "--asm") {
        println!("{}\n{}", compiled.clif(), compiled.asm());
    }
    let compile_time =
        (0..20).map(|_| compile(&module, &Options::default()).expect("it did before").compile_time());
    println!("compile {:?} (best of 20)", compile_time.min().unwrap_or_default());
    let messages = messages();
    // Neither call may be seen through: the platform holds a `dyn Engine`.
    let engine: &dyn Engine = black_box(&compiled);
    let by_hand: &dyn Engine = black_box(&ByHand);
    let (mut flick, mut rust) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Batches alternate and the best counts: what other processes of the machine take is no property of ours.
        let (mut best_flick, mut best_rust) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..BATCHES {
            best_flick = best_flick.min(measure(&messages, engine));
            best_rust = best_rust.min(measure(&messages, by_hand));
        }
        flick.push(best_flick);
        rust.push(best_rust);
        println!("round {round}: flick {:.2} ns, rust {:.2} ns", flick[round], rust[round]);
    }
    let (flick, rust) = (median(flick), median(rust));
    println!("flick {flick:.2} ns, rust {rust:.2} ns, speed {:.2} of rust", rust / flick);
}

/// Requests with keys and extras of several lengths.
fn messages() -> Vec<Vec<u8>> {
    let message = |(extras, key, value): (u8, u8, u32)| {
        let total = u32::from(extras) + u32::from(key) + value;
        let mut message = vec![0x80, 0x01, 0, key, extras, 0, 0, 0];
        message.extend(total.to_be_bytes());
        message.resize(24 + usize::from(extras) + usize::from(key), b'k');
        message
    };
    [
        (0, 16, 0),
        (8, 32, 100),
        (0, 64, 0),
        (20, 8, 0),
        (8, 250, 1_000_000),
        (0, 11, 0),
        (4, 30, 0),
        (0, 20, 5),
    ]
    .map(message)
    .into()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Nanoseconds per call.
fn measure(messages: &[Vec<u8>], engine: &dyn Engine) -> f64 {
    let mut frame = Frame::new();
    let mut keys = 0_u64;
    let started = Instant::now();
    for index in 0..CALLS {
        let message = &messages[index & 7];
        frame.restart();
        let step = engine.parse(black_box(FuncId(0)), &mut frame, black_box(message));
        assert!(step == Step::Done, "the messages are whole");
        keys = keys.wrapping_add(frame.slots[8]);
    }
    let elapsed = started.elapsed();
    black_box(keys);
    elapsed.as_secs_f64() * 1e9 / CALLS as f64
}

/// A platform's engine written by hand for one protocol.
struct ByHand;

impl Engine for ByHand {
    fn parse(&self, _parser: FuncId, frame: &mut Frame, data: &[u8]) -> Step {
        parse_by_hand(frame, data)
    }

    fn run(&self, _rule: FuncId, _call: &mut RuleCall<'_>) {}

    fn build(&self, _builder: FuncId, _frame: &Frame, _out: &mut [u8]) -> usize {
        0
    }
}

/// The same parser as a person would write it: the same checks, slots and answers, all input at once or not at all.
fn parse_by_hand(frame: &mut Frame, data: &[u8]) -> Step {
    let Some(magic) = data.first() else {
        frame.slots[SLOT_STATE] = 0;
        return Step::NeedMore(1);
    };
    if *magic != 0x80 {
        return Step::Fault { field: 0, cause: 1 };
    }
    let Some(header) = data.first_chunk::<24>() else {
        frame.slots[SLOT_STATE] = 1;
        return Step::NeedMore(24);
    };
    let key_len = u64::from(u16::from_be_bytes([header[2], header[3]]));
    let extras_len = u64::from(header[4]);
    let total_len = u64::from(u32::from_be_bytes([header[8], header[9], header[10], header[11]]));
    if total_len < key_len + extras_len {
        return Step::Fault { field: 9, cause: 2 };
    }
    if key_len > 250 {
        return Step::Fault { field: 11, cause: 3 };
    }
    let start = 24 + extras_len;
    let end = start + key_len;
    frame.slots[9] = start;
    frame.slots[10] = end;
    frame.slots[SLOT_TOTAL] = 24 + total_len;
    if data.len() < end as usize {
        frame.slots[SLOT_STATE] = 2;
        return Step::NeedMore(end);
    }
    frame.slots[8] = BytesRef::new(Region::Message, start, key_len as u32).0;
    frame.slots[SLOT_HEAD] = end;
    frame.slots[SLOT_FLAGS] = 0;
    Step::Done
}
