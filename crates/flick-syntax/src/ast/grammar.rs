//! The parts of a grammar beyond fields: see `parser/items.rs` and `parser/class.rs` for their grammar.

use rowan::ast::{AstChildren, AstNode, support};

use super::{Attr, Expr, Name, Pattern, TypeArgs, UnitItem, named, nodes, nth_name, tokens_of};
use crate::literal::LiteralValue;
use crate::syntax_kind::SyntaxKind;

nodes! {
    /// `"\r\n";`: bytes that must stand on the wire.
    UnitLiteral,
    /// `bits<16> { version : 4; flags : 12; };`
    UnitBits,
    /// `version : 4`
    BitField,
    /// `check self.length <= 100;`
    UnitCheck,
    /// `switch self.kind { 1: { ... } else: { } };`
    UnitSwitch,
    /// `1, 2: { ... }`
    UnitArm,
    /// `else: { ... }`
    UnitElse,
    /// `type tchar = class { "a".."z", "-" };`
    ClassDecl,
    /// `"a".."z"`
    ClassItem,
}

/// Bytes that a member of a class stands for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClassItemKind {
    /// `"-_"`: each of its bytes
    Bytes(Vec<u8>),
    /// `"a".."z"`: all bytes from the one to the other, both of them included; a sound range has one byte in each
    Range(Vec<u8>, Vec<u8>),
    /// `digit`: what another class holds; see `ClassItem::library`
    Class(Name),
}

named! { BitField, ClassDecl }

impl UnitLiteral {
    /// Returns its bytes; `None` for a string that was reported as an error.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        bytes_at(self.syntax(), 0)
    }

    /// Returns its attributes.
    pub fn attrs(&self) -> AstChildren<Attr> {
        support::children(self.syntax())
    }
}

impl UnitBits {
    /// Returns how many bits the group has.
    pub fn width(&self) -> Option<Expr> {
        support::child(support::child::<TypeArgs>(self.syntax())?.syntax())
    }

    /// Returns the bit fields, the most significant first.
    pub fn fields(&self) -> AstChildren<BitField> {
        support::children(self.syntax())
    }
}

impl BitField {
    /// Returns how many bits it has.
    pub fn width(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns its attributes.
    pub fn attrs(&self) -> AstChildren<Attr> {
        support::children(self.syntax())
    }
}

impl UnitCheck {
    /// Returns what must hold.
    pub fn condition(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns its attributes.
    pub fn attrs(&self) -> AstChildren<Attr> {
        support::children(self.syntax())
    }
}

impl UnitSwitch {
    /// Returns the value that chooses a case.
    pub fn subject(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns the cases but for the `else`, in the order of the source.
    pub fn arms(&self) -> AstChildren<UnitArm> {
        support::children(self.syntax())
    }

    /// Returns the case for everything else.
    pub fn otherwise(&self) -> Option<UnitElse> {
        support::child(self.syntax())
    }
}

impl UnitArm {
    /// Returns the values it is for.
    pub fn patterns(&self) -> AstChildren<Pattern> {
        support::children(self.syntax())
    }

    /// Returns what stands on the wire then.
    pub fn items(&self) -> AstChildren<UnitItem> {
        support::children(self.syntax())
    }
}

impl UnitElse {
    /// Returns what stands on the wire then.
    pub fn items(&self) -> AstChildren<UnitItem> {
        support::children(self.syntax())
    }
}

impl ClassDecl {
    /// Says whether it holds all bytes but those of its members: `class not { ... }`.
    pub fn is_complement(&self) -> bool {
        support::token(self.syntax(), SyntaxKind::NotKw).is_some()
    }

    /// Returns its members.
    pub fn items(&self) -> AstChildren<ClassItem> {
        support::children(self.syntax())
    }
}

impl ClassItem {
    /// Returns what it stands for; `None` for one that was reported as an error.
    pub fn kind(&self) -> Option<ClassItemKind> {
        let has_library = self.library().is_some();
        if let Some(name) = nth_name(self.syntax(), usize::from(has_library)) {
            return Some(ClassItemKind::Class(name));
        }
        let first = bytes_at(self.syntax(), 0)?;
        if support::token(self.syntax(), SyntaxKind::DotDot).is_none() {
            return Some(ClassItemKind::Bytes(first));
        }
        bytes_at(self.syntax(), 1).map(|last| ClassItemKind::Range(first, last))
    }

    /// Returns the library of `n.digit`.
    pub fn library(&self) -> Option<Name> {
        support::token(self.syntax(), SyntaxKind::Dot).and(nth_name(self.syntax(), 0))
    }
}

/// Returns the bytes of the `index`-th string that is a direct child of `node`.
fn bytes_at(node: &crate::SyntaxNode, index: usize) -> Option<Vec<u8>> {
    let token = tokens_of(node).filter(|token| token.kind() == SyntaxKind::Str).nth(index)?;
    match super::literal_value(&token)? {
        LiteralValue::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}
