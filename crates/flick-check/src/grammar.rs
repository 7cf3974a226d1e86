//! Message grammars: units, their fields, and what the platform must know about them.
//! Promises: a unit in the tables is flat, in the order of the wire; every length is computed from what stands before it;
//! no two lengths follow from each other.
//! Start reading at [`check`], which names the steps.

mod ambiguous;
mod attrs;
mod classes;
mod derive;
mod enums;
mod facts;
mod flatten;
mod lengths;
mod lists;
mod names;
mod never;
mod nodes;
mod rows;
mod sizes;
mod wire_types;

pub(crate) use ambiguous::check as check_ends;
pub(crate) use facts::computed as computed_facts;
pub(crate) use lengths::longest;
pub(crate) use names::{element_of, list_len, self_field, self_key};
use nodes::Site;
pub(crate) use sizes::row as row_size;

use crate::diagnostic::Sink;
use crate::expr::Exprs;
use crate::hir::{Builtin, Derived, Expr, ExprKind, FieldId, FieldKind, ListEnd, Ty, Unit, UnitId};
use crate::items::{Decls, Items};
use crate::range::INT;
use crate::scope::Scope;

/// What an expression of a grammar is for; decides which fields it may use.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// `&length`, `&parse` and `&requires`, evaluated while the message is read: fields before `visible`.
    Reading {
        /// For messages: "the length of `key`".
        what: String,
        visible: usize,
    },
    /// `&serialize`: all fields.
    Writing,
    /// A property: all numbers.
    Fact(&'static str),
    /// An answer of the platform: what it keeps of a request.
    Answer(Vec<FieldId>),
}

/// Where in a grammar an expression stands.
#[derive(Clone)]
pub(crate) struct GrammarScope {
    pub(crate) unit: UnitId,
    site: Site,
    pub(crate) purpose: Purpose,
    /// What `$$` means here.
    pub(crate) dollar: Option<(ExprKind, Ty)>,
    /// The unit has a tree, whose expressions may look into text.
    is_structured: bool,
    /// Computed where a program reads it.
    pub(crate) is_lazy: bool,
}

impl GrammarScope {
    /// At the top of a plain unit.
    fn new(unit: UnitId, file: u32, purpose: Purpose) -> Self {
        let site = Site { file, ..Site::default() };
        GrammarScope { unit, site, purpose, dollar: None, is_structured: false, is_lazy: false }
    }
}

impl GrammarScope {
    /// Fields of an element of that list may be named.
    fn enter(&mut self, list: FieldId) {
        self.site.inside.push(list);
    }

    /// Whether expressions here may look into text.
    pub(crate) fn sees_text(&self) -> bool {
        self.is_structured
    }

    /// Whether a grammar may compute with it here.
    pub(crate) fn allows(&self, builtin: Builtin) -> bool {
        let is_writing = matches!(self.purpose, Purpose::Writing);
        match builtin {
            Builtin::Hash
            | Builtin::Len
            | Builtin::StartsWith
            | Builtin::EndsWith
            | Builtin::Contains
            | Builtin::Min
            | Builtin::Max => true,
            Builtin::Find
            | Builtin::Trim
            | Builtin::IsDigits
            | Builtin::SameText
            | Builtin::ParseInt
            | Builtin::HasToken => self.is_structured,
            Builtin::Str | Builtin::Hex => self.is_lazy || is_writing,
            Builtin::Abs
            | Builtin::Lower
            | Builtin::Upper
            | Builtin::ParseHex
            | Builtin::Text
            | Builtin::Raw
            | Builtin::PercentDecode
            | Builtin::PercentEncode
            | Builtin::Base64Decode
            | Builtin::Base64Encode => self.is_lazy,
            _ => false,
        }
    }
}

/// Checks all enumerations, classes and units.
pub(crate) fn check(decls: &Decls, items: &mut Items, sink: &mut Sink) {
    enums::check(decls, items, sink);
    classes::check(decls, items, sink);
    let drafts: Vec<nodes::Drafts> = (0..decls.units.len())
        .map(|unit| flatten::flatten(UnitId(unit as u32), decls, items, sink))
        .collect();
    for (unit, drafts) in drafts.iter().enumerate() {
        let unit = UnitId(unit as u32);
        rows::check(unit, drafts, items, sink);
        lengths::slots(unit, items, sink);
        derive::check(unit, &drafts.fields, items, sink);
    }
    // An answer may be of another unit.
    for unit in 0..drafts.len() {
        facts::check(UnitId(unit as u32), &decls.units[unit], items, sink);
        never::check(UnitId(unit as u32), items, sink);
    }
}

/// Runs `check` on expressions of a grammar.
fn with_exprs<T>(
    items: &Items,
    sink: &mut Sink,
    scope: GrammarScope,
    check: impl FnOnce(&mut Exprs<'_>) -> T,
) -> T {
    let mut exprs = Exprs::new(items, sink, scope.site.file, Scope::default());
    exprs.grammar = Some(scope);
    check(&mut exprs)
}

/// The type of a field as an author writes it in a record.
pub(crate) fn type_name(items: &Items, kind: &FieldKind) -> String {
    match kind {
        FieldKind::Int { enumeration: Some(id), .. } => items.enumeration(*id).name.clone(),
        FieldKind::Int { repr, .. } | FieldKind::Var { repr, .. }
            if repr.width_bytes == 8 && !repr.signed =>
        {
            "uint64".to_owned()
        }
        FieldKind::Int { .. } | FieldKind::Vint { .. } | FieldKind::Var { .. } => "int".to_owned(),
        FieldKind::Bytes { text: true, .. } => "string".to_owned(),
        FieldKind::Bytes { text: false, .. } => "bytes".to_owned(),
        FieldKind::Text { text, .. } | FieldKind::TextVar { text, .. } | FieldKind::ToClose { text } => {
            if *text {
                "string".to_owned()
            } else {
                "bytes".to_owned()
            }
        }
        FieldKind::Flag { .. } => "bool".to_owned(),
        FieldKind::Number { .. } | FieldKind::Varint { .. } | FieldKind::Bits { .. } | FieldKind::Asked => {
            let wide = kind.number_range().is_some_and(|(_, hi)| hi > INT.hi);
            if wide { "uint64".to_owned() } else { "int".to_owned() }
        }
        FieldKind::List(_) => "a list".to_owned(),
    }
}

/// The type of a number as it stands in the grammar.
pub(crate) fn wire_type_name(kind: &FieldKind) -> String {
    match kind {
        FieldKind::Int { repr, .. } => crate::types::int_name(*repr),
        FieldKind::Number { base: 16, digits_max, .. } => format!("hex<{digits_max}>"),
        FieldKind::Number { digits_max, .. } => format!("decimal<{digits_max}>"),
        FieldKind::Varint { bytes_max, .. } => format!("varint<{bytes_max}>"),
        _ => "number".to_owned(),
    }
}

/// Whether a program may give a field another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Writable {
    Yes,
    /// It follows from other fields.
    Follows,
    /// It is not on the wire.
    Computed,
    /// It goes on until the peer closes.
    ToClose,
    /// A list whose elements have several parts.
    Parts,
    /// Its length could not follow, because.
    NoLength(String),
}

/// Says whether a program may give `field` another value.
pub(crate) fn writable(unit: &Unit, field: FieldId) -> Writable {
    let kind = &unit.fields[field.0 as usize].kind;
    let length = match kind {
        FieldKind::Int { .. }
        | FieldKind::Vint { .. }
        | FieldKind::Number { .. }
        | FieldKind::Varint { .. } => {
            return if kind.derived().is_some() { Writable::Follows } else { Writable::Yes };
        }
        FieldKind::Var { .. } | FieldKind::Flag { .. } | FieldKind::TextVar { .. } | FieldKind::Asked => {
            return Writable::Computed;
        }
        FieldKind::Text { .. } | FieldKind::Bits { .. } => return Writable::Yes,
        FieldKind::ToClose { .. } => return Writable::ToClose,
        FieldKind::List(list) if list.element.is_none() && list.keyed.is_none() => return Writable::Parts,
        FieldKind::List(list) => match &list.end {
            ListEnd::Until(_) => return Writable::Yes,
            // Given another number of elements, only a count that follows stays right.
            ListEnd::Count(Expr { kind: ExprKind::SelfField(count), .. }) if matches!(unit.fields[count.0 as usize].kind.derived(), Some(Derived::LengthOf(of)) if *of == field) =>
            {
                return Writable::Yes;
            }
            _ => return Writable::Parts,
        },
        FieldKind::Bytes { length, .. } => length,
    };
    let source = match length.kind {
        ExprKind::SelfField(source) => source,
        ExprKind::Int(bytes) => return Writable::NoLength(format!("it always has {bytes} bytes")),
        _ => return Writable::NoLength("its length is computed from several fields".to_owned()),
    };
    let shares = |other: &crate::hir::Field| matches!(&other.kind, FieldKind::Bytes { length, .. } if matches!(length.kind, ExprKind::SelfField(known) if known == source));
    let name = |id: FieldId| unit.fields[id.0 as usize].name.clone().unwrap_or_default();
    if unit.fields.iter().filter(|other| shares(other)).count() > 1 {
        return Writable::NoLength(format!("`{}` is the length of several fields", name(source)));
    }
    let measures = |expr: &Expr| {
        crate::walk::any(
            expr,
            &mut |expr| matches!(expr.kind, ExprKind::LenOf(measured) if measured == field),
        )
    };
    let follows = unit.fields.iter().any(|other| {
        let by_key = match &other.kind {
            FieldKind::List(list) => {
                list.keyed.iter().any(|keyed| keyed.follows.iter().any(|(_, expr)| measures(expr)))
            }
            _ => false,
        };
        by_key
            || match other.kind.derived() {
                Some(Derived::LengthOf(measured)) => *measured == field,
                Some(Derived::Expr(expr)) => measures(expr),
                None => false,
            }
    });
    if follows {
        Writable::Yes
    } else {
        Writable::NoLength(format!("the variable `{}` has no `&serialize`", name(source)))
    }
}
