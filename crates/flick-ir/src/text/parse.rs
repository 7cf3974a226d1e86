//! Reads the text form of functions; `program` reads the rest.

use std::collections::BTreeMap;

use flick_abi::FaultCause;
use flick_abi::FuncId;

use super::lexer::{self, Token};
use super::{TYPES, TextError, parse_op, program};
use crate::data::{
    Advance, Block, BlockId, FuncKind, Function, Inst, Module, SourceOrigin, Terminator, Type, Value,
};

/// The result of parsing a part of the text: a piece of the module, or an error with its position.
pub(super) type Parsed<T> = Result<T, TextError>;

/// The tokens and how far they are read.
pub(super) struct Reader {
    tokens: Vec<(Token, usize)>,
    next: usize,
}

/// Reads a whole module.
pub(super) fn module(text: &str) -> Parsed<Module> {
    let mut reader = Reader { tokens: lexer::tokens(text)?, next: 0 };
    let program = program::parse(&mut reader)?;
    let consts = if reader.opt_word("const") { reader.text()? } else { Vec::new() };
    let mut classes = Vec::new();
    while reader.opt_word("class") {
        let (a, b) = (reader.number()?, reader.number()?);
        classes.push([a, b, reader.number()?, reader.number()?]);
    }
    let mut functions = Vec::new();
    while reader.opt_word("fn") {
        let id = reader.func()?;
        if id.0 as usize != functions.len() {
            return Err(reader.error(format!("function f{} comes here", functions.len())));
        }
        functions.push(function(&mut reader)?);
    }
    if reader.next < reader.tokens.len() {
        reader.next += 1;
        return Err(reader.error("`fn` or the end is expected here".to_owned()));
    }
    Ok(Module { program, functions, consts, classes })
}

impl Reader {
    /// An error at the token last read.
    pub(super) fn error(&self, message: String) -> TextError {
        let at = self.tokens.get(self.next.saturating_sub(1)).or(self.tokens.last());
        TextError { line: at.map_or(1, |(_, line)| *line), message }
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).map(|(token, _)| token.clone());
        self.next += 1;
        token
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    /// Takes `word` if it comes next.
    pub(super) fn opt_word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Word(next)) if next == word);
        self.next += usize::from(is_next);
        is_next
    }

    /// Takes `mark` if it comes next.
    pub(super) fn opt_mark(&mut self, mark: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Mark(next)) if *next == mark);
        self.next += usize::from(is_next);
        is_next
    }

    /// Takes `mark`, which must come next.
    pub(super) fn mark(&mut self, mark: &str) -> Parsed<()> {
        if self.opt_mark(mark) {
            return Ok(());
        }
        self.next += 1;
        Err(self.error(format!("`{mark}` is expected here")))
    }

    /// Takes `word`, which must come next.
    pub(super) fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.opt_word(word) {
            return Ok(());
        }
        self.next += 1;
        Err(self.error(format!("`{word}` is expected here")))
    }

    /// Takes any word.
    pub(super) fn word(&mut self) -> Parsed<String> {
        match self.take() {
            Some(Token::Word(word)) => Ok(word),
            _ => Err(self.error("a word is expected here".to_owned())),
        }
    }

    /// Takes a string.
    pub(super) fn text(&mut self) -> Parsed<Vec<u8>> {
        match self.take() {
            Some(Token::Text(bytes)) => Ok(bytes),
            _ => Err(self.error("a string is expected here".to_owned())),
        }
    }

    /// Takes a string that is a name.
    pub(super) fn name(&mut self) -> Parsed<String> {
        let bytes = self.text()?;
        String::from_utf8(bytes).map_err(|_| self.error("a name is UTF-8".to_owned()))
    }

    /// Takes a number of the type asked for.
    pub(super) fn number<T: TryFrom<i128>>(&mut self) -> Parsed<T> {
        match self.take() {
            Some(Token::Number(number)) => {
                T::try_from(number).map_err(|_| self.error(format!("{number} is out of range here")))
            }
            _ => Err(self.error("a number is expected here".to_owned())),
        }
    }

    fn index(&mut self, prefix: char, what: &str) -> Parsed<u32> {
        let word = self.word()?;
        let index = word.strip_prefix(prefix).and_then(|digits| digits.parse().ok());
        index.ok_or_else(|| self.error(format!("`{word}` is no {what}")))
    }

    /// Takes `f3`.
    pub(super) fn func(&mut self) -> Parsed<FuncId> {
        self.index('f', "function").map(FuncId)
    }

    /// Takes `v3`.
    pub(super) fn value(&mut self) -> Parsed<Value> {
        self.index('v', "value").map(Value)
    }

    fn block(&mut self) -> Parsed<BlockId> {
        self.index('b', "block").map(BlockId)
    }

    fn ty(&mut self) -> Parsed<Type> {
        let word = self.word()?;
        let known = TYPES.iter().find(|(name, _)| *name == word);
        known.map(|(_, ty)| *ty).ok_or_else(|| self.error(format!("`{word}` is no type")))
    }

    /// Takes `, v3`.
    pub(super) fn comma_value(&mut self) -> Parsed<Value> {
        self.mark(",")?;
        self.value()
    }

    /// `(v1, v2)`, or nothing.
    pub(super) fn args(&mut self) -> Parsed<Vec<Value>> {
        let mut args = Vec::new();
        if self.opt_mark("(") {
            while !self.opt_mark(")") {
                args.push(self.value()?);
                self.opt_mark(",");
            }
        }
        Ok(args)
    }

    /// `24` or `v5 + 24`.
    pub(super) fn sum(&mut self) -> Parsed<(Option<Value>, u32)> {
        if matches!(self.peek(), Some(Token::Number(_))) {
            return Ok((None, self.number()?));
        }
        let base = self.value()?;
        self.mark("+")?;
        Ok((Some(base), self.number()?))
    }

    /// Takes apart `32be`.
    pub(super) fn width(&mut self, word: &str) -> Parsed<(u8, bool)> {
        let parts =
            word.strip_suffix("be").map(|bits| (bits, true)).or(word.strip_suffix("le").map(|b| (b, false)));
        let width = parts.and_then(|(bits, big)| Some((bits.parse::<u16>().ok()? / 8, big)));
        match width.and_then(|(bytes, big)| Some((u8::try_from(bytes).ok()?, big))) {
            Some(width) => Ok(width),
            None => Err(self.error(format!("`{word}` is no width"))),
        }
    }
}

/// A function after `fn f3`.
fn function(reader: &mut Reader) -> Parsed<Function> {
    let kind = match reader.word()?.as_str() {
        "parser" => FuncKind::Parser,
        "rule" => FuncKind::Rule,
        "helper" => FuncKind::Helper,
        "builder" => FuncKind::Builder,
        "order" => FuncKind::Order,
        other => return Err(reader.error(format!("`{other}` is no kind of function"))),
    };
    let name = reader.name()?;
    let mut results = Vec::new();
    if reader.opt_mark("->") {
        results.push(reader.ty()?);
        while reader.opt_mark(",") {
            results.push(reader.ty()?);
        }
    }
    let mut types = Values::default();
    let mut blocks = Vec::new();
    reader.mark("{")?;
    while reader.opt_word("unused") {
        define(reader, &mut types)?;
    }
    while !reader.opt_mark("}") {
        let id = reader.block()?;
        if id.0 as usize != blocks.len() {
            return Err(reader.error(format!("block b{} comes here", blocks.len())));
        }
        blocks.push(block(reader, &mut types)?);
    }
    let Values { types, lengths } = types;
    let all: Option<Vec<Type>> = types.into_iter().collect();
    let values = all.ok_or_else(|| reader.error("every value up to the largest has a type".to_owned()))?;
    Ok(Function { name, kind, results, values, lengths, blocks })
}

/// The values of a function so far.
#[derive(Default)]
struct Values {
    types: Vec<Option<Type>>,
    lengths: BTreeMap<Value, u32>,
}

/// `v3: int` or `v3: bytes max 9`, entered into `values`.
fn define(reader: &mut Reader, values: &mut Values) -> Parsed<Value> {
    let value = reader.value()?;
    reader.mark(":")?;
    let ty = reader.ty()?;
    if reader.opt_word("max") {
        values.lengths.insert(value, reader.number()?);
    }
    let types = &mut values.types;
    let index = value.0 as usize;
    // A bound, so that a text cannot ask for any amount of memory: every value up to the largest is defined.
    if index > reader.tokens.len() {
        return Err(reader.error(format!("v{index} is far beyond the values so far")));
    }
    if index >= types.len() {
        types.resize(index + 1, None);
    }
    types[index] = Some(ty);
    Ok(value)
}

/// A block after its name.
fn block(reader: &mut Reader, values: &mut Values) -> Parsed<Block> {
    let mut params = Vec::new();
    reader.mark("(")?;
    while !reader.opt_mark(")") {
        params.push(define(reader, values)?);
        reader.opt_mark(",");
    }
    let trips_max = if reader.opt_word("loop") { Some(reader.number()?) } else { None };
    let mut advance = None;
    if reader.opt_word("by") {
        let least = reader.number()?;
        reader.expect_word("of")?;
        advance = Some(Advance { least, most: reader.number()? });
    }
    reader.mark(":")?;
    let mut insts = Vec::new();
    loop {
        let is_value = matches!(reader.peek(), Some(Token::Word(word))
            if word.strip_prefix('v').is_some_and(|digits| digits.parse::<u32>().is_ok()));
        let mut result = None;
        if is_value {
            result = Some(define(reader, values)?);
            reader.mark("=")?;
        }
        let word = reader.word()?;
        if result.is_none()
            && let Some(end) = end(reader, &word)?
        {
            return Ok(Block { params, trips_max, advance, insts, end });
        }
        let op = parse_op::op(reader, &word)?;
        let mut origin = SourceOrigin::default();
        if reader.opt_mark("@") {
            origin.file = reader.number()?;
            reader.mark(":")?;
            origin.offset = reader.number()?;
        }
        insts.push(Inst { result, op, origin });
    }
}

/// A terminator after its first word, or nothing if that is the name of an operation.
fn end(reader: &mut Reader, word: &str) -> Parsed<Option<Terminator>> {
    Ok(Some(match word {
        "jump" => Terminator::Jump(reader.block()?, reader.args()?),
        "branch" => {
            let cond = reader.value()?;
            reader.mark(",")?;
            let then = (reader.block()?, reader.args()?);
            reader.mark(",")?;
            Terminator::Branch { cond, then, otherwise: (reader.block()?, reader.args()?) }
        }
        "switch" => {
            let value = reader.value()?;
            reader.mark("{")?;
            let mut cases = Vec::new();
            while !reader.opt_word("else") {
                let case = reader.number()?;
                reader.mark(":")?;
                cases.push((case, reader.block()?));
                reader.mark(",")?;
            }
            reader.mark(":")?;
            let default = reader.block()?;
            reader.mark("}")?;
            Terminator::Switch { value, cases, default }
        }
        "need" => {
            let (base, bytes) = reader.sum()?;
            reader.mark("->")?;
            let then = reader.block()?;
            reader.expect_word("state")?;
            Terminator::Need { base, bytes, then, state: reader.number()? }
        }
        "suspend" => {
            reader.mark("->")?;
            let then = reader.block()?;
            reader.expect_word("state")?;
            Terminator::Suspend { then, state: reader.number()? }
        }
        "done" => Terminator::Done,
        "fault" => {
            let field = reader.number()?;
            reader.expect_word("cause")?;
            let number = reader.number()?;
            let cause = FaultCause::from_number(number);
            let cause = cause.ok_or_else(|| reader.error(format!("no cause has number {number}")))?;
            Terminator::Fault { field, cause }
        }
        "return" => {
            let mut values = Vec::new();
            // A block's name or the closing brace follows a bare `return`.
            while matches!(reader.peek(), Some(Token::Word(word)) if word.starts_with('v')) {
                values.push(reader.value()?);
                reader.opt_mark(",");
            }
            Terminator::Return(values)
        }
        _ => return Ok(None),
    }))
}
