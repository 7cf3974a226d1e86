//! Expressions, by precedence climbing.
//!
//! ```text
//! loosest  else · with · or · and · not · == != < <= > >= in · ..
//!          + - · * / mod · unary - · f(x) a[i] a.b a.0   tightest
//! primary  := literal | NAME | [NAME '.'] NAME '{' (NAME '=' expr),* '}' | '(' expr,* ')' | '[' expr,* ']'
//!           | '$$' | 'self' | if | switch | map | filter | foldt | fold | ask | update
//! index    := '[' expr ']' | '[' [expr] '..' [expr] ']'
//! ```
//! In the value of a field, `r with a = d[k] else 0`, the `else` belongs to that value. `else` groups to the right,
//! all other binary operators to the left. An `else` with `:` or `if` behind it is no operator. A range `a..b` stands
//! only behind the `in` of a loop and in an index. `not` may stand wherever an operand may and then reaches to the
//! next `and`.

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
const KEYED: Construct = Construct { name: "a key", shape: "`req with headers[\"x-from\"] = value`" };
const WITH: Construct =
    Construct { name: "a record update", shape: "`req with field = value, field = value`" };

const ELSE_POWER: u8 = 1;
const WITH_POWER: u8 = 2;
const OR_POWER: u8 = 3;
const AND_POWER: u8 = 4;
const NOT_POWER: u8 = 5;
const COMPARE_POWER: u8 = 6;
const RANGE_POWER: u8 = 7;
const ADD_POWER: u8 = 8;
const MUL_POWER: u8 = 9;
const UNARY_POWER: u8 = 10;

impl Parser<'_> {
    pub(super) fn expr(&mut self) {
        self.expr_of(ELSE_POWER);
    }

    /// Parses the list or dictionary behind an `in`.
    pub(super) fn value_within_in(&mut self) {
        self.expr_of(RANGE_POWER);
    }

    /// Parses a value inside a construct that `with`, `else` and `timeout` belong to.
    pub(super) fn value_within_with(&mut self) {
        self.expr_of(OR_POWER);
    }

    /// Parses a range, or a value that is none.
    pub(super) fn range_or_expr(&mut self, construct: Construct) {
        self.in_expr(|parser, checkpoint| {
            let is_index = construct.name == INDEX.name;
            if is_index && parser.at(DotDot) {
                if parser.wrap(checkpoint, RangeExpr) {
                    parser.range_end(construct);
                }
            } else if parser.operand() {
                parser.binaries(checkpoint, ADD_POWER);
                if matches!(parser.current(), DotDot | Ellipsis) && !parser.after_dedent {
                    if parser.wrap(checkpoint, RangeExpr) {
                        parser.range_end(construct);
                    }
                } else {
                    parser.binaries(checkpoint, ELSE_POWER);
                }
            }
        });
    }

    /// Parses from the `..` of a range on and closes its node. Only an index may leave out an end.
    fn range_end(&mut self, construct: Construct) {
        if self.at(Ellipsis) {
            let title = "expected `..` in a range, found `...`";
            self.note(SyntaxErrorKind::ForeignOperator, self.here(), title, "write `a..b`; `b` is excluded");
        }
        self.bump_as(DotDot);
        if matches!(self.current(), Eq | Dot) {
            let title = "inclusive ranges are not supported";
            self.note(
                SyntaxErrorKind::ForeignOperator,
                self.here(),
                title,
                "write `a..b + 1` to include `b`",
            );
            self.bump();
        }
        let may_be_open = construct.name == INDEX.name;
        if !(may_be_open && self.at(RBrack)) {
            self.expr_of(ADD_POWER);
        }
        self.finish();
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
        self.in_expr(|parser, checkpoint| {
            if parser.operand() {
                parser.binaries(checkpoint, power_min);
            }
        });
    }

    /// Goes one level deeper for an expression that begins here.
    fn in_expr(&mut self, parse: impl FnOnce(&mut Self, rowan::Checkpoint)) {
        if !self.enter() {
            return;
        }
        let outer_deepest = std::mem::replace(&mut self.deepest, self.depth);
        let checkpoint = self.checkpoint();
        parse(self, checkpoint);
        self.deepest = self.deepest.max(outer_deepest);
        self.leave();
    }

    /// Parses the operators behind an operand, and their right operands.
    fn binaries(&mut self, checkpoint: rowan::Checkpoint, power_min: u8) {
        while let Some(power) = self.binary_power().filter(|power| *power >= power_min) {
            self.check_operator();
            let kind = match self.current() {
                _ if self.at_is() => BinaryExpr,
                NotKw => InExpr,
                ElseKw => DefaultExpr,
                WithKw => WithExpr,
                DotDot => RangeExpr,
                Ident => InExpr,
                _ => BinaryExpr,
            };
            if self.step_operator() || !self.wrap(checkpoint, kind) {
                break;
            }
            if kind == RangeExpr {
                self.range_end(EXPR);
                continue;
            }
            self.two_word_operator();
            let operator = self.here();
            self.bump();
            match kind {
                DefaultExpr => {
                    self.expr_of(power);
                    if self.loose_else.as_ref().is_none_or(|(depth, _)| self.depth <= *depth) {
                        self.loose_else = Some((self.depth, operator));
                    }
                }
                WithExpr => self.updates(),
                InExpr => self.set_members(),
                _ => self.expr_of(power + 1),
            }
            self.finish();
        }
    }

    /// Says whether an `else` that gives an option its default stands here, and not that of a choice.
    pub(super) fn default_follows(&self) -> bool {
        self.at(ElseKw) && !self.after_dedent && !matches!(self.nth(1), Colon | IfKw)
    }

    fn binary_power(&self) -> Option<u8> {
        if self.after_dedent {
            return None; // the operand ended with a block: what follows is the next line
        }
        Some(match self.current() {
            ElseKw if self.default_follows() => ELSE_POWER,
            WithKw => WITH_POWER,
            OrKw | Pipe2 => OR_POWER,
            AndKw | Amp2 => AND_POWER,
            Eq if self.is_condition => COMPARE_POWER,
            Eq2 | Neq | Lt | Le | Gt | Ge => COMPARE_POWER,
            Ident if self.at_in() || self.at_is() => COMPARE_POWER,
            NotKw if self.at_not_in() => COMPARE_POWER,
            DotDot => RANGE_POWER,
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
                Dot if self.nth(1) == Number => TupleFieldExpr,
                Dot => FieldExpr,
                _ => return,
            };
            if !self.wrap(checkpoint, kind) {
                return;
            }
            match kind {
                CallExpr => {
                    self.argument_list();
                }
                IndexExpr => {
                    let open = self.here();
                    self.bump();
                    self.index();
                    self.expect_closing(RBrack, open, INDEX);
                }
                TupleFieldExpr => {
                    self.bump();
                    self.position_number();
                }
                _ => {
                    self.bump();
                    self.field_name(FIELD);
                }
            }
            self.finish();
        }
    }

    /// Parses the values of a call, or of a grammar with parameters, with their parentheses.
    pub(super) fn argument_list(&mut self) {
        self.start(ArgList);
        self.comma_separated(RParen, CALL);
        self.finish();
    }

    fn primary(&mut self) -> bool {
        match self.current() {
            Number | Str | OpenStr | SingleQuoted | FractionalNumber | TrueKw | FalseKw => {
                self.single(Literal)
            }
            SelfKw => self.single(SelfExpr),
            DollarDollar => self.single(DollarExpr),
            Ident => self.word(),
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
            ForKw => self.for_as_value(),
            _ => {
                self.expected("an expression", EXPR);
                return false;
            }
        }
        true
    }

    /// Parses what begins with a word that is not reserved.
    fn word(&mut self) {
        match self.nth(1) {
            _ if self.is_subject => {}
            LBrace if self.record_fields_follow(1) => return self.record_expr(),
            Dot if self.nth(2).is_word() && self.nth(3) == LBrace && self.record_fields_follow(3) => {
                return self.record_expr();
            }
            _ => {}
        }
        if self.at_each("map") {
            self.each_expr(MapEachExpr);
        } else if self.at_each("filter") {
            self.each_expr(FilterExpr);
        } else if self.at_map() {
            self.map_expr();
        } else if self.at_ask() {
            self.ask_expr();
        } else if self.at_update() {
            self.update_expr();
        } else {
            self.check_ask_call();
            self.foreign_value();
            let is_string = self.letter_of_string();
            self.single(if is_string { Literal } else { NameExpr });
        }
    }

    /// Parses what stands between the brackets of an index.
    fn index(&mut self) {
        if !self.at(Colon) {
            self.range_or_expr(INDEX);
        }
        let is_slice = self.at(Colon) && (self.nth(1) == RBrack || self.nth(2) == RBrack);
        if is_slice {
            self.foreign_slice();
        } else if self.at(Colon) {
            self.expected("an expression", INDEX);
        }
    }

    /// Parses the number behind the dot of `pair.0`.
    fn position_number(&mut self) {
        if !self.text().bytes().all(|byte| byte.is_ascii_digit()) {
            let title = format!("expected the number of a tuple element, found {}", self.found());
            self.note(
                SyntaxErrorKind::BadNumber,
                self.here(),
                title,
                "write `pair.0` for the first element, `pair.1` for the second",
            );
        }
        self.bump();
    }

    pub(super) fn single(&mut self, kind: SyntaxKind) {
        self.start(kind);
        self.bump();
        self.finish();
    }

    /// Says whether the `{` behind a name opens a record value; otherwise it is a block of another language.
    pub(super) fn record_fields_follow(&self, brace: usize) -> bool {
        self.nth(brace + 1) == RBrace
            || self.nth(brace + 1).is_word() && matches!(self.nth(brace + 2), Eq | Eq2 | Comma | RBrace)
    }

    /// Parses `(`, expressions and `)`: one is a parenthesis, none or several are a tuple.
    fn paren_expr(&mut self) {
        let was_subject = std::mem::replace(&mut self.is_subject, false);
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
        self.is_subject = was_subject;
    }

    /// Parses the value that chooses a case of a grammar's `switch`.
    pub(super) fn subject(&mut self) {
        let was_subject = std::mem::replace(&mut self.is_subject, true);
        self.expr();
        self.is_subject = was_subject;
    }

    fn comma_separated(&mut self, close: SyntaxKind, construct: Construct) {
        let open = self.here();
        self.bump();
        while !self.at(close) && !self.current().is_virtual() {
            if close == RParen {
                self.named_argument();
            }
            self.expr();
            self.check_comprehension();
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
        if self.eat(Dot) {
            self.field_name(RECORD);
        }
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

    /// Parses the `field = value` list of a `with`. A comma belongs to it only if a field follows:
    /// `f(r with a = 1, x)`.
    fn updates(&mut self) {
        self.field_init(WITH);
        while self.at(Comma) && self.update_follows() {
            self.bump();
            self.field_init(WITH);
        }
    }

    /// Says whether `, name =` or `, name[key] =` stands here; elsewhere the comma belongs to a list around the `with`.
    fn update_follows(&self) -> bool {
        let behind = if self.nth(2) == LBrack && self.nth(4) == RBrack { 5 } else { 2 };
        self.nth(1).is_word() && self.nth(behind) == Eq
    }

    fn field_init(&mut self, construct: Construct) {
        self.start(FieldInit);
        if self.field_name(construct) {
            if self.at(LBrack) && construct.name == WITH.name {
                let open = self.here();
                self.bump();
                self.expr();
                self.expect_closing(RBrack, open, KEYED);
            }
            if self.at(Dot) && construct.name == WITH.name {
                let help = "write `req with headers[\"host\"] = value` for a key of a list, and assign any other field as a whole";
                self.disrupt(
                    SyntaxErrorKind::Expected,
                    self.here(),
                    "expected a field in a `with`, found a part of one",
                    help,
                );
            } else if matches!(self.current(), Eq2 | Colon | ColonEq) {
                let title = format!("expected `=` after a field, found `{}`", self.text());
                let help = format!("the syntax is {}", construct.shape);
                self.note(SyntaxErrorKind::EqualsConfusion, self.here(), title, help);
                self.bump();
                self.field_value();
            } else if self.expect(Eq, construct) {
                self.field_value();
            }
        }
        self.finish();
    }

    /// Parses the value of a field: tighter than `with`, but an `else` belongs to it, since a record is never an
    /// option.
    fn field_value(&mut self) {
        self.in_expr(|parser, checkpoint| {
            if !parser.operand() {
                return;
            }
            parser.binaries(checkpoint, OR_POWER);
            if parser.default_follows() && parser.wrap(checkpoint, DefaultExpr) {
                parser.bump();
                parser.field_value();
                parser.finish();
            }
        });
    }
}
