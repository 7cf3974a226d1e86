//! Expressions of a wanted type.
//! Promises: an expression of text of at most `max` bytes is cut where the language could not prove it; numbers go to
//! narrow fields through conversions only; a divisor is never zero.

use super::values::ValueType;
use super::{Effects, Generator};

impl Generator {
    /// A type for a parameter, result or `let`.
    pub(super) fn some_type(&mut self) -> ValueType {
        let plain = [
            ValueType::Int,
            ValueType::Bool,
            ValueType::Text(20),
            ValueType::Bytes(16),
            ValueType::Enum,
            ValueType::Struct,
            ValueType::Variant,
            ValueType::Time,
            ValueType::Duration,
            ValueType::Ipv4,
        ];
        match self.rng.below(14) {
            0 => ValueType::Option(Box::new(self.rng.pick(&plain).clone())),
            1 => {
                let (a, b) = (self.rng.pick(&plain).clone(), self.rng.pick(&plain).clone());
                ValueType::Pair(Box::new(a), Box::new(b))
            }
            2 => ValueType::List(Box::new(ValueType::Int), 6),
            3 => ValueType::List(Box::new(ValueType::Text(20)), 4),
            4..=7 => ValueType::Int,
            _ => self.rng.pick(&plain).clone(),
        }
    }

    /// A constant of a type: no names, no calls.
    pub(super) fn constant(&mut self, ty: &ValueType) -> String {
        match ty {
            ValueType::Int => self.rng.number().to_string(),
            ValueType::Bool => ["true", "false"][self.rng.below(2) as usize].to_owned(),
            ValueType::Text(max) | ValueType::Bytes(max) => {
                let len = self.rng.below((*max).min(9) + 1);
                let text: String =
                    (0..len).map(|_| *self.rng.pick(&['a', 'b', ',', ' ', 'Z', '7', '-'])).collect();
                // A literal alone is text.
                if matches!(ty, ValueType::Bytes(_)) {
                    format!("raw(\"{text}\")")
                } else {
                    format!("\"{text}\"")
                }
            }
            ValueType::Enum => format!("colour.{}", self.rng.pick(&["red", "green", "blue"])),
            ValueType::Struct => {
                let (x, y) = (self.rng.number(), self.rng.number());
                format!("point{{x = {x}, y = {y}, label = \"p\"}}")
            }
            ValueType::Variant => {
                self.rng.pick(&["shape.nothing", "shape.circle(3)", "shape.tagged(\"t\")"]).to_string()
            }
            ValueType::Time => "now()".to_owned(),
            ValueType::Duration => format!("{}ms", self.rng.below(5000)),
            ValueType::Ipv4 => format!("ipv4(\"10.0.{}.{}\")", self.rng.below(256), self.rng.below(256)),
            ValueType::Option(inner) => {
                if self.rng.one_in(2) {
                    return "none".to_owned();
                }
                let inner = self.constant(inner);
                format!("some({inner})")
            }
            ValueType::Pair(a, b) => {
                let (a, b) = (self.constant(a), self.constant(b));
                format!("({a}, {b})")
            }
            ValueType::List(elem, max) => {
                let count = 1 + self.rng.below(*max);
                let items: Vec<String> = (0..count).map(|_| self.constant(elem)).collect();
                format!("[{}]", items.join(", "))
            }
            ValueType::Message => "msg{kind = op.get, key = \"built\"}".to_owned(),
        }
    }

    /// An expression of a type, in parentheses where it needs them.
    pub(super) fn expr(&mut self, ty: &ValueType) -> String {
        if self.depth == 0 || self.rng.one_in(6) {
            return self.leaf(ty);
        }
        self.depth -= 1;
        let text = match self.rng.below(8) {
            0 => self.choice(ty),
            1 => self.called(ty),
            2 => self.unwrapped(ty),
            _ => self.specific(ty),
        };
        self.depth += 1;
        text
    }

    /// A name or constant.
    fn leaf(&mut self, ty: &ValueType) -> String {
        let mut fitting: Vec<String> =
            self.names.iter().filter(|(_, known)| known == ty).map(|(name, _)| name.clone()).collect();
        if self.effects != Effects::None {
            let locals = self.locals.iter().filter(|(_, known)| known == ty);
            fitting.extend(locals.map(|(name, _)| name.clone()));
        }
        let message =
            self.names.iter().find(|(_, known)| *known == ValueType::Message).map(|(name, _)| name.clone());
        if let Some(message) = message {
            match ty {
                ValueType::Int => {
                    let field = self.rng.pick(&["flag", "small", "id", "deep"]);
                    fitting.push(format!("{message}.{field}"));
                }
                ValueType::Text(max) => fitting.push(format!("{message}.key[..{max}]")),
                ValueType::Bytes(max) => fitting.push(format!("{message}.value[..{max}]")),
                _ => {}
            }
        }
        if fitting.is_empty() || self.rng.one_in(4) {
            self.constant(ty)
        } else {
            self.rng.pick(&fitting).clone()
        }
    }

    /// `if` or `switch` on one line.
    fn choice(&mut self, ty: &ValueType) -> String {
        let cond = self.expr(&ValueType::Bool);
        let (a, b) = (self.expr(ty), self.expr(ty));
        format!("(if {cond}: {a} else: {b})")
    }

    /// A call of a function that gives this type, if there is one.
    fn called(&mut self, ty: &ValueType) -> String {
        // A function with effects may only be called where they are allowed; those without are not told apart.
        let callable = self.effects != Effects::None;
        let fitting: Vec<_> =
            self.functions.iter().filter(|f| f.result == *ty && callable).cloned().collect();
        if fitting.is_empty() {
            return self.specific(ty);
        }
        let function = self.rng.pick(&fitting).clone();
        let args: Vec<String> = function.params.iter().map(|param| self.expr(param)).collect();
        format!("{}({})", function.name, args.join(", "))
    }

    /// Something that is optional, and what to take where it is not there.
    fn unwrapped(&mut self, ty: &ValueType) -> String {
        if matches!(ty, ValueType::Message | ValueType::List(..) | ValueType::Option(_) | ValueType::Pair(..))
        {
            return self.specific(ty);
        }
        // Of what a bare `none` is none, only its surroundings could say.
        let option = ValueType::Option(Box::new(ty.clone()));
        let mut value = self.expr(&option);
        if value.contains("none") {
            value = self.some_constant(&option);
        }
        let other = self.expr(ty);
        format!("({value} else {other})")
    }

    fn specific(&mut self, ty: &ValueType) -> String {
        match ty {
            ValueType::Int => self.int(),
            ValueType::Bool => self.truth(),
            ValueType::Text(max) => self.text(*max),
            ValueType::Bytes(max) => {
                let (a, b) = (self.expr(ty), self.expr(ty));
                if self.rng.one_in(3) {
                    let text = self.expr(&ValueType::Text(*max));
                    return format!("raw({text})");
                }
                format!("({a} + {b})[..{max}]")
            }
            ValueType::Enum | ValueType::Ipv4 => self.leaf(ty),
            ValueType::Struct => self.structure(),
            ValueType::Variant => self.variant(),
            ValueType::Time => {
                let (t, d) = (self.leaf(ty), self.expr(&ValueType::Duration));
                format!("({t} + {d})")
            }
            ValueType::Duration => self.duration(),
            ValueType::Option(inner) => self.option(inner),
            ValueType::Pair(a, b) => {
                let (a, b) = (self.expr(a), self.expr(b));
                format!("({a}, {b})")
            }
            ValueType::List(elem, max) => self.list(elem, *max),
            ValueType::Message => self.message(),
        }
    }

    fn int(&mut self) -> String {
        let (a, b) = (self.expr(&ValueType::Int), self.expr(&ValueType::Int));
        match self.rng.below(20) {
            0..=3 => format!("({a} {} {b})", self.rng.pick(&["+", "-", "*"])),
            4 => format!("({a} / {})", 1 + self.rng.below(9)),
            5 => format!("({a} mod max(abs({b}) mod 100, 1))"),
            6 => format!("min({a}, {b})"),
            7 => format!("(-({a}))"),
            8 => {
                let name = self.rng.pick(&["uint8", "int16", "uint32", "int8", "int64"]);
                format!("{name}({a})")
            }
            9 => {
                let text = self.expr(&ValueType::Text(20));
                format!("len({text})")
            }
            10 => {
                let list = self.expr(&ValueType::List(Box::new(ValueType::Int), 6));
                format!("len({list})")
            }
            11 => {
                let text = self.expr(&ValueType::Text(20));
                format!("(hash({text}) mod 1000)")
            }
            12 => {
                let point = self.leaf(&ValueType::Struct);
                format!("({point}).{}", self.rng.pick(&["x", "y"]))
            }
            13 => self.folded(),
            14 => {
                let d = self.expr(&ValueType::Duration);
                format!("{}({d})", self.rng.pick(&["millis", "seconds", "nanos"]))
            }
            15 => {
                let pair = ValueType::Pair(Box::new(ValueType::Int), Box::new(ValueType::Bool));
                let pair = self.leaf(&pair);
                format!("({pair}).0")
            }
            16 => self.switched(),
            17 if self.effects != Effects::None => {
                let key = self.expr(&ValueType::Text(20));
                format!("(hits[{key}] else 0)")
            }
            18 if self.effects != Effects::None => "len(hits)".to_owned(),
            _ => format!("(({a}) + {b})"),
        }
    }

    fn folded(&mut self) -> String {
        let (x, acc) = (self.fresh("x"), self.fresh("acc"));
        let source = if self.rng.one_in(2) {
            self.expr(&ValueType::List(Box::new(ValueType::Int), 6))
        } else {
            format!("0..{}", 1 + self.rng.below(8))
        };
        let init = self.rng.number();
        let mark = self.names.len();
        self.names.push((x.clone(), ValueType::Int));
        self.names.push((acc.clone(), ValueType::Int));
        let before = std::mem::replace(&mut self.depth, 1);
        let step = self.expr(&ValueType::Int);
        self.depth = before;
        self.names.truncate(mark);
        format!("(fold {x} in {source}, {acc} = {init}: {acc} + {step} - {x})")
    }

    fn switched(&mut self) -> String {
        let number = self.expr(&ValueType::Int);
        let (a, b) = (self.expr(&ValueType::Int), self.expr(&ValueType::Int));
        format!("(if {number} == {}: {a} else if {number} < 0: {b} else: {number})", self.rng.below(4))
    }

    fn truth(&mut self) -> String {
        match self.rng.below(9) {
            0..=2 => {
                let (a, b) = (self.expr(&ValueType::Int), self.expr(&ValueType::Int));
                format!("({a} {} {b})", self.rng.pick(&["<", "<=", ">", ">=", "==", "!="]))
            }
            3 => {
                let (a, b) = (self.expr(&ValueType::Text(20)), self.expr(&ValueType::Text(20)));
                let name = self.rng.pick(&["starts_with", "ends_with", "contains", "same_text"]);
                format!("{name}({a}, {b})")
            }
            4 => {
                let (a, b) = (self.expr(&ValueType::Text(20)), self.expr(&ValueType::Text(20)));
                format!("({a} {} {b})", self.rng.pick(&["==", "!=", "<", ">="]))
            }
            5 => {
                let (a, b) = (self.expr(&ValueType::Bool), self.expr(&ValueType::Bool));
                format!("({a} {} {b})", self.rng.pick(&["and", "or"]))
            }
            6 => {
                let a = self.expr(&ValueType::Bool);
                format!("(not ({a}))")
            }
            7 => {
                let (a, list) =
                    (self.expr(&ValueType::Int), self.expr(&ValueType::List(Box::new(ValueType::Int), 6)));
                format!("({a} in {list})")
            }
            _ => {
                let (a, b) = (self.expr(&ValueType::Duration), self.expr(&ValueType::Duration));
                format!("({a} > {b})")
            }
        }
    }

    fn text(&mut self, max: u32) -> String {
        let ty = ValueType::Text(max);
        let a = self.expr(&ty);
        match self.rng.below(9) {
            0 | 1 => {
                let b = self.expr(&ty);
                format!("({a} + {b})[..{max}]")
            }
            2 => format!("{}({a})", self.rng.pick(&["lower", "upper", "trim"])),
            3 => {
                let n = self.expr(&ValueType::Int);
                format!("{}({n})[..{max}]", self.rng.pick(&["str", "hex"]))
            }
            4 => {
                let (from, to) = (self.expr(&ValueType::Int), self.expr(&ValueType::Int));
                format!("({a})[{from}..{to}]")
            }
            5 => {
                let point = self.leaf(&ValueType::Struct);
                format!("({point}).label[..{max}]")
            }
            6 => {
                let bytes = self.expr(&ValueType::Bytes(max));
                format!("text({bytes})")
            }
            _ => a,
        }
    }

    fn structure(&mut self) -> String {
        let (x, label) = (self.expr(&ValueType::Int), self.expr(&ValueType::Text(16)));
        if self.rng.one_in(3) {
            let point = self.leaf(&ValueType::Struct);
            return format!("({point} with x = {x}, label = {label})");
        }
        let y = self.expr(&ValueType::Int);
        if self.rng.one_in(2) {
            return format!("point({x}, {y}, {label})");
        }
        format!("point{{x = {x}, y = {y}, label = {label}}}")
    }

    fn variant(&mut self) -> String {
        match self.rng.below(4) {
            0 => {
                let n = self.expr(&ValueType::Int);
                format!("shape.circle({n})")
            }
            1 => {
                let text = self.expr(&ValueType::Text(12));
                format!("shape.tagged({text})")
            }
            2 => {
                let (a, b) = (self.expr(&ValueType::Int), self.expr(&ValueType::Int));
                format!("shape.box(({a}, {b}))")
            }
            _ => "shape.nothing".to_owned(),
        }
    }

    fn duration(&mut self) -> String {
        let a = self.leaf(&ValueType::Duration);
        match self.rng.below(4) {
            0 => {
                let b = self.expr(&ValueType::Duration);
                format!("({a} {} {b})", self.rng.pick(&["+", "-"]))
            }
            1 => {
                let n = self.expr(&ValueType::Int);
                format!("({a} * {n})")
            }
            2 => {
                let (a, b) = (self.leaf(&ValueType::Time), self.leaf(&ValueType::Time));
                format!("({a} - {b})")
            }
            _ => format!("({a} / {})", 1 + self.rng.below(5)),
        }
    }

    fn option(&mut self, inner: &ValueType) -> String {
        match (inner, self.rng.below(4)) {
            (ValueType::Int, 0) => {
                let text = self.expr(&ValueType::Text(20));
                format!("{}({text})", self.rng.pick(&["parse_int", "parse_hex"]))
            }
            (ValueType::Int, 1) => {
                let (list, at) =
                    (self.expr(&ValueType::List(Box::new(ValueType::Int), 6)), self.expr(&ValueType::Int));
                // An index that is outside for sure is an error.
                format!("{list}[len(str({at})) - 1]")
            }
            (ValueType::Int, 2) => {
                let (text, part) = (self.expr(&ValueType::Text(20)), self.expr(&ValueType::Text(20)));
                format!("find({text}, {part})")
            }
            (ValueType::Struct, 0) if self.effects != Effects::None => {
                let (n, text) = (self.expr(&ValueType::Int), self.expr(&ValueType::Text(16)));
                format!("places[({n}, {text})]")
            }
            (ValueType::Variant, 0) if self.effects != Effects::None => {
                let n = self.expr(&ValueType::Int);
                format!("shapes[{n}]")
            }
            _ => {
                let value = self.expr(inner);
                format!("some({value})")
            }
        }
    }

    fn list(&mut self, elem: &ValueType, max: u32) -> String {
        let mark = self.names.len();
        let x = self.fresh("x");
        match (elem, self.rng.below(4)) {
            (ValueType::Text(20), 0) => {
                let text = self.expr(&ValueType::Text(20));
                return format!("split({text}, \",\", {max})");
            }
            (_, 1) => {
                let source = self.expr(&ValueType::List(Box::new(elem.clone()), max));
                self.names.push((x.clone(), elem.clone()));
                let cond = self.expr(&ValueType::Bool);
                self.names.truncate(mark);
                return format!("(filter {x} in {source}: {cond})");
            }
            (_, 2) => {
                self.names.push((x.clone(), ValueType::Int));
                let before = std::mem::replace(&mut self.depth, 1);
                let value = self.expr(elem);
                self.depth = before;
                self.names.truncate(mark);
                return format!("(map {x} in 0..{}: {value})", 1 + self.rng.below(max));
            }
            _ => {}
        }
        let count = 1 + self.rng.below(max);
        let items: Vec<String> = (0..count).map(|_| self.expr(elem)).collect();
        format!("[{}]", items.join(", "))
    }

    fn message(&mut self) -> String {
        let key = self.expr(&ValueType::Text(20));
        let number = self.expr(&ValueType::Int);
        if self.names.iter().any(|(_, ty)| *ty == ValueType::Message) && !self.rng.one_in(4) {
            let message = self.leaf_message();
            let value = self.expr(&ValueType::Bytes(16));
            return match self.rng.below(3) {
                0 => format!("({message} with key = {key})"),
                1 => format!("({message} with small = int16({number}), value = {value})"),
                _ => message,
            };
        }
        let kind = self.rng.pick(&["get", "put", "del"]);
        format!("msg{{kind = op.{kind}, deep = {number}, key = {key}}}")
    }

    /// A message by name.
    pub(super) fn leaf_message(&mut self) -> String {
        let names: Vec<String> = self
            .names
            .iter()
            .filter(|(_, ty)| *ty == ValueType::Message)
            .map(|(name, _)| name.clone())
            .collect();
        self.rng.pick(&names).clone()
    }
}
