//! The front end of flick: text in, lossless tree and errors out; and the formatter.
//! Promises: every byte of the source is in the tree; no input makes it panic, loop or overflow the stack; the parser
//! never stops at the first error. Bounds are in [`limits`].
//! Refuses: to know what names mean. No I/O, no unsafe.
//!
//! # Use
//!
//! ```
//! let parse = flick_syntax::parse("proc Relay: (cmd/cmd a, cmd/cmd b)\n  a <=> b\n");
//! assert!(parse.errors().is_empty());
//! let file = parse.file();
//! let proc = file.procs().next().unwrap();
//! assert_eq!(proc.name().unwrap().text(), "Relay");
//! ```
//!
//! Errors are in [`Parse::errors`], in the order of the source; a [`SyntaxErrorKind`] is a stable name for an error
//! code. [`format()`] gives every program one layout; two of its promises (the same tree, a fixpoint) are properties
//! under test.
//!
//! # The typed tree ([`ast`])
//!
//! Every accessor returns an `Option` or an iterator, because an erroneous source gives an incomplete tree; where the
//! parser reported no error, what the grammar requires is there. Every node has `range()` in bytes of the source,
//! without surrounding white space, and implements [`ast::AstNode`] (`syntax()` is the untyped node). A [`ast::Name`]
//! is a word of the source with `text()` and `range()`.
//!
//! ```text
//! File          decls() -> Decl::{Use, Record, Unit, Enum, Class, Variant, Global, Proc, Fun};
//!               uses() records() units() enums() classes() variants() globals() procs() funs()
//! UseDecl       name() alias()                        use library as alias
//! RecordDecl    name() fields() -> RecordField { name() ty() }
//! UnitDecl      name() params() items() -> UnitItem::{Property, Field, Var, Literal, Bits, Check, Switch};
//!               properties() fields() vars()          only those outside any `switch`
//!   UnitProperty  name() qualifier() target() value() %byteorder = big;  %on qualifier = ...;  %loud target = ...;
//!   UnitField     name() (None: anonymous) ty() attrs()
//!   UnitVar       name() ty() attrs()
//!   Attr          name() value() target()             &serialize = target = value;  elsewhere no target
//!   UnitLiteral   bytes() attrs()                   "\r\n" &optional;
//!   UnitBits      width() fields() -> BitField { name() width() attrs() }           bits<16> { a : 4; : 12; };
//!   UnitCheck     condition() attrs()               check self.a < 3 &fault = too_long;
//!   UnitSwitch    subject() arms() -> UnitArm { patterns() items() };  otherwise() -> UnitElse { items() }
//! ClassDecl     name() is_complement() items() -> ClassItem { library() kind() -> ClassItemKind }
//! EnumDecl      name() base() has_braces() variants() -> EnumVariant { name() value() }   both spellings
//! VariantDecl   name() cases() -> VariantCase { name() ty() (None: carries nothing) }
//! GlobalDecl    name() ty() props() -> GlobalProp::{Max, Expire, Evict, Snapshot};  max() expire() evict() snapshot()
//!   MaxProp       entries() bytes();   ExpireProp  duration();   EvictProp  policy() -> EvictPolicy
//!   SnapshotProp  file() -> Literal  every()
//! ProcDecl      name() params() body()
//! FunDecl       name() params() results() body()      results: iterator of Type
//! Param         name() channel() -> Option<Channel> | ty() -> Option<Type>      exactly one of the two
//! Channel       ::{Single(ChanType), Array(ChanArrayType)};  input() output() -> Option<Type> (None: `-`)  is_array()
//! Type          ::{Named(NamedType), List(ListType), Tuple(TupleType)}
//!   NamedType     library() name() size() -> Option<Expr>  args() -> types     string<250>, dict<k, v>, n.kind
//!                 values()                          within a grammar: chunk(100)
//!   ListType      element() len() -> Option<Expr>;   TupleType  items()
//! Block         stmts()                               the last `Stmt::Expr` (or `If`, `Switch`) is its value
//! Stmt          ::{Rule, Let, Expr, Chain, Join, Assign, If, Switch, For, Local, Global, Except, Every, Ellipsis}
//!   Rule          stmt()                              `|` and then Expr, Chain or Join
//!   LetStmt       binding() value() name()            name(): None where the binding names parts
//!   ExprStmt      expr()                              `ask` and `update` are expressions as well
//!   ChainStmt     stages()                            a => f(b) => c: three stages
//!   JoinStmt      left() right();   AssignStmt  target() value()      n := 1, d[k] := v
//!   ForStmt       name() iterable() body();   LocalStmt  name() ty() value()
//!   ExceptStmt    event() kind() -> EventKind  channel() index() body()      except broken channel[index]: body
//!   EveryStmt     interval() body()
//!   `Global` in a block is an error that is reported already.
//! Expr          ::{Literal, Name, SelfValue, Dollar, Paren, Tuple, List, Unary, Binary, Call, Index, Range, Field,
//!                  TupleField, Record, With, If, Switch, Map, In, Foldt, Fold, MapEach, Filter, Default,
//!                  Ask, AskAll, Update}
//!   Literal       value() -> Option<LiteralValue>;   NameExpr  name();   ParenExpr  inner()
//!   UnaryExpr     op() -> UnaryOp  operand();   BinaryExpr  op() -> BinaryOp  left() right()
//!   CallExpr      callee() args()                     also some(x), shape.circle(3), n.f(x): callee is Name or Field
//!   IndexExpr     base() index() slice()              a[i]; slice() is the `Expr::Range` of a[i..j]
//!   RangeExpr     start() end()                       only in an index (open ends: None) and as an iterable()
//!   FieldExpr     base() field();   TupleFieldExpr  base() position() position_range()      pair.0
//!   RecordExpr    library() name() fields();   WithExpr  base() fields();
//!   FieldInit     name() key() value()                key(): `headers["host"] = h` in a `with`
//!   DefaultExpr   value() default()                   d[k] else 0
//!   IfExpr        branches() -> IfBranch { condition() body() };  else_body()
//!   SwitchExpr    subject() arms() -> SwitchArm { patterns() body() };  else_body()
//!   MapExpr       subject() arms() -> MapArm { pattern() value() };  else_value()     map a { b: c, else: d }
//!   InExpr        subject() patterns() | collection()                                  a in { b, c };  a in list
//!   Pattern       library() kind() -> PatternKind::{Name, Qualified, Literal, Negative}
//!                 binding() path_range()              circle r, rect (w, _), some v, none; bindings: in a `switch`
//!   Binding       kind() -> BindingKind::{Name(Name), Nothing (`_`), Parts(Vec<Binding>)};  name()
//!   FoldtExpr     channels() element() left() right() key() key_name() body()
//!   FoldExpr      name() iterable() accumulator() start() body()     fold x in xs, sum = 0: sum + x
//!   MapEachExpr, FilterExpr   name() iterable() body()               map x in xs: f(x);  filter x in xs: x > 0
//!   AskExpr       channel() message() timeout() else_value()
//!   AskAllExpr    channels() message() | is_list() items() -> AskItem { channel() message() };  timeout()
//!                 is_each() each_name() each_of(): the one item is for each element
//!   UpdateExpr    target() value_name() body()        update d[k] from v: body
//! `a else b` without `:` is always a `DefaultExpr`, also in `if c: a else b`, where `else:` may be meant.
//! ```

#![forbid(unsafe_code)]

pub mod ast;
mod error;
mod format;
mod layout;
mod lexer;
pub mod limits;
mod literal;
mod parser;
mod syntax_kind;

use rowan::GreenNode;

pub use error::{SyntaxError, SyntaxErrorKind};
pub use format::format;
pub use literal::LiteralValue;
pub use syntax_kind::{FlickLanguage, SyntaxElement, SyntaxKind, SyntaxNode, SyntaxToken};

use ast::AstNode;
use error::ErrorSink;

/// A parsed source: its lossless tree and its errors, in the order of the source. May be sent between threads.
#[derive(Clone, Debug)]
pub struct Parse {
    green: GreenNode,
    errors: Vec<SyntaxError>,
}

impl Parse {
    /// Returns the typed root of the tree.
    pub fn file(&self) -> ast::File {
        ast::File::cast(self.syntax()).expect("the parser makes a `File` of every source")
    }

    /// Returns the untyped root of the tree; its text is the source, but for a source that is too large.
    pub fn syntax(&self) -> SyntaxNode {
        SyntaxNode::new_root(self.green.clone())
    }

    /// Returns what is wrong with the source; empty if nothing is.
    pub fn errors(&self) -> &[SyntaxError] {
        &self.errors
    }
}

/// Parses the text of a `.flick` file.
///
/// Shape:  any text; one longer than `SOURCE_BYTES_MAX` gives an empty tree and one error.
/// Cost:   linear in the text.
/// Errors: in the result; the tree is complete in either case.
pub fn parse(source: &str) -> Parse {
    let mut errors = ErrorSink::default();
    let mut source = source;
    if source.len() > limits::SOURCE_BYTES_MAX {
        errors.push(
            SyntaxErrorKind::SourceTooLarge,
            0..0,
            format!("file too large: {} bytes, the limit is {}", source.len(), limits::SOURCE_BYTES_MAX),
            "split it into libraries and import them with `use`",
        );
        source = "";
    }
    let raw = lexer::lex(source, &mut errors);
    let tokens = layout::layout(source, &raw, &mut errors);
    let (green, parser_errors) = parser::parse_file(source, &raw, &tokens);
    Parse { green, errors: errors.into_sorted(parser_errors) }
}
