//! Messages of a grammar from a seed: a walk of its tree that writes where the reader reads.
//! Promises: the same seed gives the same bytes; most of what is written is of the grammar, because lengths, choices
//! and checks say which values are worth trying.
//! Refuses: certainty. What a message is, the reader says.

use std::collections::BTreeMap;

use flick_check::hir::{
    BinaryOp, Block, Expr, ExprKind, FieldId, FieldKind, IntRepr, Item, List, ListEnd, Program, Unit,
};
use flick_testkit::generate::Rng;

use crate::decode::{Verdict, decode};
use crate::env::{Env, V};

/// Longest text that is made up.
const TEXT_BYTES_MAX: u32 = 12;
/// Most elements of a list, but for those that must go on.
const ELEMENTS_MAX: u32 = 5;
/// Elements after which a list that will not end is given up.
const ELEMENTS_GIVEN_UP: usize = 40;
/// One message in this many has something at its bound.
const EXTREME_ONE_IN: u32 = 40;
/// Bounds above this are not tried.
const EXTREME_MAX: u32 = 9000;
/// Attempts at a message of the grammar.
const ATTEMPTS_MAX: u32 = 6;
/// Attempts at one that the platform wants too.
const WANTED_ATTEMPTS_MAX: u32 = 30;
/// One message in this many is the first attempt, whatever it is.
const FIRST_ONE_IN: u32 = 6;

/// Preferences for the value of a field.
#[derive(Clone, Debug, Default)]
struct Hint {
    /// It is a length or a count.
    is_size: bool,
    /// It is compared with these.
    constants: Vec<V>,
}

/// Expressions that are lengths, counts, or what they are made of, by the fields that they read.
type Sizes<'p> = BTreeMap<FieldId, Vec<&'p Expr>>;

/// Makes messages of one grammar.
pub struct Generator<'p> {
    program: &'p Program,
    unit: &'p Unit,
    fields: BTreeMap<FieldId, Hint>,
    keys: BTreeMap<(FieldId, u32), Vec<V>>,
    sizes: Sizes<'p>,
}

impl<'p> Generator<'p> {
    /// Looks at the grammar.
    pub fn new(program: &'p Program, unit: &'p Unit) -> Self {
        let mut generator =
            Self { program, unit, fields: BTreeMap::new(), keys: BTreeMap::new(), sizes: BTreeMap::new() };
        for field in &unit.fields {
            match &field.kind {
                FieldKind::Bytes { length, .. } => generator.size(length),
                FieldKind::Var { parse, .. } => {
                    generator.size(parse);
                    generator.compared(parse);
                }
                FieldKind::Flag { parse, .. } => generator.compared(parse),
                FieldKind::List(list) => match &list.end {
                    ListEnd::Count(size) | ListEnd::Bytes(size) | ListEnd::Children(size) => {
                        generator.size(size);
                    }
                    ListEnd::Last(last) => generator.compared(last),
                    ListEnd::Until(_) => {}
                },
                _ => {}
            }
        }
        if let Some(body) = &unit.body {
            generator.items(body);
        }
        for fact in [&unit.facts.request, &unit.facts.reply].into_iter().flatten() {
            generator.compared(fact);
        }
        generator.lengths_of_words();
        generator
    }

    /// A field that says how long a text is likes the lengths of what that text is compared with.
    fn lengths_of_words(&mut self) {
        for (at, field) in self.unit.fields.iter().enumerate() {
            let FieldKind::Bytes { length, .. } = &field.kind else { continue };
            let ExprKind::SelfField(size) = length.kind else { continue };
            let Some(words) = self.fields.get(&FieldId(at as u32)).map(|hint| hint.constants.clone()) else {
                continue;
            };
            let lens = words
                .iter()
                .filter_map(|word| if let V::Bytes(word) = word { Some(word.len()) } else { None });
            let lens = lens.map(|len| V::Int(len as i128));
            self.fields.entry(size).or_default().constants.extend(lens);
        }
    }

    fn items(&mut self, items: &'p [Item]) {
        for item in items {
            match item {
                Item::Field(field) => {
                    if let FieldKind::List(list) = &self.unit.fields[field.0 as usize].kind {
                        self.items(&list.body);
                    }
                }
                Item::Check(check) => self.compared(&check.expr),
                Item::Switch(choice) => {
                    self.compared(&choice.on);
                    for (patterns, items) in &choice.arms {
                        patterns.iter().for_each(|pattern| self.likes(&choice.on, pattern));
                        self.items(items);
                    }
                    choice.otherwise.iter().for_each(|items| self.items(items));
                }
                Item::Literal(_) => {}
            }
        }
    }

    /// Marks the fields that an expression reads as sizes, so that they get small values.
    fn size(&mut self, expr: &'p Expr) {
        each(expr, &mut |inner| {
            if let ExprKind::SelfField(field) = inner.kind {
                self.fields.entry(field).or_default().is_size = true;
                self.sizes.entry(field).or_default().push(expr);
            }
        });
    }

    /// Finds comparisons with constants.
    fn compared(&mut self, expr: &'p Expr) {
        let mut found = Vec::new();
        each(expr, &mut |inner| match &inner.kind {
            ExprKind::Binary(BinaryOp::Eq | BinaryOp::Ne, a, b) => found.push((&**a, &**b)),
            ExprKind::Switch { value, arms, .. } => {
                found.extend(
                    arms.iter().flat_map(|(patterns, _)| patterns).map(|pattern| (&**value, pattern)),
                );
            }
            ExprKind::Builtin(_, args) if args.len() == 2 => found.push((&args[0], &args[1])),
            _ => {}
        });
        for (value, constant) in found {
            self.likes(value, constant);
        }
    }

    fn likes(&mut self, value: &'p Expr, constant: &'p Expr) {
        let constant = match &constant.kind {
            ExprKind::Int(value) => V::Int(*value),
            ExprKind::Member(_, value) => V::Int(i128::from(*value)),
            ExprKind::Str(value) => V::Bytes(value.clone()),
            ExprKind::Some(inner) => return self.likes(value, inner),
            _ => return,
        };
        each(value, &mut |inner| match inner.kind {
            ExprKind::SelfField(field) => {
                self.fields.entry(field).or_default().constants.push(constant.clone());
            }
            ExprKind::SelfKey(list, key) => {
                self.keys.entry((list, key)).or_default().push(constant.clone());
            }
            _ => {}
        });
    }

    /// A message, or something like one.
    pub fn message(&self, rng: &mut Rng, asked: u64) -> Vec<u8> {
        if rng.one_in(FIRST_ONE_IN) {
            return self.attempt(rng, asked);
        }
        let mut message = Vec::new();
        let attempts = if self.unit.facts.request.is_some() { WANTED_ATTEMPTS_MAX } else { ATTEMPTS_MAX };
        for _ in 0..attempts {
            message = self.attempt(rng, asked);
            match decode(self.program, self.unit, &message, asked) {
                Ok((Verdict::Done(_) | Verdict::UntilClose, env)) if self.is_wanted(&env) => break,
                _ => {}
            }
        }
        message
    }

    /// Whether the platform wants such messages, in either direction.
    fn is_wanted(&self, env: &Env<'_>) -> bool {
        let facts = &self.unit.facts;
        let holds = |fact: &Option<Expr>| {
            fact.as_ref().is_none_or(|fact| env.eval(fact).is_ok_and(|holds| holds == V::Bool(true)))
        };
        holds(&facts.request) || facts.reply.is_some() && holds(&facts.reply)
    }

    fn attempt(&self, rng: &mut Rng, asked: u64) -> Vec<u8> {
        let env = Env::new(self.program, self.unit, asked);
        let is_extreme = rng.one_in(EXTREME_ONE_IN);
        let mut writer = Writer { generator: self, env, out: Vec::new(), key: None, is_extreme };
        let body = self.unit.body.as_ref().expect("the grammar is structured");
        writer.items(body, rng);
        writer.out
    }
}

struct Writer<'g, 'p> {
    generator: &'g Generator<'p>,
    env: Env<'p>,
    out: Vec<u8>,
    /// The key of the element being written, for the choice of its value.
    key: Option<(FieldId, u32)>,
    /// Bounds are tried; until the first list or text that is long.
    is_extreme: bool,
}

impl<'p> Writer<'_, 'p> {
    fn items(&mut self, items: &'p [Item], rng: &mut Rng) {
        items.iter().for_each(|item| self.item(item, rng));
    }

    fn item(&mut self, item: &'p Item, rng: &mut Rng) {
        match item {
            Item::Field(field) => self.field(*field, rng),
            Item::Literal(literal) => {
                if literal.optional && rng.below(2) == 0 {
                    return;
                }
                self.out.extend(&literal.bytes);
            }
            Item::Check(_) => {}
            Item::Switch(choice) => {
                let Ok(value) = self.env.eval(&choice.on) else { return };
                let is_case = |(patterns, _): &&(Vec<Expr>, Vec<Item>)| {
                    patterns.iter().any(|pattern| self.env.eval(pattern).as_ref() == Ok(&value))
                };
                let items = choice.arms.iter().find(is_case).map(|(_, items)| items);
                if let Some(items) = items.or(choice.otherwise.as_ref()) {
                    self.items(items, rng);
                }
            }
        }
    }

    /// A number that has a length or count come out small.
    fn solved(&mut self, field: FieldId, rng: &mut Rng) -> Option<i128> {
        let sizes = self.generator.sizes.get(&field)?;
        let size = *rng.pick(sizes);
        let before = self.env.values.insert(field, V::Int(0));
        let base = self.env.eval(size);
        self.env.values.insert(field, V::Int(1));
        let next = self.env.eval(size);
        match before {
            Some(before) => self.env.values.insert(field, before),
            None => self.env.values.remove(&field),
        };
        let (Ok(V::Int(base)), Ok(V::Int(next))) = (base, next) else { return None };
        let wanted = if rng.one_in(3) { 0 } else { i128::from(rng.below(20)) };
        (base != next).then(|| (wanted - base) / (next - base))
    }

    fn number(&mut self, field: FieldId, low: i128, high: i128, rng: &mut Rng) -> i128 {
        let hint = self.generator.fields.get(&field).cloned().unwrap_or_default();
        if hint.is_size
            && rng.below(10) < 4
            && let Some(value) = self.solved(field, rng)
            && (low..=high).contains(&value)
        {
            return value;
        }
        let constants: Vec<i128> =
            hint.constants.iter().filter_map(|v| if let V::Int(v) = v { Some(*v) } else { None }).collect();
        let value = match rng.below(10) {
            0..=6 if !constants.is_empty() => *rng.pick(&constants),
            0..=8 if hint.is_size => i128::from(rng.below(9)),
            9 => [low, high, high - 1, 0][rng.below(4) as usize],
            _ => low + i128::from(rng.word()) % (high - low + 1),
        };
        value.clamp(low, high)
    }

    fn field(&mut self, field: FieldId, rng: &mut Rng) {
        let kind = self.env.kind(field);
        let value = match kind {
            FieldKind::Int { repr, big_endian, .. } => {
                let (low, high) = range(*repr);
                let value = self.number(field, low, high, rng);
                let bytes = (value as u64).to_be_bytes();
                let bytes = &bytes[8 - usize::from(repr.width_bytes)..];
                if *big_endian {
                    self.out.extend(bytes);
                } else {
                    self.out.extend(bytes.iter().rev());
                }
                V::Int(value)
            }
            FieldKind::Vint { .. } => {
                let value = self.number(field, i128::from(i64::MIN), i128::from(i64::MAX), rng);
                self.vint(value as i64, rng);
                V::Int(value)
            }
            FieldKind::Varint { bytes_max, .. } => {
                let high = (1_i128 << (7 * u32::from(*bytes_max))) - 1;
                let value = self.number(field, 0, high, rng);
                let mut left = value as u64;
                // Groups that are not needed are no fault.
                let mut groups = if rng.one_in(20) { u32::from(*bytes_max) } else { 1 };
                while left > 0x7f || groups > 1 {
                    self.out.push(left as u8 | 0x80);
                    left >>= 7;
                    groups = groups.saturating_sub(1);
                }
                self.out.push(left as u8);
                V::Int(value)
            }
            FieldKind::Number { base, digits_max, signed, .. } => {
                let high = i128::from(*base).pow(u32::from(*digits_max)) - 1;
                let low = if *signed { -high } else { 0 };
                let value = self.number(field, low, high, rng);
                let digits = value.unsigned_abs().to_string().len();
                if *base == 10 && value >= 0 && rng.one_in(20) {
                    let more = u32::from(*digits_max).saturating_sub(digits as u32);
                    (0..rng.below(more + 1)).for_each(|_| self.out.push(b'0'));
                }
                let text = match (*base, rng.below(2)) {
                    (16, 0) => format!("{value:x}"),
                    (16, _) => format!("{value:X}"),
                    _ => value.to_string(),
                };
                self.out.extend(text.as_bytes());
                V::Int(value)
            }
            FieldKind::Bytes { length, .. } => {
                let length = self.env.eval(length).map_or(0, |length| length.int().clamp(0, 4096));
                let bytes = self
                    .word_of(field, length as usize, rng)
                    .unwrap_or_else(|| (0..length).map(|_| b'!' + rng.below(90) as u8).collect());
                self.out.extend(&bytes);
                V::Bytes(bytes)
            }
            FieldKind::Text { .. } => V::Bytes(self.text(field, kind, rng)),
            FieldKind::Var { sum: Some(_), .. } => return,
            FieldKind::Var { parse, .. } | FieldKind::Flag { parse, any: None } => {
                let Ok(value) = self.env.eval(parse) else { return };
                value
            }
            FieldKind::List(list) => return self.list(field, list, rng),
            FieldKind::ToClose { .. } => {
                self.out.extend((0..rng.below(20)).map(|at| at as u8));
                return;
            }
            FieldKind::Flag { .. } | FieldKind::Full { .. } | FieldKind::TextVar { .. } => return,
            FieldKind::Bits { .. } | FieldKind::Kept | FieldKind::Carried => self.env.field(field),
        };
        self.env.values.insert(field, value);
    }

    /// One of the words that a text is compared with, in small or large letters, if one is of this length.
    fn word_of(&self, field: FieldId, len: usize, rng: &mut Rng) -> Option<Vec<u8>> {
        let hint = self.generator.fields.get(&field)?;
        let is_long =
            |v: &V| if let V::Bytes(word) = v { (word.len() == len).then(|| word.clone()) } else { None };
        let words: Vec<Vec<u8>> = hint.constants.iter().filter_map(is_long).collect();
        if words.is_empty() || rng.one_in(5) {
            return None;
        }
        let word = rng.pick(&words).clone();
        Some(if rng.one_in(3) { word.to_ascii_uppercase() } else { word })
    }

    /// Hadoop's integer, in its shortest form or a longer one.
    fn vint(&mut self, value: i64, rng: &mut Rng) {
        if (-112..=127).contains(&value) && !rng.one_in(10) {
            return self.out.push(value as u8);
        }
        let (lead, bits) = if value < 0 { (-120_i32, !value) } else { (-112, value) };
        let needed = (8 - bits.leading_zeros() / 8).max(1);
        let count = if rng.one_in(10) { 8 } else { needed };
        self.out.push((lead - count as i32) as u8);
        self.out.extend(&bits.to_be_bytes()[8 - count as usize..]);
    }

    fn text(&mut self, field: FieldId, kind: &FieldKind, rng: &mut Rng) -> Vec<u8> {
        let FieldKind::Text { class, until, min_bytes, max_bytes, .. } = kind else {
            panic!("the caller has a text")
        };
        let set = class.map_or([u64::MAX; 4], |class| self.env.program.classes[class.0 as usize].set);
        let is_in = |byte: u8| set[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1;
        let alphabet: Vec<u8> = (0..=255).filter(|byte| is_in(*byte)).collect();
        let texts = |known: &[V]| -> Vec<Vec<u8>> {
            known.iter().filter_map(|v| if let V::Bytes(v) = v { Some(v.clone()) } else { None }).collect()
        };
        let hint = self.generator.fields.get(&field).cloned().unwrap_or_default();
        let mut liked = texts(&hint.constants);
        let of_key = self.key.take().and_then(|key| self.generator.keys.get(&key));
        liked.extend(of_key.map_or(Vec::new(), |known| texts(known)));
        let value = if !liked.is_empty() && rng.below(10) < 8 {
            rng.pick(&liked).clone()
        } else if of_key.is_some() && rng.below(2) == 0 {
            rng.below(30).to_string().into_bytes()
        } else {
            let most = TEXT_BYTES_MAX.min(*max_bytes);
            let len = if self.is_extreme && *max_bytes < EXTREME_MAX && rng.one_in(3) {
                self.is_extreme = false;
                // The bound, and one on either side of it.
                *max_bytes + 1 - rng.below(3).min(*max_bytes)
            } else if rng.one_in(8) {
                *min_bytes
            } else {
                (*min_bytes).max(rng.below(most + 1))
            };
            let printable: Vec<u8> =
                alphabet.iter().copied().filter(|byte| (b' '..0x7f).contains(byte)).collect();
            let from = if printable.is_empty() || rng.below(20) == 0 { &alphabet } else { &printable };
            (0..len).filter(|_| !from.is_empty()).map(|_| *rng.pick(from)).collect()
        };
        self.out.extend(&value);
        self.out.extend(until.iter().flatten());
        value
    }

    fn list(&mut self, field: FieldId, list: &'p List, rng: &mut Rng) {
        let count = match &list.end {
            ListEnd::Count(count) => self.env.eval(count).map_or(0, |count| count.int().clamp(0, 40) as u32),
            ListEnd::Bytes(bytes) => self.env.eval(bytes).map_or(0, |bytes| bytes.int().clamp(0, 400) as u32),
            _ => match list.max {
                Some(max) if self.is_extreme && max < EXTREME_MAX && rng.one_in(2) => {
                    self.is_extreme = false;
                    max + 1 - rng.below(3).min(max)
                }
                _ => rng.below(ELEMENTS_MAX + 1),
            },
        };
        let sums = self.env.sums_of(field);
        for (sum, _) in &sums {
            self.env.values.insert(*sum, V::Int(0));
        }
        let mut open = 1;
        let mut written = 0;
        let start = self.out.len();
        loop {
            let is_over = match &list.end {
                ListEnd::Children(_) => open <= 0,
                ListEnd::Last(_) => false,
                ListEnd::Bytes(_) => self.out.len() - start >= count as usize,
                _ => written as u32 >= count,
            };
            if is_over || written >= ELEMENTS_GIVEN_UP.max(count as usize) {
                break;
            }
            self.env.forget(&list.body);
            if let Some(keyed) = &list.keyed
                && !keyed.keys.is_empty()
                && rng.below(3) > 0
            {
                self.known_key(field, list, rng.below(keyed.keys.len() as u32), rng);
            } else {
                self.items(&list.body, rng);
            }
            written += 1;
            for (sum, parse) in &sums {
                let more = self.env.eval(parse).map_or(0, |more| more.int());
                let value = self.env.field(*sum).int() + more;
                self.env.values.insert(*sum, V::Int(value));
            }
            match &list.end {
                ListEnd::Children(children) => {
                    open += self.env.eval(children).map_or(0, |more| more.int().clamp(0, 40)) - 1;
                }
                ListEnd::Last(last) if self.env.eval(last) == Ok(V::Bool(true)) => break,
                _ => {}
            }
        }
        if let ListEnd::Until(literal) = &list.end {
            self.out.extend(literal);
        }
    }

    /// Writes an element with a key that the grammar or the program knows.
    fn known_key(&mut self, field: FieldId, list: &'p List, key: u32, rng: &mut Rng) {
        let keyed = list.keyed.as_ref().expect("the caller has keys");
        for item in &list.body {
            match item {
                Item::Field(known) if *known == keyed.key => {
                    let mut name = keyed.keys[key as usize].clone();
                    if keyed.nocase && rng.below(2) == 0 {
                        name.iter_mut().step_by(2).for_each(u8::make_ascii_uppercase);
                    }
                    self.out.extend(&name);
                    if let FieldKind::Text { until: Some(until), .. } = self.env.kind(*known) {
                        self.out.extend(until);
                    }
                    self.env.values.insert(*known, V::Bytes(name));
                }
                Item::Field(known) if *known == keyed.value => {
                    self.key = Some((field, key));
                    self.field(*known, rng);
                    self.key = None;
                }
                other => self.item(other, rng),
            }
        }
        if let V::Bytes(value) = self.env.field(keyed.value) {
            self.env.keyed.entry((field, key)).or_insert(value);
        }
    }
}

fn range(repr: IntRepr) -> (i128, i128) {
    let bits = 8 * u32::from(repr.width_bytes);
    if repr.signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1_i128 << bits) - 1) }
}

/// Calls `look` for an expression and all in it.
fn each<'e>(expr: &'e Expr, look: &mut impl FnMut(&'e Expr)) {
    look(expr);
    let block = |block: &'e Block, look: &mut dyn FnMut(&'e Expr)| {
        block.value.iter().for_each(|value| each_dyn(value, look));
    };
    match &expr.kind {
        ExprKind::Not(a)
        | ExprKind::Neg(a)
        | ExprKind::Some(a)
        | ExprKind::Convert(a, _)
        | ExprKind::Recast(a) => {
            each_dyn(a, look);
        }
        ExprKind::Binary(_, a, b) | ExprKind::ByteAt(a, b) => {
            each_dyn(a, look);
            each_dyn(b, look);
        }
        ExprKind::OrElse(a, otherwise) => {
            each_dyn(a, look);
            block(otherwise, look);
        }
        ExprKind::If { cond, then, otherwise } => {
            each_dyn(cond, look);
            block(then, look);
            otherwise.iter().for_each(|otherwise| block(otherwise, look));
        }
        ExprKind::Switch { value, arms, otherwise } => {
            each_dyn(value, look);
            arms.iter().for_each(|(_, body)| block(body, look));
            otherwise.iter().for_each(|otherwise| block(otherwise, look));
        }
        ExprKind::Builtin(_, args) | ExprKind::Concat(args) => {
            args.iter().for_each(|arg| each_dyn(arg, look))
        }
        ExprKind::Slice(a, from, to) => {
            each_dyn(a, look);
            from.iter().chain(to).for_each(|end| each_dyn(end, look));
        }
        _ => {}
    }
}

fn each_dyn<'e>(expr: &'e Expr, look: &mut dyn FnMut(&'e Expr)) {
    each(expr, &mut |inner| look(inner));
}
