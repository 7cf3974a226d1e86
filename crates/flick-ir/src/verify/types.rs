//! Every operation gets and gives what it is made for, in a function that may use it.
//!
//! `int` and `uint` are one class here, number: operations, not values, know about signs.

mod kinds;
mod scan;
mod wide;

use flick_abi::limits::FRAME_SLOTS_MAX;

use super::Report;
use crate::cfg::successors;
use crate::data::{Binary, FuncKind, Function, Inst, Module, Op, Terminator, Type, Value};
use crate::limits::{LOAD_BYTES_MAX, LOAD_OFFSET_MAX};
use crate::text::{op_name, type_name};

pub(super) use kinds::acts;

/// Class of the types that an operand may have.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Number,
    Bool,
    Bytes,
    Chan,
    Message,
    /// Types that a slot holds.
    Stored,
    /// Types that a word of state holds.
    State,
    /// Types that a list holds.
    Word,
    /// Types that are packed.
    Packed,
    Exactly(Type),
}

impl Class {
    fn holds(self, ty: Type) -> bool {
        match self {
            Class::Number => matches!(ty, Type::Int | Type::Uint),
            Class::Bool => ty == Type::Bool,
            Class::Bytes => ty == Type::Bytes,
            Class::Chan => ty == Type::Chan,
            Class::Message => ty == Type::Message,
            Class::Stored | Class::Packed => !matches!(ty, Type::Frame | Type::Chan | Type::Message),
            Class::State => matches!(ty, Type::Int | Type::Uint | Type::Bool),
            Class::Word => ty != Type::Frame,
            Class::Exactly(Type::Int | Type::Uint) => matches!(ty, Type::Int | Type::Uint),
            Class::Exactly(exactly) => ty == exactly,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Class::Number => "a number",
            Class::Stored => "what a slot holds",
            Class::State => "what a word of state holds",
            Class::Word => "what a list holds",
            Class::Packed => "what is packed",
            Class::Message => "message",
            Class::Bool => "bool",
            Class::Bytes => "bytes",
            Class::Chan => "chan",
            Class::Exactly(ty) => type_name(ty),
        }
    }
}

struct Checker<'a, 'r> {
    module: &'a Module,
    function: &'a Function,
    report: &'a mut Report<'r>,
    block: usize,
}

/// Checks every instruction and terminator.
pub(super) fn check(module: &Module, function: &Function, report: &mut Report<'_>) {
    let mut checker = Checker { module, function, report, block: 0 };
    for (index, block) in function.blocks.iter().enumerate() {
        checker.block = index;
        for inst in &block.insts {
            if !kinds::may_use(function.kind, &inst.op) {
                checker.add(format!("a {:?} does not `{}`", function.kind, op_name(&inst.op)));
            }
            checker.inst(inst);
        }
        checker.end(&block.end);
    }
}

impl Checker<'_, '_> {
    fn add(&mut self, message: String) {
        self.report.add_in(self.block, message);
    }

    fn ty(&self, value: Value) -> Type {
        self.function.values[value.0 as usize]
    }

    fn takes(&mut self, op: &Op, operands: &[(Value, Class)]) {
        for (value, class) in operands {
            let ty = self.ty(*value);
            if !class.holds(ty) {
                let (name, class) = (op_name(op), class.name());
                self.add(format!("`{name}` takes {class}, but v{} is {}", value.0, type_name(ty)));
            }
        }
    }

    fn gives(&mut self, inst: &Inst, class: Option<Class>) {
        let name = op_name(&inst.op);
        match (inst.result, class) {
            (None, None) => {}
            (Some(value), Some(class)) if class.holds(self.ty(value)) => {}
            (Some(value), Some(class)) => {
                let ty = type_name(self.ty(value));
                self.add(format!("v{} is {ty}, but `{name}` gives {}", value.0, class.name()));
            }
            (Some(value), None) => self.add(format!("v{} stays undefined: `{name}` gives nothing", value.0)),
            // A helper's result may be dropped.
            (None, Some(_)) if matches!(inst.op, Op::Call { .. }) => {}
            (None, Some(class)) => self.add(format!("`{name}` gives {}, which is dropped", class.name())),
        }
    }

    fn inst(&mut self, inst: &Inst) {
        use Class::{Bool, Bytes, Chan, Exactly, Number, Stored};
        let op = &inst.op;
        let result = match op {
            Op::Const(word) => return self.constant(inst, *word),
            Op::ConstBytes { offset, len } => {
                self.constants(*offset, *len);
                Some(Bytes)
            }
            Op::Binary(binary, a, b) => Some(self.binary(op, *binary, *a, *b)),
            Op::Not(a) => {
                self.takes(op, &[(*a, Bool)]);
                Some(Bool)
            }
            Op::Select { cond, a, b } => {
                let class = Exactly(self.ty(*a));
                self.takes(op, &[(*cond, Bool), (*b, class)]);
                Some(class)
            }
            Op::Len(a) | Op::BytesOffset(a) | Op::HashBytes(a) => {
                self.takes(op, &[(*a, Bytes)]);
                Some(Number)
            }
            Op::HashInt(a) => {
                self.takes(op, &[(*a, Number)]);
                Some(Number)
            }
            Op::BytesEq(a, b)
            | Op::BytesStartsWith(a, b)
            | Op::BytesEndsWith(a, b)
            | Op::BytesContains(a, b)
            | Op::BytesLess(a, b) => {
                self.takes(op, &[(*a, Bytes), (*b, Bytes)]);
                Some(Bool)
            }
            Op::FrameGet { slot } => {
                self.slot(*slot);
                Some(Stored)
            }
            Op::FrameSet { slot, value } => {
                self.slot(*slot);
                self.takes(op, &[(*value, Stored)]);
                None
            }
            Op::Load { base, offset, width_bytes, .. } => {
                self.load(*offset, *width_bytes);
                self.takes(op, &base.iter().map(|base| (*base, Number)).collect::<Vec<_>>());
                Some(Number)
            }
            Op::MessageBytes { start, end } => {
                self.takes(op, &[(*start, Number), (*end, Number)]);
                Some(Bytes)
            }
            Op::ChanLen(chan) => {
                self.takes(op, &[(*chan, Chan)]);
                Some(Number)
            }
            Op::ChanElem { chan, index } => {
                self.takes(op, &[(*chan, Chan), (*index, Number)]);
                Some(Chan)
            }
            Op::Call { func, args } => self.call(op, &self.module.functions[func.0 as usize], args),
            Op::ScanRun { .. } | Op::Seek { .. } | Op::Lines { .. } | Op::ItemPush(_) => self.scan(op),
            Op::Cut { .. } | Op::CutListed { .. } | Op::Insert { .. } => self.scan(op),
            wide => self.wide(inst, wide),
        };
        self.gives(inst, result);
    }

    fn constant(&mut self, inst: &Inst, word: i64) {
        let Some(ty) = inst.result.map(|value| self.ty(value)) else {
            return self.gives(inst, Some(Class::Number));
        };
        let is_of_type = match ty {
            Type::Int | Type::Uint => true,
            Type::Bool => matches!(word, 0 | 1),
            Type::Chan => ((word & 0xffff) as usize) < self.module.program.channels.len(),
            // A missing one.
            Type::Bytes => word == -1,
            Type::Frame | Type::Message => false,
        };
        if !is_of_type {
            self.add(format!("{word} is no {}", type_name(ty)));
        }
    }

    fn binary(&mut self, op: &Op, binary: Binary, a: Value, b: Value) -> Class {
        use Class::{Bool, Number};
        let (operands, result) = match binary {
            Binary::And | Binary::Or => (Bool, Bool),
            Binary::Eq | Binary::Ne if self.ty(a) == Type::Bool => (Bool, Bool),
            Binary::Eq | Binary::Ne | Binary::LtS | Binary::LeS | Binary::LtU | Binary::LeU => (Number, Bool),
            _ => (Number, Number),
        };
        self.takes(op, &[(a, operands), (b, operands)]);
        result
    }

    fn call(&mut self, op: &Op, callee: &Function, args: &[Value]) -> Option<Class> {
        if callee.kind != FuncKind::Helper {
            self.add(format!("`{}` is called, but is a {:?}", callee.name, callee.kind));
            return None;
        }
        let params = callee.blocks.first().map_or(&[][..], |block| &block.params[..]);
        if params.len() != args.len() {
            self.add(format!("`{}` takes {} values, but gets {}", callee.name, params.len(), args.len()));
        }
        for (param, arg) in params.iter().zip(args) {
            if let Some(ty) = callee.values.get(param.0 as usize) {
                self.takes(op, &[(*arg, Class::Exactly(*ty))]);
            }
        }
        callee.results.first().map(|ty| Class::Exactly(*ty))
    }

    fn load(&mut self, offset: u32, width_bytes: u8) {
        self.width(width_bytes);
        if offset.saturating_add(LOAD_BYTES_MAX) > LOAD_OFFSET_MAX {
            self.add(format!("{offset} is too far from the start of a segment"));
        }
    }

    fn slot(&mut self, slot: u16) {
        if usize::from(slot) >= FRAME_SLOTS_MAX {
            self.add(format!("a frame has no slot {slot}"));
        }
    }

    fn width(&mut self, width_bytes: u8) {
        if !matches!(width_bytes, 1 | 2 | 4 | 8) {
            self.add(format!("no integer is {width_bytes} bytes wide"));
        }
    }

    fn end(&mut self, end: &Terminator) {
        let kind = self.function.kind;
        match end {
            end if kinds::may_not_end(kind, end).is_some() => {
                let what = kinds::may_not_end(kind, end).unwrap_or_default();
                self.add(format!("a {kind:?} does not {what}"));
            }
            Terminator::Return(values) => self.results(values),
            Terminator::Branch { cond, .. } => self.operand("branch", *cond, Class::Bool),
            Terminator::Switch { value, cases, .. } => {
                self.operand("switch", *value, Class::Number);
                let mut words: Vec<i64> = cases.iter().map(|(word, _)| *word).collect();
                words.sort_unstable();
                for pair in words.windows(2).filter(|pair| pair[0] == pair[1]) {
                    self.add(format!("`switch` has two cases {}", pair[0]));
                }
            }
            Terminator::Need { base: Some(base), .. } => self.operand("need", *base, Class::Number),
            _ => {}
        }
        for (target, args) in successors(end) {
            self.target(target.0, args);
        }
    }

    fn operand(&mut self, name: &str, value: Value, class: Class) {
        let ty = self.ty(value);
        if !class.holds(ty) {
            self.add(format!("`{name}` takes {}, but v{} is {}", class.name(), value.0, type_name(ty)));
        }
    }

    fn results(&mut self, values: &[Value]) {
        let results = &self.function.results;
        if values.len() != results.len() {
            self.add(format!("{} results are promised, but {} returned", results.len(), values.len()));
        }
        for (value, ty) in values.iter().zip(results) {
            self.operand("return", *value, Class::Exactly(*ty));
        }
    }

    fn target(&mut self, target: u32, args: &[Value]) {
        let params = &self.function.blocks[target as usize].params;
        if params.len() != args.len() {
            return self.add(format!("b{target} takes {} values, but gets {}", params.len(), args.len()));
        }
        for (param, arg) in params.iter().zip(args) {
            let (want, found) = (self.ty(*param), self.ty(*arg));
            if !Class::Exactly(want).holds(found) {
                let (want, found) = (type_name(want), type_name(found));
                self.add(format!("b{target} takes {want}, but v{} is {found}", arg.0));
            }
        }
    }
}
