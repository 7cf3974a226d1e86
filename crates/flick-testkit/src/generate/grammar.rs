//! Random grammars: every construct of structured units, put together at random.
//! Promises: the same seed gives the same text; most texts are grammars. Names of top-level fields come with them,
//! for programs.
//! Refuses: certainty that the checker takes it: what is ambiguous, or can never be, only the checker says.
//! Source: as programs, type-directed generation (Yang et al., PLDI'11).

use std::fmt::Write as _;

use super::Rng;

/// Classes, and delimiters that do not begin with a byte of theirs.
const CLASSES: &[(&str, &[&str])] = &[
    ("word", &[";", "|", "\\r\\n", "\\n", " ", "=", "\\x00", ": ", ":"]),
    ("digit", &[";", "a", "\\r\\n", "\\n", " ", "=", "\\x00", "ab"]),
    ("pair", &[";", "|", "\\r\\n", "=", "\\xff"]),
    ("most", &["\\r\\n", "\\n", "\\x00"]),
];
const DECLARED: &str = r#"
type word  = class { "a".."z", "A".."Z", "-" };
type digit = class { "0".."9" };
type pair  = class { "x", "\x80" };
type most  = class not { "\x00".."\x1f" };
type blank = class { " ", "\t" };
"#;

/// A grammar, whose messages are of its unit `msg`.
#[derive(Clone, Debug)]
pub struct Grammar {
    /// All its types.
    pub text: String,
    /// Numbers and texts that stand on the wire, not in an element of a list.
    pub fields: Vec<String>,
}

/// A grammar of this seed.
pub fn grammar(seed: u64) -> Grammar {
    let mut writer = Writer { rng: Rng::new(seed), units: String::new(), next: 0 };
    let mut scope = Scope::default();
    let order = if writer.rng.one_in(2) { "big" } else { "little" };
    let mut body = String::new();
    for _ in 0..2 + writer.rng.below(6) {
        writer.item(&mut body, &mut scope, 2);
    }
    writer.tail(&mut body, &mut scope);
    let text = format!(
        "{DECLARED}{}\ntype msg = unit {{\n  %byteorder = {order};\n  %order = in_order;\n{body}}};\n",
        writer.units
    );
    Grammar { text, fields: scope.written }
}

/// Names that expressions may use.
#[derive(Clone, Debug, Default)]
struct Scope {
    numbers: Vec<String>,
    texts: Vec<String>,
    written: Vec<String>,
}

struct Writer {
    rng: Rng,
    /// Units that were written so far.
    units: String,
    next: u32,
}

impl Writer {
    fn name(&mut self, what: &str) -> String {
        self.next += 1;
        format!("{what}{}", self.next)
    }

    fn item(&mut self, out: &mut String, scope: &mut Scope, depth: u32) {
        match self.rng.below(if depth > 0 { 20 } else { 14 }) {
            0..=2 => self.integer(out, scope),
            3 => self.bits(out, scope),
            4 | 5 => self.digits(out, scope),
            6 => self.variable_length(out, scope),
            7 => self.run(out, scope),
            8 => self.until(out, scope),
            9 => self.sized(out, scope),
            10 => self.literal(out),
            11 => self.check(out, scope),
            12 => self.computed(out, scope),
            13 => self.optional(out, scope),
            14 | 15 => self.choice(out, scope, depth - 1),
            16..=18 => self.list(out, scope, depth - 1),
            _ => self.keyed(out, scope),
        }
    }

    fn integer(&mut self, out: &mut String, scope: &mut Scope) {
        let name = self.name("n");
        let ty = *self.rng.pick(&["uint8", "uint8", "uint16", "uint32", "int16", "uint64", "int64"]);
        let requires = if self.rng.one_in(6) {
            format!(" &requires = $$ != {}", self.rng.below(9))
        } else {
            String::new()
        };
        let _ = writeln!(out, "  {name} : {ty}{requires};");
        scope.numbers.push(name.clone());
        scope.written.push(name);
    }

    fn bits(&mut self, out: &mut String, scope: &mut Scope) {
        let [a, b, c] = [(); 3].map(|()| self.name("b"));
        let (all, first) = *self.rng.pick(&[(8, 3), (8, 1), (16, 5), (32, 17)]);
        let _ = writeln!(out, "  bits<{all}> {{ {a} : {first}; {b} : 2; {c} : {}; }};", all - first - 2);
        for name in [a, b, c] {
            scope.numbers.push(name.clone());
            scope.written.push(name);
        }
    }

    fn digits(&mut self, out: &mut String, scope: &mut Scope) {
        let name = self.name("d");
        let most = 1 + self.rng.below(5);
        let (kind, delimiters) = match self.rng.below(3) {
            0 => (format!("hex<{most}>"), [";", "\\r\\n", "|", " "]),
            1 => (format!("decimal<{most}> &signed"), [";", "\\r\\n", "a", "\\xff"]),
            _ => (format!("decimal<{most}>"), [";", "\\r\\n", "a", "-"]),
        };
        let _ = writeln!(out, "  {name} : {kind}; \"{}\";", self.rng.pick(&delimiters));
        scope.numbers.push(name.clone());
        scope.written.push(name);
    }

    fn variable_length(&mut self, out: &mut String, scope: &mut Scope) {
        let name = self.name("v");
        let most = 1 + self.rng.below(5);
        let kind = if self.rng.one_in(3) { "vint".to_owned() } else { format!("varint<{most}>") };
        let _ = writeln!(out, "  {name} : {kind};");
        scope.numbers.push(name.clone());
        scope.written.push(name);
    }

    fn run(&mut self, out: &mut String, scope: &mut Scope) {
        let name = self.name("t");
        let (class, delimiters) = *self.rng.pick(CLASSES);
        let delimiter = *self.rng.pick(delimiters);
        let most = 1 + self.rng.below(30);
        let min = if self.rng.one_in(3) { " &min = 0" } else { "" };
        let _ = writeln!(out, "  {name} : string<{most}> &of = {class}{min}; \"{delimiter}\";");
        scope.texts.push(name.clone());
        scope.written.push(name);
    }

    fn until(&mut self, out: &mut String, scope: &mut Scope) {
        let name = self.name("t");
        let delimiter = *self.rng.pick(&["\\r\\n", "\\n", "\\x00", ";", "aab", "||"]);
        let most = 1 + self.rng.below(40);
        let class = if self.rng.one_in(3) { " &of = most" } else { "" };
        let trim = if self.rng.one_in(4) { " &trim" } else { "" };
        if self.rng.one_in(5) {
            let _ = writeln!(out, "  : string<4> &of = blank &min = 0;");
        }
        let _ = writeln!(out, "  {name} : string<{most}> &until = \"{delimiter}\"{class}{trim};");
        scope.texts.push(name.clone());
        scope.written.push(name);
    }

    /// Bytes of a length that stands before them, or follows from numbers that do.
    fn sized(&mut self, out: &mut String, scope: &mut Scope) {
        let name = self.name("y");
        let length = if scope.numbers.is_empty() || self.rng.one_in(2) {
            let size = self.name("s");
            let _ = writeln!(out, "  {size} : uint8;");
            scope.numbers.push(size.clone());
            format!("self.{size}")
        } else {
            self.small(scope)
        };
        let ty = if self.rng.one_in(2) { "string" } else { "bytes" };
        let _ = writeln!(out, "  {name} : {ty}<{}> &length = {length};", 8 + self.rng.below(300));
        if ty == "string" {
            scope.texts.push(name.clone());
        }
        scope.written.push(name);
    }

    fn literal(&mut self, out: &mut String) {
        let text =
            *self.rng.pick(&["AB", "x", "\\x00\\x01\\x02", "magic-word!", "\\r\\n", "0123456789abcdef01"]);
        let attribute = *self.rng.pick(&["", "", "", " &nocase", " &optional", " &cut"]);
        let _ = writeln!(out, "  \"{text}\"{attribute};");
        if attribute == " &optional" {
            let _ = writeln!(out, "  \"{}\";", self.rng.pick(&["|", "~~"]));
        }
    }

    fn check(&mut self, out: &mut String, scope: &Scope) {
        if let Some(condition) = self.condition(scope) {
            let _ = writeln!(out, "  check {condition};");
        }
    }

    fn computed(&mut self, out: &mut String, scope: &mut Scope) {
        let name = self.name("c");
        if scope.numbers.is_empty() {
            return;
        }
        let value = self.number(scope);
        // An unused value is not computed, so it cannot be outside its type.
        let _ = writeln!(out, "  var {name} : int64 &parse = {value};\n  check self.{name} != 77777;");
        scope.numbers.push(name);
    }

    fn optional(&mut self, out: &mut String, scope: &mut Scope) {
        let Some(condition) = self.condition(scope) else { return };
        let name = self.name("o");
        let ty = *self.rng.pick(&["uint8", "uint32", "varint<2>"]);
        let _ = writeln!(out, "  {name} : {ty} &if = {condition};");
        scope.numbers.push(name.clone());
        scope.written.push(name);
    }

    fn choice(&mut self, out: &mut String, scope: &mut Scope, depth: u32) {
        let on = match (self.rng.below(3), scope.texts.last()) {
            (0, Some(text)) => format!("self.{text}"),
            _ if scope.numbers.is_empty() => return,
            (1, _) => format!("self.{}", self.rng.pick(&scope.numbers)),
            _ => format!("{} mod 3", self.small(scope)),
        };
        let is_text = scope.texts.last().is_some_and(|text| on == format!("self.{text}"));
        let _ = writeln!(out, "  switch {on} {{");
        for case in 0..1 + self.rng.below(3) {
            let pattern = match (is_text, case) {
                (true, 0) => "\"get\", \"GET\"".to_owned(),
                (true, _) => format!("\"{}\"", ["x", "put-it"][case as usize % 2]),
                (false, 0) => "0, 3".to_owned(),
                (false, case) => case.to_string(),
            };
            if is_text && case > 2 {
                break;
            }
            let _ = writeln!(out, "  {pattern}: {{");
            self.arm(out, scope, depth);
            out.push_str("  }\n");
        }
        if !self.rng.one_in(6) {
            out.push_str("  else: {\n");
            self.arm(out, scope, depth);
            out.push_str("  }\n");
        }
        out.push_str("  };\n");
    }

    fn arm(&mut self, out: &mut String, scope: &mut Scope, depth: u32) {
        for _ in 0..self.rng.below(4) {
            self.item(out, scope, depth);
        }
    }

    /// A unit for elements of lists: it has a byte at least, and `more` says something of what follows.
    fn element(&mut self, depth: u32) -> String {
        let name = self.name("unit");
        let mut scope = Scope::default();
        let mut body = "  more : uint8;\n  check self.more < 3;\n".to_owned();
        for _ in 0..self.rng.below(4) {
            self.item(&mut body, &mut scope, depth);
        }
        let order = if self.rng.one_in(2) { "big" } else { "little" };
        let _ = writeln!(self.units, "type {name} = unit {{\n  %byteorder = {order};\n{body}}};");
        name
    }

    fn list(&mut self, out: &mut String, scope: &mut Scope, depth: u32) {
        let element = self.element(depth);
        let name = self.name("l");
        let most = 1 + self.rng.below(20);
        let sum = self.name("c");
        let has_sum = self.rng.one_in(3);
        if has_sum {
            let _ = writeln!(out, "  var {sum} : uint32 &sum = self.{name}.more;");
        }
        let end = match self.rng.below(5) {
            0 if !scope.numbers.is_empty() => format!("&count = {}", self.small(scope)),
            1 if !scope.numbers.is_empty() => format!("&length = {}", self.small(scope)),
            2 => format!("&children = self.{name}.more"),
            3 => "&until = \"\\xff\"".to_owned(),
            _ => format!("&last = self.{name}.more == {}", self.rng.below(3)),
        };
        let _ = writeln!(out, "  {name} : [{element}]<{most}> {end};");
        if has_sum {
            scope.numbers.push(sum);
        }
    }

    fn keyed(&mut self, out: &mut String, scope: &mut Scope) {
        let (element, name) = (self.name("unit"), self.name("k"));
        let _ = writeln!(
            self.units,
            "type {element} = unit {{\n  name : string<20> &of = word; \":\";\n  : string<4> &of = blank &min = 0;\n  \
             value : string<40> &until = \"\\r\\n\" &of = most{};\n}};",
            self.rng.pick(&["", " &trim"])
        );
        let nocase = *self.rng.pick(&["", " &nocase"]);
        let once = *self.rng.pick(&["", " &once = [\"one\"]"]);
        let cut = *self.rng.pick(&["", " &cut = [\"hop\"]", " &cut = [\"hop\"] &cut_listed = \"hop\""]);
        // At most four lines of a message may name what is cut.
        let most = 1 + self.rng.below(if cut.contains("listed") { 4 } else { 9 });
        let _ = writeln!(
            out,
            "  {name} : [{element}]<{most}> &until = \"\\r\\n\" &key = name &value = value{nocase}{once}{cut};"
        );
        let flag = self.name("g");
        let _ = match self.rng.below(4) {
            0 => writeln!(out, "  check self.{name}[\"one\"] != none or self.{name}[\"hop\"] == none;"),
            1 => {
                let _ = writeln!(out, "  var {flag} : bool &any = has_token(self.{name}[\"hop\"], \"one\");");
                writeln!(out, "  check not self.{flag};")
            }
            2 => {
                scope.numbers.push(flag.clone());
                writeln!(
                    out,
                    "  var {flag} : int64 &parse = parse_int(self.{name}[\"one\"] else \"0\") else -1;"
                )
            }
            _ => Ok(()),
        };
    }

    /// Writes the last item, which may be without a bound.
    fn tail(&mut self, out: &mut String, scope: &mut Scope) {
        let name = self.name("z");
        match self.rng.below(8) {
            0 => {
                let element = self.element(0);
                let _ = writeln!(out, "  {name} : [{element}] &last = self.{name}.more == 0;");
            }
            1 => {
                let _ = writeln!(out, "  {name} : bytes &to_close;");
            }
            2 | 3 => {
                let size = self.name("s");
                let _ = writeln!(out, "  {size} : uint16;\n  {name} : bytes &length = self.{size};");
            }
            4 => self.choice(out, scope, 1),
            _ => {
                let _ = writeln!(out, "  {name} : uint8;");
            }
        }
    }

    /// A number that is not large nor negative.
    fn small(&mut self, scope: &Scope) -> String {
        let name = self.rng.pick(&scope.numbers).clone();
        match self.rng.below(3) {
            0 => format!("self.{name} mod {}", 2 + self.rng.below(9)),
            1 => format!("(self.{name} mod {} + {})", 2 + self.rng.below(5), self.rng.below(3)),
            _ => format!("min(max(self.{name}, 0), {})", 1 + self.rng.below(12)),
        }
    }

    fn number(&mut self, scope: &Scope) -> String {
        let name = self.rng.pick(&scope.numbers).clone();
        match (self.rng.below(6), scope.texts.last()) {
            (0, Some(text)) => format!("len(self.{text}) + 1"),
            (1, Some(text)) => format!("parse_int(self.{text}) else 7"),
            (2, _) => format!("map self.{name} {{ 0: 5, 1, 2: 6, else: 0 - self.{name} }}"),
            (3, _) => format!("max(self.{name}, 3) * 2"),
            (4, _) => format!("self.{name} / 3 - {}", self.small(scope)),
            _ => self.small(scope),
        }
    }

    fn condition(&mut self, scope: &Scope) -> Option<String> {
        let text = scope.texts.last();
        Some(match (self.rng.below(6), text) {
            (0, Some(text)) => format!("self.{text} != \"no\""),
            (1, Some(text)) => format!("not starts_with(self.{text}, \"-\")"),
            (2, Some(text)) => format!("same_text(self.{text}, \"get\") or len(self.{text}) < 9"),
            _ if scope.numbers.is_empty() => return None,
            (3, _) => format!("self.{} != {}", self.rng.pick(&scope.numbers), self.rng.below(4)),
            (4, _) => format!("{} < {}", self.small(scope), 1 + self.rng.below(9)),
            _ => {
                let (a, b) = (self.small(scope), self.small(scope));
                format!("{a} <= {b} or {a} == 1")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::grammar;

    #[test]
    fn the_same_seed_gives_the_same_grammar_and_others_give_others() {
        assert_eq!(grammar(3).text, grammar(3).text);
        assert_ne!(grammar(3).text, grammar(4).text);
    }
}
