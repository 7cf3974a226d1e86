//! Statements: names for values, state, sends, asks, loops and choices with blocks.

use super::values::ValueType;
use super::{Effects, Generator};

impl Generator {
    /// Some statements; their names stay visible.
    pub(super) fn stmts(&mut self) {
        for _ in 0..self.rng.below(self.size.stmts + 1) {
            self.stmt();
        }
    }

    fn stmt(&mut self) {
        match (self.rng.below(12), self.effects) {
            (0, _) => self.let_pair(),
            (1, Effects::All) if self.asks_left > 0 => self.ask(),
            (2 | 3, Effects::State | Effects::All) => self.assign(),
            (4 | 5, Effects::State | Effects::All) => self.dictionary(),
            (6, Effects::State | Effects::All) => self.counted(),
            (7, Effects::State | Effects::All) => self.repeat(),
            (8, Effects::State | Effects::All) => self.branch(),
            _ => {
                let (name, ty) = (self.fresh("v"), self.some_type());
                // What a literal is inferred to be is narrower than the type; a parameter or field says it in full.
                let value = self.typed(&ty);
                self.line(&format!("let {name} = {value}"));
                self.names.push((name, ty));
            }
        }
    }

    /// An expression whose inferred type is exactly `ty` as far as later uses can tell.
    fn typed(&mut self, ty: &ValueType) -> String {
        match ty {
            ValueType::Option(_) => {
                // `none` alone says nothing about what it is none of.
                let value = self.expr(ty);
                if value.contains("none") { self.some_constant(ty) } else { value }
            }
            _ => self.expr(ty),
        }
    }

    pub(super) fn some_constant(&mut self, ty: &ValueType) -> String {
        let ValueType::Option(inner) = ty else { return self.constant(ty) };
        let inner = self.constant(inner);
        format!("some({inner})")
    }

    fn let_pair(&mut self) {
        let (a, b) = (self.fresh("a"), self.fresh("b"));
        let (left, right) = (self.expr(&ValueType::Int), self.expr(&ValueType::Text(20)));
        self.line(&format!("let ({a}, {b}) = ({left}, {right})"));
        self.names.push((a, ValueType::Int));
        self.names.push((b, ValueType::Text(20)));
    }

    fn assign(&mut self) {
        if self.locals.is_empty() {
            return;
        }
        let (name, ty) = self.rng.pick(&self.locals).clone();
        let value = self.expr(&ty);
        self.line(&format!("{name} := {value}"));
    }

    fn dictionary(&mut self) {
        let key = self.expr(&ValueType::Text(20));
        let number = self.expr(&ValueType::Int);
        match self.rng.below(6) {
            0 => self.line(&format!("hits[{key}] := {number}")),
            1 => {
                let (text, point) = (self.expr(&ValueType::Text(16)), self.expr(&ValueType::Struct));
                self.line(&format!("places[({number}, {text})] := {point}"));
            }
            2 => {
                let shape = self.expr(&ValueType::Variant);
                self.line(&format!("shapes[{number}] := {shape}"));
            }
            3 => {
                let name = self.fresh("gone");
                self.line(&format!("let {name} = remove(hits, {key})"));
                self.names.push((name, ValueType::Bool));
            }
            4 => {
                let (old, new) = (self.fresh("old"), self.fresh("new"));
                self.line(&format!("let {new} = update hits[{key}] from {old}: ({old} else 0) + 1"));
                self.names.push((new, ValueType::Int));
            }
            _ => {
                let name = self.fresh("has");
                self.line(&format!("let {name} = {key} in hits"));
                self.names.push((name, ValueType::Bool));
            }
        }
    }

    fn counted(&mut self) {
        let number = self.expr(&ValueType::Int);
        match self.rng.below(4) {
            0 => self.line("count(served)"),
            1 => self.line(&format!("count(level, {number})")),
            2 => self.line(&format!("set(level, {number})")),
            _ => {
                let text = self.expr(&ValueType::Text(20));
                self.line(&format!("log({text})"));
            }
        }
    }

    /// A loop for its effects.
    fn repeat(&mut self) {
        let x = self.fresh("x");
        let source = if self.rng.one_in(2) {
            format!("0..{}", 1 + self.rng.below(5))
        } else {
            self.expr(&ValueType::List(Box::new(ValueType::Int), 6))
        };
        self.line(&format!("for {x} in {source}:"));
        let mark = self.names.len();
        self.names.push((x.clone(), ValueType::Int));
        self.indent += 1;
        let asks = std::mem::take(&mut self.asks_left);
        self.assign();
        self.dictionary();
        self.line(&format!("count(level, {x})"));
        self.asks_left = asks;
        self.indent -= 1;
        self.names.truncate(mark);
    }

    /// A choice between blocks.
    fn branch(&mut self) {
        if self.rng.one_in(2) {
            return self.branch_on_shape();
        }
        let cond = self.expr(&ValueType::Bool);
        self.line(&format!("if {cond}:"));
        self.block_of_effects();
        if self.rng.one_in(2) {
            self.line("else:");
            self.block_of_effects();
        }
    }

    fn branch_on_shape(&mut self) {
        let shape = self.expr(&ValueType::Variant);
        let (r, w, h) = (self.fresh("r"), self.fresh("w"), self.fresh("h"));
        self.line(&format!("switch {shape}:"));
        self.indent += 1;
        self.line(&format!("circle {r}:"));
        self.line(&format!("  count(level, {r})"));
        self.line(&format!("box ({w}, {h}):"));
        self.line(&format!("  set(level, {w} - {h})"));
        self.line("else:");
        self.block_of_effects();
        self.indent -= 1;
    }

    fn block_of_effects(&mut self) {
        let mark = self.names.len();
        let asks = std::mem::take(&mut self.asks_left);
        self.indent += 1;
        self.counted();
        self.assign();
        self.dictionary();
        self.indent -= 1;
        self.asks_left = asks;
        self.names.truncate(mark);
    }

    /// A question to a backend, in one of its forms.
    fn ask(&mut self) {
        self.asks_left -= 1;
        let (name, message) = (self.fresh("reply"), self.message_to_send());
        let key = self.expr(&ValueType::Text(20));
        let to = format!("backends[hash({key}) mod len(backends)]");
        match self.rng.below(4) {
            0 => {
                self.line(&format!("let {name} = ask {to} with {message}"));
                self.names.push((name, ValueType::Message));
            }
            1 => {
                let other = self.message_to_send();
                self.line(&format!("let {name} = ask {to} with {message} timeout 20ms else {other}"));
                self.names.push((name, ValueType::Message));
            }
            2 => {
                self.line(&format!("let {name} = ask {to} with {message} timeout 5ms else none"));
                self.line(&format!("switch {name}:"));
                self.line("  some found:");
                self.line("    count(level, found.id)");
                self.line("  none:");
                self.line("    count(served)");
            }
            _ => {
                self.line(&format!("let {name} = ask all backends with {message} timeout 30ms"));
                let (one, sum) = (self.fresh("one"), self.fresh("sum"));
                self.line(&format!("let {sum} = fold {one} in {name}, total = 0:"));
                self.line(&format!("  switch {one}:"));
                self.line("    some found: total + found.small");
                self.line("    none: total - 1");
                self.names.push((sum, ValueType::Int));
            }
        }
    }

    fn message_to_send(&mut self) -> String {
        let mark = self.depth;
        self.depth = self.depth.min(1);
        let message = self.expr(&ValueType::Message);
        self.depth = mark;
        if message.starts_with('(') || !message.contains(' ') { message } else { format!("({message})") }
    }

    /// Writes the last statements of the entry function, which send a message.
    pub(super) fn sends(&mut self) {
        let message = self.message_to_send();
        let key = self.expr(&ValueType::Text(20));
        match self.rng.below(5) {
            0 => self.line(&format!("{message} => client")),
            1 => {
                let cond = self.expr(&ValueType::Bool);
                let other = self.message_to_send();
                self.line(&format!("if {cond}: {message} => client"));
                self.line(&format!("else: {other} => backends[0]"));
            }
            2 => {
                let picked = self.rng.pick(&[
                    "round_robin(backends)",
                    "least_loaded(backends)",
                    "two_choices(backends)",
                ]);
                self.line(&format!("{message} => backends[{picked}]"));
            }
            3 => self.line(&format!("{message} => backends[ketama(backends, {key})]")),
            _ => self.line(&format!("{message} => backends[hash({key}) mod len(backends)]")),
        }
    }
}
