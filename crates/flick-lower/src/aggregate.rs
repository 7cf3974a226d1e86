//! Tuples, records of the program's own, options and variants: building, taking apart, ordering.
//! Promises: parts stay words side by side; nothing is written to memory.
//! Refuses: comparison as a whole; the checker compares part by part.

use flick_check::hir::{BinaryOp, Expr, Ty, VariantId};
use flick_ir::data::{Binary, Op, Type, Value};

use crate::body::Body;
use crate::value::Val;

impl Body<'_> {
    /// `some(x)`.
    pub fn some(&mut self, value: Val) -> Val {
        Val::Option { present: self.f.bool(true), value: Box::new(value) }
    }

    /// `shape.circle(3)`.
    pub fn variant_build(&mut self, id: VariantId, case: u32, carried: Option<&Expr>) -> Val {
        let carried = carried.map(|carried| self.expr(carried));
        let types = &self.cx.program.variants[id.0 as usize].cases;
        let tag = self.f.int(i64::from(case));
        let mut cases: Vec<Option<Val>> =
            types.iter().map(|(_, ty)| ty.as_ref().map(|ty| self.absent(ty))).collect();
        if carried.is_some() {
            cases[case as usize] = carried;
        }
        Val::Variant { tag, cases }
    }

    /// `point{y = 2, x = 1}`: the values are computed in the order as written, and lie in that of the declaration.
    pub fn struct_build(&mut self, fields: &[(u32, Expr)]) -> Val {
        let mut vals: Vec<(u32, Val)> =
            fields.iter().map(|(field, expr)| (*field, self.expr(expr))).collect();
        vals.sort_by_key(|(field, _)| *field);
        Val::Group(vals.into_iter().map(|(_, val)| val).collect())
    }

    /// `p with x = 1`: the values are computed from the unchanged record.
    pub fn struct_with(&mut self, record: &Expr, fields: &[(u32, Expr)]) -> Val {
        let mut parts = self.expr(record).group();
        let vals: Vec<(u32, Val)> = fields.iter().map(|(field, expr)| (*field, self.expr(expr))).collect();
        for (field, val) in vals {
            parts[field as usize] = val;
        }
        Val::Group(parts)
    }

    /// A part of a tuple or record.
    pub fn part(&mut self, of: &Expr, index: u32) -> Val {
        self.expr(of).group().swap_remove(index as usize)
    }

    /// Below, at or above 0 as the first value sorts before, with or behind the second: tuples by their first parts,
    /// then by the next.
    pub fn order(&mut self, a: &Val, b: &Val, ty: &Ty) -> Value {
        let (less, more) = match (a, b) {
            (Val::Num(a), Val::Num(b)) => {
                (self.compare(BinaryOp::Lt, *a, *b), self.compare(BinaryOp::Lt, *b, *a))
            }
            (Val::Bool(a), Val::Bool(b)) => {
                let (a, b) = (self.f.bool_to_int(*a), self.f.bool_to_int(*b));
                return self.f.binary(Type::Int, Binary::Sub, a, b);
            }
            (Val::Bytes(a), Val::Bytes(b)) => (
                self.f.define(Type::Bool, Op::BytesLess(*a, *b)),
                self.f.define(Type::Bool, Op::BytesLess(*b, *a)),
            ),
            (Val::Group(a), Val::Group(b)) => {
                let types = self.part_types(ty);
                let parts = types.iter().zip(a).zip(b);
                let signs: Vec<Value> = parts.map(|((ty, a), b)| self.order(a, b, ty)).collect();
                let mut rest = self.f.int(0);
                for sign in signs.into_iter().rev() {
                    let zero = self.f.int(0);
                    let decides = self.f.binary(Type::Bool, Binary::Ne, sign, zero);
                    rest = self.select(decides, sign, rest);
                }
                return rest;
            }
            (a, _) => panic!("the checker orders no {ty:?}: {a:?}"),
        };
        let (below, above, same) = (self.f.int(-1), self.f.int(1), self.f.int(0));
        let not_less = self.select(more, above, same);
        self.select(less, below, not_less)
    }

    fn part_types(&self, ty: &Ty) -> Vec<Ty> {
        match ty {
            Ty::Tuple(parts) => parts.clone(),
            Ty::Struct(id) => {
                self.cx.program.structs[id.0 as usize].fields.iter().map(|(_, ty)| ty.clone()).collect()
            }
            other => panic!("{other:?} has no parts"),
        }
    }
}
