//! Types: see `parser/types.rs` for their grammar.

use rowan::ast::{AstChildren, AstNode, support};

use super::{ArgList, Expr, Name, choice, nodes, nth_child, nth_name};
use crate::syntax_kind::SyntaxKind;

nodes! {
    /// `uint16`, `string<250>`, `dict<string, cmd>`, `n.kind`, `chunk(100)`
    NamedType,
    /// The `<...>` of a type.
    TypeArgs,
    /// `[cmd]<64>`
    ListType,
    /// `(uint16, string)`
    TupleType,
    /// `cmd/cmd`
    ChanType,
    /// `[cmd/cmd]`
    ChanArrayType,
    /// One side of a channel.
    ChanEnd,
}

choice! {
    /// The type of a value.
    Type {
        /// A type with a name.
        Named(NamedType),
        /// A list.
        List(ListType),
        /// A tuple.
        Tuple(TupleType),
    }
}

choice! {
    /// The type of a channel.
    Channel {
        /// One channel.
        Single(ChanType),
        /// An array of channels.
        Array(ChanArrayType),
    }
}

impl NamedType {
    /// Returns its name.
    pub fn name(&self) -> Option<Name> {
        nth_name(self.syntax(), usize::from(self.library().is_some()))
    }

    /// Returns the library of `n.kind`.
    pub fn library(&self) -> Option<Name> {
        support::token(self.syntax(), SyntaxKind::Dot).and(nth_name(self.syntax(), 0))
    }

    fn type_args(&self) -> Option<TypeArgs> {
        support::child(self.syntax())
    }

    /// Returns the size of `string<250>`.
    pub fn size(&self) -> Option<Expr> {
        support::child(self.type_args()?.syntax())
    }

    /// Returns what is given to a grammar with parameters: the 100 of `chunk(100)`.
    pub fn values(&self) -> impl Iterator<Item = Expr> + use<> {
        support::child::<ArgList>(self.syntax()).into_iter().flat_map(|list| support::children(list.syntax()))
    }

    /// Returns the types of `dict<string, cmd>`.
    pub fn args(&self) -> impl Iterator<Item = Type> + use<> {
        self.type_args().into_iter().flat_map(|args| support::children(args.syntax()))
    }
}

impl ListType {
    /// Returns the type of its elements.
    pub fn element(&self) -> Option<Type> {
        support::child(self.syntax())
    }

    /// Returns how many elements it holds at most, if that is written.
    pub fn len(&self) -> Option<Expr> {
        support::child(support::child::<TypeArgs>(self.syntax())?.syntax())
    }
}

impl TupleType {
    /// Returns the types of its items.
    pub fn items(&self) -> AstChildren<Type> {
        support::children(self.syntax())
    }
}

impl ChanEnd {
    /// Returns the type of its messages; `None` for `-`.
    pub fn ty(&self) -> Option<Type> {
        support::child(self.syntax())
    }
}

impl Channel {
    fn end(&self, index: usize) -> Option<ChanEnd> {
        nth_child(self.syntax(), index)
    }

    /// Returns the type of the messages that are received; `None` for `-`.
    pub fn input(&self) -> Option<Type> {
        self.end(0)?.ty()
    }

    /// Returns the type of the messages that are sent; `None` for `-`.
    pub fn output(&self) -> Option<Type> {
        self.end(1)?.ty()
    }

    /// Says whether this is an array of channels.
    pub fn is_array(&self) -> bool {
        matches!(self, Channel::Array(_))
    }
}
