//! Arithmetic of rules: random expressions over 64-bit fields against a model that wraps as the language says.

use flick_abi::{ParseStep, hash};
use flick_check::hir::{
    BinaryOp, Builtin, ChannelId, Expr, ExprKind, Facts, FieldId, IntRepr, Local, LocalId, Rule, Span, Ty,
    Unit, UnitId,
};

use crate::engines::Engines;
use crate::hand::{block, bool_expr, channel, int_field, program};
use crate::random::{Random, cases};
use crate::source::lowered;

const SIGNED: Ty = Ty::Int { lo: i64::MIN as i128, hi: i64::MAX as i128, unsigned: false };
const UNSIGNED: Ty = Ty::Int { lo: 0, hi: u64::MAX as i128, unsigned: true };

/// An expression of the type of `unsigned` words or of signed ones.
fn number(random: &mut Random, unsigned: bool, depth: u32) -> Expr {
    let ty = if unsigned { UNSIGNED } else { SIGNED };
    let typed = |kind| Expr { kind, ty: ty.clone(), span: Span::default() };
    if depth == 0 || random.once_in(6) {
        if random.once_in(3) {
            let edge =
                *random.pick(&[0, 1, 2, 7, i128::from(i64::MAX), (1 << 64) - 1, -1, i128::from(i64::MIN)]);
            let range = if unsigned { 0..1 << 64 } else { i128::from(i64::MIN)..1 << 63 };
            let edge = if range.contains(&edge) { edge } else { 3 };
            let ty = Ty::Int { lo: edge, hi: edge, unsigned };
            return Expr { kind: ExprKind::Int(edge), ty, span: Span::default() };
        }
        let message = ExprKind::Local(LocalId(0));
        let message = Expr { kind: message, ty: Ty::Record(UnitId(0)), span: Span::default() };
        return typed(ExprKind::Field(Box::new(message), FieldId(u32::from(unsigned))));
    }
    let depth = depth - 1;
    let of = |random: &mut Random| Box::new(number(random, unsigned, depth));
    match random.below(9) {
        0 if !unsigned => typed(ExprKind::Neg(of(random))),
        0 => {
            let of_unsigned = random.once_in(2);
            let arg = number(random, of_unsigned, depth);
            typed(ExprKind::Builtin(Builtin::Hash, vec![arg]))
        }
        1 => typed(ExprKind::If {
            cond: Box::new(truth(random, depth)),
            then: block(*of(random)),
            otherwise: Some(block(*of(random))),
        }),
        2 => {
            let builtin = *random.pick(&[Builtin::Min, Builtin::Max]);
            typed(ExprKind::Builtin(builtin, vec![*of(random), *of(random)]))
        }
        _ => {
            use BinaryOp::{Add, Div, Mod, Mul, Sub};
            let op = *random.pick(&[Add, Sub, Mul, Div, Mod]);
            typed(ExprKind::Binary(op, of(random), of(random)))
        }
    }
}

/// Comparisons are exact even between signed and unsigned words.
fn truth(random: &mut Random, depth: u32) -> Expr {
    use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
    let op = *random.pick(&[Eq, Ne, Lt, Le, Gt, Ge]);
    let [a, b] = [(); 2].map(|()| {
        let unsigned = random.once_in(2);
        Box::new(number(random, unsigned, depth))
    });
    bool_expr(ExprKind::Binary(op, a, b))
}

/// The value as an integer without end; within the words of its type.
fn model(expr: &Expr, fields: [i128; 2]) -> i128 {
    let wrap =
        |value: i128| if expr.ty == UNSIGNED { i128::from(value as u64) } else { i128::from(value as i64) };
    match &expr.kind {
        ExprKind::Int(value) => *value,
        ExprKind::Field(_, field) => fields[field.0 as usize],
        ExprKind::Neg(inner) => wrap(-model(inner, fields)),
        ExprKind::Builtin(Builtin::Hash, args) => {
            i128::from(hash::hash(&(model(&args[0], fields) as u64).to_le_bytes()))
        }
        ExprKind::Builtin(Builtin::Min, args) => model(&args[0], fields).min(model(&args[1], fields)),
        ExprKind::Builtin(Builtin::Max, args) => model(&args[0], fields).max(model(&args[1], fields)),
        ExprKind::If { cond, then, otherwise } => {
            let block = if holds(cond, fields) { then } else { otherwise.as_ref().unwrap() };
            model(block.value.as_ref().unwrap(), fields)
        }
        ExprKind::Binary(op, a, b) => {
            let (a, b) = (model(a, fields), model(b, fields));
            wrap(match op {
                BinaryOp::Add => a + b,
                BinaryOp::Sub => a - b,
                BinaryOp::Mul => a.wrapping_mul(b),
                BinaryOp::Div => {
                    if b == 0 {
                        0
                    } else {
                        floored(a, b)
                    }
                }
                BinaryOp::Mod => {
                    if b == 0 {
                        0
                    } else {
                        a - floored(a, b) * b
                    }
                }
                other => panic!("{other:?} is no arithmetic"),
            })
        }
        other => panic!("the model does not know {other:?}"),
    }
}

fn floored(a: i128, b: i128) -> i128 {
    if a % b != 0 && (a < 0) != (b < 0) { a / b - 1 } else { a / b }
}

fn holds(expr: &Expr, fields: [i128; 2]) -> bool {
    let ExprKind::Binary(op, a, b) = &expr.kind else { panic!("the model knows comparisons only") };
    let (a, b) = (model(a, fields), model(b, fields));
    match op {
        BinaryOp::Eq => a == b,
        BinaryOp::Ne => a != b,
        BinaryOp::Lt => a < b,
        BinaryOp::Le => a <= b,
        BinaryOp::Gt => a > b,
        _ => a >= b,
    }
}

/// Engines for a process that answers each message of two words with the value of `value`.
fn engines(value: Expr) -> Engines {
    let word = |signed| IntRepr { width_bytes: 8, signed };
    let fields = vec![int_field("a", word(true), None), int_field("b", word(false), None)];
    let mut program = program(fields, Facts::default(), &[0, 1]);
    let answer = int_field("answer", word(true), None);
    program.units.push(Unit {
        name: "answer".to_owned(),
        fields: vec![answer],
        body: None,
        facts: Facts::default(),
        span: Span::default(),
    });
    let build = ExprKind::Build(UnitId(1), vec![(FieldId(0), value)]);
    let build = Expr { kind: build, ty: Ty::Record(UnitId(1)), span: Span::default() };
    let send = ExprKind::Send { message: Box::new(build), channel: Box::new(channel(0)) };
    let body = block(Expr { kind: send, ty: Ty::Nothing, span: Span::default() });
    let message = Local { name: "m".to_owned(), ty: Ty::Record(UnitId(0)), span: Span::default() };
    let rule = Rule { source: ChannelId(0), locals: vec![message], body, span: Span::default() };
    program.process.as_mut().unwrap().rules.push(rule);
    Engines::new(lowered(&program))
}

#[test]
fn arithmetic_of_rules_wraps_as_the_language_says() {
    for seed in 0..cases(400) {
        let mut random = Random(seed);
        let value = number(&mut random, seed % 2 == 0, 4);
        let engines = engines(value.clone());
        let (parser, rule) = (engines.find("parse_request.client"), engines.find("rule.1"));
        for _ in 0..8 {
            let edges = [0, 1, 2, u64::MAX, 1 << 63, (1 << 63) - 1, random.next(), random.next() >> 40];
            let words = [(); 2].map(|()| *random.pick(&edges));
            let bytes = [words[0].to_be_bytes(), words[1].to_be_bytes()].concat();
            let (step, frame) = engines.parse_whole(parser, &bytes);
            assert_eq!(step, ParseStep::Done);
            let sent = engines.run(rule, &frame, &bytes, &[1]);
            let expected = model(&value, [i128::from(words[0] as i64), i128::from(words[1])]);
            assert_eq!(
                sent,
                [(0, 0, (expected as u64).to_be_bytes().to_vec())],
                "seed {seed}: {words:?} {value:?}"
            );
        }
    }
}
