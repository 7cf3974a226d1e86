//! Declarations of types with indented lines: records, enumerations, variants. Grammars are in `unit.rs`.
//!
//! ```text
//! type    := 'type' NAME ':' ('record' fields | 'enum' [type] members | 'variant' cases)
//!          | 'type' NAME [params] '=' (unit | enum | class) [';']          # with braces; parameters of a unit only
//! fields  := LINE-END INDENT (NAME ':' type)+ DEDENT
//! members := LINE-END INDENT (NAME ['=' expr])+ DEDENT
//! cases   := LINE-END INDENT (NAME [':' type])+ DEDENT
//! ```

use super::{Construct, Parser};
use crate::error::SyntaxErrorKind;
use crate::syntax_kind::SyntaxKind::{self, *};

const TYPE: Construct = Construct {
    name: "a type",
    shape: "`type cmd: record`, `type colour: enum` or `type shape: variant` with indented lines, or `type cmd = unit { ... };`",
};
const GRAMMAR: Construct =
    Construct { name: "a grammar with parameters", shape: "`type chunk(limit: uint32) = unit { ... };`" };
const RECORD: Construct =
    Construct { name: "a record", shape: "`type cmd: record` with one indented `name : type` per line" };
const ENUM: Construct = Construct {
    name: "an enum",
    shape: "`type colour: enum` with one indented `name` or `name = 5` per line",
};
const VARIANT: Construct = Construct {
    name: "a variant",
    shape: "`type shape: variant` with one indented `case` or `case : type` per line",
};

impl Parser<'_> {
    pub(super) fn type_decl(&mut self) {
        let checkpoint = self.checkpoint();
        // The kind of type stands behind the name, the node around both: bump first, wrap later.
        self.bump();
        let has_name = self.name("the name of a type", TYPE);
        let parameters = self.at(LParen).then(|| self.here());
        if parameters.is_some() {
            self.params(GRAMMAR);
        }
        let has_colon = self.at(Colon);
        if has_name && !has_colon && !self.at(Eq) {
            self.expected("`:` or `=`", TYPE);
        }
        if has_colon || self.at(Eq) {
            self.bump();
        }
        let is_unit = self.at_word("unit") || self.at_record_for_unit(has_colon);
        let has_braces = is_unit || self.at_class() || self.at_word("enum") && self.braces_follow();
        if let Some(range) = parameters.filter(|_| !is_unit) {
            let help = "remove the parentheses; only `type chunk(limit: uint32) = unit { ... };` and `fun` have parameters";
            self.note(SyntaxErrorKind::Expected, range, "parameters are not allowed on this type", help);
        }
        if !has_braces {
            self.indented_type(checkpoint, has_colon);
            return; // it ends with its block
        }
        if has_colon {
            let title = format!("expected `=` before {} with braces, found `:`", self.sort());
            let help = format!("write `type name = {} {{ ... }};`", self.text());
            self.note(SyntaxErrorKind::Expected, self.end_of_previous(), title, help);
        }
        if is_unit {
            self.unit_decl(checkpoint);
        } else if self.at_class() {
            self.class_decl(checkpoint);
        } else {
            self.enum_decl(checkpoint);
        }
        if !self.eat(Semi) && !self.at(LineEnd) {
            self.expected("`;` or the end of the line", TYPE);
        }
        self.finish();
        self.end_of_line(TYPE);
    }

    /// Says whether `record {` stands here for `unit {`, and reports it.
    fn at_record_for_unit(&mut self, has_colon: bool) -> bool {
        let is_it = !has_colon && self.at_word("record") && self.nth(1) == LBrace;
        if is_it {
            let title = "expected `unit` before fields in braces, found `record`";
            let help = "write `type name = unit { ... };` for the encoding of a message; a record of plain values is `type name: record` with indented fields";
            self.note(SyntaxErrorKind::Expected, self.here(), title, help);
        }
        is_it
    }

    fn braces_follow(&self) -> bool {
        self.nth(1) == LBrace || self.nth(2) == LBrace
    }

    /// Names the sort of type at the current word.
    fn sort(&self) -> &'static str {
        match self.text() {
            "enum" => "an enum",
            "variant" => "a variant",
            "record" => "a record",
            "class" => "a class of bytes",
            _ => "a grammar",
        }
    }

    /// Parses from behind `type name:` on a type whose parts stand below it.
    fn indented_type(&mut self, checkpoint: rowan::Checkpoint, has_colon: bool) {
        let (kind, item, construct) = match self.text() {
            "enum" => (EnumDecl, EnumVariant, ENUM),
            "variant" => (VariantDecl, VariantCase, VARIANT),
            _ => (RecordDecl, RecordField, RECORD),
        };
        self.start_at(checkpoint, kind);
        if self.at_word("record") || kind != RecordDecl {
            if !has_colon {
                let title = format!("expected `:` before {}, found `=`", self.sort());
                let help = format!("write `type name: {}`", self.text());
                self.note(SyntaxErrorKind::Expected, self.here(), title, help);
            }
            self.bump();
            if kind == EnumDecl && self.at(Ident) {
                self.type_ref();
            }
        } else if self.at(Pipe) || self.nth(1) == Pipe {
            self.disrupt(
                SyntaxErrorKind::Expected,
                self.here(),
                "unexpected `|` in a variant",
                "write `type name: variant`, then one indented `case` or `case : type` per line",
            );
            self.skip_line();
        } else {
            self.expected("`record`, `enum`, `variant` or `unit`", TYPE);
            self.skip_line();
        }
        self.indented_items(item, construct);
        self.finish();
    }

    fn indented_items(&mut self, item: SyntaxKind, construct: Construct) {
        let heading_ends = self.at(LineEnd) || (self.at(Colon) && self.nth(1) == LineEnd);
        if !heading_ends {
            if self.at(LBrace) {
                self.brace_block();
            } else {
                self.expected("the end of the line", construct);
            }
            self.skip_line();
        } else {
            self.eat(Colon);
        }
        if self.nth(1) != Indent {
            let (what, help) = match item {
                EnumVariant => ("members", "add indented members: `  red`"),
                VariantCase => ("cases", "add indented cases: `  circle : int`"),
                _ => ("fields", "add indented fields: `  key : string`"),
            };
            self.missing_block(what, help);
            return;
        }
        self.bump();
        self.bump();
        while !matches!(self.current(), Dedent | EndOfFile) {
            match self.current() {
                Indent => {
                    self.unexpected_indent();
                    self.skip_extra_indent();
                }
                LineEnd => self.bump(),
                UseKw | TypeKw | ProcKw | FunKw if self.nth(1).is_word() => self.nested_declaration(),
                _ => {
                    self.after_dedent = false;
                    self.indented_item(item, construct);
                    if matches!(self.current(), Semi | Comma) {
                        self.stray_semicolon();
                    }
                    self.end_of_line(construct);
                }
            }
        }
        self.eat(Dedent);
    }

    fn indented_item(&mut self, item: SyntaxKind, construct: Construct) {
        self.start(item);
        match item {
            RecordField => {
                if self.field_name(construct) && self.expect(Colon, construct) {
                    self.type_ref();
                }
            }
            EnumVariant => {
                if self.field_name(construct) {
                    if matches!(self.current(), Colon | ColonEq | Eq2) {
                        let title =
                            format!("expected `=` before the value of a member, found `{}`", self.text());
                        self.note(SyntaxErrorKind::EqualsConfusion, self.here(), title, "write `name = 5`");
                        self.bump_as(Eq);
                        self.expr();
                    } else if self.eat(Eq) {
                        self.expr();
                    }
                }
            }
            _ => self.variant_case(construct),
        }
        self.finish();
    }

    fn variant_case(&mut self, construct: Construct) {
        if self.at(Pipe) {
            let help = "remove it; write every case on its own line";
            self.note(SyntaxErrorKind::Expected, self.here(), "unexpected `|` before a case", help);
            self.bump_as(Unknown);
        }
        if !self.field_name(construct) {
            return;
        }
        if matches!(self.current(), LParen | LBrace | Eq) {
            let title = format!("expected `:` before the type of a case, found `{}`", self.text());
            let help = "write `circle : int`, or `rect : (int, int)` for several values";
            let is_tuple = self.at(LParen);
            self.disrupt(SyntaxErrorKind::Expected, self.here(), title, help);
            if is_tuple {
                self.type_ref();
            } else {
                self.skip_line();
            }
        } else if self.eat(Colon) {
            self.type_ref();
        }
    }
}
