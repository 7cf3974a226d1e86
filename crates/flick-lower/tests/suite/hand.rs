//! Checked programs written by hand, for tests that need a grammar no source text would give so directly.

use flick_abi::FaultCause;
use flick_check::hir::{
    BinaryOp, Block, Channel, ChannelId, DecodedField, Derived, Expr, ExprKind, Facts, Field, FieldId,
    FieldKind, IntRepr, Proc, Program, Span, Ty, Unit, UnitId,
};

/// An unsigned integer's shape.
pub fn repr(width_bytes: u8) -> IntRepr {
    IntRepr { width_bytes, signed: false }
}

/// An expression of integer type.
pub fn int_expr(kind: ExprKind) -> Expr {
    let ty = Ty::Int { lo: i128::from(i64::MIN), hi: i128::from(u64::MAX), unsigned: false };
    Expr { kind, ty, span: Span::default() }
}

/// An expression of type bool.
pub fn bool_expr(kind: ExprKind) -> Expr {
    Expr { kind, ty: Ty::Bool, span: Span::default() }
}

/// `self.field`.
pub fn field(id: u32) -> Expr {
    int_expr(ExprKind::SelfField(FieldId(id)))
}

/// An integer literal.
pub fn int(value: i128) -> Expr {
    int_expr(ExprKind::Int(value))
}

/// `a op b` on integers.
pub fn arithmetic(op: BinaryOp, a: Expr, b: Expr) -> Expr {
    int_expr(ExprKind::Binary(op, Box::new(a), Box::new(b)))
}

/// `a op b` of type bool.
pub fn compare(op: BinaryOp, a: Expr, b: Expr) -> Expr {
    bool_expr(ExprKind::Binary(op, Box::new(a), Box::new(b)))
}

/// A big-endian integer field.
pub fn int_field(name: &str, repr: IntRepr, derived: Option<Derived>) -> Field {
    let kind = FieldKind::Int { repr, big_endian: true, enumeration: None, derived };
    Field {
        name: Some(name.to_owned()),
        kind,
        requires: Vec::new(),
        cause: FaultCause::Malformed,
        too_long: FaultCause::TooLong,
        default: None,
        span: Span::default(),
    }
}

/// A bytes field.
pub fn bytes_field(name: &str, length: Expr, max_bytes: Option<u32>, streamed: bool) -> Field {
    let kind = FieldKind::Bytes { text: true, max_bytes, length, streamed };
    Field {
        name: Some(name.to_owned()),
        kind,
        requires: Vec::new(),
        cause: FaultCause::Malformed,
        too_long: FaultCause::TooLong,
        default: None,
        span: Span::default(),
    }
}

/// A variable.
pub fn var_field(name: &str, repr: IntRepr, parse: Expr) -> Field {
    let kind = FieldKind::Var { repr, parse, sum: None };
    Field {
        name: Some(name.to_owned()),
        kind,
        requires: Vec::new(),
        cause: FaultCause::Malformed,
        too_long: FaultCause::TooLong,
        default: None,
        span: Span::default(),
    }
}

/// A process with one channel that receives messages of a unit and has the given view; no rules.
pub fn program(fields: Vec<Field>, facts: Facts, view: &[u32]) -> Program {
    let unit = Unit { name: "cmd".to_owned(), fields, body: None, facts, span: Span::default() };
    let channel = Channel {
        name: "client".to_owned(),
        is_array: false,
        receives: Some(UnitId(0)),
        sends: Some(UnitId(0)),
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
        channels: vec![channel],
        rules: Vec::new(),
        merges: Vec::new(),
        handlers: Vec::new(),
        timers: Vec::new(),
        span: Span::default(),
    };
    Program { units: vec![unit], process: Some(process), ..Program::default() }
}

/// The fields of Listing 2, numbered from 0: magic, opcode, key_len, extras_len, anonymous, status, total_len,
/// opaque, cas, value_len (a variable), extras, key, value.
pub fn memcached_fields() -> Vec<Field> {
    let sum = arithmetic(BinaryOp::Add, field(3), field(2));
    let total = arithmetic(
        BinaryOp::Add,
        arithmetic(BinaryOp::Add, field(2), field(3)),
        int_expr(ExprKind::LenOf(FieldId(12))),
    );
    let mut anonymous = int_field("", repr(1), None);
    anonymous.name = None;
    vec![
        int_field("magic_code", repr(1), None),
        int_field("opcode", repr(1), None),
        int_field("key_len", repr(2), Some(Derived::LengthOf(FieldId(11)))),
        int_field("extras_len", repr(1), Some(Derived::LengthOf(FieldId(10)))),
        anonymous,
        int_field("status_or_v_bucket", repr(2), None),
        int_field("total_len", repr(4), Some(Derived::Expr(total))),
        int_field("opaque", repr(4), None),
        int_field("cas", repr(8), None),
        var_field("value_len", repr(4), arithmetic(BinaryOp::Sub, field(6), sum)),
        bytes_field("extras", field(3), Some(255), false),
        bytes_field("key", field(2), Some(250), false),
        bytes_field("value", field(9), None, true),
    ]
}

/// Facts of memcached's binary protocol, in short.
pub fn memcached_facts() -> Facts {
    Facts {
        request: Some(compare(BinaryOp::Eq, field(0), int(0x80))),
        reply: Some(compare(BinaryOp::Eq, field(0), int(0x81))),
        in_order: true,
        correlate: Some(FieldId(7)),
        echo: vec![FieldId(1), FieldId(7)],
        ends: Some(compare(BinaryOp::Eq, field(1), int(0x07))),
        silent: Some(bool_expr(ExprKind::Binary(
            BinaryOp::And,
            Box::new(compare(BinaryOp::Eq, field(1), int(0x09))),
            Box::new(compare(BinaryOp::Eq, field(5), int(1))),
        ))),
        on: vec![(
            "unavailable".to_owned(),
            Expr {
                kind: ExprKind::Build(
                    UnitId(0),
                    vec![
                        (FieldId(0), int(0x81)),
                        (FieldId(1), field(1)),
                        (FieldId(7), field(7)),
                        (FieldId(5), int(0x86)),
                    ],
                ),
                ty: Ty::Record(UnitId(0)),
                span: Span::default(),
            },
        )],
        ..Facts::default()
    }
}

/// A rule body that is one expression.
pub fn block(expr: Expr) -> Block {
    Block { stmts: Vec::new(), value: Some(Box::new(expr)) }
}

/// A channel of the process.
pub fn channel(id: u32) -> Expr {
    let ty = Ty::Chan { receives: Some(UnitId(0)), sends: Some(UnitId(0)) };
    Expr { kind: ExprKind::Channel(ChannelId(id)), ty, span: Span::default() }
}
