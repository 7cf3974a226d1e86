//! Well-typed programs from a seed: every construct of the language, put together at random.
//! Promises: the same seed gives the same text; what is generated keeps the rules of the language, so that a refusal by
//! the checker for anything but a bound is a bug of one of the two.
//! Refuses: programs that mean something. They are for comparing engines and for looking into certificates.
//! Source: type-directed generation as Csmith does it (Yang et al., PLDI'11).

mod expr;
mod grammar;
mod stmt;
mod values;

use std::fmt::Write as _;

pub use grammar::{Grammar, grammar};
pub use values::{Rng, ValueType};

/// The grammar all generated programs speak: numbers of several widths, an enumeration, text and bytes.
pub const GRAMMAR: &str = "\
type op = enum uint8 { get = 1, put = 2, del = 3, ping = 9 };

type msg = unit {
  %byteorder = big;
  kind      : op;
  flag      : uint8;
  small     : int16;
  id        : uint32;
  wide      : uint64;
  deep      : int64;
  key_len   : uint8;
  value_len : uint16;
  key       : string<200> &length = self.key_len;
  value     : bytes<1000> &length = self.value_len;

  %correlate = self.id;
  %ends      = self.kind == op.ping;
  %on unavailable = msg{kind = op.del, id = self.id, key = \"unavailable\"};
  %on timeout     = msg{kind = op.del, id = self.id, key = \"timeout\"};
  %on overload    = msg{kind = op.del, id = self.id, key = \"overload\"};
};
";

/// Size and features of a generated program.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Pure functions.
    pub functions: u32,
    /// Statements of a block, at most.
    pub stmts: u32,
    /// Depth of expressions and blocks.
    pub depth: u32,
    /// With state, asks, timers and handlers; else functions of values only.
    pub effects: bool,
    /// The entry calls every function, so that all of them are compiled; with many functions the rule stays within its
    /// bounds only if they are small.
    pub calls_all: bool,
}

impl Size {
    /// A program of a page.
    pub const PAGE: Size = Size { functions: 4, stmts: 4, depth: 3, effects: true, calls_all: false };
    /// Many small functions; how many is for the caller to say.
    pub const MANY: Size = Size { functions: 600, stmts: 6, depth: 1, effects: false, calls_all: true };
}

/// A function that later ones may call.
#[derive(Clone, Debug)]
struct Callable {
    name: String,
    params: Vec<ValueType>,
    result: ValueType,
}

/// The state of one generation.
struct Generator {
    rng: Rng,
    size: Size,
    out: String,
    indent: usize,
    /// Visible names and their types.
    names: Vec<(String, ValueType)>,
    /// `local`s and their types.
    locals: Vec<(String, ValueType)>,
    /// Functions written so far.
    functions: Vec<Callable>,
    next_name: u32,
    /// Expressions that may still be nested.
    depth: u32,
    /// Whether the text that is being generated may touch state, send and ask.
    effects: Effects,
    /// Asks that the current function may still make.
    asks_left: u32,
}

/// Effects that the generated text may have besides computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effects {
    /// Nothing: grammars' and `update`s' rule.
    None,
    /// Read and write state; no sends, no asks.
    State,
    /// All of it.
    All,
}

/// A program of about this size.
pub fn program(seed: u64, size: Size) -> String {
    let mut g = Generator {
        rng: Rng::new(seed),
        size,
        out: String::new(),
        indent: 0,
        names: Vec::new(),
        locals: Vec::new(),
        functions: Vec::new(),
        next_name: 0,
        depth: 0,
        effects: Effects::None,
        asks_left: 0,
    };
    g.out.push_str(GRAMMAR);
    g.out.push_str(TYPES);
    if size.effects {
        g.out.push_str(GLOBALS);
    }
    g.process();
    for _ in 0..size.functions {
        g.function();
    }
    g.entry();
    g.out
}

const TYPES: &str = "
type colour: enum
  red
  green = 5
  blue

type point: record
  x : int
  y : int
  label : string<16>

type shape: variant
  circle : int
  tagged : string<12>
  box    : (int, int)
  nothing
";

const GLOBALS: &str = "
global hits: dict<string<32>, int> max 1000 entries, expire 5s
global places: dict<(int, string<16>), point> max 100 entries, evict nothing
global shapes: dict<int, shape> max 50 entries, evict oldest
global served: counter
global level: gauge
";

impl Generator {
    /// The process, whose rules call `entry` and `passed`.
    fn process(&mut self) {
        self.line("");
        self.line("proc Generated: (msg/msg client, [msg/msg] backends)");
        self.indent += 1;
        if self.size.effects {
            for ty in [
                ValueType::Int,
                ValueType::Text(24),
                ValueType::Option(Box::new(ValueType::Int)),
                ValueType::Struct,
            ] {
                let name = self.fresh("state");
                let init = self.constant(&ty);
                self.line(&format!("local {name}: {} := {init}", ty.spelled()));
                self.locals.push((name, ty));
            }
        }
        self.line("| client => entry(client, backends)");
        self.line("| backends => passed() => client");
        if self.size.effects {
            self.line("except broken backends[i]:");
            self.line("  count(served, i)");
            self.line("except closed client:");
            self.line("  set(level, len(hits))");
            self.line("every 1s:");
            self.line("  count(level, -1)");
        }
        self.indent -= 1;
    }

    /// A function of values; with effects it may touch state.
    fn function(&mut self) {
        let name = self.fresh("f");
        let params: Vec<ValueType> = (0..self.rng.below(4)).map(|_| self.some_type()).collect();
        let result = self.some_type();
        self.names.clear();
        let mut text = String::new();
        for ty in &params {
            let param = self.fresh("p");
            let _ = write!(text, "{}{param}: {}", if text.is_empty() { "" } else { ", " }, ty.spelled());
            self.names.push((param, ty.clone()));
        }
        self.line("");
        self.line(&format!("fun {name}: ({text}) -> ({})", result.spelled()));
        self.effects = if self.size.effects && self.rng.one_in(2) { Effects::State } else { Effects::None };
        self.depth = self.size.depth;
        self.body(&result);
        self.functions.push(Callable { name, params, result });
    }

    /// Writes the functions that handle requests (`entry`) and replies (`passed`).
    fn entry(&mut self) {
        self.names = vec![("req".to_owned(), ValueType::Message)];
        self.line("");
        self.line("fun entry: (-/msg client, [msg/msg] backends, req: msg) -> ()");
        self.indent += 1;
        self.effects = if self.size.effects { Effects::All } else { Effects::None };
        self.asks_left = if self.size.effects { 2 } else { 0 };
        self.depth = self.size.depth;
        self.stmts();
        if self.size.calls_all {
            self.calls();
        }
        self.sends();
        self.indent -= 1;
        self.names = vec![("reply".to_owned(), ValueType::Message)];
        self.effects = if self.size.effects { Effects::State } else { Effects::None };
        self.line("");
        self.line("fun passed: (reply: msg) -> (msg)");
        self.depth = self.size.depth;
        self.body(&ValueType::Message);
    }

    /// A call of each function with constants.
    fn calls(&mut self) {
        for function in self.functions.clone() {
            let args: Vec<String> = function.params.iter().map(|param| self.constant(param)).collect();
            let name = self.fresh("called");
            self.line(&format!("let {name} = {}({})", function.name, args.join(", ")));
            self.names.push((name, function.result));
        }
    }

    /// An indented block that gives a value of this type.
    fn body(&mut self, result: &ValueType) {
        self.indent += 1;
        let mark = self.names.len();
        self.stmts();
        let value = self.expr(result);
        self.line(&value);
        self.names.truncate(mark);
        self.indent -= 1;
    }

    fn line(&mut self, text: &str) {
        if !text.is_empty() {
            let _ = write!(self.out, "{:1$}", "", self.indent * 2);
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn fresh(&mut self, what: &str) -> String {
        self.next_name += 1;
        format!("{what}{}", self.next_name)
    }
}

#[cfg(test)]
mod tests {
    use super::{Size, program};

    #[test]
    fn the_same_seed_gives_the_same_text_and_others_give_others() {
        assert_eq!(program(7, Size::PAGE), program(7, Size::PAGE));
        assert_ne!(program(7, Size::PAGE), program(8, Size::PAGE));
    }

    #[test]
    fn size_follows_the_number_of_functions() {
        let lines = |functions| program(1, Size { functions, ..Size::PAGE }).lines().count();
        assert!(lines(100) > 4 * lines(10));
    }
}
