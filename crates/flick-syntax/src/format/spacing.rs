//! Spaces between two tokens on one line.
//! Promises: leaving the space out never makes one token of two.

use super::Piece;
use crate::syntax_kind::SyntaxKind::*;

/// Says whether a space stands between `left` and `right`.
pub(super) fn has_space(left: &Piece, right: &Piece) -> bool {
    let sticks_to_right = match left.kind {
        LParen | LBrack | Dot | DotDot => true,
        LBrace => left.parent == RecordExpr || right.kind == RBrace,
        Lt => left.parent == TypeArgs,
        Percent => left.parent == UnitProperty,
        Amp => left.parent == Attr,
        Minus => matches!(left.parent, UnaryExpr | Pattern),
        Slash => matches!(left.parent, ChanType | ChanArrayType),
        _ => false,
    };
    if sticks_to_right {
        return false;
    }
    !match right.kind {
        RParen | RBrack | Comma | Semi | DotDot => true,
        // `0 .5` is a position, `0.5` a fraction; behind another position (`x.0.5`) it is none.
        Dot => !(left.kind == Number && left.parent != TupleFieldExpr && right.parent == TupleFieldExpr),
        Colon => !super::is_aligned_colon(right),
        RBrace => right.parent == RecordExpr,
        LBrace => right.parent == RecordExpr,
        LParen => right.parent == ArgList || right.parent == ParamList && left.kind == Ident,
        LBrack => matches!(right.parent, IndexExpr | ExceptStmt | FieldInit),
        Lt | Gt => right.parent == TypeArgs,
        Slash => matches!(right.parent, ChanType | ChanArrayType),
        _ => false,
    }
}
