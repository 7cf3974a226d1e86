//! Runs and needles: compiled code finds the positions that the interpreter finds, wherever a message is cut and the
//! search begins, for classes of all sorts and needles that overlap themselves.

use flick_abi::{Engine, Frame, FuncId, ParseStep};
use flick_codegen::{Optimise, Options, compile};
use flick_ir::Interpreter;
use flick_ir::data::{
    Binary, Block, FuncKind, Function, Inst, Module, Op, SourceOrigin, Terminator, Type, Value,
};
use flick_ir::random::Rng;

/// Slot of the parser's start position; its results are in the slots that follow.
const FROM: u16 = 12;
/// Largest number of bytes that each parser looks through.
const MAXES: [u32; 7] = [0, 1, 15, 16, 17, 40, u32::MAX];
/// Back to back in the constants.
const NEEDLES: [&[u8]; 6] = [b"\n", b"\r\n", b"aa", b"\r\n\r\n", b"aab", b"abababababababab"];

fn class(is_member: impl Fn(u8) -> bool) -> [u64; 4] {
    let mut class = [0; 4];
    for byte in (0..=255_u8).filter(|byte| is_member(*byte)) {
        class[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    class
}

/// A parser for each bound that looks for everything.
fn module() -> Module {
    let text = "program \"p\" { }";
    let mut module = flick_ir::text::parse(text).expect("the text is of the form");
    module.consts = NEEDLES.concat();
    module.classes = vec![
        class(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)),
        class(|byte| byte >= 0x20 && byte != 0x7f || byte == b'\t'),
        class(|byte| byte % 3 == 0),
        class(|byte| byte >= 0x80),
        class(|_| true),
        class(|_| false),
    ];
    module.functions = MAXES.map(|max| parser(max, module.classes.len())).into();
    assert_eq!(flick_ir::verify(&module), []);
    module
}

fn parser(max: u32, classes: usize) -> Function {
    let mut values = vec![Type::Frame, Type::Int, Type::Int];
    let from = Value(2);
    let mut insts = Vec::new();
    let mut push = |result, op| insts.push(Inst { result, op, origin: SourceOrigin::default() });
    push(Some(from), Op::FrameGet { slot: FROM });
    let mut ops: Vec<Op> = (0..classes as u32).map(|class| Op::ScanRun { from, class, max }).collect();
    let mut offset = 0;
    for needle in NEEDLES {
        let len = needle.len() as u32;
        ops.push(Op::Seek { from, offset, len, max });
        offset += len;
    }
    for (op, slot) in ops.into_iter().zip(FROM + 1..) {
        let position = Value(values.len() as u32);
        values.push(Type::Int);
        push(Some(position), op);
        // What was found is used once more, so that all 64 bits of it are checked.
        let sum = Value(values.len() as u32);
        values.push(Type::Int);
        push(Some(sum), Op::Binary(Binary::Add, position, from));
        push(None, Op::FrameSet { slot, value: sum });
    }
    let block = Block {
        params: vec![Value(0), Value(1)],
        trips_max: None,
        advance: None,
        insts,
        end: Terminator::Done,
    };
    Function {
        name: "look".into(),
        kind: FuncKind::Parser,
        results: vec![],
        values,
        lengths: Default::default(),
        blocks: vec![block],
    }
}

#[test]
fn scans_find_the_positions_of_the_interpreter() {
    let module = module();
    let compiled = [Optimise::None, Optimise::Speed].map(|optimise| {
        let options = Options { optimise, clif_verifier: true, regalloc_checker: true, listings: false };
        compile(&module, &options).expect("the module compiles")
    });
    let interpreter = Interpreter::new(module);
    let mut rng = Rng::new(7);
    for _ in 0..60 {
        // Runs of a few lengths, so that some are longer than a step and some end at its edges.
        let mut message = Vec::new();
        while message.len() < 70 {
            let byte = if rng.chance(70) { rng.pick(b"aab\r\n") } else { rng.word() as u8 };
            let count = if rng.chance(50) { 1 + rng.below(20) } else { 1 };
            message.extend(std::iter::repeat_n(byte, count));
        }
        message.truncate(rng.below(71));
        for from in (0..=message.len() as u64 + 2).chain([u64::MAX]) {
            for parser in 0..MAXES.len() as u32 {
                let positions = |engine: &dyn Engine| {
                    let mut frame = Frame::new();
                    frame.slots[usize::from(FROM)] = from;
                    assert_eq!(engine.parse(FuncId(parser), &mut frame, &message), ParseStep::Done);
                    frame.slots
                };
                let expected = positions(&interpreter);
                for engine in &compiled {
                    let max = MAXES[parser as usize];
                    assert_eq!(positions(engine), expected, "{message:?} from {from}, at most {max}");
                }
            }
        }
    }
}
