//! Declarations: see `parser/decl.rs` and `parser/unit.rs` for their grammar.

use rowan::ast::{AstChildren, AstNode, support};

use super::{
    Block, Channel, ClassDecl, Expr, GlobalDecl, Name, Type, UnitBits, UnitCheck, UnitLiteral, UnitSwitch,
    child_after, child_before, choice, named, nodes, nth_child, nth_name,
};
use crate::syntax_kind::SyntaxKind;

nodes! {
    /// A whole source file.
    File,
    /// `use memcached_binary`
    UseDecl,
    /// `type cmd: record` and its fields.
    RecordDecl,
    /// `key : string`
    RecordField,
    /// `type cmd = unit { ... };`
    UnitDecl,
    /// `%byteorder = big;`
    UnitProperty,
    /// `key : string &length = self.key_len;`
    UnitField,
    /// `var value_len : uint32 &parse = ... &serialize = ...;`
    UnitVar,
    /// `&length = self.key_len`
    Attr,
    /// `type opcode = enum uint8 { get = 0, ... };`, or `type colour: enum` and its members.
    EnumDecl,
    /// `get = 0`
    EnumVariant,
    /// `type shape: variant` and its cases.
    VariantDecl,
    /// `circle : int`
    VariantCase,
    /// `proc Memcached: (...)` and its rules.
    ProcDecl,
    /// `fun f: (...) -> (...)` and its body.
    FunDecl,
    /// A parameter: a channel or a value.
    Param,
    /// The parentheses and the parameters between them.
    ParamList,
    /// `-> (uint16)`
    ResultList,
}

choice! {
    /// A declaration at the left margin.
    Decl {
        /// A library in use.
        Use(UseDecl),
        /// A record type, or a view of the unit of the same name.
        Record(RecordDecl),
        /// A message grammar.
        Unit(UnitDecl),
        /// An enumeration.
        Enum(EnumDecl),
        /// A set of bytes.
        Class(ClassDecl),
        /// A tagged union.
        Variant(VariantDecl),
        /// State of the service.
        Global(GlobalDecl),
        /// A process.
        Proc(ProcDecl),
        /// A function.
        Fun(FunDecl),
    }
}

choice! {
    /// An item of a message grammar, in the order of the wire.
    UnitItem {
        /// A fact about the grammar as a whole.
        Property(UnitProperty),
        /// Bytes on the wire.
        Field(UnitField),
        /// A value computed from fields, not on the wire.
        Var(UnitVar),
        /// Bytes that must stand on the wire.
        Literal(UnitLiteral),
        /// A whole number whose bits are fields.
        Bits(UnitBits),
        /// A condition that must hold.
        Check(UnitCheck),
        /// A choice, by a value, of the items on the wire.
        Switch(UnitSwitch),
    }
}

named! { UseDecl, RecordDecl, RecordField, UnitDecl, UnitProperty, UnitField, Attr, EnumVariant, VariantDecl, VariantCase, ProcDecl, FunDecl, Param }

impl File {
    /// Returns all declarations in the order of the source.
    pub fn decls(&self) -> AstChildren<Decl> {
        support::children(self.syntax())
    }

    /// Returns the `use` lines.
    pub fn uses(&self) -> AstChildren<UseDecl> {
        support::children(self.syntax())
    }

    /// Returns the records.
    pub fn records(&self) -> AstChildren<RecordDecl> {
        support::children(self.syntax())
    }

    /// Returns the message grammars.
    pub fn units(&self) -> AstChildren<UnitDecl> {
        support::children(self.syntax())
    }

    /// Returns the enumerations.
    pub fn enums(&self) -> AstChildren<EnumDecl> {
        support::children(self.syntax())
    }

    /// Returns the classes of bytes.
    pub fn classes(&self) -> AstChildren<ClassDecl> {
        support::children(self.syntax())
    }

    /// Returns the variants.
    pub fn variants(&self) -> AstChildren<VariantDecl> {
        support::children(self.syntax())
    }

    /// Returns the state of the service.
    pub fn globals(&self) -> AstChildren<GlobalDecl> {
        support::children(self.syntax())
    }

    /// Returns the processes.
    pub fn procs(&self) -> AstChildren<ProcDecl> {
        support::children(self.syntax())
    }

    /// Returns the functions.
    pub fn funs(&self) -> AstChildren<FunDecl> {
        support::children(self.syntax())
    }
}

impl UseDecl {
    /// Returns the name that the library has here: `n` in `use library as n`.
    pub fn alias(&self) -> Option<Name> {
        nth_name(self.syntax(), 2) // library, as, alias
    }
}

impl VariantDecl {
    /// Returns its cases.
    pub fn cases(&self) -> AstChildren<VariantCase> {
        support::children(self.syntax())
    }
}

impl VariantCase {
    /// Returns the type of what it carries, if it carries something.
    pub fn ty(&self) -> Option<Type> {
        support::child(self.syntax())
    }
}

impl RecordDecl {
    /// Returns its fields.
    pub fn fields(&self) -> AstChildren<RecordField> {
        support::children(self.syntax())
    }
}

impl RecordField {
    /// Returns its type.
    pub fn ty(&self) -> Option<Type> {
        support::child(self.syntax())
    }
}

impl UnitDecl {
    /// Returns its parameters: `limit: uint32` in `type chunk(limit: uint32) = unit { ... };`.
    pub fn params(&self) -> impl Iterator<Item = Param> + use<> {
        support::child::<ParamList>(self.syntax()).into_iter().flat_map(|list| list.params())
    }

    /// Returns all items in the order of the source. What stands in the cases of a `switch` is found there.
    pub fn items(&self) -> AstChildren<UnitItem> {
        support::children(self.syntax())
    }

    /// Returns the properties.
    pub fn properties(&self) -> AstChildren<UnitProperty> {
        support::children(self.syntax())
    }

    /// Returns the fields outside any `switch`, in the order of the wire.
    pub fn fields(&self) -> AstChildren<UnitField> {
        support::children(self.syntax())
    }

    /// Returns the vars outside any `switch`.
    pub fn vars(&self) -> AstChildren<UnitVar> {
        support::children(self.syntax())
    }
}

impl UnitProperty {
    /// Returns the second word of `%on unavailable = ...`.
    pub fn qualifier(&self) -> Option<Name> {
        nth_name(self.syntax(), 1)
    }

    /// Returns the field in `%loud self.opcode = ...`; elsewhere `None`.
    pub fn target(&self) -> Option<Expr> {
        child_before(self.syntax(), SyntaxKind::Eq)
    }

    /// Returns what stands behind the `=`.
    pub fn value(&self) -> Option<Expr> {
        child_after(self.syntax(), SyntaxKind::Eq)
    }
}

impl UnitField {
    /// Returns its type.
    pub fn ty(&self) -> Option<Type> {
        support::child(self.syntax())
    }

    /// Returns its attributes.
    pub fn attrs(&self) -> AstChildren<Attr> {
        support::children(self.syntax())
    }
}

impl UnitVar {
    /// Returns its name.
    pub fn name(&self) -> Option<Name> {
        nth_name(self.syntax(), 1) // behind the word `var`
    }

    /// Returns its type.
    pub fn ty(&self) -> Option<Type> {
        support::child(self.syntax())
    }

    /// Returns its attributes.
    pub fn attrs(&self) -> AstChildren<Attr> {
        support::children(self.syntax())
    }
}

impl Attr {
    fn has_target(&self) -> bool {
        let tokens = self.syntax().children_with_tokens();
        tokens.filter(|element| element.kind() == SyntaxKind::Eq).count() > 1
    }

    /// Returns what is assigned to: `self.total_len` in `&serialize = self.total_len = expr`; elsewhere `None`.
    pub fn target(&self) -> Option<Expr> {
        if self.has_target() { nth_child(self.syntax(), 0) } else { None }
    }

    /// Returns the value; `None` for a bare `&streamed`.
    pub fn value(&self) -> Option<Expr> {
        nth_child(self.syntax(), usize::from(self.has_target()))
    }
}

impl EnumDecl {
    /// Returns its name.
    pub fn name(&self) -> Option<Name> {
        nth_name(self.syntax(), 0)
    }

    /// Says whether it is declared with braces, as part of a grammar.
    pub fn has_braces(&self) -> bool {
        support::token(self.syntax(), SyntaxKind::LBrace).is_some()
    }

    /// Returns the integer type it is carried in, if one is written.
    pub fn base(&self) -> Option<Type> {
        support::child(self.syntax())
    }

    /// Returns its values.
    pub fn variants(&self) -> AstChildren<EnumVariant> {
        support::children(self.syntax())
    }
}

impl EnumVariant {
    /// Returns its number, if one is written.
    pub fn value(&self) -> Option<Expr> {
        support::child(self.syntax())
    }
}

impl ProcDecl {
    /// Returns its channels.
    pub fn params(&self) -> impl Iterator<Item = Param> + use<> {
        support::child::<ParamList>(self.syntax()).into_iter().flat_map(|list| list.params())
    }

    /// Returns its rules and statements.
    pub fn body(&self) -> Option<Block> {
        support::child(self.syntax())
    }
}

impl FunDecl {
    /// Returns its parameters.
    pub fn params(&self) -> impl Iterator<Item = Param> + use<> {
        support::child::<ParamList>(self.syntax()).into_iter().flat_map(|list| list.params())
    }

    /// Returns the types of its results.
    pub fn results(&self) -> impl Iterator<Item = Type> + use<> {
        support::child::<ResultList>(self.syntax()).into_iter().flat_map(|list| list.types())
    }

    /// Returns the node of its results, for its range.
    pub fn result_list(&self) -> Option<ResultList> {
        support::child(self.syntax())
    }

    /// Returns its body.
    pub fn body(&self) -> Option<Block> {
        support::child(self.syntax())
    }
}

impl ParamList {
    /// Returns the parameters.
    pub fn params(&self) -> AstChildren<Param> {
        support::children(self.syntax())
    }
}

impl ResultList {
    /// Returns the types.
    pub fn types(&self) -> AstChildren<Type> {
        support::children(self.syntax())
    }
}

impl Param {
    /// Returns its channel type, if it is a channel.
    pub fn channel(&self) -> Option<Channel> {
        support::child(self.syntax())
    }

    /// Returns its type, if it is a value.
    pub fn ty(&self) -> Option<Type> {
        child_after(self.syntax(), SyntaxKind::Colon)
    }
}
