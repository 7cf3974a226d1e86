//! Expressions, by precedence climbing.
//!
//! ```text
//! loosest  with · or · and · not · == != < <= > >= in · + - · * / mod · unary - · f(x) a[i] a.b   tightest
//! primary  := literal | NAME | NAME '{' (NAME '=' expr),* '}' | '(' expr,* ')' | '[' expr,* ']' | '$$' | 'self'
//!           | if | switch | map | foldt | fold
//! ```
//! All binary operators group to the left. `not` may stand wherever an operand may and then reaches to the next `and`.

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::{self, *};

const EXPR: Construct =
    Construct { name: "an expression", shape: "like `req.key`, `f(x)`, `a + 1` or `cmd{opcode = 0}`" };
const CALL: Construct = Construct { name: "a call", shape: "`name(value, value)`" };
const INDEX: Construct = Construct { name: "an index", shape: "`backends[i]`" };
const FIELD: Construct = Construct { name: "a field access", shape: "`value.field`" };
const PAREN: Construct = Construct { name: "a parenthesis", shape: "`(a + b)`" };
const LIST: Construct = Construct { name: "a list", shape: "`[a, b]`" };
const RECORD: Construct = Construct { name: "a record value", shape: "`name{field = value, field = value}`" };
const WITH: Construct =
    Construct { name: "a record update", shape: "`req with field = value, field = value`" };

const WITH_POWER: u8 = 1;
const OR_POWER: u8 = 2;
const AND_POWER: u8 = 3;
const NOT_POWER: u8 = 4;
const COMPARE_POWER: u8 = 5;
const ADD_POWER: u8 = 6;
const MUL_POWER: u8 = 7;
const UNARY_POWER: u8 = 8;

impl Parser<'_> {
    pub(super) fn expr(&mut self) {
        self.expr_of(WITH_POWER);
    }

    /// Parses the size between `<` and `>`, where a comparison would be ambiguous.
    pub(super) fn size_expr(&mut self) {
        self.expr_of(ADD_POWER);
    }

    /// Parses a value without binary operators, such as `self.header.opcode`.
    pub(super) fn path_expr(&mut self) {
        self.expr_of(UNARY_POWER);
    }

    /// Parses an expression whose operators bind at least as tightly as `power_min`.
    fn expr_of(&mut self, power_min: u8) {
        if !self.enter() {
            return;
        }
        let outer_deepest = std::mem::replace(&mut self.deepest, self.depth);
        let checkpoint = self.checkpoint();
        if self.operand() {
            while let Some(power) = self.binary_power().filter(|power| *power >= power_min) {
                self.check_operator();
                let kind = match self.current() {
                    WithKw => WithExpr,
                    Ident => InExpr,
                    _ => BinaryExpr,
                };
                if !self.wrap(checkpoint, kind) {
                    break;
                }
                self.bump();
                match kind {
                    WithExpr => self.updates(),
                    InExpr => self.set_members(),
                    _ => self.expr_of(power + 1),
                }
                self.finish();
            }
        }
        self.deepest = self.deepest.max(outer_deepest);
        self.leave();
    }

    fn binary_power(&self) -> Option<u8> {
        if self.after_dedent {
            return None; // the operand ended with a block: what follows is the next line
        }
        Some(match self.current() {
            WithKw => WITH_POWER,
            OrKw | Pipe2 => OR_POWER,
            AndKw | Amp2 => AND_POWER,
            Eq if self.is_condition => COMPARE_POWER,
            Eq2 | Neq | Lt | Le | Gt | Ge => COMPARE_POWER,
            Ident if self.at_in() => COMPARE_POWER,
            Plus | Minus => ADD_POWER,
            Star | Slash | ModKw => MUL_POWER,
            // `%name =` is the next property of a grammar that forgot a `;`.
            Percent
                if !(self.is_unit
                    && self.nth(1).is_word()
                    && (self.nth(2) == Eq || self.nth(2).is_word())) =>
            {
                MUL_POWER
            }
            _ => return None,
        })
    }

    /// Parses a prefix operator or a primary with what follows it; says whether there was one.
    fn operand(&mut self) -> bool {
        let prefix_power = match self.current() {
            Minus => UNARY_POWER,
            NotKw => NOT_POWER,
            Bang => {
                self.check_operator();
                UNARY_POWER
            }
            _ => {
                let checkpoint = self.checkpoint();
                let is_there = self.primary();
                if is_there {
                    self.postfix(checkpoint);
                }
                return is_there;
            }
        };
        self.start(UnaryExpr);
        self.bump();
        self.expr_of(prefix_power);
        self.finish();
        true
    }

    fn postfix(&mut self, checkpoint: rowan::Checkpoint) {
        while !self.after_dedent {
            let kind = match self.current() {
                LParen => CallExpr,
                LBrack => IndexExpr,
                Dot => FieldExpr,
                _ => return,
            };
            if !self.wrap(checkpoint, kind) {
                return;
            }
            match kind {
                CallExpr => {
                    self.start(ArgList);
                    self.comma_separated(RParen, CALL);
                    self.finish();
                }
                IndexExpr => {
                    let open = self.here();
                    self.bump();
                    self.expr();
                    self.expect_closing(RBrack, open, INDEX);
                }
                _ => {
                    self.bump();
                    self.field_name(FIELD);
                }
            }
            self.finish();
        }
    }

    fn primary(&mut self) -> bool {
        match self.current() {
            Number | Str | OpenStr | SingleQuoted | FractionalNumber | TrueKw | FalseKw => {
                self.single(Literal)
            }
            SelfKw => self.single(SelfExpr),
            DollarDollar => self.single(DollarExpr),
            Ident if self.nth(1) == LBrace && self.record_fields_follow() => self.record_expr(),
            Ident if self.at_map() => self.map_expr(),
            Ident => self.single(NameExpr),
            LParen => self.paren_expr(),
            LBrack => {
                self.start(ListExpr);
                self.comma_separated(RBrack, LIST);
                self.finish();
            }
            IfKw => self.if_expr(),
            SwitchKw => self.switch_expr(),
            FoldtKw => self.foldt_expr(),
            FoldKw => self.fold_expr(),
            _ => {
                self.expected("an expression", EXPR);
                return false;
            }
        }
        true
    }

    pub(super) fn single(&mut self, kind: SyntaxKind) {
        self.start(kind);
        self.bump();
        self.finish();
    }

    /// Says whether the `{` behind a name opens a record value; otherwise it is a block of another language.
    fn record_fields_follow(&self) -> bool {
        self.nth(2) == RBrace || self.nth(2).is_word() && matches!(self.nth(3), Eq | Eq2 | Comma | RBrace)
    }

    /// Parses `(`, expressions and `)`: one is a parenthesis, none or several are a tuple.
    fn paren_expr(&mut self) {
        let checkpoint = self.checkpoint();
        let open = self.here();
        self.bump();
        let mut item_count = 0u32;
        let mut ends_in_comma = false;
        while !self.at(RParen) && !self.current().is_virtual() {
            self.expr();
            item_count = item_count.saturating_add(1);
            ends_in_comma = self.eat(Comma);
            if !ends_in_comma {
                break;
            }
        }
        let kind = if item_count == 1 && !ends_in_comma { ParenExpr } else { TupleExpr };
        self.start_at(checkpoint, kind);
        self.expect_closing(RParen, open, PAREN);
        self.finish();
    }

    fn comma_separated(&mut self, close: SyntaxKind, construct: Construct) {
        let open = self.here();
        self.bump();
        while !self.at(close) && !self.current().is_virtual() {
            self.expr();
            if !self.eat(Comma) {
                break;
            }
        }
        if !self.expect_closing(close, open, construct) {
            // Resynchronise at the bracket if it is still on this line; a statement's own arrow ends the search.
            self.skip_until(|kind| kind == close || matches!(kind, FatArrow | Join | Semi | Colon));
            self.eat(close);
        }
    }

    fn record_expr(&mut self) {
        self.start(RecordExpr);
        self.bump();
        let open = self.here();
        self.bump();
        while !self.at(RBrace) && !self.current().is_virtual() {
            self.field_init(RECORD);
            if !self.eat(Comma) {
                break;
            }
        }
        if !self.expect_closing(RBrace, open, RECORD) {
            self.skip_until(|kind| matches!(kind, RBrace | FatArrow | Semi));
            self.eat(RBrace);
        }
        self.finish();
    }

    /// Parses the `field = value` list of a `with`. A comma belongs to it only if a field follows: `f(r with a = 1, x)`.
    fn updates(&mut self) {
        self.field_init(WITH);
        while self.at(Comma) && self.nth(1).is_word() && self.nth(2) == Eq {
            self.bump();
            self.field_init(WITH);
        }
    }

    fn field_init(&mut self, construct: Construct) {
        self.start(FieldInit);
        if self.field_name(construct) {
            if matches!(self.current(), Eq2 | Colon | ColonEq) {
                let title = format!("a field is given with `=`, not with `{}`", self.text());
                let help = format!("it is written {}", construct.shape);
                self.note(SyntaxErrorKind::EqualsConfusion, self.here(), title, help);
                self.bump();
                self.expr_of(OR_POWER);
            } else if self.expect(Eq, construct) {
                self.expr_of(OR_POWER);
            }
        }
        self.finish();
    }
}
