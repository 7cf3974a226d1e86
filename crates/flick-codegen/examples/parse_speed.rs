//! Measures the speed of compiled parsers: the memcached header with a view of the key, against the same checks in
//! Rust. Prints nanoseconds per call for both, in alternation, five rounds, and the ratio of the medians; once function
//! against function (one call that the optimiser cannot see through), once behind a `dyn Engine`, where compiled code
//! needs a second such call to get from the engine to the parser.
//! Run: `cargo run --release -p flick-codegen --example parse_speed`, or with the path of another module's IR and the
//! number of its parser of requests behind it, to see what a whole grammar costs.

use std::hint::black_box;
use std::time::Instant;

use flick_abi::frame::{SLOT_FLAGS, SLOT_HEAD, SLOT_STATE, SLOT_TOTAL};
use flick_abi::{BytesRef, Engine, FaultCause, Frame, FuncId, ParseStep, Region, RuleCall, RuleOutcome};
use flick_codegen::{Options, compile};

const HEADER: &str = include_str!("../../flick-ir/fixtures/memcached_header.ir");
const CALLS: usize = 200_000;
const BATCHES: usize = 50;
const ROUNDS: usize = 5;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let [path, parser] = &args[..] {
        return measure_other(
            path,
            FuncId(parser.parse().expect("the second argument is a function's number")),
        );
    }
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
    let by_hand = ByHand(black_box(parse_by_hand));
    compare("function", &messages, &compiled, &by_hand);
    compare::<dyn Engine, dyn Engine>(
        "dyn Engine",
        &messages,
        black_box(&compiled),
        black_box(&ByHandInline),
    );
}

/// Compiles the IR in a file and measures one of its parsers on the same messages.
fn measure_other(path: &str, parser: FuncId) {
    let text = std::fs::read_to_string(path).expect("the first argument is a readable file");
    let module = flick_ir::text::parse(&text).expect("the file holds IR");
    let compiled =
        compile(&module, &Options { listings: true, ..Options::default() }).expect("the IR compiles");
    if std::env::args().any(|arg| arg == "--asm") {
        let function = &compiled.functions()[parser.0 as usize];
        println!("{}\n{}", function.clif, function.asm);
    }
    let compile_time =
        (0..20).map(|_| compile(&module, &Options::default()).expect("it did before").compile_time());
    println!("compile {:?} (best of 20)", compile_time.min().unwrap_or_default());
    for message in messages() {
        let only = vec![message; 8];
        let best = (0..BATCHES).map(|_| measure(&only, parser, &compiled)).fold(f64::INFINITY, f64::min);
        println!("opcode {:#04x}, {} bytes: {best:.2} ns", only[0][1], only[0].len());
    }
}

/// Measures both in alternation and prints the rounds and the ratio.
fn compare<A: Engine + ?Sized, B: Engine + ?Sized>(what: &str, messages: &[Vec<u8>], flick: &A, rust: &B) {
    let mut medians = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Batches alternate and the best counts: what other processes of the machine take is no property of ours.
        let mut best = (f64::INFINITY, f64::INFINITY);
        for _ in 0..BATCHES {
            best.0 = best.0.min(measure(messages, FuncId(0), flick));
            best.1 = best.1.min(measure(messages, FuncId(0), rust));
        }
        println!("{what}, round {round}: flick {:.2} ns, rust {:.2} ns", best.0, best.1);
        medians.0.push(best.0);
        medians.1.push(best.1);
    }
    let (flick, rust) = (median(medians.0), median(medians.1));
    println!("{what}: flick {flick:.2} ns, rust {rust:.2} ns, speed {:.2} of rust", rust / flick);
}

/// Requests of several kinds, with keys of several lengths.
fn messages() -> Vec<Vec<u8>> {
    let message = |(opcode, extras, key, value): (u8, u8, u8, u32)| {
        let total = u32::from(extras) + u32::from(key) + value;
        let mut message = vec![0x80, opcode, 0, key, extras, 0, 0, 0];
        message.extend(total.to_be_bytes());
        message.resize(24 + usize::from(extras) + usize::from(key), b'k');
        message
    };
    let (get, set, add, delete, getq) = (0x00, 0x01, 0x02, 0x04, 0x09);
    [
        (get, 0, 16, 0),
        (set, 8, 32, 100),
        (get, 0, 64, 0),
        (getq, 0, 8, 0),
        (set, 8, 250, 1_000_000),
        (delete, 0, 11, 0),
        (add, 8, 30, 5),
        (get, 0, 20, 0),
    ]
    .map(message)
    .into()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Nanoseconds per call.
fn measure<E: Engine + ?Sized>(messages: &[Vec<u8>], parser: FuncId, engine: &E) -> f64 {
    let parser = black_box(parser);
    let mut frame = Frame::new();
    let mut keys = 0_u64;
    let started = Instant::now();
    for index in 0..CALLS {
        let message = &messages[index & 7];
        frame.restart();
        let step = engine.parse(parser, &mut frame, black_box(message));
        assert!(step == ParseStep::Done, "the messages are whole");
        keys = keys.wrapping_add(frame.slots[12]);
    }
    let elapsed = started.elapsed();
    black_box(keys);
    elapsed.as_secs_f64() * 1e9 / CALLS as f64
}

/// A platform's engine written by hand for one protocol, whose parser is called through a pointer.
struct ByHand(fn(&mut Frame, &[u8]) -> ParseStep);

/// The same, with the parser inside.
struct ByHandInline;

impl Engine for ByHand {
    #[inline]
    fn parse(&self, _parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        (self.0)(frame, data)
    }

    fn run(&self, _rule: FuncId, _call: &mut RuleCall<'_>) -> RuleOutcome {
        RuleOutcome::Finished
    }

    fn order(&self, _order: FuncId, _call: &mut RuleCall<'_>) -> i64 {
        0
    }

    fn build(&self, _builder: FuncId, _frame: &Frame, _out: &mut [u8]) -> usize {
        0
    }
}

impl Engine for ByHandInline {
    fn parse(&self, _parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        parse_by_hand(frame, data)
    }

    fn run(&self, _rule: FuncId, _call: &mut RuleCall<'_>) -> RuleOutcome {
        RuleOutcome::Finished
    }

    fn order(&self, _order: FuncId, _call: &mut RuleCall<'_>) -> i64 {
        0
    }

    fn build(&self, _builder: FuncId, _frame: &Frame, _out: &mut [u8]) -> usize {
        0
    }
}

/// The same parser as a person would write it: the same checks, slots and answers, and, as `Engine::parse` promises,
/// going on where it stopped when it is called again.
fn parse_by_hand(frame: &mut Frame, data: &[u8]) -> ParseStep {
    let state = frame.slots[SLOT_STATE];
    if state == 0 {
        let Some(magic) = data.first() else {
            return ParseStep::NeedMore(1);
        };
        if *magic != 0x80 {
            return ParseStep::Fault { field: 0, cause: FaultCause::Malformed };
        }
    }
    let (start, end);
    if state < 2 {
        let Some(header) = data.first_chunk::<24>() else {
            frame.slots[SLOT_STATE] = 1;
            return ParseStep::NeedMore(24);
        };
        let key_len = u64::from(u16::from_be_bytes([header[2], header[3]]));
        let extras_len = u64::from(header[4]);
        let total_len = u64::from(u32::from_be_bytes([header[8], header[9], header[10], header[11]]));
        if total_len < key_len + extras_len {
            return ParseStep::Fault { field: 9, cause: FaultCause::Arithmetic };
        }
        if key_len > 250 {
            return ParseStep::Fault { field: 11, cause: FaultCause::TooLong };
        }
        start = 24 + extras_len;
        end = start + key_len;
        frame.slots[13] = start;
        frame.slots[14] = end;
        frame.slots[SLOT_TOTAL] = 24 + total_len;
    } else {
        (start, end) = (frame.slots[13], frame.slots[14]);
    }
    if (data.len() as u64) < end {
        frame.slots[SLOT_STATE] = 2;
        return ParseStep::NeedMore(end);
    }
    frame.slots[12] = BytesRef::new(Region::Message, start, (end - start) as u32).0;
    frame.slots[SLOT_HEAD] = end;
    frame.slots[SLOT_FLAGS] = 0;
    ParseStep::Done
}
