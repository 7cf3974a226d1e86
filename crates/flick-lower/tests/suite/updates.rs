//! Random programs that change, build and send messages, against a model that does the same to plain structs.
//! RELIABILITY P2 and P3: what was changed reads back as intended, what was not is the same to the byte.

use flick_check::hir::{
    BinaryOp, Block, Builtin, ChannelId, Expr, ExprKind, FieldId, FieldKind, Fun, FunId, Local, LocalId,
    Program, Rule, Span, Stmt, Ty, UnitId,
};

use crate::engines::Engines;
use crate::hand::{
    block, bool_expr, channel, compare, int, int_expr, memcached_facts, memcached_fields, program,
};
use crate::memcached::Message;
use crate::random::{Random, cases};
use crate::source::lowered;

const UNIT: UnitId = UnitId(0);
/// `fun update(m: cmd) -> cmd`.
const UPDATE: FunId = FunId(0);
/// `fun relay(c: -/cmd, m: cmd) -> ()`.
const RELAY: FunId = FunId(1);
/// Integer fields that programs change: opcode, status, opaque, cas.
const CHANGED_INTS: [u32; 4] = [1, 5, 7, 8];
/// Integers that programs read, those that follow from others among them: also key_len, extras_len, total_len and
/// the variable value_len.
const READ_INTS: [u32; 8] = [1, 5, 7, 8, 2, 3, 6, 9];

fn expr(kind: ExprKind, ty: Ty) -> Expr {
    Expr { kind, ty, span: Span::default() }
}

fn record(kind: ExprKind) -> Expr {
    expr(kind, Ty::Record(UNIT))
}

fn bytes(kind: ExprKind) -> Expr {
    expr(kind, Ty::Bytes { max: 255, text: true })
}

fn local(id: u32) -> Expr {
    record(ExprKind::Local(LocalId(id)))
}

/// Makes random programs.
struct Maker {
    random: Random,
    /// Bytes fields that the view names: extras, key, perhaps value.
    bytes: Vec<u32>,
    /// Messages in scope.
    locals: u32,
    may_call: bool,
}

impl Maker {
    fn message(&mut self, depth: u32) -> Expr {
        if depth == 0 || self.random.once_in(6) {
            let id = self.random.below(self.locals.into()) as u32;
            return local(id);
        }
        match self.random.below(8) {
            0..=2 => {
                let of = self.message(depth - 1);
                record(ExprKind::With(Box::new(of), self.changes(depth - 1)))
            }
            3..=4 => record(ExprKind::If {
                cond: Box::new(self.truth(depth - 1)),
                then: block(self.message(depth - 1)),
                otherwise: Some(block(self.message(depth - 1))),
            }),
            5 => record(ExprKind::Switch {
                value: Box::new(self.int(depth - 1, 1)),
                arms: (0..3).map(|hit| (vec![int(hit)], block(self.message(depth - 1)))).collect(),
                otherwise: Some(block(self.message(depth - 1))),
            }),
            6 if self.may_call => record(ExprKind::Call(UPDATE, vec![self.message(depth - 1)])),
            _ => record(ExprKind::Build(UNIT, self.changes(depth - 1))),
        }
    }

    fn changes(&mut self, depth: u32) -> Vec<(FieldId, Expr)> {
        let mut changes = Vec::new();
        for id in CHANGED_INTS {
            if self.random.once_in(5) {
                changes.push((FieldId(id), self.int(depth, id)));
            }
        }
        for id in self.bytes.clone() {
            if self.random.once_in(3) {
                changes.push((FieldId(id), self.text(depth)));
            }
        }
        changes
    }

    /// An integer that fits field `id`.
    fn int(&mut self, depth: u32, id: u32) -> Expr {
        match self.random.below(3) {
            0 if depth > 0 => {
                let of = self.message(depth - 1);
                int_expr(ExprKind::Field(Box::new(of), FieldId(id)))
            }
            1 if depth > 0 => {
                let text = self.text(depth - 1);
                int_expr(ExprKind::Builtin(Builtin::Len, vec![text]))
            }
            _ => int(self.random.below(4).into()),
        }
    }

    fn text(&mut self, depth: u32) -> Expr {
        match self.random.below(3) {
            0 if depth > 0 => {
                let id = *self.random.pick(&self.bytes.clone());
                let of = self.message(depth - 1);
                bytes(ExprKind::Field(Box::new(of), FieldId(id)))
            }
            1 if depth > 0 => bytes(ExprKind::If {
                cond: Box::new(self.truth(depth - 1)),
                then: block(self.text(depth - 1)),
                otherwise: Some(block(self.text(depth - 1))),
            }),
            _ => {
                let len = self.random.below(6) as usize;
                bytes(ExprKind::Str(self.random.bytes(len)))
            }
        }
    }

    fn truth(&mut self, depth: u32) -> Expr {
        let depth = depth.saturating_sub(1);
        if self.random.once_in(3) {
            return compare(BinaryOp::Lt, self.text(depth), self.text(depth));
        }
        let id = *self.random.pick(&READ_INTS);
        let of = self.message(depth);
        let read = int_expr(ExprKind::Field(Box::new(of), FieldId(id)));
        let bound = int(self.random.below(20).into());
        bool_expr(ExprKind::Binary(BinaryOp::Le, Box::new(read), Box::new(bound)))
    }

    fn send(&mut self) -> Expr {
        let message = self.message(3);
        if self.random.once_in(3) {
            return expr(ExprKind::Call(RELAY, vec![channel(0), message]), Ty::Nothing);
        }
        expr(ExprKind::Send { message: Box::new(message), channel: Box::new(channel(0)) }, Ty::Nothing)
    }

    /// A rule body, and what `update` returns.
    fn program(&mut self, streamed: bool) -> Program {
        let mut fields = memcached_fields();
        if !streamed && let FieldKind::Bytes { max_bytes, streamed, .. } = &mut fields[12].kind {
            (*max_bytes, *streamed) = (Some(1024), false);
        }
        let view: Vec<u32> = READ_INTS.iter().chain(&self.bytes).copied().collect();
        let mut program = program(fields, memcached_facts(), &view);
        let message = || Local { name: "m".to_owned(), ty: Ty::Record(UNIT), span: Span::default() };
        let to = Local { name: "c".to_owned(), ty: channel(0).ty, span: Span::default() };
        (self.locals, self.may_call) = (1, false);
        let update = block(self.message(3));
        let relay = ExprKind::Send {
            message: Box::new(local(1)),
            channel: Box::new(expr(ExprKind::Local(LocalId(0)), channel(0).ty)),
        };
        let relay = block(expr(relay, Ty::Nothing));
        let fun = |name: &str, locals: Vec<Local>, result, body| Fun {
            name: name.to_owned(),
            param_count: locals.len(),
            locals,
            result,
            body,
            span: Span::default(),
        };
        program.funs = vec![
            fun("update", vec![message()], Ty::Record(UNIT), update),
            fun("relay", vec![to, message()], Ty::Nothing, relay),
        ];
        self.may_call = true;
        let first = Stmt::Let(LocalId(1), self.message(3));
        self.locals = 2;
        let second = Stmt::Expr(self.send());
        let third = Stmt::Expr(expr(
            ExprKind::If { cond: Box::new(self.truth(3)), then: block(self.send()), otherwise: None },
            Ty::Nothing,
        ));
        let body = Block { stmts: vec![first, second, third], value: None };
        let rule =
            Rule { source: ChannelId(0), locals: vec![message(), message()], body, span: Span::default() };
        program.process.as_mut().unwrap().rules = vec![rule];
        program
    }
}

/// A value of the model.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Int(u64),
    Bool(bool),
    Text(Vec<u8>),
    Message(Message),
    Nothing,
}

/// Runs programs on plain structs.
struct Model<'p> {
    program: &'p Program,
    locals: Vec<Value>,
    sent: Vec<Vec<u8>>,
}

impl Model<'_> {
    fn block(&mut self, block: &Block) -> Value {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Let(local, value) => {
                    let value = self.eval(value);
                    self.locals.truncate(local.0 as usize);
                    self.locals.push(value);
                }
                Stmt::Expr(expr) => _ = self.eval(expr),
                other => panic!("the model does not know {other:?}"),
            }
        }
        block.value.as_ref().map_or(Value::Nothing, |value| self.eval(value))
    }

    fn message(&mut self, expr: &Expr) -> Message {
        match self.eval(expr) {
            Value::Message(message) => message,
            other => panic!("{other:?} is no message"),
        }
    }

    fn text(&mut self, expr: &Expr) -> Vec<u8> {
        match self.eval(expr) {
            Value::Text(text) => text,
            other => panic!("{other:?} is no text"),
        }
    }

    fn change(&mut self, message: &mut Message, fields: &[(FieldId, Expr)]) {
        let values: Vec<Value> = fields.iter().map(|(_, value)| self.eval(value)).collect();
        for ((field, _), value) in fields.iter().zip(values) {
            match (field.0, value) {
                (1, Value::Int(value)) => message.opcode = value as u8,
                (5, Value::Int(value)) => message.status = value as u16,
                (7, Value::Int(value)) => message.opaque = value as u32,
                (8, Value::Int(value)) => message.cas = value,
                (10, Value::Text(value)) => message.extras = value,
                (11, Value::Text(value)) => message.key = value,
                (12, Value::Text(value)) => message.value = value,
                (field, value) => panic!("field {field} does not become {value:?}"),
            }
        }
    }

    fn eval(&mut self, expr: &Expr) -> Value {
        match &expr.kind {
            ExprKind::Int(value) => Value::Int(*value as u64),
            ExprKind::Str(text) => Value::Text(text.clone()),
            ExprKind::Local(LocalId(id)) => self.locals[*id as usize].clone(),
            ExprKind::Channel(_) => Value::Nothing,
            ExprKind::Field(of, FieldId(id)) => field(&self.message(of), *id),
            ExprKind::Builtin(Builtin::Len, args) => Value::Int(self.text(&args[0]).len() as u64),
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.eval(a), self.eval(b));
                Value::Bool(match (op, a, b) {
                    (BinaryOp::Lt, Value::Text(a), Value::Text(b)) => a < b,
                    (BinaryOp::Le, Value::Int(a), Value::Int(b)) => a <= b,
                    (op, a, b) => panic!("the model does not know {a:?} {op:?} {b:?}"),
                })
            }
            ExprKind::If { cond, then, otherwise } => match (self.eval(cond), otherwise) {
                (Value::Bool(true), _) => self.block(then),
                (_, Some(otherwise)) => self.block(otherwise),
                _ => Value::Nothing,
            },
            ExprKind::Switch { value, arms, otherwise } => {
                let Value::Int(value) = self.eval(value) else { panic!("patterns are integers") };
                let hit =
                    |pattern: &Expr| matches!(pattern.kind, ExprKind::Int(hit) if hit == i128::from(value));
                let arm = arms.iter().find(|(patterns, _)| patterns.iter().any(hit)).map(|(_, block)| block);
                self.block(arm.or(otherwise.as_ref()).unwrap())
            }
            ExprKind::Call(fun, args) => {
                let args: Vec<Value> = args.iter().map(|arg| self.eval(arg)).collect();
                let caller = std::mem::replace(&mut self.locals, args);
                let result = self.block(&self.program.funs[fun.0 as usize].body);
                self.locals = caller;
                result
            }
            ExprKind::With(of, fields) => {
                let mut message = self.message(of);
                self.change(&mut message, fields);
                Value::Message(message)
            }
            ExprKind::Build(_, fields) => {
                let mut message = Message::default();
                self.change(&mut message, fields);
                Value::Message(message)
            }
            ExprKind::Send { message, .. } => {
                let message = self.message(message);
                self.sent.push(message.bytes());
                Value::Nothing
            }
            other => panic!("the model does not know {other:?}"),
        }
    }
}

fn field(message: &Message, id: u32) -> Value {
    let lens = [message.key.len(), message.extras.len(), message.value.len()].map(|len| len as u64);
    match id {
        1 => Value::Int(message.opcode.into()),
        2 => Value::Int(lens[0]),
        3 => Value::Int(lens[1]),
        5 => Value::Int(message.status.into()),
        6 => Value::Int(lens.iter().sum()),
        7 => Value::Int(message.opaque.into()),
        8 => Value::Int(message.cas),
        9 => Value::Int(lens[2]),
        10 => Value::Text(message.extras.clone()),
        11 => Value::Text(message.key.clone()),
        12 => Value::Text(message.value.clone()),
        other => panic!("field {other} is unread"),
    }
}

#[test]
fn changed_and_built_messages_are_what_was_meant() {
    let mut rebuilt = 0;
    for seed in 0..cases(300) {
        let streamed = seed % 2 == 0;
        let bytes = if streamed { vec![10, 11] } else { vec![10, 11, 12] };
        let mut maker = Maker { random: Random(seed), bytes, locals: 1, may_call: false };
        let program = maker.program(streamed);
        let engines = Engines::new(lowered(&program));
        let (parser, rule) = (engines.find("parse_request.client"), engines.find("rule.1"));
        let mut random = Random(!seed);
        for _ in 0..6 {
            let message = Message { magic: 0x80, ..Message::random(&mut random) };
            let wire = message.bytes();
            let (step, frame) = engines.parse_whole(parser, &wire);
            assert_eq!(step, flick_abi::ParseStep::Done, "seed {seed}");
            let sent = engines.run(rule, &frame, &wire, &[1]);
            let mut model =
                Model { program: &program, locals: vec![Value::Message(message)], sent: Vec::new() };
            model.block(&program.process.as_ref().unwrap().rules[0].body);
            let sent: Vec<Vec<u8>> = sent.into_iter().map(|(_, _, bytes)| bytes).collect();
            assert_eq!(sent, model.sent, "seed {seed}: {:?}", program.process);
            rebuilt += sent.iter().filter(|bytes| **bytes != wire).count();
            for bytes in sent {
                let message = Message::parse(&bytes);
                assert_eq!(message.bytes(), bytes, "seed {seed}: lengths follow");
            }
        }
    }
    assert!(rebuilt > 500, "messages are changed often: {rebuilt}");
}
