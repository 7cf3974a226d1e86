//! Typed views of the lossless tree.
//! Promises: a view costs one reference count; accessors follow the grammar at the top of each file of `parser/`.
//! Refuses: to fail; what an erroneous source lacks is `None`. The list of all nodes is in the crate's documentation.

mod decl;
mod expr;
mod grammar;
mod loops;
mod pattern;
mod state;
mod stmt;
mod table;
mod types;

use std::ops::Range;

pub use rowan::ast::AstNode;
use rowan::ast::support;

use crate::syntax_kind::{FlickLanguage, SyntaxKind, SyntaxNode, SyntaxToken};

pub use decl::*;
pub use expr::*;
pub use grammar::*;
pub use loops::*;
pub use pattern::*;
pub use state::*;
pub use stmt::*;
pub use table::*;
pub use types::*;

/// Returns the range of a node in bytes of the source.
pub fn range_of(node: &SyntaxNode) -> Range<usize> {
    to_range(node.text_range())
}

pub(crate) fn to_range(range: rowan::TextRange) -> Range<usize> {
    usize::from(range.start())..usize::from(range.end())
}

/// A word of the source that names something.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    token: SyntaxToken,
}

impl Name {
    /// Returns the word itself.
    pub fn text(&self) -> &str {
        self.token.text()
    }

    /// Returns where it stands, in bytes of the source.
    pub fn range(&self) -> Range<usize> {
        to_range(self.token.text_range())
    }
}

/// Returns the tokens that are direct children of `node`.
fn tokens_of(node: &SyntaxNode) -> impl Iterator<Item = SyntaxToken> + use<> {
    node.children_with_tokens().filter_map(|element| element.into_token())
}

/// Returns the `index`-th name that is a direct child of `node`.
fn nth_name(node: &SyntaxNode, index: usize) -> Option<Name> {
    tokens_of(node).filter(|token| token.kind() == SyntaxKind::Ident).nth(index).map(|token| Name { token })
}

/// Returns the `index`-th child of type `N`.
fn nth_child<N: AstNode<Language = FlickLanguage>>(node: &SyntaxNode, index: usize) -> Option<N> {
    support::children(node).nth(index)
}

/// Returns the first child of type `N` behind the first token of kind `kind`.
fn child_after<N: AstNode<Language = FlickLanguage>>(node: &SyntaxNode, kind: SyntaxKind) -> Option<N> {
    let behind = node.children_with_tokens().skip_while(|element| element.kind() != kind);
    behind.filter_map(|element| element.into_node()).find_map(N::cast)
}

/// Returns the first child of type `N` before the first token of kind `kind`.
fn child_before<N: AstNode<Language = FlickLanguage>>(node: &SyntaxNode, kind: SyntaxKind) -> Option<N> {
    let in_front = node.children_with_tokens().take_while(|element| element.kind() != kind);
    in_front.filter_map(|element| element.into_node()).find_map(N::cast)
}

/// Returns the first child of type `N` behind the first name with the text `word`, before any later token.
fn child_after_word<N: AstNode<Language = FlickLanguage>>(node: &SyntaxNode, word: &str) -> Option<N> {
    let is_word = |element: &crate::SyntaxElement| {
        element.as_token().is_some_and(|token| token.kind() == SyntaxKind::Ident && token.text() == word)
    };
    let mut behind = node.children_with_tokens().skip_while(move |element| !is_word(element)).skip(1);
    behind
        .find(|element| !element.kind().is_trivia())
        .and_then(|element| element.into_node())
        .and_then(N::cast)
}

/// Declares node types: the struct, its `AstNode`, and `range()`.
macro_rules! nodes {
    ($( $(#[$meta:meta])* $name:ident ),* $(,)?) => { $(
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub struct $name {
            syntax: $crate::syntax_kind::SyntaxNode,
        }

        impl rowan::ast::AstNode for $name {
            type Language = $crate::syntax_kind::FlickLanguage;

            fn can_cast(kind: $crate::syntax_kind::SyntaxKind) -> bool {
                kind == $crate::syntax_kind::SyntaxKind::$name
            }

            fn cast(syntax: $crate::syntax_kind::SyntaxNode) -> Option<Self> {
                Self::can_cast(syntax.kind()).then_some($name { syntax })
            }

            fn syntax(&self) -> &$crate::syntax_kind::SyntaxNode {
                &self.syntax
            }
        }

        impl $name {
            /// Returns where it stands, in bytes of the source.
            pub fn range(&self) -> std::ops::Range<usize> {
                $crate::ast::range_of(&self.syntax)
            }
        }
    )* };
}

/// Declares an enum over node types.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $( $(#[$variant_meta:meta])* $variant:ident($node:ident) ),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant($node) ),*
        }

        impl rowan::ast::AstNode for $name {
            type Language = $crate::syntax_kind::FlickLanguage;

            fn can_cast(kind: $crate::syntax_kind::SyntaxKind) -> bool {
                $( $node::can_cast(kind) )||*
            }

            fn cast(syntax: $crate::syntax_kind::SyntaxNode) -> Option<Self> {
                match syntax.kind() {
                    $( kind if $node::can_cast(kind) => $node::cast(syntax).map($name::$variant), )*
                    _ => None,
                }
            }

            fn syntax(&self) -> &$crate::syntax_kind::SyntaxNode {
                match self {
                    $( $name::$variant(node) => node.syntax() ),*
                }
            }
        }

        impl $name {
            /// Returns where it stands, in bytes of the source.
            pub fn range(&self) -> std::ops::Range<usize> {
                $crate::ast::range_of(self.syntax())
            }
        }
    };
}

/// Declares accessors that return the first name of a node.
macro_rules! named {
    ($( $name:ident ),* $(,)?) => { $(
        impl $name {
            /// Returns its name.
            pub fn name(&self) -> Option<$crate::ast::Name> {
                $crate::ast::nth_name(self.syntax(), 0)
            }
        }
    )* };
}

use {choice, named, nodes};
