//! Random grammars, random messages: parsers against a model with integers that never wrap, cut at every byte.

use flick_abi::FaultCause;
use flick_abi::ParseStep;
use flick_check::hir::{
    BinaryOp, Block, Channel, ChannelId, DecodedField, Derived, Expr, ExprKind, Field, FieldId, FieldKind,
    IntRepr, Local, LocalId, Proc, Program, Rule, Span, Ty, Unit, UnitId,
};

use crate::engines::Engines;
use crate::hand::{
    arithmetic, block, bool_expr, bytes_field, channel, compare, field, int, int_expr, int_field,
};
use crate::model::{self, Value};
use crate::random::{Random, cases};
use crate::source::lowered;

/// Longest bytes field that is not streamed.
const BYTES_MAX: u32 = 16;
/// Longer than every message without its streamed field.
const DATA_BYTES: usize = 320;

/// A random grammar; lengths and checks depend on earlier fields.
fn unit(random: &mut Random) -> Unit {
    let mut fields: Vec<Field> = Vec::new();
    let mut ints: Vec<u32> = Vec::new();
    let count = 2 + random.below(9);
    for _ in 0..count {
        let id = fields.len() as u32;
        let repr = IntRepr { width_bytes: *random.pick(&[1, 1, 2, 4, 8]), signed: random.once_in(4) };
        let mut new = match random.below(11) {
            0 => Field {
                name: Some("n".to_owned()),
                kind: FieldKind::Vint { derived: None },
                requires: Vec::new(),
                cause: FaultCause::Malformed,
                too_long: FaultCause::TooLong,
                default: None,
                span: Span::default(),
            },
            1..=6 => {
                let mut new = int_field("f", repr, None);
                if let FieldKind::Int { big_endian, .. } = &mut new.kind {
                    *big_endian = random.once_in(2);
                }
                new
            }
            7..=8 => Field {
                name: Some("v".to_owned()),
                kind: FieldKind::Var { repr, parse: number(random, &ints, 3), sum: None },
                requires: Vec::new(),
                cause: FaultCause::Malformed,
                too_long: FaultCause::TooLong,
                default: None,
                span: Span::default(),
            },
            _ => bytes_field("b", length(random, &ints), Some(BYTES_MAX), false),
        };
        if !matches!(new.kind, FieldKind::Bytes { .. }) {
            ints.push(id);
        }
        if random.once_in(6) && !ints.is_empty() {
            new.requires.push(truth(random, &ints, 2));
        }
        fields.push(new);
    }
    if random.once_in(2) {
        let length = if random.once_in(3) { number(random, &ints, 2) } else { length(random, &ints) };
        fields.push(bytes_field("tail", length, None, true));
    }
    Unit { name: "u".to_owned(), fields, body: None, facts: Default::default(), span: Span::default() }
}

/// A length that is often small.
fn length(random: &mut Random, ints: &[u32]) -> Expr {
    if ints.is_empty() {
        return int(random.below(5).into());
    }
    let source = field(*random.pick(ints));
    match random.below(4) {
        0 => arithmetic(BinaryOp::Mod, source, int(random.below(12).into())),
        1 => arithmetic(BinaryOp::Sub, source, int(1)),
        _ => source,
    }
}

fn number(random: &mut Random, ints: &[u32], depth: u32) -> Expr {
    if depth == 0 || random.once_in(5) {
        if !ints.is_empty() && !random.once_in(4) {
            return field(*random.pick(ints));
        }
        let edges = [0, 1, -1, 3, 255, 1 << 32, i128::from(i64::MAX), i128::from(i64::MIN), (1 << 64) - 1];
        return int(*random.pick(&edges));
    }
    match random.below(9) {
        0 => int_expr(ExprKind::Neg(Box::new(number(random, ints, depth - 1)))),
        1 => int_expr(ExprKind::If {
            cond: Box::new(truth(random, ints, depth - 1)),
            then: block(number(random, ints, depth - 1)),
            otherwise: Some(block(number(random, ints, depth - 1))),
        }),
        2 => {
            let arms: Vec<(Vec<Expr>, Block)> = (0..3)
                .map(|hit| (vec![int(hit), int(hit + 5)], block(number(random, ints, depth - 1))))
                .collect();
            int_expr(ExprKind::Switch {
                value: Box::new(number(random, ints, depth - 1)),
                arms,
                otherwise: Some(block(number(random, ints, depth - 1))),
            })
        }
        _ => {
            use BinaryOp::{Add, Div, Mod, Mul, Sub};
            let op = *random.pick(&[Add, Add, Sub, Sub, Mul, Div, Mod]);
            arithmetic(op, number(random, ints, depth - 1), number(random, ints, depth - 1))
        }
    }
}

fn truth(random: &mut Random, ints: &[u32], depth: u32) -> Expr {
    if depth > 0 && random.once_in(3) {
        let op = if random.once_in(2) { BinaryOp::And } else { BinaryOp::Or };
        let (a, b) = (truth(random, ints, depth - 1), truth(random, ints, depth - 1));
        return bool_expr(ExprKind::Binary(op, Box::new(a), Box::new(b)));
    }
    use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
    let depth = depth.saturating_sub(1);
    compare(*random.pick(&[Eq, Ne, Lt, Le, Gt, Ge]), number(random, ints, depth), number(random, ints, depth))
}

/// A process that receives `unit`, and sends on what it has read of it: integers as 8 bytes, those of variable length
/// in their shortest form, bytes behind their length in 4.
fn dump_program(unit: Unit, view: &[u32]) -> Program {
    let mut dump = Vec::new();
    let mut values = Vec::new();
    for &id in view {
        let at = dump.len() as u32;
        let message =
            Expr { kind: ExprKind::Local(LocalId(0)), ty: Ty::Record(UnitId(0)), span: Span::default() };
        let read = ExprKind::Field(Box::new(message), FieldId(id));
        if let FieldKind::Bytes { .. } = unit.fields[id as usize].kind {
            dump.push(int_field(
                "len",
                IntRepr { width_bytes: 4, signed: false },
                Some(Derived::LengthOf(FieldId(at + 1))),
            ));
            dump.push(bytes_field("bytes", field(at), Some(BYTES_MAX), false));
            let ty = Ty::Bytes { max: BYTES_MAX, text: false };
            values.push((FieldId(at + 1), Expr { kind: read, ty, span: Span::default() }));
        } else if let FieldKind::Vint { .. } = unit.fields[id as usize].kind {
            let mut vint = int_field("vint", IntRepr { width_bytes: 8, signed: true }, None);
            vint.kind = FieldKind::Vint { derived: None };
            dump.push(vint);
            values.push((FieldId(at), int_expr(read)));
        } else {
            dump.push(int_field("int", IntRepr { width_bytes: 8, signed: true }, None));
            values.push((FieldId(at), int_expr(read)));
        }
    }
    let dump = Unit {
        name: "dump".to_owned(),
        fields: dump,
        body: None,
        facts: Default::default(),
        span: Span::default(),
    };
    let build =
        Expr { kind: ExprKind::Build(UnitId(1), values), ty: Ty::Record(UnitId(1)), span: Span::default() };
    let send = Expr {
        kind: ExprKind::Send { message: Box::new(build), channel: Box::new(channel(0)) },
        ty: Ty::Nothing,
        span: Span::default(),
    };
    let rule = Rule {
        source: ChannelId(0),
        locals: vec![Local { name: "m".to_owned(), ty: Ty::Record(UnitId(0)), span: Span::default() }],
        body: block(send),
        span: Span::default(),
    };
    let client = Channel {
        name: "client".to_owned(),
        is_array: false,
        receives: Some(UnitId(0)),
        sends: Some(UnitId(1)),
        view: view
            .iter()
            .map(|id| DecodedField { field: FieldId(*id), max: None, optional: false })
            .collect(),
        keys: Vec::new(),
        whole: false,
        span: Span::default(),
    };
    let process = Proc {
        name: "P".to_owned(),
        channels: vec![client],
        rules: vec![rule],
        merges: Vec::new(),
        handlers: Vec::new(),
        timers: Vec::new(),
        span: Span::default(),
    };
    Program { units: vec![unit, dump], process: Some(process), ..Program::default() }
}

fn dump_of(unit: &Unit, fields: &[Value], view: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &id in view {
        let is_vint = matches!(unit.fields[id as usize].kind, FieldKind::Vint { .. });
        match &fields[id as usize] {
            Value::Int(value) if is_vint => bytes.extend(model::vint_bytes(*value as i64)),
            Value::Int(value) => bytes.extend((*value as u64).to_be_bytes()),
            Value::Bytes(value) => {
                bytes.extend((value.len() as u32).to_be_bytes());
                bytes.extend(value);
            }
            Value::Bool(_) => panic!("no field is a boolean"),
        }
    }
    bytes
}

fn message(random: &mut Random) -> Vec<u8> {
    let byte = |random: &mut Random| match random.below(8) {
        0..=3 => 0,
        4..=6 => random.below(16) as u8,
        _ => random.next() as u8,
    };
    (0..DATA_BYTES).map(|_| byte(random)).collect()
}

#[test]
fn parsers_agree_with_the_model_on_random_grammars() {
    let (mut done, mut refused) = (0, 0);
    for seed in 0..cases(300) {
        let mut random = Random(seed);
        let unit = unit(&mut random);
        let is_streamed =
            |id: u32| matches!(unit.fields[id as usize].kind, FieldKind::Bytes { streamed: true, .. });
        // An unread variable is not computed, so its range refuses nothing: here all of them are read.
        let is_var = |id: u32| matches!(unit.fields[id as usize].kind, FieldKind::Var { .. });
        let view: Vec<u32> = (0..unit.fields.len() as u32)
            .filter(|id| random.once_in(2) && !is_streamed(*id) || is_var(*id))
            .collect();
        let program = dump_program(unit, &view);
        let engines = Engines::new(lowered(&program));
        let (parser, rule) = (engines.find("parse_request.client"), engines.find("rule.1"));
        for _ in 0..8 {
            let data = message(&mut random);
            let outcome = model::read(&program.units[0], &data);
            let (step, frame) = engines.parse_whole(parser, &data);
            let context = || format!("seed {seed}, view {view:?}, {:?}", program.units[0].fields);
            match (step, outcome.fields) {
                (ParseStep::Done, Some(fields)) => {
                    done += 1;
                    assert_eq!(i128::from(frame.total_bytes()), outcome.total, "{}", context());
                    let total_max = engines.module.program.protocols[0].message_bytes_max;
                    assert!(frame.total_bytes() <= total_max, "{total_max}: {}", context());
                    let head = &data[..frame.head_bytes() as usize];
                    let sent = engines.run(rule, &frame, head, &[1]);
                    assert_eq!(sent, [(0, 0, dump_of(&program.units[0], &fields, &view))], "{}", context());
                    engines.parse_at_every_cut(parser, head);
                }
                (ParseStep::Fault { .. }, None) => {
                    refused += 1;
                    engines.parse_at_every_cut(parser, &data[..80]);
                }
                (ParseStep::Fault { cause: FaultCause::Arithmetic, .. }, Some(_)) if outcome.may_refuse => {}
                (step, fields) => panic!("{step:?}, the model says {fields:?}; {}", context()),
            }
        }
    }
    assert!(done > 200 && refused > 200, "both happen often: {done} accepted, {refused} refused");
}

#[test]
fn integers_of_variable_length_are_read_in_any_form_and_written_in_the_shortest() {
    let mut vint = int_field("n", IntRepr { width_bytes: 8, signed: true }, None);
    vint.kind = FieldKind::Vint { derived: None };
    let unit = Unit {
        name: "u".to_owned(),
        fields: vec![vint],
        body: None,
        facts: Default::default(),
        span: Span::default(),
    };
    let engines = Engines::new(lowered(&dump_program(unit, &[0])));
    let (parser, rule) = (engines.find("parse_request.client"), engines.find("rule.1"));
    let check = |bytes: &[u8], value: i64| {
        let (step, frame) = engines.parse_at_every_cut(parser, bytes);
        assert_eq!((step, frame.total_bytes()), (ParseStep::Done, bytes.len() as u64), "{bytes:?}");
        assert_eq!(model::vint(bytes), (value, bytes.len()), "{bytes:?}");
        assert_eq!(engines.run(rule, &frame, bytes, &[1]), [(0, 0, model::vint_bytes(value))], "{bytes:?}");
    };
    for bits in 0..64 {
        for near in -2..=2 {
            let value = (1_i64 << bits).wrapping_add(near);
            for value in [value, !value, value.wrapping_sub(112), value.wrapping_sub(120)] {
                check(&model::vint_bytes(value), value);
            }
        }
    }
    // From the encoding's own description: 300 in two bytes behind their number, -1 as short as it gets.
    check(&[0x8e, 0x01, 0x2c], 300);
    check(&[0xff], -1);
    check(&[0x87, 0x70], -113);
    // Longer than need be: accepted, as Hadoop does.
    check(&[0x8d, 0, 0, 5], 5);
    check(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0], -1);
}
