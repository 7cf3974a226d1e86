//! Compiled code against the interpreter, on random modules, frames and messages.
//! Compared to the bit: steps, frames, sends, output; parsers on every prefix and on input that grows while the
//! frame is kept. Also: what the interpreter counts never exceeds the bound.
//! `FLICK_DIFFERENTIAL_MODULES` asks for more modules, `FLICK_DIFFERENTIAL_SEED` for others.

use flick_abi::limits::OUT_BYTES_MAX;
use flick_abi::{Engine, Frame, ParseStep};
use flick_codegen::{CompileError, Compiled, Optimise, Options, compile};
use flick_ir::Interpreter;
use flick_ir::random::{self, BUILDER, PARSER, Rng, record_order, record_rules};

/// Without optimisation each module takes milliseconds.
const MODULES: u64 = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
const THREADS: u64 = 2;
/// Of this many modules, two are also compiled without optimisation.
const PLAIN_EVERY: u64 = 8;

/// One module on all engines.
struct Case<'a> {
    interpreter: &'a Interpreter,
    compiled: &'a [Compiled],
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("the variable is a number"))
}

#[test]
fn engines_agree_on_random_modules() {
    let first = number("FLICK_DIFFERENTIAL_SEED", 0);
    let modules = number("FLICK_DIFFERENTIAL_MODULES", MODULES);
    let run = |thread: u64| {
        let mut refused = 0;
        let mut out = [vec![0; OUT_BYTES_MAX], vec![0; OUT_BYTES_MAX]];
        for seed in (first + thread..first + modules).step_by(THREADS as usize) {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(seed, &mut out)));
            match result {
                Ok(was_accepted) => refused += u64::from(!was_accepted),
                Err(_) => panic!("seed {seed}:\n{}", flick_ir::text::print(&random::module(seed))),
            }
        }
        refused
    };
    let refused: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the engines agree")).sum()
    });
    assert!(refused * 20 <= modules, "the verifier refuses {refused} of {modules}");
}

#[test]
fn a_load_two_gigabytes_behind_a_constant_base_compiles() {
    assert!(
        check(212_055, &mut [vec![0; OUT_BYTES_MAX], vec![0; OUT_BYTES_MAX]]),
        "the verifier lets it pass"
    );
}

/// Compares all engines on one module. Returns whether the verifier accepts it.
fn check(seed: u64, out: &mut [Vec<u8>; 2]) -> bool {
    let module = random::module(seed);
    // Cranelift's own checks cost more than compiling; a part of the modules is enough to find its bugs.
    let is_checked = seed.is_multiple_of(8);
    let options = |optimise| Options {
        optimise,
        clif_verifier: is_checked,
        regalloc_checker: is_checked,
        ..Options::default()
    };
    // No service runs what is not optimised: it shows which side errs, and that the passes change nothing.
    let levels =
        if seed % PLAIN_EVERY < 2 { &[Optimise::Speed, Optimise::None][..] } else { &[Optimise::Speed] };
    let mut compiled = Vec::new();
    for optimise in levels {
        match compile(&module, &options(*optimise)) {
            Ok(code) => compiled.push(code),
            Err(CompileError::Invalid(_)) => return false,
            Err(error) => panic!("what the verifier lets pass can be compiled: {error}"),
        }
    }
    let interpreter = Interpreter::new(module);
    let case = Case { interpreter: &interpreter, compiled: &compiled };
    let mut rng = Rng::new(!seed);
    for _ in 0..3 {
        let message = random::message(&mut rng);
        check_parser(&case, &random::fresh_frame(&mut rng), &message);
        check_rule(&case, rng.word());
        check_builder(&case, &random::frame(&mut rng, &[]), out);
    }
    true
}

/// Every prefix with a new frame, then the same message as it grows.
fn check_parser(case: &Case<'_>, fresh: &Frame, message: &[u8]) {
    for end in 0..=message.len() {
        parse_all(case, &mut [(); 3].map(|()| fresh.clone()), &message[..end]);
    }
    let mut frames = [(); 3].map(|()| fresh.clone());
    let mut end = 0;
    // Each round asks for more bytes than it was given, so there are at most as many as bytes.
    while let ParseStep::NeedMore(need) = parse_all(case, &mut frames, &message[..end]) {
        assert!(need > end as u64, "a parser asks for more than it was given");
        end = need.min(usize::MAX as u64) as usize;
        if end > message.len() {
            break;
        }
    }
}

/// Parses with all engines; frames and steps must be the same.
fn parse_all(case: &Case<'_>, frames: &mut [Frame; 3], data: &[u8]) -> ParseStep {
    let (expected, used) = case.interpreter.parse_counted(PARSER, &mut frames[2], data);
    assert!(used <= case.interpreter.certificate()[PARSER.0 as usize].steps, "the bound holds");
    for (index, compiled) in case.compiled.iter().enumerate() {
        let step = compiled.parse(PARSER, &mut frames[index], data);
        assert_eq!(step, expected, "engine {index} on {data:?}");
        assert_eq!(frames[index].slots, frames[2].slots, "engine {index} on {data:?}");
        assert_eq!(frames[index].items(), frames[2].items(), "engine {index} on {data:?}");
        let forwarded = |index: usize| frames[index].forwarded(0, data.len() as u64);
        assert!(forwarded(index).eq(forwarded(2)), "engine {index} on {data:?}");
    }
    expected
}

/// A whole activation, resumed until it is over, and a comparison of two messages.
fn check_rule(case: &Case<'_>, seed: u64) {
    let module = case.interpreter.module();
    let mut engines: Vec<&dyn Engine> = vec![case.interpreter];
    engines.extend(case.compiled.iter().map(|compiled| compiled as &dyn Engine));
    let records = record_rules(&engines, module, seed);
    let order = record_order(case.interpreter, module, seed);
    for (compiled, record) in case.compiled.iter().zip(&records[1..]) {
        assert_eq!(record, &records[0]);
        assert_eq!(record_order(compiled, module, seed), order, "order");
    }
}

fn check_builder(case: &Case<'_>, frame: &Frame, out: &mut [Vec<u8>; 2]) {
    let [expected, found] = out;
    let (len, used) = case.interpreter.build_counted(BUILDER, frame, expected);
    assert!(used <= case.interpreter.certificate()[BUILDER.0 as usize].steps, "the bound holds");
    for compiled in case.compiled {
        let found_len = compiled.build(BUILDER, frame, found);
        assert_eq!(found[..found_len], expected[..len], "output");
    }
}
