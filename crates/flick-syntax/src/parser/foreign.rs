//! Habits from other languages: recognised, named, and answered with flick's spelling.
//! Promises: a foreign word is reported once, and what stands behind it is still parsed, so that the rest of the
//! file gets its own errors and no echo.

use super::Parser;
use crate::error::SyntaxErrorKind;
use crate::limits::QUOTE_CHARS_MAX;
use crate::syntax_kind::SyntaxKind::*;

/// Words that begin a statement elsewhere: the word, what is wrong, what to write.
const STATEMENTS: &[(&str, &str, &str)] = &[
    (
        "while",
        "`while` is not supported: every loop needs a bound",
        "write `for x in values:` over a list or range",
    ),
    (
        "loop",
        "`loop` is not supported: every loop needs a bound",
        "write `for x in values:`, or a rule `| channel => ...`, which runs for every message",
    ),
    ("do", "`do` is not supported", "write `for x in values:` over a list or range"),
    (
        "return",
        "`return` is not supported: the last line of a function is its result",
        "write the value on the last line; choose between results with `if` and `else`",
    ),
    (
        "var",
        "`var` is only allowed in a grammar",
        "write `let name = value`; mutable state is `local name := value` in a process",
    ),
    ("const", "`const` is not supported", "write `let name = value`"),
    ("elif", "`elif` is not supported", "write `else if condition:`"),
    (
        "pass",
        "`pass` is not supported",
        "remove the branch, or write `...` for a body that is not written yet",
    ),
    ("del", "`del` is not supported", "write `remove(d, k)` to remove an entry of a `global` dictionary"),
    (
        "await",
        "`await` is not supported",
        "write `let rep = ask backends[i] with req`; the platform handles other sessions meanwhile",
    ),
    ("yield", "`yield` is not supported", "write `message => channel` to send a message"),
    (
        "spawn",
        "`spawn` is not supported",
        "write a rule, `| channel => ...`; the platform runs sessions in parallel",
    ),
    (
        "go",
        "`go` is not supported",
        "write a rule, `| channel => ...`; the platform runs sessions in parallel",
    ),
    ("defer", "`defer` is not supported", "write an `except closed client:` handler in the process"),
    (
        "catch",
        "`catch` is not supported",
        "write an `except` handler in the process, as in `except closed client:`",
    ),
    (
        "finally",
        "`finally` is not supported",
        "write an `except` handler in the process, as in `except closed client:`",
    ),
    (
        "case",
        "`case` is not supported",
        "write `switch value:`, then one indented `pattern: result` per line",
    ),
    ("timer", "`timer` is not supported", "write `every 1s:` in the process"),
    ("break", "`break` is not supported", "use `if` in the body; a `for` always visits every value"),
    ("continue", "`continue` is not supported", "use `if` in the body"),
    ("match", "`match` is not supported", "write `switch value:`"),
    (
        "try",
        "`try` is not supported",
        "flick has no exceptions: a missing value is an option (`d[k] else 0`), a closed channel is handled by `except closed client:` in the process",
    ),
    ("throw", "`throw` is not supported", "flick has no exceptions; return a value for the error"),
    ("raise", "`raise` is not supported", "flick has no exceptions; return a value for the error"),
];

/// Functions that write a line to a terminal or a log, here or in another language.
const FUNCTIONS_THAT_LOG: &[&str] = &["print", "println", "printf", "echo", "puts", "log", "debug", "trace"];

/// Foreign words that an author may well call a function.
const NAMES_OF_FUNCTIONS: &[&str] = &["pass", "spawn", "go", "defer", "case", "timer", "del", "yield"];

/// Words that begin a declaration elsewhere.
const DECLARATIONS: &[(&str, &str, &str)] = &[
    ("def", "`def` is not supported", "write `fun name: (parameters) -> (results)`"),
    ("func", "`func` is not supported", "write `fun name: (parameters) -> (results)`"),
    ("function", "`function` is not supported", "write `fun name: (parameters) -> (results)`"),
    ("fn", "`fn` is not supported", "write `fun name: (parameters) -> (results)`"),
    ("process", "`process` is not supported", "write `proc Name: (in/out channel)`"),
    ("import", "`import` is not supported", "write `use name`"),
    ("include", "`include` is not supported", "write `use name`"),
    ("from", "`from ... import` is not supported", "write `use name`"),
    ("struct", "`struct` is not supported", "write `type name: record`"),
    (
        "union",
        "`union` is not supported",
        "write `type name: variant` with one indented `case : type` per line",
    ),
    (
        "interface",
        "`interface` is not supported",
        "write `type name: variant` with one indented `case : type` per line",
    ),
    (
        "trait",
        "`trait` is not supported",
        "write `type name: variant` with one indented `case : type` per line",
    ),
    ("variant", "missing `type` before a variant", "write `type name: variant`"),
    ("alias", "`alias` is not supported", "write `use library as name` to rename a library"),
    ("class", "`class` is not supported here", "write `type name: record`"),
    (
        "message",
        "`message` is not supported",
        "write `type name: record`, or `type name = unit { ... };` for its encoding",
    ),
    ("record", "missing `type` before a record", "write `type name: record`"),
    ("unit", "missing `type` before a grammar", "write `type name = unit { ... };`"),
    ("enum", "missing `type` before an enum", "write `type name: enum` with one indented member per line"),
    ("grammar", "`grammar` is not supported", "write `type name = unit { ... };`"),
    ("const", "`const` is not supported", "write the value where it is used, or a `fun` that returns it"),
    (
        "var",
        "`var` is not allowed outside a grammar",
        "write `global name: counter`, or `local name := value` in a process",
    ),
    ("every", "`every` is only allowed in a process", "move it into the process and indent it"),
    ("except", "`except` is only allowed in a process", "move it into the process and indent it"),
];

impl Parser<'_> {
    /// Reports and parses a declaration that begins with a foreign word; says whether there was one.
    pub(super) fn foreign_declaration(&mut self) -> bool {
        let Some(&(word, title, help)) = DECLARATIONS.iter().find(|(word, _, _)| *word == self.text()) else {
            return false;
        };
        if !self.nth(1).is_word() {
            return false;
        }
        self.disrupt(SyntaxErrorKind::ForeignKeyword, self.here(), title, help);
        match word {
            "def" | "func" | "function" | "fn" => {
                self.start(FunDecl);
                self.fun_heading_and_body();
                self.finish();
            }
            _ => {
                self.skip_line();
                self.skip_block();
            }
        }
        true
    }

    /// Reports and parses a statement that begins with a foreign word; says whether there was one.
    pub(super) fn foreign_statement(&mut self) -> bool {
        // A foreign word may still be the name of a value, and then something is done with it.
        let is_value = matches!(self.nth(1), FatArrow | Join | Dot | LBrack | Eq | ColonEq | Comma);
        let Some(&(word, title, help)) = STATEMENTS.iter().find(|(word, _, _)| *word == self.text()) else {
            return false;
        };
        let is_bare_value =
            self.nth(1).is_virtual() && !matches!(word, "return" | "break" | "continue" | "pass");
        let is_call = self.nth(1) == LParen && NAMES_OF_FUNCTIONS.contains(&word);
        if is_value || is_bare_value || is_call {
            return false;
        }
        self.disrupt(SyntaxErrorKind::ForeignKeyword, self.here(), title, help);
        match word {
            "var" | "const" if self.nth(1) == Ident => {
                self.start(LetStmt);
                self.bump();
                self.bump();
                if self.eat(Colon) {
                    self.type_ref();
                }
                if self.eat(Eq) {
                    self.expr();
                }
                self.finish();
            }
            "return" if !self.nth(1).is_virtual() => {
                self.start(ExprStmt);
                self.bump_as(Unknown);
                self.expr();
                self.finish();
            }
            _ => {
                self.skip_line();
                self.skip_block();
                self.skip_handlers(word);
            }
        }
        true
    }

    /// Reports and parses `print "x"` and `log "x"`; says whether there was one.
    pub(super) fn unparenthesised_log(&mut self) -> bool {
        let word = self.text().to_owned();
        if !FUNCTIONS_THAT_LOG.contains(&word.as_str()) || !matches!(self.nth(1), Str | Ident | Number) {
            return false;
        }
        let here = self.here();
        self.start(ExprStmt);
        self.bump_as(Unknown);
        let start = self.here().start;
        self.expr();
        let argument = &self.source[self.since(start)];
        let help = format!("write `log({argument})`; an integer is converted with `str(n)`");
        let (kind, title) = if word == "log" {
            (SyntaxErrorKind::Expected, "missing parentheses after `log`".to_owned())
        } else {
            (
                SyntaxErrorKind::ForeignKeyword,
                format!("`{word}` is not supported: a line is logged with `log`"),
            )
        };
        self.disrupt(kind, here, title, help);
        self.finish();
        true
    }

    /// Steps over the `except`, `catch` and `finally` that belong to a `try`: they are part of the one mistake.
    fn skip_handlers(&mut self, word: &str) {
        while word == "try"
            && matches!(self.nth_text(usize::from(self.at(LineEnd))), "except" | "catch" | "finally")
        {
            self.eat(LineEnd);
            self.is_quiet = true;
            self.skip_line();
            self.skip_block();
        }
    }

    /// Reports words that are values elsewhere.
    pub(super) fn foreign_value(&mut self) {
        let (title, help) = match self.text() {
            "None" | "NULL" | "nil" | "null" if !self.is_unit => (
                "unknown literal: an option without a value is `none`",
                "write `none` for an option; other values are never missing: compare a string with `\"\"`, an integer with 0",
            ),
            "Some" if self.nth(1) == LParen => {
                ("unknown function `Some`: write `some` in lower case", "write `some(value)`")
            }
            "some" if matches!(self.nth(1), Ident | Number | Str) => (
                "missing parentheses after `some`",
                "write `some(value)`; only a pattern is written `some v`",
            ),
            "True" | "False" => ("unknown literal: booleans are in lower case", "write `true` or `false`"),
            "await" if self.nth(1) == Ident => (
                "`await` is not supported",
                "write `ask backends[i] with req`; the platform handles other sessions meanwhile",
            ),
            letter if self.at_letter_of_string() => {
                let help = if matches!(letter, "f" | "F") {
                    "write `\"hits: \" + str(n)`"
                } else {
                    "remove the prefix: every string is a sequence of bytes, with `\\xNN` for any byte"
                };
                ("string prefixes are not supported", help)
            }
            "lambda" if self.nth(1) == Ident => (
                "anonymous functions are not supported",
                "declare it with `fun name: (x: int) -> (int)`, or write the expression after `map x in values:`",
            ),
            _ => return,
        };
        let disrupts = matches!(self.text(), "some" | "await" | "lambda");
        self.note(SyntaxErrorKind::ForeignKeyword, self.here(), title, help);
        self.is_quiet |= disrupts;
    }

    /// Reports a type of C in several words, `unsigned int`, or of a pointer, `char*`, and steps over it; says whether
    /// there was one.
    pub(super) fn foreign_type(&mut self) -> bool {
        const WORDS: &[&str] = &["const", "unsigned", "signed", "long", "short", "int", "char", "double"];
        let count = (0..).take_while(|ahead| WORDS.contains(&self.nth_text(*ahead))).count();
        let words: Vec<&str> = (0..count).map(|ahead| self.nth_text(ahead)).collect();
        let is_pointer = self.nth(count.max(1)) == Star;
        if count < 2 && !is_pointer {
            return false;
        }
        let (title, help) = if is_pointer {
            (
                "pointers are not supported",
                "write `string<N>` for text and `bytes<N>` for any bytes, with their bound",
            )
        } else {
            let is_unsigned = words.contains(&"unsigned");
            let help = match (is_unsigned, words.last()) {
                (_, Some(&"double")) => "there are no fractions: write `int`, in a smaller unit",
                (true, Some(&"char")) => "write `uint8`",
                (false, Some(&"char")) => "write `int8`",
                (true, _) if words.contains(&"short") => "write `uint16`",
                (false, _) if words.contains(&"short") => "write `int16`",
                (true, _) if words.contains(&"long") => "write `uint64`",
                (false, _) if words.contains(&"long") => "write `int64`",
                (true, _) => "write `uint32`",
                (false, _) => "write `int32`",
            };
            ("a type is one word", help)
        };
        self.note(SyntaxErrorKind::ForeignKeyword, self.here(), title, help);
        self.start(Error);
        for _ in 0..count.max(1) {
            self.bump();
        }
        while self.eat(Star) {}
        self.finish();
        true
    }

    /// Says whether nothing stands between the current token and the next one.
    fn is_joined(&self) -> bool {
        let of = |ahead: usize| {
            self.tokens.get(self.position + ahead).and_then(|token| self.raw.get(token.raw as usize))
        };
        matches!((of(0), of(1)), (Some(left), Some(right)) if left.end == right.start)
    }

    /// At a letter that stands before strings elsewhere, and a string right behind it.
    fn at_letter_of_string(&self) -> bool {
        let is_letter = matches!(self.text(), "f" | "F" | "b" | "B" | "r" | "R" | "rb" | "u");
        is_letter && self.nth(1) == Str && self.is_joined()
    }

    /// Steps over the letter of `f"..."`, which was reported; says whether there was one.
    pub(super) fn letter_of_string(&mut self) -> bool {
        let is_letter = self.at_letter_of_string();
        if is_letter {
            self.bump_as(Unknown);
        }
        is_letter
    }

    /// Reports the `limit =` of `f(limit = 2)` and steps over it.
    pub(super) fn named_argument(&mut self) {
        if !(self.current().is_word() && self.nth(1) == Eq) {
            return;
        }
        let title = "named arguments are not supported";
        let help = "write them in the order of the parameters, as in `f(a, 2)`; the fields of a record are named in braces: `cmd{opcode = 0}`";
        self.note(SyntaxErrorKind::ForeignOperator, self.here(), title, help);
        self.start(Error);
        self.bump();
        self.bump();
        self.finish();
    }

    /// Says whether the `not` of `a not in b` stands here.
    pub(super) fn at_not_in(&self) -> bool {
        self.at(NotKw) && self.nth(1) == Ident && self.nth_text(1) == "in"
    }

    /// Says whether the `is` of `a is b` stands here.
    pub(super) fn at_is(&self) -> bool {
        self.at_word("is") && !self.is_unit && (self.nth(1).is_word() || matches!(self.nth(1), Number | Str))
    }

    /// Reports `a not in b`, `a is b` and `a ** b`, and steps over the half of the operator that is too much.
    pub(super) fn two_word_operator(&mut self) {
        let (title, help) = if self.at_not_in() {
            ("unexpected `not` before `in`", "write `not a in b`")
        } else if self.at_is()
            && self.nth_text(1 + usize::from(self.nth(1) == NotKw)).eq_ignore_ascii_case("none")
        {
            (
                "`is` is not an operator",
                "write `switch value:` with the cases `some v` and `none`, or `value else default`",
            )
        } else if self.at_is() {
            ("`is` is not an operator", "write `==`, or `!=` for `is not`")
        } else if self.at(Star) && self.nth(1) == Star {
            ("`**` is not an operator", "write `a * a`; the sizes KiB, MiB and GiB are powers of two")
        } else {
            return;
        };
        self.note(SyntaxErrorKind::ForeignOperator, self.here(), title, help);
        self.is_quiet |= self.at_is();
        if self.nth(1) == NotKw || !self.at_is() {
            self.bump_as(Unknown);
        }
    }

    /// Reports `a[i:j]` from its `:` on and skips to the bracket.
    pub(super) fn foreign_slice(&mut self) {
        self.disrupt(
            SyntaxErrorKind::ForeignOperator,
            self.here(),
            "expected `..` in a slice, found `:`",
            "write `s[a..b]`, `s[a..]` or `s[..b]`",
        );
        self.skip_until(|kind| kind == RBrack);
    }

    /// Reports the `for` of `[f(x) for x in xs]`.
    pub(super) fn check_comprehension(&mut self) {
        if self.at(ForKw) {
            self.disrupt(
                SyntaxErrorKind::ForeignKeyword,
                self.here(),
                "list comprehensions are not supported",
                "write `map x in values: f(x)`, with `filter x in values: condition` to drop elements",
            );
        }
    }

    /// Parses a `for` where a value is wanted.
    pub(super) fn for_as_value(&mut self) {
        self.note(
            SyntaxErrorKind::Expected,
            self.here(),
            "expected an expression, found a `for` loop",
            "write `map x in values: f(x)` for a list, `fold x in values, sum = 0: sum + x` for one value",
        );
        self.for_stmt();
    }

    pub(super) fn nested_declaration(&mut self) {
        let title = format!("`{}` is not allowed inside another declaration", self.text());
        let help = "move it out and remove its indentation; pass the values it needs as parameters";
        self.disrupt(SyntaxErrorKind::Expected, self.here(), title, help);
        self.skip_line();
        self.skip_block();
    }

    /// Reports the operator at the current token if it is spelled as elsewhere.
    pub(super) fn check_operator(&mut self) {
        let kind = match self.current() {
            Eq => SyntaxErrorKind::EqualsConfusion,
            _ => SyntaxErrorKind::ForeignOperator,
        };
        let (title, help) = match self.current() {
            Eq => ("expected `==`, found `=`", "write `==` to compare"),
            Amp2 => ("`&&` is not an operator", "write `and`"),
            Pipe2 => ("`||` is not an operator", "write `or`"),
            Bang => ("`!` is not an operator", "write `not`"),
            Percent => ("`%` is not an operator", "write `a mod b` for the remainder of a division"),
            DotDot if self.is_unit => return self.range_outside_class(),
            DotDot => {
                let title = "a range is not allowed here";
                let help = "use it after `in` of a `for`, `fold`, `map` or `filter`, or in a slice `s[a..b]`";
                self.note(SyntaxErrorKind::Expected, self.here(), title, help);
                return;
            }
            _ => return,
        };
        self.note(kind, self.here(), title, help);
    }

    /// Reports `n++` and `n--` and skips the line; says whether one was there.
    pub(super) fn step_operator(&mut self) -> bool {
        let is_step = matches!(self.current(), Plus | Minus)
            && self.nth(1) == self.current()
            && (self.nth(2).is_virtual() || matches!(self.nth(2), LBrace | RParen));
        if is_step {
            let sign = self.text().to_owned();
            self.disrupt(
                SyntaxErrorKind::Reassignment,
                self.here(),
                format!("`{sign}{sign}` is not an operator"),
                format!("write `n := n {sign} 1` for a `local`, `count(name)` for a `global` counter"),
            );
            self.skip_line();
        }
        is_step
    }

    /// Reports the arrow at the current token if it does not pass a message on.
    pub(super) fn check_arrow(&mut self) {
        let (kind, title) = match self.current() {
            Arrow => (SyntaxErrorKind::ArrowConfusion, "expected `=>`, found `->`"),
            PipeGt => (SyntaxErrorKind::ForeignOperator, "expected `=>`, found `|>`"),
            _ => return,
        };
        self.note(kind, self.here(), title, "write `=>`");
    }

    /// Reports `name = value` or `name += value` where a statement stands, and skips it.
    pub(super) fn reassignment(&mut self, target: std::ops::Range<usize>) {
        let operator = self.text().to_owned();
        let target = &self.source[target];
        let is_short = target.len() <= QUOTE_CHARS_MAX && !target.contains('\n');
        let name = if is_short { target } else { "name" };
        let sign = if self.at(MinusEq) { '-' } else { '+' };
        let help = match (self.current(), target.ends_with(']')) {
            (Eq, true) => format!("write `{name} := value` to set an entry of a `global` dictionary"),
            (_, true) => format!(
                "write `update {name} from v: (v else 0) {sign} 1` to change an entry of a `global` dictionary"
            ),
            (Eq, false) => format!(
                "write `let {name} = value` for a new name, `{name} := value` for a `local`, `req with field = value` for a changed copy"
            ),
            (_, false) => format!(
                "write `{name} := {name} {sign} value` for a `local`, `count(name)` for a `global` counter"
            ),
        };
        let title = format!("cannot assign with `{operator}`");
        self.disrupt(SyntaxErrorKind::Reassignment, self.here(), title, help);
        self.skip_line();
    }

    /// Reports a `{` where a block begins.
    pub(super) fn brace_block(&mut self) {
        self.disrupt(
            SyntaxErrorKind::BraceBlock,
            self.here(),
            "expected `:` and an indented block, found `{`",
            "write `:` and indent the block; braces are for grammars and record values",
        );
    }
}
