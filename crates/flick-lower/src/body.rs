//! One function body on its way from checked expressions to instructions: the state all constructs share.
//! Promises: a fault is raised only in exact mode, where a peer's numbers are at work; in rules arithmetic wraps.
//! Source: the constructs are in `expr.rs`, `number.rs`, `branch.rs`, `record.rs`, `call.rs`, `serialise.rs`.

use std::collections::{BTreeMap, HashMap};

use flick_abi::FaultCause;
use flick_abi::frame::SLOT_FLAGS;
use flick_check::hir::{Expr, FieldId, FieldKind, Span, Ty, UnitId};
use flick_ir::data::{BlockId, FuncKind, Op, SourceOrigin, Terminator, Type, Value};

use crate::builder::{ConstPool, FunctionBuilder};
use crate::carrier::Carrier;
use crate::context::Context;
use crate::interval::Interval;
use crate::part::Part;
use crate::ready::Ready;
use crate::unit::SlotKey;
use crate::value::{Num, Shape, Val};

/// The behaviour of arithmetic.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// As on integers without end; what cannot be represented is a fault of this field.
    Exact {
        /// Index of the field that is being decoded or checked.
        field: u32,
    },
    /// In 64 bits.
    Wrapping,
}

/// The meaning of `self`.
#[derive(Clone, Debug)]
pub enum SelfScope {
    /// Nothing: program text.
    None,
    /// A message being parsed: what has been decoded so far.
    Parsing(BTreeMap<SlotKey, Val>),
    /// A message parsed before; its fields are in the frame.
    Frame,
    /// A message about to be sent.
    Shape(Shape),
}

/// The state of one function body.
#[derive(Debug)]
pub struct Body<'p> {
    /// The program.
    pub cx: &'p Context<'p>,
    /// Constant bytes.
    pub consts: &'p mut ConstPool,
    /// The function.
    pub f: FunctionBuilder,
    /// The behaviour of arithmetic here.
    pub mode: Mode,
    /// Locals of the function whose text is being lowered, by `LocalId`.
    pub locals: Vec<Option<Val>>,
    /// The meaning of `self` here, and its grammar.
    pub scope: (UnitId, SelfScope),
    /// The value of `$$` here.
    pub dollar: Option<Val>,
    /// The value of the occurrence of a key that is looked at: list and key, and the value.
    pub occurrence: Option<((FieldId, u32), Value)>,
    /// The known values of the structured message that is being written.
    pub ready: Ready,
    /// The frame parameter, where there is one.
    pub frame: Option<Value>,
    faults: HashMap<(u32, FaultCause), BlockId>,
    /// Suspensions written so far.
    pub suspensions: u32,
    /// A function of flags: where a fault would be, it sets none and is done.
    pub never_faults: bool,
}

impl<'p> Body<'p> {
    /// Starts a body in wrapping mode without `self`.
    pub fn new(
        cx: &'p Context<'p>,
        consts: &'p mut ConstPool,
        name: impl Into<String>,
        kind: FuncKind,
        params: &[Type],
        results: Vec<Type>,
    ) -> Self {
        let f = FunctionBuilder::new(name, kind, params, results);
        let entry = f.current();
        let frame = f.params(entry).iter().copied().find(|&value| f.type_of(value) == Type::Frame);
        Self {
            cx,
            consts,
            f,
            mode: Mode::Wrapping,
            locals: Vec::new(),
            scope: (UnitId(0), SelfScope::None),
            dollar: None,
            occurrence: None,
            ready: Ready::default(),
            frame,
            faults: HashMap::new(),
            suspensions: 0,
            never_faults: false,
        }
    }

    /// Marks the following instructions as coming from `span`.
    pub fn at(&mut self, span: &Span) {
        self.f.set_origin(SourceOrigin { file: span.file, offset: span.range.start });
    }

    /// The block that refuses the message because of `field`.
    pub fn fault_block(&mut self, field: u32, cause: FaultCause) -> BlockId {
        if let Some(&block) = self.faults.get(&(field, cause)) {
            return block;
        }
        let here = self.f.current();
        let block = self.f.new_block(&[]);
        self.f.go_on_in(block);
        if self.never_faults {
            if self.cx.unit(self.scope.0).unit.body.is_none() {
                let none = self.f.int(0);
                self.set_slot(SLOT_FLAGS as u16, none);
            }
            self.f.end(Terminator::Done);
        } else {
            self.f.end(Terminator::Fault { field, cause });
        }
        self.f.go_on_in(here);
        self.faults.insert((field, cause), block);
        block
    }

    /// Goes on only where `cond` holds.
    pub fn expect(&mut self, cond: Value, field: u32, cause: FaultCause) {
        let fault = self.fault_block(field, cause);
        let go_on = self.f.new_block(&[]);
        self.f.branch_to(cond, go_on, fault);
        self.f.go_on_in(go_on);
    }

    /// Goes on only where `cond` holds.
    pub fn expect_expr(&mut self, cond: &Expr, field: u32, cause: FaultCause) {
        let go_on = self.f.new_block(&[]);
        let fault = self.fault_block(field, cause);
        self.branch_on(cond, go_on, fault);
        self.f.go_on_in(go_on);
    }

    /// Writes a slot of the frame.
    pub fn set_slot(&mut self, slot: u16, value: Value) {
        self.f.effect(Op::FrameSet { slot, value });
    }

    /// Reads a field or a length that a parser of `unit` left in the frame.
    pub fn get_key(&mut self, unit: UnitId, key: SlotKey) -> Val {
        let info = self.cx.unit(unit);
        let slot = info.slot(key);
        let ty = info.key_type(key);
        let value = self.f.define(ty, Op::FrameGet { slot });
        info.key_val(key, value)
    }

    /// `self.field`.
    pub fn self_field(&mut self, field: FieldId) -> Val {
        let (unit, scope) = &self.scope;
        let unit = *unit;
        match scope {
            SelfScope::None => panic!("the checker allows `self` only in grammars"),
            SelfScope::Parsing(known) => known
                .get(&SlotKey::Field(field))
                .unwrap_or_else(|| panic!("field {} is decoded before it is used", field.0))
                .clone(),
            SelfScope::Frame => self.get_key(unit, SlotKey::Field(field)),
            SelfScope::Shape(shape) => {
                let shape = shape.clone();
                self.shape_field(&shape, field)
            }
        }
    }

    /// The length of a bytes field of `self`.
    pub fn self_len_of(&mut self, field: FieldId) -> Val {
        let (unit, scope) = &self.scope;
        let unit = *unit;
        match scope {
            SelfScope::Shape(shape) => {
                let shape = shape.clone();
                self.shape_len_of(&shape, field)
            }
            SelfScope::Parsing(known) => {
                let key = self.cx.unit(unit).canonical(SlotKey::Length(field));
                known.get(&key).expect("a length is computed before it is used").clone()
            }
            _ => self.get_key(unit, SlotKey::Length(field)),
        }
    }

    /// Runs `lower` with another `self` in another mode.
    pub fn with_scope<T>(
        &mut self,
        unit: UnitId,
        scope: SelfScope,
        mode: Mode,
        lower: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let before = (std::mem::replace(&mut self.scope, (unit, scope)), self.mode, self.f.origin());
        self.mode = mode;
        let result = lower(self);
        self.scope = before.0;
        self.mode = before.1;
        self.f.set_origin(before.2);
        result
    }

    /// A value of a type that one word carries.
    pub fn val_of_word(&self, ty: &Ty, value: Value) -> Val {
        let carrier = Carrier::of_ty(self.cx, ty, &|_| panic!("a message is no word"));
        self.arrived(&carrier, &mut std::iter::once(value))
    }

    /// The value of a field of a message that was changed or built: `val` in the field's own shape.
    pub fn fit_to_field(&mut self, unit: UnitId, field: FieldId, val: Val) -> Val {
        let info = self.cx.unit(unit);
        match (&info.unit.fields[field.0 as usize].kind, val) {
            (FieldKind::Bytes { .. }, val) => val,
            (_, val @ Val::Bytes(_)) if info.part_type(Part::Field(field)) == Type::Bytes => val,
            (FieldKind::Flag { .. } | FieldKind::Full { .. }, val) => val,
            (FieldKind::List(_), val @ Val::Group(_)) => val,
            (_, Val::Num(num)) => Val::Num(Num::one(num.value(), info.range(field))),
            (_, Val::Bool(value)) => {
                let value = self.f.bool_to_int(value);
                Val::Num(Num::one(value, Interval::new(0, 1)))
            }
            (_, other) => panic!("the checker fits values to fields, not {other:?}"),
        }
    }
}

/// The kind of word that carries a number.
pub fn word_type(ty: &Ty) -> Type {
    match ty {
        Ty::Int { unsigned: true, .. } => Type::Uint,
        Ty::Int { .. } | Ty::Enum(_) | Ty::Ipv4 | Ty::Time | Ty::Duration => Type::Int,
        other => panic!("{other:?} is no number"),
    }
}

/// Returns the range of a number of this type, within that of its word.
pub fn int_range(ty: &Ty) -> Interval {
    match ty {
        Ty::Int { lo, hi, unsigned } => {
            let word = if *unsigned { Interval::UINT } else { Interval::INT };
            let range = if *lo <= *hi { Interval::new(*lo, *hi) } else { word };
            if range.within(word) { range } else { word }
        }
        Ty::Ipv4 => Interval::new(0, i128::from(u32::MAX)),
        _ => Interval::INT,
    }
}
