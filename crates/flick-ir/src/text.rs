//! The text form of a module: what `flick build --emit=ir` shows and what tests are written in.
//! Promises: [`print()`] then [`parse`] gives the same module back, to the last origin; a parse error names its line.
//! Refuses: judging what it reads; a module that was parsed may still be refused by the verifier.
//!
//! ```text
//! fn f0 parser "parse_request.client" {
//!   b0(v0: frame, v1: int):
//!     need 24 -> b1 state 0
//!   b1():
//!     v2: int = load.u16be 2 @0:311          ; from byte 311 of source file 0
//!     frame_set 8, v2
//!     done
//! }
//! ```

mod lexer;
mod names;
mod parse;
mod parse_op;
mod print;
mod print_op;
mod program;

pub(crate) use names::{host_name, host_number, op_name};
pub use print::{print, print_function};

use crate::data::{Binary, Module, Type};

/// The reason that a text is no module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// Line, from 1.
    pub line: usize,
    /// The expectation that was not met.
    pub message: String,
}

impl std::fmt::Display for TextError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for TextError {}

/// Reads the text form of a module.
///
/// Errors: the first place where the text is not of the form.
pub fn parse(text: &str) -> Result<Module, TextError> {
    parse::module(text)
}

/// Two-operand operations by name.
const BINARIES: [(&str, Binary); 21] = [
    ("add", Binary::Add),
    ("sub", Binary::Sub),
    ("mul", Binary::Mul),
    ("div_s", Binary::DivS),
    ("div_u", Binary::DivU),
    ("mod_s", Binary::ModS),
    ("mod_u", Binary::ModU),
    ("eq", Binary::Eq),
    ("ne", Binary::Ne),
    ("lt_s", Binary::LtS),
    ("le_s", Binary::LeS),
    ("lt_u", Binary::LtU),
    ("le_u", Binary::LeU),
    ("and", Binary::And),
    ("or", Binary::Or),
    ("bit_and", Binary::BitAnd),
    ("bit_or", Binary::BitOr),
    ("min_s", Binary::MinS),
    ("max_s", Binary::MaxS),
    ("min_u", Binary::MinU),
    ("max_u", Binary::MaxU),
];

/// Types by name.
const TYPES: [(&str, Type); 7] = [
    ("int", Type::Int),
    ("uint", Type::Uint),
    ("bool", Type::Bool),
    ("bytes", Type::Bytes),
    ("frame", Type::Frame),
    ("message", Type::Message),
    ("chan", Type::Chan),
];

/// Name of a two-operand operation.
pub(crate) fn binary_name(op: Binary) -> &'static str {
    BINARIES.iter().find(|(_, known)| *known == op).map_or("?", |(name, _)| name)
}

/// Name of a type.
pub(crate) fn type_name(ty: Type) -> &'static str {
    TYPES.iter().find(|(_, known)| *known == ty).map_or("?", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::{parse, print};

    const SMALL: &str = r#"program "p" {
  channel "client" single protocol 0 sends view(request f0, reply f0, flags f1, head 1024)
  channel "backends" array protocol 0 sends
  rule 0 run f2 asks
  rule 1 pass 0
  protocol "cmd" in_order max 18446744073709551615 {
    echo (12, u32be, slot 9) reply (0, u32le, slot 8)
    echo (1, u8le, slot 10)
    correlate 0
    loud 1
    failure malformed f3
  }
  merge 1 order f3 combine f2 pass 0
  handler timed_out 1 f2
  timer 1000000000 f2
  dict "hits" max 10000 key 16 value 8 evict lru layout 77
  dict "kept" max 9 key 4 value 0 evict nothing layout 1 expire 60000000000 snapshot "kept.bin" every 30
  counter "served"
  gauge "open"
  state 12 init f2
  bounds (session 1, global 2, head 3, steps 4, sends 5, out 6, kept 10, spills 7, asks 8, array_asks 9)
}

const "a\"\\\n\x00\xff"

fn f0 parser "parse" {
  b0(v0: frame, v1: int):
    need v1 + 3 -> b1 state 7
  b1():
    v2: int = load.s16le v1 + 2 @1:44
    frame_set 8, v2
    switch v2 { -1: b2, 5: b3, else: b3 }
  b2():
    fault 3 cause 2
  b3():
    done
}

fn f1 helper "pick" -> chan {
  unused v3: bytes
  b0(v0: chan, v1: bool):
    v2: chan = select v1, v0, v0
    return v2
}

fn f2 rule "rule.0" {
  b0(v0: frame, v1: uint):
    v2: chan = const 65537
    v3: bool = const 1
    v4: chan = call f1(v2, v3)
    v5: int = out_mark
    emit_int.32be v5
    send_rebuilt v4, v5, tail v5
    branch v3, b1(v3), b1(v3)
  b1(v6: bool):
    return
}

fn f3 order "key" -> int {
  b0(v0: frame):
    v1: int = const 1
    v2: message = as_message v1
    v3: bytes = message_get v2, 9
    return v1
}

fn f4 rule "everything" {
  b0(v0: frame, v1: uint):
    v2: int = resume_state
    switch v2 { 1: b3, else: b1 }
  b1():
    v3: bytes = const_bytes 0, 3
    v4: bytes = concat(v3, v3) max 12
    v5: bytes = format_int.u16 v1
    v6: bool = is_int.10 v3
    v7: int = parse_int.16 v3
    v8: bytes = slice v3, v7, v2
    v9: int = byte_at v3, v7
    v10: int = find v3, v4
    v11: bytes = split v3, v4 max 7
    v12: bytes = lower v3 max 3
    v13: bytes = upper v3 max 3
    v14: bytes = trim v3
    v15: bool = same_text v3, v4
    v16: bytes = words_new v7 max 100
    v17: chan = word_get v16, v7
    word_set v16, v7, v17
    v18: bytes = pack(v1, v3) max 19
    v19: bytes = packed_bytes v18, 1
    v20: bool = state_load 3
    state_store 3, v20
    v21: bytes = state_load_bytes 4 max 20
    state_store_bytes 4, v21 max 20
    v22: message = as_message v7
    send_message v17, v22
    emit_message_of v22, v7, v7
    send_rebuilt v17, v7, tail v7 of v22
    v23: bytes = host dict_get.1(v3) max 9
    v24: bool = is_missing v23
    v25: int = host pick.ketama(v17, v3)
    host counter_add.0(v7)
    spill_set 0, v17
    jump b2(v7)
  b2(v26: int) loop 9:
    ask_original v17 timeout v7
    ask_rebuilt v17, v7, tail v7 of v22 timeout v7
    ask_message v17, v22 timeout v7
    branch v24, b2(v26), b4
  b3():
    v27: chan = spill_get 0
    v28: int = answer v2
    fail v28
    return
  b4():
    suspend -> b3 state 1
}
"#;

    #[test]
    fn text_comes_back_unchanged() {
        let module = parse(SMALL).expect("the text is of the form");
        assert_eq!(print(&module), SMALL);
    }

    #[test]
    fn comments_and_layout_mean_nothing() {
        let loose = SMALL.replace("need", "; a remark\n need").replace("  ", " ");
        assert_eq!(parse(&loose).map(|module| print(&module)).as_deref(), Ok(SMALL));
    }

    #[test]
    fn errors_name_their_line() {
        for (from, to, line, message) in [
            ("need v1", "nede v1", 28, "`nede` is no operation"),
            ("v2: int = load", "v2: nit = load", 30, "`nit` is no type"),
            ("  b2():", "  b7():", 33, "block b2 comes here"),
            ("fn f1 helper", "fn f1 helped", 39, "`helped` is no kind of function"),
        ] {
            let error = parse(&SMALL.replace(from, to)).expect_err("the text is broken");
            assert_eq!((error.line, error.message.as_str()), (line, message));
        }
    }
}
