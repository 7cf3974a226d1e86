//! The output of rules: parts of a message of every length, on both engines.

use flick_abi::frame::SLOT_CUTS;
use flick_abi::{AskList, Engine, Frame, FuncId, NoHost, RuleCall, RuleOutcome, SendList};
use flick_codegen::{Options, compile};
use flick_ir::Interpreter;

/// A rule that appends the part of its message between two fields.
const APPENDS: &str = r#"program "p" { }

fn f0 rule "rule.0" {
  b0(v0: frame, v1: uint):
    v2: int = frame_get 12
    v3: int = frame_get 13
    emit_message v2, v3
    return
}
"#;

/// Bytes of the output behind what is built, which stay as they are.
const BEHIND: u8 = 0xee;

/// Appends `message[start..end]`, of which `cut` is not forwarded, to `before` bytes of output that `capacity` are left
/// behind. Returns the output, or `None` if the engine has found a broken invariant.
fn append(
    engine: &dyn Engine,
    message: &[u8],
    (start, end): (u64, u64),
    cut: Option<u64>,
    (before, capacity): (usize, usize),
) -> Option<Vec<u8>> {
    let mut frame = Frame::new();
    (frame.slots[12], frame.slots[13]) = (start, end);
    if let Some(at) = cut {
        (frame.cuts[0], frame.slots[SLOT_CUTS]) = ((at << 32) | (at + 1), 1);
    }
    let mut out = vec![BEHIND; before + capacity];
    let mut call = RuleCall {
        frame: &frame,
        message,
        others: &[],
        source_element: 0,
        channel_lens: &[],
        counters: &[],
        out: &mut out,
        out_len: before,
        sends: &mut SendList::new(),
        asks: &mut AskList::new(),
        answers: &[],
        spills: &mut [],
        resume: 0,
        state: &mut [],
        failure: None,
        host: &mut NoHost,
    };
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        assert_eq!(engine.run(FuncId(0), &mut call), RuleOutcome::Finished);
        call.out_len
    }));
    let len = ran.ok()?;
    assert!(out[len..].iter().all(|byte| *byte == BEHIND), "bytes behind the output have changed");
    out.truncate(len);
    Some(out)
}

#[test]
fn part_of_a_message_was_appended_wrongly() {
    let module = flick_ir::text::parse(APPENDS).expect("the fixture is of the form");
    let compiled = compile(&module, &Options::default()).expect("the fixture compiles");
    let interpreter = Interpreter::new(module);
    let message: Vec<u8> = (0..100).collect();
    let both = |message: &[u8], part, cut, output| {
        [&interpreter as &dyn Engine, &compiled].map(|engine| append(engine, message, part, cut, output))
    };
    for len in 0..=80_u64 {
        for start in [0, 1, 7, 20] {
            let (end, part) = (start + len, (start, start + len));
            // A message that ends with the part, and an output that it just fills.
            let whole = &message[..end as usize];
            let expected = [&[BEHIND; 3][..], &whole[start as usize..]].concat();
            for (message, capacity) in [(whole, len as usize), (&message[..], len as usize + 5)] {
                let [interpreted, compiled] = both(message, part, None, (3, capacity));
                assert_eq!(interpreted.as_ref(), Some(&expected), "{part:?} in {capacity}");
                assert_eq!(compiled, interpreted, "{part:?} in {capacity}");
            }
            let [interpreted, compiled] = both(&message, part, Some(start), (3, len as usize));
            assert_eq!(interpreted.map(|out| out.len() as u64), Some(3 + len.saturating_sub(1)));
            assert_eq!(compiled.map(|out| out.len() as u64), Some(3 + len.saturating_sub(1)));
            if len > 0 {
                assert_eq!(both(whole, part, None, (3, len as usize - 1)), [None, None], "no capacity");
                assert_eq!(
                    both(&whole[..end as usize - 1], part, None, (3, 90)),
                    [None, None],
                    "behind its end"
                );
                assert_eq!(both(whole, (end, start), None, (3, 90)), [None, None], "backwards");
            }
        }
    }
}
