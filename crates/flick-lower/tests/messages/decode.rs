//! A message read by walking its grammar's tree: the meaning of grammars in its plainest form, to hold generated
//! parsers against.
//! Promises: reads from the first byte to the last, one item after the other, and stops at the first that is wrong.

use flick_check::hir::{Expr, FieldId, FieldKind, IntRepr, Item, Keyed, List, ListEnd, Program, Unit};

use crate::env::{Env, Unknown, V};

/// Verdict of a grammar on the front of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A message of this many bytes is at their front.
    Done(u64),
    /// A message that ends where its peer closes stands there.
    UntilClose,
    /// More is needed to say.
    Incomplete,
    /// No message, at this offset.
    Fault(usize),
}

/// Reason for which the walk ends early.
#[derive(Debug)]
enum Stop {
    Incomplete,
    Fault,
    UntilClose,
    Unknown(Unknown),
}

impl From<Unknown> for Stop {
    fn from(unknown: Unknown) -> Self {
        Stop::Unknown(unknown)
    }
}

type Walk<T = ()> = Result<T, Stop>;

/// Reads the front of `data` as a message of `unit`; what was found out is in the environment.
///
/// Errors: an expression that the walker does not know.
pub fn decode<'p>(
    program: &'p Program,
    unit: &'p Unit,
    data: &[u8],
    asked: u64,
) -> Result<(Verdict, Env<'p>), Unknown> {
    let mut decoder = Decoder { env: Env::new(program, unit, asked), data, at: 0 };
    let body = unit.body.as_ref().expect("the grammar is structured");
    let verdict = match decoder.items(body) {
        Ok(()) if decoder.at == 0 => Verdict::Fault(0),
        Ok(()) => Verdict::Done(decoder.at as u64),
        Err(Stop::UntilClose) => Verdict::UntilClose,
        Err(Stop::Incomplete) => Verdict::Incomplete,
        Err(Stop::Fault) => Verdict::Fault(decoder.at),
        Err(Stop::Unknown(unknown)) => return Err(unknown),
    };
    Ok((verdict, decoder.env))
}

struct Decoder<'p, 'd> {
    env: Env<'p>,
    data: &'d [u8],
    at: usize,
}

impl<'p> Decoder<'p, '_> {
    fn rest(&self) -> &[u8] {
        &self.data[self.at..]
    }

    fn take(&mut self, count: usize) -> Walk<Vec<u8>> {
        let taken = self.rest().get(..count).ok_or(Stop::Incomplete)?.to_vec();
        self.at += count;
        Ok(taken)
    }

    fn ensure(&self, holds: bool) -> Walk {
        if holds { Ok(()) } else { Err(Stop::Fault) }
    }

    fn items(&mut self, items: &'p [Item]) -> Walk {
        (0..items.len()).try_for_each(|at| self.item(&items[at], items.get(at + 1)))
    }

    /// Returns whether the next byte ends the string declared next: a supplied literal before it may be missing.
    fn is_at_end_of(&self, behind: Option<&Item>) -> bool {
        let Some(Item::Field(field)) = behind else { return true };
        match &self.env.unit.fields[field.0 as usize].kind {
            FieldKind::Text { until: Some(until), .. } => self.rest().first() == until.first(),
            _ => true,
        }
    }

    fn item(&mut self, item: &'p Item, behind: Option<&Item>) -> Walk {
        match item {
            Item::Field(field) => self.field(*field),
            Item::Literal(literal) => {
                let count = literal.bytes.len();
                let there = &self.rest()[..count.min(self.rest().len())];
                let wanted = &literal.bytes[..there.len()];
                let is_same =
                    if literal.nocase { there.eq_ignore_ascii_case(wanted) } else { there == wanted };
                match (is_same, there.len() == count) {
                    (true, true) => self.at += count,
                    (true, false) => return Err(Stop::Incomplete),
                    (false, _) => {
                        self.ensure(literal.optional && (!literal.supplied || self.is_at_end_of(behind)))?
                    }
                }
                Ok(())
            }
            Item::Check(check) => {
                let holds = self.env.eval(&check.expr)?.bool();
                self.ensure(holds)
            }
            Item::Switch(choice) => {
                let value = self.env.eval(&choice.on)?;
                for (patterns, items) in &choice.arms {
                    for pattern in patterns {
                        if self.env.eval(pattern)? == value {
                            return self.items(items);
                        }
                    }
                }
                match &choice.otherwise {
                    Some(items) => self.items(items),
                    None => Err(Stop::Fault),
                }
            }
        }
    }

    fn field(&mut self, field: FieldId) -> Walk {
        let kind = self.env.kind(field);
        let value = match kind {
            FieldKind::Int { repr, big_endian, .. } => {
                let bytes = self.take(usize::from(repr.width_bytes))?;
                V::Int(int_of(&bytes, *repr, *big_endian))
            }
            FieldKind::Vint { .. } => self.vint()?,
            FieldKind::Varint { bytes_max, .. } => self.varint(*bytes_max)?,
            FieldKind::Number { base, digits_max, signed, .. } => self.number(*base, *digits_max, *signed)?,
            FieldKind::Bytes { max_bytes, length, .. } => {
                let length = self.env.eval(length)?.int();
                self.ensure(length >= 0 && length <= max_bytes.map_or(1 << 62, i128::from))?;
                V::Bytes(self.take(length as usize)?)
            }
            FieldKind::Text { .. } => V::Bytes(self.text(kind)?),
            FieldKind::Var { sum: Some(_), .. } => return Ok(()),
            FieldKind::Var { repr, parse, .. } => {
                let value = self.env.eval(parse)?;
                self.ensure(fits(value.int(), *repr))?;
                value
            }
            FieldKind::Flag { any: Some(_), .. } | FieldKind::Full { .. } => return Ok(()),
            FieldKind::Flag { parse, any: None } => self.env.eval(parse)?,
            FieldKind::Bits { .. } | FieldKind::Kept | FieldKind::Carried => self.env.field(field),
            FieldKind::TextVar { .. } => return Ok(()),
            FieldKind::ToClose { .. } => return Err(Stop::UntilClose),
            FieldKind::List(list) => return self.list(field, list),
        };
        self.found(field, value)
    }

    /// A field has this value, which must be as its grammar says.
    fn found(&mut self, field: FieldId, value: V) -> Walk {
        self.env.values.insert(field, value.clone());
        let before = self.env.dollar.replace(value);
        let requires: &'p [Expr] = &self.env.unit.fields[field.0 as usize].requires;
        for check in requires {
            let holds = self.env.eval(check)?.bool();
            self.ensure(holds)?;
        }
        self.env.dollar = before;
        Ok(())
    }

    fn text(&mut self, kind: &FieldKind) -> Walk<Vec<u8>> {
        let FieldKind::Text { class, until, min_bytes, max_bytes, trim, .. } = kind else {
            panic!("the caller has a text")
        };
        let set = class.map(|class| self.env.program.classes[class.0 as usize].set);
        let is_in = |byte: u8| set.is_none_or(|set| set[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1);
        let (min, max) = (*min_bytes as usize, *max_bytes as usize);
        let rest = self.rest().to_vec();
        let Some(until) = until else {
            let run = rest.iter().take_while(|byte| is_in(**byte)).count();
            self.ensure(run <= max)?;
            if run == rest.len() {
                return Err(Stop::Incomplete);
            }
            self.ensure(run >= min)?;
            return self.take(run);
        };
        let found = rest.windows(until.len()).position(|window| window == until.as_slice());
        let value = &rest[..found.unwrap_or(rest.len().saturating_sub(until.len() - 1))];
        self.ensure(value.len() <= max && value.iter().all(|byte| is_in(*byte)))?;
        let Some(len) = found else { return Err(Stop::Incomplete) };
        self.ensure(len >= min)?;
        let value = self.take(len)?;
        self.at += until.len();
        // The value leaves out blanks at its end where the grammar says so; programs and checks see that.
        if *trim {
            let end = value.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |at| at + 1);
            return Ok(value[..end].to_vec());
        }
        Ok(value)
    }

    fn number(&mut self, base: u8, digits_max: u8, signed: bool) -> Walk<V> {
        let rest = self.rest().to_vec();
        let minus = signed && rest.first() == Some(&b'-');
        let digits = &rest[usize::from(minus)..];
        let count = digits.iter().take_while(|byte| (**byte as char).is_digit(u32::from(base))).count();
        self.ensure(count <= usize::from(digits_max))?;
        if count == digits.len() {
            return Err(Stop::Incomplete);
        }
        self.ensure(count > 0)?;
        let text = std::str::from_utf8(&digits[..count]).map_err(|_| Stop::Fault)?;
        let value = i128::from_str_radix(text, u32::from(base)).map_err(|_| Stop::Fault)?;
        self.at += usize::from(minus) + count;
        Ok(V::Int(if minus { -value } else { value }))
    }

    fn vint(&mut self) -> Walk<V> {
        let lead = i128::from(self.take(1)?[0] as i8);
        if lead >= -112 {
            return Ok(V::Int(lead));
        }
        let (count, negative) = if lead < -120 { (-120 - lead, true) } else { (-112 - lead, false) };
        let value =
            self.take(count as usize)?.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        Ok(V::Int(i128::from(if negative { !value as i64 } else { value as i64 })))
    }

    fn varint(&mut self, bytes_max: u8) -> Walk<V> {
        let mut value = 0_u64;
        for group in 0..bytes_max {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << (7 * group);
            if byte < 0x80 {
                return Ok(V::Int(i128::from(value)));
            }
        }
        Err(Stop::Fault)
    }

    fn list(&mut self, field: FieldId, list: &'p List) -> Walk {
        let most = list.max.map_or(u64::MAX, u64::from);
        let (mut count, mut open) = (0_u64, 1_i128);
        let start = self.at;
        let wanted = match &list.end {
            ListEnd::Count(count) => self.env.eval(count)?.int(),
            ListEnd::Bytes(bytes) => self.env.eval(bytes)?.int(),
            _ => 0,
        };
        self.ensure(wanted >= 0)?;
        if let ListEnd::Count(_) = list.end {
            self.ensure(wanted <= i128::from(most))?;
        }
        let end = start as i128 + wanted;
        let sums = self.env.sums_of(field);
        for (sum, _) in &sums {
            self.env.values.insert(*sum, V::Int(0));
        }
        loop {
            let is_over = match &list.end {
                ListEnd::Count(_) => i128::from(count) == wanted,
                ListEnd::Bytes(_) if self.at as i128 > end => return Err(Stop::Fault),
                ListEnd::Bytes(_) => self.at as i128 == end,
                ListEnd::Until(literal) => {
                    let there = &self.rest()[..literal.len().min(self.rest().len())];
                    let is_here = there == literal;
                    if !is_here && literal.starts_with(there) {
                        return Err(Stop::Incomplete);
                    }
                    self.at += if is_here { literal.len() } else { 0 };
                    is_here
                }
                ListEnd::Children(_) => open == 0,
                ListEnd::Last(_) => false,
            };
            if is_over {
                return Ok(());
            }
            self.ensure(count < most)?;
            let before = self.at;
            self.env.forget(&list.body);
            self.items(&list.body)?;
            self.ensure(self.at > before)?;
            count += 1;
            if let Some(keyed) = &list.keyed {
                self.element(field, keyed)?;
            }
            for (sum, parse) in &sums {
                let value = self.env.field(*sum).int() + self.env.eval(parse)?.int();
                let FieldKind::Var { repr, .. } = self.env.kind(*sum) else { panic!("sums are variables") };
                self.ensure(fits(value, *repr))?;
                self.found(*sum, V::Int(value))?;
            }
            match &list.end {
                ListEnd::Children(children) => {
                    let more = self.env.eval(children)?.int();
                    self.ensure(more >= 0)?;
                    open += more - 1;
                }
                ListEnd::Last(last) if self.env.eval(last)?.bool() => return Ok(()),
                _ => {}
            }
        }
    }

    /// Notes the element just read under its key.
    fn element(&mut self, field: FieldId, keyed: &'p Keyed) -> Walk {
        let key = self.env.field(keyed.key).bytes().unwrap_or_default().to_vec();
        let key = if keyed.nocase { key.to_ascii_lowercase() } else { key };
        let Some(index) = keyed.keys.iter().position(|known| *known == key) else { return Ok(()) };
        let index = index as u32;
        let value = self.env.field(keyed.value).bytes().unwrap_or_default().to_vec();
        let is_first = !self.env.keyed.contains_key(&(field, index));
        self.ensure(is_first || !keyed.once.contains(&index))?;
        self.env.occurrence = Some(((field, index), value.clone()));
        for (at, other) in self.env.unit.fields.iter().enumerate() {
            let id = FieldId(at as u32);
            if let FieldKind::Flag { parse, any: Some(which) } = &other.kind
                && *which == (field, index)
            {
                let holds = self.env.field(id).bool() || self.env.eval(parse)?.bool();
                self.env.values.insert(id, V::Bool(holds));
            }
        }
        self.env.occurrence = None;
        if is_first {
            self.env.keyed.insert((field, index), value);
        }
        Ok(())
    }
}

/// The number that bytes are.
fn int_of(bytes: &[u8], repr: IntRepr, big_endian: bool) -> i128 {
    let mut bytes = bytes.to_vec();
    if !big_endian {
        bytes.reverse();
    }
    let value = bytes.iter().fold(0_i128, |value, byte| value << 8 | i128::from(*byte));
    let bits = 8 * u32::from(repr.width_bytes);
    if repr.signed && value >> (bits - 1) == 1 { value - (1 << bits) } else { value }
}

/// Whether a number fits its declared shape.
pub fn fits(value: i128, repr: IntRepr) -> bool {
    let bits = 8 * u32::from(repr.width_bytes);
    let (low, high) =
        if repr.signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1_i128 << bits) - 1) };
    (low..=high).contains(&value)
}
