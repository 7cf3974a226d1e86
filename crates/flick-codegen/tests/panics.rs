//! A panic in what generated code calls leaves the engine as a panic, through every frame of generated code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use flick_abi::limits::{OUT_BYTES_MAX, STATE_WORDS_MAX};
use flick_abi::{AskList, Engine, Frame, FuncId, NoHost, RuleCall, RuleOutcome, SendList};
use flick_codegen::{Compiled, Options, compile};

/// A rule that calls a function, which calls another, which calls a helper of the runtime.
const CALLS: &str = r#"program "p" { }

fn f0 helper "write" -> int {
  b0(v0: int):
    v1: bytes = format_int.s10 v0
    v2: int = len v1
    return v2
}

fn f1 helper "twice" -> int {
  b0(v0: int):
    v1: int = call f0(v0)
    v2: int = call f0(v1)
    v3: int = add v1, v2
    return v3
}

fn f2 rule "rule.0" {
  b0(v0: frame, v1: uint):
    v2: int = const 12345
    v3: int = call f1(v2)
    return
}
"#;

const RULE: FuncId = FuncId(2);

fn engine() -> Compiled {
    let module = flick_ir::text::parse(CALLS).expect("the fixture is of the form");
    compile(&module, &Options::default()).expect("the fixture compiles")
}

/// Runs the rule with this much output; returns how much it has written.
fn run(engine: &dyn Engine, out_bytes: usize) -> usize {
    let (mut sends, mut asks) = (SendList::new(), AskList::new());
    let mut out = vec![0; out_bytes];
    let mut call = RuleCall {
        frame: &Frame::new(),
        message: &[],
        others: &[],
        source_element: 0,
        channel_lens: &[],
        counters: &[],
        out: &mut out,
        out_len: 0,
        sends: &mut sends,
        asks: &mut asks,
        answers: &[],
        spills: &mut [],
        resume: 0,
        state: &mut [0; STATE_WORDS_MAX],
        failure: None,
        host: &mut NoHost,
    };
    assert_eq!(engine.run(RULE, &mut call), RuleOutcome::Finished);
    call.out_len
}

/// Runs the rule with less output than its bound, which a helper asserts.
fn panics(engine: &dyn Engine) -> bool {
    catch_unwind(AssertUnwindSafe(|| run(engine, 2))).is_err()
}

#[test]
fn a_panic_in_a_helper_is_caught_by_the_caller_of_the_engine() {
    let engine = engine();
    for _ in 0..100 {
        assert!(panics(&engine), "the output is too short");
        assert_eq!(run(&engine, OUT_BYTES_MAX), 6, "`12345` and its length, `5`");
    }
}

#[test]
fn code_that_comes_and_goes_on_several_threads_can_be_unwound() {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(|| {
                for _ in 0..50 {
                    let (first, second) = (engine(), engine());
                    assert!(panics(&first) && panics(&second));
                    drop(first);
                    assert!(panics(&second));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread ends early");
    }
}
