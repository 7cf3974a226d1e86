//! Computes the set of first bytes of a request: the first byte of a connection selects its grammar.
//! Promises: no request of the grammar begins with a byte outside the set. Only what the grammar pins counts: a
//! literal, or an integer of one byte that `%request`, `&requires` or a `check` bounds.
//! Refuses: to look into text. A word that could be anything makes no set, nor does one of letters only: grammars of
//! words share their first bytes too easily for a choice to mean anything.

use flick_check::hir::{BinaryOp, Block, Expr, ExprKind, FieldId, FieldKind, Item};

use crate::unit::UnitInfo;
use crate::walk::conjuncts;

/// A set of bytes, bit by bit.
type ByteSet = [u64; 4];

/// The knowledge of a value when only the first byte has arrived.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    Int(i128),
    Bool(bool),
    Nothing,
}

/// The bytes that a request of this grammar may begin with; `None`: the grammar does not pin them.
pub fn first_bytes(info: &UnitInfo<'_>) -> Option<ByteSet> {
    let mut set = ByteSet::default();
    let Some((first, checks)) = first_field(info) else { return literal(info) };
    let facts = info.unit.facts.request.iter().flat_map(conjuncts);
    let own = info.field(first).requires.iter().flat_map(conjuncts);
    let checks: Vec<&Expr> = facts.chain(own).chain(checks).collect();
    let mut count = 0;
    for byte in 0..=u8::MAX {
        let look = Look { info, first, byte };
        if checks.iter().all(|check| look.value(check) != Known::Bool(false)) {
            set[usize::from(byte) / 64] |= 1 << (byte % 64);
            count += 1;
        }
    }
    (count < 256).then_some(set)
}

/// The integer of one byte that every message begins with, and the checks that stand beside it.
fn first_field<'p>(info: &UnitInfo<'p>) -> Option<(FieldId, Vec<&'p Expr>)> {
    let is_on_wire = |field: FieldId| info.field(field).kind.is_on_wire();
    let (first, checks) = match &info.unit.body {
        None => (info.fields().map(|(id, _)| id).find(|id| is_on_wire(*id))?, Vec::new()),
        Some(items) => {
            let first = items.iter().find_map(|item| match item {
                Item::Field(field) if is_on_wire(*field) => Some(Some(*field)),
                Item::Field(_) | Item::Check(_) => None,
                Item::Literal(_) | Item::Switch(_) => Some(None),
            });
            let checks = items.iter().filter_map(|item| match item {
                Item::Check(check) => Some(conjuncts(&check.expr)),
                _ => None,
            });
            (first.flatten()?, checks.flatten().collect())
        }
    };
    matches!(&info.field(first).kind, FieldKind::Int { repr, .. } if repr.width_bytes == 1)
        .then_some((first, checks))
}

/// The first byte of a literal that every message begins with.
fn literal(info: &UnitInfo<'_>) -> Option<ByteSet> {
    let Some(Item::Literal(literal)) = info.unit.body.as_ref()?.first() else { return None };
    let byte = *literal.bytes.first().filter(|_| !literal.optional)?;
    let mut set = ByteSet::default();
    let forms =
        if literal.nocase { [byte.to_ascii_lowercase(), byte.to_ascii_uppercase()] } else { [byte; 2] };
    for form in forms {
        set[usize::from(form) / 64] |= 1 << (form % 64);
    }
    Some(set)
}

/// A message of which one byte is known.
struct Look<'a, 'p> {
    info: &'a UnitInfo<'p>,
    first: FieldId,
    byte: u8,
}

impl Look<'_, '_> {
    fn value(&self, expr: &Expr) -> Known {
        match &expr.kind {
            ExprKind::Int(value) => Known::Int(*value),
            ExprKind::Bool(value) => Known::Bool(*value),
            ExprKind::Member(_, value) => Known::Int(i128::from(*value)),
            ExprKind::Dollar => self.field(self.first),
            ExprKind::SelfField(field) => self.field(*field),
            ExprKind::Not(inner) => match self.value(inner) {
                Known::Bool(value) => Known::Bool(!value),
                _ => Known::Nothing,
            },
            ExprKind::Binary(op, a, b) => binary(*op, self.value(a), self.value(b)),
            ExprKind::Switch { value, arms, otherwise } => self.switch(value, arms, otherwise.as_ref()),
            _ => Known::Nothing,
        }
    }

    /// `x in { ... }` and `map x { ... }`.
    fn switch(&self, value: &Expr, arms: &[(Vec<Expr>, Block)], otherwise: Option<&Block>) -> Known {
        let value = self.value(value);
        if value == Known::Nothing {
            return Known::Nothing;
        }
        let is_chosen =
            |(patterns, _): &&(Vec<Expr>, Block)| patterns.iter().any(|pattern| self.value(pattern) == value);
        let block = arms.iter().find(is_chosen).map(|(_, block)| block).or(otherwise);
        let plain = block.filter(|block| block.stmts.is_empty()).and_then(|block| block.value.as_deref());
        plain.map_or(Known::Nothing, |value| self.value(value))
    }

    fn field(&self, field: FieldId) -> Known {
        match self.info.field(field).kind {
            FieldKind::Int { repr, .. } if field == self.first => Known::Int(if repr.signed {
                i128::from(self.byte.cast_signed())
            } else {
                i128::from(self.byte)
            }),
            FieldKind::Bits { of, shift, width } if of == self.first => {
                Known::Int(i128::from(self.byte) >> shift & ((1 << width) - 1))
            }
            _ => Known::Nothing,
        }
    }
}

fn binary(op: BinaryOp, a: Known, b: Known) -> Known {
    match (op, a, b) {
        (BinaryOp::And, Known::Bool(false), _) | (BinaryOp::And, _, Known::Bool(false)) => Known::Bool(false),
        (BinaryOp::And, Known::Bool(true), Known::Bool(true)) => Known::Bool(true),
        (BinaryOp::Or, Known::Bool(true), _) | (BinaryOp::Or, _, Known::Bool(true)) => Known::Bool(true),
        (BinaryOp::Or, Known::Bool(false), Known::Bool(false)) => Known::Bool(false),
        (BinaryOp::Eq, a, b) if a != Known::Nothing && b != Known::Nothing => Known::Bool(a == b),
        (BinaryOp::Ne, a, b) if a != Known::Nothing && b != Known::Nothing => Known::Bool(a != b),
        (BinaryOp::Lt, Known::Int(a), Known::Int(b)) => Known::Bool(a < b),
        (BinaryOp::Le, Known::Int(a), Known::Int(b)) => Known::Bool(a <= b),
        (BinaryOp::Gt, Known::Int(a), Known::Int(b)) => Known::Bool(a > b),
        (BinaryOp::Ge, Known::Int(a), Known::Int(b)) => Known::Bool(a >= b),
        _ => Known::Nothing,
    }
}
