//! Patterns and the names they bind: see `parser/pattern.rs` for their grammar.

use std::ops::Range;

use rowan::ast::{AstNode, support};

use super::{Name, nodes, nth_name, tokens_of};
use crate::literal::LiteralValue;
use crate::syntax_kind::SyntaxKind;

nodes! {
    /// `get`, `opcode.get`, `-7`, `circle r`, `rect (w, _)`, `some v`, `none`
    Pattern,
    /// `r`, `_`, `(w, h)`
    Binding,
}

/// Pattern of a case of a `switch`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PatternKind {
    /// `get`; also `circle`, `some` and `none`
    Name(Name),
    /// `opcode.get`, `shape.circle`
    Qualified(Name, Name),
    /// `7`, `"GET"`, `true`
    Literal(LiteralValue),
    /// `-7`, without its sign
    Negative(u64),
}

/// Name that a pattern binds to a part of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BindingKind {
    /// `r`
    Name(Name),
    /// `_`: not at all
    Nothing,
    /// `(w, h)`: each of its parts has a name; one part in parentheses is that part
    Parts(Vec<Binding>),
}

impl Pattern {
    /// Returns what it compares with; `None` for one that was reported as an error.
    pub fn kind(&self) -> Option<PatternKind> {
        let names: Vec<Name> = (0..3).map_while(|index| nth_name(self.syntax(), index)).collect();
        match names.as_slice() {
            [] => {}
            [name] => return Some(PatternKind::Name(name.clone())),
            [.., owner, member] => return Some(PatternKind::Qualified(owner.clone(), member.clone())),
        }
        let token = tokens_of(self.syntax()).find(|token| !token.kind().is_trivia())?;
        if token.kind() != SyntaxKind::Minus {
            return super::literal_value(&token).map(PatternKind::Literal);
        }
        let number = support::token(self.syntax(), SyntaxKind::Number)?;
        match super::literal_value(&number)? {
            LiteralValue::Int(value) => Some(PatternKind::Negative(value)),
            _ => None,
        }
    }

    /// Returns the library of `n.opcode.get`.
    pub fn library(&self) -> Option<Name> {
        nth_name(self.syntax(), 2).and(nth_name(self.syntax(), 0))
    }

    /// Returns where the path or value stands, without the names behind it.
    pub fn path_range(&self) -> Range<usize> {
        let whole = self.range();
        let last = tokens_of(self.syntax()).filter(|token| !token.kind().is_trivia()).last();
        whole.start..last.map_or(whole.end, |token| super::to_range(token.text_range()).end)
    }

    /// Returns the names for what the value carries: `r` in `circle r`.
    pub fn binding(&self) -> Option<Binding> {
        support::child(self.syntax())
    }
}

impl Binding {
    /// Returns what it names; `None` for one that was reported as an error.
    pub fn kind(&self) -> Option<BindingKind> {
        if let Some(name) = nth_name(self.syntax(), 0) {
            return Some(if name.text() == "_" { BindingKind::Nothing } else { BindingKind::Name(name) });
        }
        let mut parts: Vec<Binding> = support::children(self.syntax()).collect();
        let is_parts = support::token(self.syntax(), SyntaxKind::LParen).is_some() || parts.len() > 1;
        match parts.len() {
            1 => parts.remove(0).kind(),
            _ if is_parts => Some(BindingKind::Parts(parts)),
            _ => None,
        }
    }

    /// Returns the one name it gives; `None` where it gives several or none.
    pub fn name(&self) -> Option<Name> {
        match self.kind()? {
            BindingKind::Name(name) => Some(name),
            _ => None,
        }
    }
}
