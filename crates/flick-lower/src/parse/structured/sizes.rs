//! Bounds of the lengths of parts of a structured unit, computed from the grammar alone.
//! Promises: no message of the grammar is shorter or longer; sums saturate at `MESSAGE_BYTES_MAX`.

use flick_abi::limits::{HEAD_BYTES_MAX, LEADING_ZEROS_MAX};
use flick_check::hir::{FieldId, FieldKind, Item, List, ListEnd, Literal};

use crate::limits::MESSAGE_BYTES_MAX;
use crate::unit::UnitInfo;

/// Least and largest length, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Least.
    pub least: u64,
    /// Least without the elements of lists in it.
    pub own: u64,
    /// Largest.
    pub most: u64,
}

const LONGEST: u64 = MESSAGE_BYTES_MAX as u64;

impl Sizes {
    const NONE: Self = Self { least: 0, own: 0, most: 0 };

    /// Of a row of items.
    pub fn of(info: &UnitInfo<'_>, items: &[Item]) -> Self {
        items.iter().map(|item| Self::of_item(info, item)).fold(Self::NONE, Self::then)
    }

    /// Of one item.
    pub fn of_item(info: &UnitInfo<'_>, item: &Item) -> Self {
        match item {
            Item::Field(field) => Self::of_field(info, *field),
            Item::Literal(literal) => Self::of_literal(literal),
            Item::Check(_) => Self::NONE,
            Item::Switch(choice) => {
                let arms = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
                let sizes = arms.map(|items| Self::of(info, items));
                let either = |a: Self, b: Self| Self {
                    least: a.least.min(b.least),
                    own: a.own.min(b.own),
                    most: a.most.max(b.most),
                };
                sizes.reduce(either).unwrap_or(Self::NONE)
            }
        }
    }

    fn of_literal(literal: &Literal) -> Self {
        let bytes = literal.bytes.len() as u64;
        let least = if literal.optional { 0 } else { bytes };
        Self { least, own: least, most: bytes }
    }

    fn of_field(info: &UnitInfo<'_>, field: FieldId) -> Self {
        let between = |least: u64, most: u64| Self { least, own: least, most: most.min(LONGEST) };
        match &info.field(field).kind {
            FieldKind::Int { repr, .. } => {
                let bytes = u64::from(repr.width_bytes);
                between(bytes, bytes)
            }
            FieldKind::Vint { .. } => between(1, 9),
            FieldKind::Varint { bytes_max, .. } => between(1, u64::from(*bytes_max)),
            FieldKind::Number { digits_max, signed, zeros, .. } => {
                let zeros = if *zeros { LEADING_ZEROS_MAX } else { 0 };
                between(1, u64::from(*digits_max) + u64::from(*signed) + u64::from(zeros))
            }
            FieldKind::Text { until, min_bytes, max_bytes, .. } => {
                let end = until.as_ref().map_or(0, |until| until.len() as u64);
                between(u64::from(*min_bytes) + end, u64::from(*max_bytes) + end)
            }
            FieldKind::Bytes { .. } => {
                let range = info.length_range(field);
                between(range.lo.clamp(0, MESSAGE_BYTES_MAX) as u64, range.hi.max(0) as u64)
            }
            FieldKind::ToClose { .. } => between(0, LONGEST),
            FieldKind::List(list) => Self::of_list(info, list),
            kind => {
                assert!(!kind.is_on_wire(), "every field on the wire has a size");
                Self::NONE
            }
        }
    }

    fn of_list(info: &UnitInfo<'_>, list: &List) -> Self {
        let element = Self::of(info, &list.body);
        let (least, end) = match &list.end {
            ListEnd::Count(count) => (info.range_of(count).lo.clamp(0, 1 << 32) as u64, 0),
            ListEnd::Until(until) => (0, until.len() as u64),
            ListEnd::Bytes(_) => (0, 0),
            ListEnd::Children(_) | ListEnd::Last(_) => (1, 0),
        };
        let most = match list.max {
            Some(max) => element.most.saturating_mul(u64::from(max)),
            None => LONGEST,
        };
        Self {
            least: element.least.saturating_mul(least).saturating_add(end),
            own: end,
            most: most.saturating_add(end).min(LONGEST),
        }
    }

    fn then(self, next: Self) -> Self {
        let sum = |a: u64, b: u64| a.saturating_add(b).min(LONGEST);
        Self {
            least: sum(self.least, next.least),
            own: sum(self.own, next.own),
            most: sum(self.most, next.most),
        }
    }
}

/// Bytes at the front of a row that are there in every message and say nothing of how to go on: literals, integers and
/// single digits, up to what may refuse the message, and no more than a head may have.
pub fn fixed_ahead(info: &UnitInfo<'_>, items: &[Item]) -> u32 {
    let mut bytes = 0;
    for item in items {
        // Numbers and literals are short.
        if bytes > HEAD_BYTES_MAX as u32 / 2 {
            return bytes;
        }
        match item {
            Item::Literal(literal) if !literal.optional => bytes += literal.bytes.len() as u32,
            Item::Field(field) => {
                let own = info.field(*field);
                match &own.kind {
                    FieldKind::Int { repr, .. } => bytes += u32::from(repr.width_bytes),
                    FieldKind::Number { digits_max: 1, signed: false, .. } => bytes += 1,
                    kind if !kind.is_on_wire() => {}
                    _ => return bytes,
                }
                if !own.requires.is_empty() {
                    return bytes;
                }
            }
            Item::Literal(_) | Item::Check(_) | Item::Switch(_) => return bytes,
        }
    }
    bytes
}

/// As [`fixed_ahead`], of the first item alone: behind a search, what ends it is looked at before anything else is
/// waited for.
pub fn first_ahead(info: &UnitInfo<'_>, items: &[Item]) -> u32 {
    fixed_ahead(info, items.get(..1).unwrap_or_default())
}

/// Bytes of the literals that stand before a field at a fixed place.
pub fn literals_before(items: &[Item], field: FieldId) -> u32 {
    let before = items.iter().take_while(|item| !matches!(item, Item::Field(id) if *id == field));
    before
        .map(|item| match item {
            Item::Literal(literal) if !literal.optional => literal.bytes.len() as u32,
            _ => 0,
        })
        .sum()
}

/// Whether an item may have bytes on the wire.
pub fn is_on_wire(info: &UnitInfo<'_>, item: &Item) -> bool {
    match item {
        Item::Field(field) => info.field(*field).kind.is_on_wire(),
        Item::Literal(_) => true,
        Item::Check(_) => false,
        Item::Switch(choice) => {
            let arms = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
            arms.flatten().any(|item| is_on_wire(info, item))
        }
    }
}
