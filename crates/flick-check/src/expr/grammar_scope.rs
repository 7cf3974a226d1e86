//! The scope of an expression in a grammar: which fields of the unit it may use, and what `self` and `$$` are.

use std::cell::OnceCell;
use std::rc::Rc;

use flick_syntax::ast;

use crate::hir::{Builtin, Expr, ExprKind, FieldId, Ty, UnitId};

/// Purpose of an expression of a grammar, which decides which fields it may use.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// `&length`, `&parse` and `&requires`, evaluated while a message is parsed: fields before `visible`.
    Reading {
        /// For diagnostics: "the length of `key`".
        what: String,
        visible: usize,
    },
    /// `&serialize`: all fields.
    Writing,
    /// A property: all integers.
    Fact(&'static str),
    /// An error response of the platform: the fields it keeps of a request.
    Answer(Vec<FieldId>),
}

/// The scope of an expression in a grammar.
#[derive(Clone)]
pub(crate) struct GrammarScope {
    pub(crate) unit: UnitId,
    pub(crate) site: Site,
    pub(crate) purpose: Purpose,
    /// Expression and type of `$$`, if it is defined.
    pub(crate) dollar: Option<(ExprKind, Ty)>,
    /// Whether the unit is structured, so that expressions may read strings.
    pub(crate) is_structured: bool,
    /// Whether the expression is computed when a program reads it.
    pub(crate) is_lazy: bool,
}

impl GrammarScope {
    /// The scope at the top of a plain unit.
    pub(crate) fn new(unit: UnitId, file: u32, purpose: Purpose) -> Self {
        let site = Site { file, ..Site::default() };
        GrammarScope { unit, site, purpose, dollar: None, is_structured: false, is_lazy: false }
    }
}

impl GrammarScope {
    /// Adds the fields of an element of that list to the scope.
    pub(crate) fn enter(&mut self, list: FieldId) {
        self.site.inside.push(list);
    }

    /// Whether expressions may read strings.
    pub(crate) fn reads_strings(&self) -> bool {
        self.is_structured
    }

    /// Whether a built-in is allowed here.
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

/// The location of an item in a unit, which decides which fields its expressions may use.
#[derive(Clone, Default)]
pub(crate) struct Site {
    pub(crate) file: u32,
    /// Path of the enclosing nested unit, with a final dot; empty at the top.
    pub(crate) prefix: String,
    /// Arguments of the nested unit.
    pub(crate) args: Option<Rc<Args>>,
    /// Enclosing lists, outermost first.
    pub(crate) inside: Vec<FieldId>,
}

/// The arguments of a unit with parameters.
pub(crate) struct Args {
    /// Name and type of each parameter.
    pub(crate) params: Vec<(String, Ty)>,
    /// The argument expressions; empty for a unit that is checked by itself.
    pub(crate) given: Vec<ast::Expr>,
    /// Their location.
    pub(crate) site: Site,
    /// Number of fields before the nested unit.
    pub(crate) visible: usize,
    /// The checked arguments, once they are known.
    pub(crate) values: OnceCell<Vec<Expr>>,
}
