//! Skipping of lines: compiled code and the interpreter skip the same lines, wherever a message ends, whatever is wrong
//! in it, and however long lines are.

use flick_abi::{BytesRef, Engine, Frame, FuncId, ParseStep, Region};
use flick_codegen::{Optimise, Options, compile};
use flick_ir::Interpreter;
use flick_ir::data::{
    Block, FuncKind, Function, Inst, LineDoes, LineForm, LineKey, Module, Op, SourceOrigin, Terminator, Type,
    Value,
};
use flick_ir::random::Rng;

/// Slots of the parser's start position, of the largest number of lines, and of its result.
const FROM: u16 = 12;
const LEFT: u16 = 13;
const FOUND: u16 = 14;
/// First slot of the kept values.
const KEPT: u16 = 15;

fn class(is_member: impl Fn(u8) -> bool) -> [u64; 4] {
    let mut class = [0; 4];
    for byte in (0..=255_u8).filter(|byte| is_member(*byte)) {
        class[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    class
}

/// A name that is longer than a register.
const LONG: &str = "Zoo-of-a-name-that-is-longer-than-any-row-has-bits";
/// A name that is as long as a step.
const LONGER: &str = "name-of-64-bytes-name-of-64-bytes-name-of-64-bytes-name-of-64-by";

/// Names that matter, and what is done for each. The first slot is the first free one.
fn names() -> Vec<(&'static str, LineDoes)> {
    let keep = |number: u16, once, cut| LineDoes::Keep { slot: KEPT + number, once, cut };
    vec![
        ("Host", keep(0, true, false)),
        ("Connection", LineDoes::Stop),
        ("Accept", keep(1, false, false)),
        ("Keep-Alive", LineDoes::Cut),
        ("X", keep(2, false, true)),
        (LONG, keep(3, false, false)),
        (LONGER, keep(4, true, true)),
    ]
}

fn consts() -> Vec<u8> {
    let names: String = names().iter().map(|(name, _)| *name).collect();
    format!("\r\n{names}").into_bytes()
}

fn keys() -> Vec<LineKey> {
    let mut at = 2;
    let key = |(name, does): (&str, LineDoes)| {
        let name = (at, name.len() as u32);
        at += name.1;
        LineKey { name, does }
    };
    names().into_iter().map(key).collect()
}

fn forms() -> Vec<LineForm> {
    let form = |end, max, upto, value| LineForm {
        name: 0,
        name_max: if max < 100 { 20 } else { 70 },
        separator: b':',
        blanks: 2,
        value,
        end,
        max,
        upto,
        trim: max != 150,
        nocase: upto != 300,
        push: value == 3,
        keys: keys(),
    };
    vec![
        form((0, 2), 8192, 16384, 1),
        form((1, 1), 8192, 16384, 1),
        form((0, 2), 150, 300, 1),
        form((0, 2), 8192, 16384, 3),
        form((0, 2), 50, 16384, 1),
        LineForm { keys: vec![], ..form((0, 2), 8192, 16384, 1) },
    ]
}

fn module() -> Module {
    let mut module = flick_ir::text::parse("program \"p\" { }").expect("the text is of the form");
    module.consts = consts();
    module.classes = vec![
        class(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)),
        class(|byte| byte >= 0x20 && byte != 0x7f || byte == b'\t'),
        class(|byte| byte == b' ' || byte == b'\t'),
        class(|byte| byte.is_ascii_graphic()),
    ];
    module.functions = forms().into_iter().map(parser).collect();
    assert_eq!(flick_ir::verify(&module), []);
    module
}

fn parser(form: LineForm) -> Function {
    let values = vec![Type::Frame, Type::Int, Type::Int, Type::Int, Type::Int];
    let [from, left, found] = [Value(2), Value(3), Value(4)];
    let inst = |result, op| Inst { result, op, origin: SourceOrigin::default() };
    let insts = vec![
        inst(Some(from), Op::FrameGet { slot: FROM }),
        inst(Some(left), Op::FrameGet { slot: LEFT }),
        inst(Some(found), Op::Lines { from, left, form: Box::new(form) }),
        inst(None, Op::FrameSet { slot: FOUND, value: found }),
    ];
    let block = Block {
        params: vec![Value(0), Value(1)],
        trips_max: None,
        advance: None,
        insts,
        end: Terminator::Done,
    };
    Function {
        name: "pass".into(),
        kind: FuncKind::Parser,
        results: vec![],
        values,
        lengths: Default::default(),
        blocks: vec![block],
    }
}

/// Lines as clients send them, and now and then something that is none.
fn message(rng: &mut Rng) -> Vec<u8> {
    let mut message = Vec::new();
    for _ in 0..rng.below(9) {
        let names: [&str; 12] = [
            "Host",
            "host",
            "Connection",
            "Accept",
            "aCCEPT",
            "keep-alive",
            "X",
            LONG,
            LONGER,
            "",
            "User-Agent",
            "Hast",
        ];
        message.extend_from_slice(rng.pick(&names).as_bytes());
        message.extend_from_slice(if rng.chance(96) { b":" } else { b" :" });
        let blanks = if rng.chance(85) { 1 } else { rng.below(70) };
        message.extend(std::iter::repeat_n(b' ', blanks));
        let len = if rng.chance(70) { rng.below(40) } else { rng.below(200) };
        message.extend(
            (0..len).map(|_| if rng.chance(99) { 0x21 + rng.below(0x5e) as u8 } else { rng.word() as u8 }),
        );
        message.extend(std::iter::repeat_n(b' ', if rng.chance(90) { 0 } else { rng.below(3) }));
        message.extend_from_slice(if rng.chance(95) { b"\r\n" } else { b"\n" });
    }
    if rng.chance(70) {
        message.extend_from_slice(b"\r\n");
    }
    message
}

/// Result word of a pass, kept values, cuts and pushed items.
type Found = (u64, Vec<u64>, Vec<(u64, u64)>, Vec<u64>);

fn check(engines: &[(&str, &dyn Engine)], message: &[u8], from: u64, left: i64) {
    for form in 0..forms().len() as u32 {
        let found: Vec<Found> = engines
            .iter()
            .map(|(_, engine)| {
                let mut frame = Frame::new();
                (frame.slots[usize::from(FROM)], frame.slots[usize::from(LEFT)]) = (from, left as u64);
                let kept = usize::from(KEPT)..usize::from(KEPT) + names().len();
                frame.slots[kept.clone()].fill(BytesRef::MISSING.0);
                assert_eq!(engine.parse(FuncId(form), &mut frame, message), ParseStep::Done);
                (
                    frame.slots[usize::from(FOUND)],
                    frame.slots[kept].to_vec(),
                    frame.cuts().collect(),
                    frame.items().to_vec(),
                )
            })
            .collect();
        for ((name, _), found_here) in engines.iter().zip(&found) {
            let text = String::from_utf8_lossy(message);
            assert_eq!(*found_here, found[0], "{name}, form {form}, from {from}, at most {left}: {text:?}");
        }
    }
}

#[test]
fn the_same_lines_are_passed_over() {
    let module = module();
    let compiled = [Optimise::None, Optimise::Speed].map(|optimise| {
        let options = Options { optimise, clif_verifier: true, regalloc_checker: true, listings: false };
        compile(&module, &options).expect("the module compiles")
    });
    let interpreter = Interpreter::new(module);
    let engines: [(&str, &dyn Engine); 3] =
        [("interpreter", &interpreter), ("plain", &compiled[0]), ("fast", &compiled[1])];
    let whole = b"Accept: */*\r\nX-Id: 42\r\nUser-Agent: curl/8.5.0 is a client that says much of itself, too much\r\n\
                  HOST: a.b\r\nX: cut\r\nX: again\r\nConnection: close\r\n\r\n";
    let offset_of =
        |what: &[u8]| whole.windows(what.len()).position(|part| part == what).expect("it is there") as u64;
    for (_, engine) in &engines {
        let mut frame = Frame::new();
        (frame.slots[usize::from(FROM)], frame.slots[usize::from(LEFT)]) = (0, 100);
        frame.slots[usize::from(KEPT)..][..names().len()].fill(BytesRef::MISSING.0);
        assert_eq!(engine.parse(FuncId(0), &mut frame, whole), ParseStep::Done);
        let stop = offset_of(b"Connection");
        assert_eq!(frame.slots[usize::from(FOUND)], stop + (6 << 32), "six lines are passed over");
        let kept = &frame.slots[usize::from(KEPT)..];
        let of = |what: &[u8]| BytesRef::new(Region::Message, offset_of(what), what.len() as u32).0;
        let missing = BytesRef::MISSING.0;
        assert_eq!(kept[..5], [of(b"a.b"), of(b"*/*"), of(b"cut"), missing, missing]);
        assert_eq!(frame.cuts().collect::<Vec<_>>(), [(offset_of(b"X: cut"), stop)]);
    }

    let mut rng = Rng::new(11);
    for _ in 0..1500 {
        let message = message(&mut rng);
        for _ in 0..6 {
            let end = if rng.chance(50) { message.len() } else { rng.below(message.len() + 1) };
            let from = if rng.chance(50) { 0 } else { rng.below(message.len() + 3) as u64 };
            let left = if rng.chance(80) { 100 } else { rng.below(4) as i64 - 1 };
            check(&engines, &message[..end], from, left);
        }
        check(&engines, &message, u64::MAX, i64::MAX);
    }
}
