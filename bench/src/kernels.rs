//! Compiled functions of the language beside the same functions in Rust: what services compute on a message.
//! Promises: both get the message parsed, both return the number of a backend and record the send; results are
//! compared on every message before anything is timed; the sides alternate and the best batch counts.
//! Not here: parsing and I/O, which have benchmarks of their own.

mod rust;
mod steps;

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use flick_abi::limits::{OUT_BYTES_MAX, SPILL_WORDS_MAX};
use flick_abi::{
    AskList, Engine, Frame, FuncId, NoHost, ParseStep, RuleAction, RuleCall, Send, SendBody, SendList,
};
use flick_codegen::Options;
use flick_compiler::{Input, generate};

use crate::cli::KernelArgs;
use crate::page;

/// The grammar and the process around each kernel.
const FRAME: &str = include_str!("../scenarios/kernels/frame.flick");
/// Calls of one batch.
const CALLS: usize = 20_000;
/// Backends that a kernel chooses from.
const BACKENDS: u64 = 16;

/// One function in both languages.
struct Kernel {
    name: &'static str,
    text: &'static str,
    rust: fn(&rust::Request<'_>) -> i64,
    /// Keys and values of the messages.
    messages: &'static [(&'static str, &'static str)],
}

/// Measures all kernels and prints a table.
pub fn run(args: &KernelArgs) -> Result<(), String> {
    if args.steps {
        return steps::run(args.only.as_deref(), args.batches.results.as_deref());
    }
    let mut table = String::from(
        "| kernel | flick, ns | Rust -O3, ns | flick's share of Rust's speed |\n|---|--:|--:|--:|\n",
    );
    for kernel in kernels() {
        if args.only.as_ref().is_some_and(|only| only != kernel.name) {
            continue;
        }
        let (flick, rust) = measure(&kernel, args.batches.rounds, args.asm)?;
        let _ = writeln!(table, "| {} | {flick:.1} | {rust:.1} | {:.2} |", kernel.name, rust / flick);
    }
    println!("{table}");
    if let Some(results) = &args.batches.results {
        let heading = "# Compiled functions beside Rust\n\nMedian over rounds of the best batch, in nanoseconds per message; \
                       see METHOD.md.\n\n";
        page::write(results, "kernels.md", &format!("{heading}{table}"))
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A compiled kernel, and messages that were parsed for it.
struct Prepared {
    engine: Box<dyn Engine>,
    rule: FuncId,
    parsed: Vec<(Frame, Vec<u8>)>,
}

fn prepare(kernel: &Kernel, listings: bool) -> Result<Prepared, String> {
    let text = format!("{FRAME}{}", kernel.text);
    let module =
        flick_compiler::module(&Input::text(kernel.name, text)).map_err(|failure| failure.to_string())?;
    let options = Options { listings, ..Options::default() };
    let compiled = generate(&module, &options).map_err(|failure| failure.to_string())?;
    if listings {
        println!("{}\n{}", compiled.clif(), compiled.asm());
    }
    let rule = module.program.rules.iter().find(|rule| rule.source == 0);
    let Some(RuleAction::Run { rule }) = rule.map(|rule| rule.action) else {
        return Err(format!("kernel `{}` has no rule that runs", kernel.name));
    };
    let view = module.program.channels[0].view.as_ref().ok_or("the client channel receives")?;
    let parse = |(key, value): &(&str, &str)| {
        let mut frame = Frame::new();
        let message = message(key, value);
        frame.restart();
        let step = compiled.parse(view.parse_request, &mut frame, &message);
        assert!(step == ParseStep::Done, "the messages are whole");
        (frame, message)
    };
    let parsed = kernel.messages.iter().map(parse).collect();
    Ok(Prepared { engine: Box::new(compiled), rule, parsed })
}

fn message(key: &str, value: &str) -> Vec<u8> {
    let mut message = 712_345_u32.to_be_bytes().to_vec();
    message.extend(98_765_432_u64.to_be_bytes());
    message.extend(120_u16.to_be_bytes());
    message.push(key.len() as u8);
    message.extend((value.len() as u16).to_be_bytes());
    message.extend(key.bytes().chain(value.bytes()));
    message
}

/// The kernel in Rust, behind the same calls.
struct InRust(fn(&rust::Request<'_>) -> i64);

impl Engine for InRust {
    fn parse(&self, _parser: FuncId, _frame: &mut Frame, _data: &[u8]) -> ParseStep {
        ParseStep::Done
    }

    fn run(&self, _rule: FuncId, call: &mut RuleCall<'_>) -> flick_abi::RuleOutcome {
        let picked = (self.0)(&rust::Request::of(call.message));
        call.sends.push(Send { channel: 1, element: picked as u64, body: SendBody::Original });
        flick_abi::RuleOutcome::Finished
    }

    fn order(&self, _order: FuncId, _call: &mut RuleCall<'_>) -> i64 {
        0
    }

    fn build(&self, _builder: FuncId, _frame: &Frame, _out: &mut [u8]) -> usize {
        0
    }
}

/// Nanoseconds per message of both: medians over rounds of the best batch.
fn measure(kernel: &Kernel, rounds: u32, listings: bool) -> Result<(f64, f64), String> {
    let prepared = prepare(kernel, listings)?;
    let rust = InRust(black_box(kernel.rust));
    let mut scratch = Scratch::new();
    for (frame, message) in &prepared.parsed {
        let flick = scratch.picked(&*prepared.engine, prepared.rule, frame, message);
        let expected = scratch.picked(&rust, FuncId(0), frame, message);
        if flick != expected {
            return Err(format!("kernel `{}` picks {flick:?}, Rust picks {expected:?}", kernel.name));
        }
    }
    let mut all = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut best = (f64::INFINITY, f64::INFINITY);
        for _ in 0..10 {
            best.0 = best.0.min(batch(
                &mut scratch,
                black_box(&*prepared.engine),
                prepared.rule,
                &prepared.parsed,
            ));
            best.1 = best.1.min(batch(&mut scratch, black_box(&rust), FuncId(0), &prepared.parsed));
        }
        all.0.push(best.0);
        all.1.push(best.1);
    }
    Ok((median(all.0), median(all.1)))
}

fn batch(scratch: &mut Scratch, engine: &dyn Engine, rule: FuncId, parsed: &[(Frame, Vec<u8>)]) -> f64 {
    let started = Instant::now();
    let mut sum = 0_u64;
    for index in 0..CALLS {
        let (frame, message) = &parsed[index % parsed.len()];
        sum = sum.wrapping_add(scratch.picked(engine, rule, frame, message).unwrap_or(0));
    }
    black_box(sum);
    started.elapsed().as_secs_f64() * 1e9 / CALLS as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Buffers that a worker reuses for all activations.
struct Scratch {
    out: Vec<u8>,
    sends: SendList,
    asks: AskList,
    spills: Vec<u64>,
}

impl Scratch {
    fn new() -> Self {
        let (sends, asks) = (SendList::new(), AskList::new());
        Self { out: vec![0; OUT_BYTES_MAX], sends, asks, spills: vec![0; SPILL_WORDS_MAX] }
    }

    /// Runs a rule and returns the backend that it has chosen.
    fn picked(&mut self, engine: &dyn Engine, rule: FuncId, frame: &Frame, message: &[u8]) -> Option<u64> {
        self.sends.clear();
        engine.run(
            rule,
            &mut RuleCall {
                frame,
                message,
                others: &[],
                source_element: 0,
                channel_lens: &[1, BACKENDS],
                counters: &[],
                out: &mut self.out,
                out_len: 0,
                sends: &mut self.sends,
                asks: &mut self.asks,
                answers: &[],
                spills: &mut self.spills,
                resume: 0,
                state: &mut [],
                failure: None,
                host: &mut NoHost,
            },
        );
        self.sends.as_slice().first().map(|send| send.element)
    }
}

macro_rules! kernel {
    ($name:ident, $messages:expr) => {
        Kernel {
            name: stringify!($name),
            text: include_str!(concat!("../scenarios/kernels/", stringify!($name), ".flick")),
            rust: rust::$name,
            messages: &$messages,
        }
    };
}

fn kernels() -> [Kernel; 10] {
    [
        kernel!(
            shard,
            [("user:1234", ""), ("session:af17b2", ""), ("a-rather-long-key-of-a-cache:0001", "")]
        ),
        kernel!(verb, [("get", ""), ("set", ""), ("delete", ""), ("prepend", ""), ("nonsense", "")]),
        kernel!(
            route,
            [("/static/app.js", ""), ("/api/v1/users", ""), ("/img/logo.png", ""), ("/shop/admin/", "")]
        ),
        kernel!(combine, [("17", "4"), ("120000", "3"), ("1", "999999"), ("7", "7")]),
        kernel!(columns, [("1,2,3,4,5", ""), ("1200,7,99,100,3,3,3,81", ""), ("17", ""), ("5,x,9", "")]),
        kernel!(
            header,
            [("Content-Type", ""), ("Connection", ""), ("Accept", ""), ("Transfer-Encoding", "")]
        ),
        kernel!(cache_key, [("/Products/42", "abc"), ("/Index.html", ""), ("/a/b/c/d/e/f/g", "")]),
        kernel!(checksum, [("user:1234", ""), ("a-rather-long-key-of-a-cache:0001", ""), ("k", "")]),
        kernel!(bucket, [("user:1234", ""), ("k", "v")]),
        kernel!(choose, [("user:1234", "value"), ("k", "v")]),
    ]
}
