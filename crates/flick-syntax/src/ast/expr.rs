//! Expressions: see `parser/expr.rs` and `parser/flow.rs` for their grammar.

use std::ops::Range;

use rowan::ast::{AstChildren, AstNode, support};

use super::{
    AskAllExpr, AskExpr, Block, FilterExpr, FoldExpr, FoldtExpr, InExpr, MapEachExpr, MapExpr, Name, Pattern,
    RangeExpr, UpdateExpr, choice, named, nodes, nth_child, nth_name, to_range,
};
use crate::literal::{LiteralValue, parse_number, unescape};
use crate::syntax_kind::{SyntaxKind, SyntaxToken};

nodes! {
    /// A number, string, `true` or `false`.
    Literal,
    /// A name used as a value.
    NameExpr,
    /// `self`
    SelfExpr,
    /// `$$`, the value being parsed or written.
    DollarExpr,
    /// `(a)`
    ParenExpr,
    /// `()` or `(a, b)`
    TupleExpr,
    /// `[a, b]`
    ListExpr,
    /// `-a`, `not a`
    UnaryExpr,
    /// `a + b`
    BinaryExpr,
    /// `f(a, b)`
    CallExpr,
    /// The parentheses of a call.
    ArgList,
    /// `backends[i]`
    IndexExpr,
    /// `req.key`
    FieldExpr,
    /// `pair.0`
    TupleFieldExpr,
    /// `cmd{opcode = 0}`
    RecordExpr,
    /// `req with key = k`
    WithExpr,
    /// `key = k`, `headers["host"] = h`
    FieldInit,
    /// `if a: b else: c`
    IfExpr,
    /// `if a: b`
    IfBranch,
    /// `else: c`
    ElseBranch,
    /// `switch a:` and its cases.
    SwitchExpr,
    /// `get, getk: result`
    SwitchArm,
    /// `d[k] else 0`
    DefaultExpr,
}

choice! {
    /// An expression.
    Expr {
        /// A literal.
        Literal(Literal),
        /// A name.
        Name(NameExpr),
        /// `self`.
        SelfValue(SelfExpr),
        /// `$$`.
        Dollar(DollarExpr),
        /// A parenthesis.
        Paren(ParenExpr),
        /// A tuple.
        Tuple(TupleExpr),
        /// A list.
        List(ListExpr),
        /// A prefix operator.
        Unary(UnaryExpr),
        /// A binary operator.
        Binary(BinaryExpr),
        /// A call.
        Call(CallExpr),
        /// An element.
        Index(IndexExpr),
        /// A range: what a repetition visits, or the slice of an index.
        Range(RangeExpr),
        /// A field.
        Field(FieldExpr),
        /// A value of a tuple.
        TupleField(TupleFieldExpr),
        /// A new record.
        Record(RecordExpr),
        /// A changed copy of a record.
        With(WithExpr),
        /// A choice by condition.
        If(IfExpr),
        /// A choice by value.
        Switch(SwitchExpr),
        /// A table of results by value.
        Map(MapExpr),
        /// A test for one of several values.
        In(InExpr),
        /// A merge of sorted streams.
        Foldt(FoldtExpr),
        /// A fold over a finite collection.
        Fold(FoldExpr),
        /// A list made of another.
        MapEach(MapEachExpr),
        /// A list with some elements left out.
        Filter(FilterExpr),
        /// An option with its default.
        Default(DefaultExpr),
        /// A request and its reply.
        Ask(AskExpr),
        /// Several requests and their replies.
        AskAll(AskAllExpr),
        /// A change of an entry that depends on what it was.
        Update(UpdateExpr),
    }
}

/// A prefix operator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnaryOp {
    /// `-`
    Neg,
    /// `not`
    Not,
}

/// A binary operator.
#[expect(missing_docs, reason = "each operator is named after what it does")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BinaryOp {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Add,
    Sub,
    Mul,
    Div,
    Mod,
}

named! { NameExpr, FieldInit }

impl Expr {
    /// Returns the expression without the parentheses around it.
    pub fn unparenthesised(self) -> Option<Expr> {
        let mut expr = self;
        while let Expr::Paren(paren) = expr {
            expr = paren.inner()?;
        }
        Some(expr)
    }
}

fn first_token(node: &crate::SyntaxNode) -> Option<SyntaxToken> {
    node.children_with_tokens()
        .filter_map(|element| element.into_token())
        .find(|token| !token.kind().is_trivia())
}

/// Returns the value of the token of a literal.
pub(super) fn literal_value(token: &SyntaxToken) -> Option<LiteralValue> {
    match token.kind() {
        SyntaxKind::Number => parse_number(token.text()).ok(),
        SyntaxKind::Str => Some(LiteralValue::Bytes(unescape(token.text()).0)),
        SyntaxKind::TrueKw => Some(LiteralValue::Bool(true)),
        SyntaxKind::FalseKw => Some(LiteralValue::Bool(false)),
        _ => None,
    }
}

impl Literal {
    /// Returns its value; `None` for one that was reported as an error.
    pub fn value(&self) -> Option<LiteralValue> {
        literal_value(&first_token(self.syntax())?)
    }
}

impl ParenExpr {
    /// Returns what stands between the parentheses.
    pub fn inner(&self) -> Option<Expr> {
        support::child(self.syntax())
    }
}

impl TupleExpr {
    /// Returns its items.
    pub fn items(&self) -> AstChildren<Expr> {
        support::children(self.syntax())
    }
}

impl ListExpr {
    /// Returns its items.
    pub fn items(&self) -> AstChildren<Expr> {
        support::children(self.syntax())
    }
}

impl UnaryExpr {
    /// Returns its operator.
    pub fn op(&self) -> Option<UnaryOp> {
        Some(match first_token(self.syntax())?.kind() {
            SyntaxKind::Minus => UnaryOp::Neg,
            SyntaxKind::NotKw | SyntaxKind::Bang => UnaryOp::Not,
            _ => return None,
        })
    }

    /// Returns its operand.
    pub fn operand(&self) -> Option<Expr> {
        support::child(self.syntax())
    }
}

impl BinaryExpr {
    /// Returns its operator; one spelled as in another language is the one it stands for.
    pub fn op(&self) -> Option<BinaryOp> {
        Some(match first_token(self.syntax())?.kind() {
            SyntaxKind::OrKw | SyntaxKind::Pipe2 => BinaryOp::Or,
            SyntaxKind::AndKw | SyntaxKind::Amp2 => BinaryOp::And,
            SyntaxKind::Eq2 | SyntaxKind::Eq => BinaryOp::Equal,
            SyntaxKind::Neq => BinaryOp::NotEqual,
            SyntaxKind::Lt => BinaryOp::Less,
            SyntaxKind::Le => BinaryOp::LessEqual,
            SyntaxKind::Gt => BinaryOp::Greater,
            SyntaxKind::Ge => BinaryOp::GreaterEqual,
            SyntaxKind::Plus => BinaryOp::Add,
            SyntaxKind::Minus => BinaryOp::Sub,
            SyntaxKind::Star => BinaryOp::Mul,
            SyntaxKind::Slash => BinaryOp::Div,
            SyntaxKind::ModKw | SyntaxKind::Percent => BinaryOp::Mod,
            _ => return None,
        })
    }

    /// Returns the left operand.
    pub fn left(&self) -> Option<Expr> {
        nth_child(self.syntax(), 0)
    }

    /// Returns the right operand.
    pub fn right(&self) -> Option<Expr> {
        nth_child(self.syntax(), 1)
    }
}

impl CallExpr {
    /// Returns what is called.
    pub fn callee(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns the arguments.
    pub fn args(&self) -> impl Iterator<Item = Expr> + use<> {
        support::child::<ArgList>(self.syntax()).into_iter().flat_map(|list| support::children(list.syntax()))
    }
}

impl IndexExpr {
    /// Returns the range of a slice, `a[i..j]`; `None` for an index.
    pub fn slice(&self) -> Option<RangeExpr> {
        match self.index() {
            Some(Expr::Range(range)) => Some(range),
            _ => None,
        }
    }

    /// Returns what is indexed.
    pub fn base(&self) -> Option<Expr> {
        nth_child(self.syntax(), 0)
    }

    /// Returns the index; `Expr::Range` for a slice.
    pub fn index(&self) -> Option<Expr> {
        nth_child(self.syntax(), 1)
    }
}

impl FieldExpr {
    /// Returns what the field belongs to.
    pub fn base(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns the name of the field.
    pub fn field(&self) -> Option<Name> {
        nth_name(self.syntax(), 0)
    }
}

impl TupleFieldExpr {
    /// Returns the tuple.
    pub fn base(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns which of its values, counted from 0; `None` for a number that was reported as an error.
    pub fn position(&self) -> Option<u64> {
        match literal_value(&support::token(self.syntax(), SyntaxKind::Number)?)? {
            LiteralValue::Int(position) => Some(position),
            _ => None,
        }
    }

    /// Returns where the number stands.
    pub fn position_range(&self) -> Option<Range<usize>> {
        support::token(self.syntax(), SyntaxKind::Number).map(|token| to_range(token.text_range()))
    }
}

impl DefaultExpr {
    /// Returns the option.
    pub fn value(&self) -> Option<Expr> {
        nth_child(self.syntax(), 0)
    }

    /// Returns what stands for `none`; computed only then.
    pub fn default(&self) -> Option<Expr> {
        nth_child(self.syntax(), 1)
    }
}

impl RecordExpr {
    /// Returns the name of the record.
    pub fn name(&self) -> Option<Name> {
        nth_name(self.syntax(), usize::from(self.library().is_some()))
    }

    /// Returns the library of `n.point{x = 1}`.
    pub fn library(&self) -> Option<Name> {
        support::token(self.syntax(), SyntaxKind::Dot).and(nth_name(self.syntax(), 0))
    }

    /// Returns the fields that are given.
    pub fn fields(&self) -> AstChildren<FieldInit> {
        support::children(self.syntax())
    }
}

impl WithExpr {
    /// Returns the record that is copied.
    pub fn base(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns the fields that change.
    pub fn fields(&self) -> AstChildren<FieldInit> {
        support::children(self.syntax())
    }
}

impl FieldInit {
    fn has_key(&self) -> bool {
        support::token(self.syntax(), SyntaxKind::LBrack).is_some()
    }

    /// Returns the key in `headers["host"] = h`; elsewhere `None`.
    pub fn key(&self) -> Option<Expr> {
        if self.has_key() { nth_child(self.syntax(), 0) } else { None }
    }

    /// Returns the value of the field, or of the key.
    pub fn value(&self) -> Option<Expr> {
        nth_child(self.syntax(), usize::from(self.has_key()))
    }
}

impl IfExpr {
    /// Returns the `if` and every `else if`.
    pub fn branches(&self) -> AstChildren<IfBranch> {
        support::children(self.syntax())
    }

    /// Returns the block of the `else`.
    pub fn else_body(&self) -> Option<Block> {
        support::child::<ElseBranch>(self.syntax())?.body()
    }
}

impl IfBranch {
    /// Returns the condition.
    pub fn condition(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns the block.
    pub fn body(&self) -> Option<Block> {
        support::child(self.syntax())
    }
}

impl ElseBranch {
    /// Returns the block.
    pub fn body(&self) -> Option<Block> {
        support::child(self.syntax())
    }
}

impl SwitchExpr {
    /// Returns the value that is compared.
    pub fn subject(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns the cases.
    pub fn arms(&self) -> AstChildren<SwitchArm> {
        support::children(self.syntax())
    }

    /// Returns the block of the `else`.
    pub fn else_body(&self) -> Option<Block> {
        support::child::<ElseBranch>(self.syntax())?.body()
    }
}

impl SwitchArm {
    /// Returns the patterns; one of them must match.
    pub fn patterns(&self) -> AstChildren<Pattern> {
        support::children(self.syntax())
    }

    /// Returns the block.
    pub fn body(&self) -> Option<Block> {
        support::child(self.syntax())
    }
}
