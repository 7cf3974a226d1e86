//! Types of generated values, and the source of chance.

/// A type of generated values. Text and bytes have their bound.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the type of its name")]
pub enum ValueType {
    Int,
    Bool,
    Text(u32),
    Bytes(u32),
    Enum,
    Struct,
    Variant,
    Time,
    Duration,
    Ipv4,
    Option(Box<ValueType>),
    Pair(Box<ValueType>, Box<ValueType>),
    /// A list of at most that many.
    List(Box<ValueType>, u32),
    Message,
}

impl ValueType {
    /// As a program writes it.
    pub fn spelled(&self) -> String {
        match self {
            ValueType::Int => "int".to_owned(),
            ValueType::Bool => "bool".to_owned(),
            ValueType::Text(max) => format!("string<{max}>"),
            ValueType::Bytes(max) => format!("bytes<{max}>"),
            ValueType::Enum => "colour".to_owned(),
            ValueType::Struct => "point".to_owned(),
            ValueType::Variant => "shape".to_owned(),
            ValueType::Time => "time".to_owned(),
            ValueType::Duration => "duration".to_owned(),
            ValueType::Ipv4 => "ipv4".to_owned(),
            ValueType::Option(inner) => format!("option<{}>", inner.spelled()),
            ValueType::Pair(a, b) => format!("({}, {})", a.spelled(), b.spelled()),
            ValueType::List(elem, max) => format!("[{}]<{max}>", elem.spelled()),
            ValueType::Message => "msg".to_owned(),
        }
    }
}

/// A small seeded generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any word.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.word()) * u128::from(end)) >> 64) as u32
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u32) as usize]
    }

    /// A number as programs write it: mostly small, sometimes at an edge.
    pub fn number(&mut self) -> i64 {
        match self.below(8) {
            0 => i64::MAX,
            1 => i64::MIN + 1,
            2 => self.word() as i64 >> self.below(64),
            _ => i64::from(self.below(20)) - 4,
        }
    }
}
