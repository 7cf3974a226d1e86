//! The minimum and maximum size of a row in bytes.
//! Promises: a message of the grammar is never shorter or longer.

use flick_abi::limits::LEADING_ZEROS_MAX;

use crate::hir::{Expr, ExprKind, Field, FieldId, FieldKind, Item, ListEnd};
use crate::limits::VINT_BYTES_MAX;

/// Encoded size; `most` is `None` without a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WireSize {
    pub(crate) least: u64,
    pub(crate) most: Option<u64>,
}

impl WireSize {
    fn exactly(bytes: u64) -> Self {
        WireSize { least: bytes, most: Some(bytes) }
    }

    fn and(self, other: WireSize) -> WireSize {
        let most = self.most.zip(other.most).map(|(a, b)| a.saturating_add(b));
        WireSize { least: self.least.saturating_add(other.least), most }
    }

    fn or(self, other: WireSize) -> WireSize {
        let most = self.most.zip(other.most).map(|(a, b)| a.max(b));
        WireSize { least: self.least.min(other.least), most }
    }
}

/// The size of a row.
pub(crate) fn row(fields: &[Field], items: &[Item]) -> WireSize {
    items.iter().fold(WireSize::exactly(0), |sum, item| sum.and(self::item(fields, item)))
}

fn item(fields: &[Field], item: &Item) -> WireSize {
    match item {
        Item::Field(id) => field(fields, *id),
        Item::Check(_) => WireSize::exactly(0),
        Item::Literal(literal) => {
            let bytes = literal.bytes.len() as u64;
            WireSize { least: if literal.optional { 0 } else { bytes }, most: Some(bytes) }
        }
        Item::Switch(choice) => {
            let rows = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
            rows.map(|items| row(fields, items)).reduce(WireSize::or).unwrap_or(WireSize::exactly(0))
        }
    }
}

fn field(fields: &[Field], id: FieldId) -> WireSize {
    match &fields[id.0 as usize].kind {
        FieldKind::Int { repr, .. } => WireSize::exactly(u64::from(repr.width_bytes)),
        FieldKind::Vint { .. } => WireSize { least: 1, most: Some(VINT_BYTES_MAX) },
        FieldKind::Varint { bytes_max, .. } => WireSize { least: 1, most: Some(u64::from(*bytes_max)) },
        FieldKind::Number { digits_max, signed, zeros, .. } => {
            let zeros = if *zeros { LEADING_ZEROS_MAX } else { 0 };
            WireSize { least: 1, most: Some(u64::from(*digits_max) + u64::from(*signed) + u64::from(zeros)) }
        }
        FieldKind::Text { until, min_bytes, max_bytes, .. } => {
            let end = until.as_ref().map_or(0, Vec::len) as u64;
            WireSize { least: u64::from(*min_bytes) + end, most: Some(u64::from(*max_bytes) + end) }
        }
        FieldKind::Bytes { length: Expr { kind: ExprKind::Int(bytes), .. }, .. } => {
            WireSize::exactly((*bytes).clamp(0, i128::from(u32::MAX)) as u64)
        }
        FieldKind::Bytes { max_bytes, .. } => WireSize { least: 0, most: max_bytes.map(u64::from) },
        FieldKind::ToClose { .. } => WireSize { least: 0, most: None },
        FieldKind::List(list) => {
            let element = row(fields, &list.body);
            let end = if let ListEnd::Until(bytes) = &list.end { bytes.len() as u64 } else { 0 };
            let most =
                element.most.zip(list.max).map(|(most, max)| most.saturating_mul(u64::from(max)) + end);
            let least = match list.end {
                ListEnd::Children(_) | ListEnd::Last(_) => element.least,
                _ => end,
            };
            WireSize { least, most }
        }
        FieldKind::Var { .. }
        | FieldKind::Flag { .. }
        | FieldKind::TextVar { .. }
        | FieldKind::Full { .. }
        | FieldKind::Kept
        | FieldKind::Carried
        | FieldKind::Bits { .. } => WireSize::exactly(0),
    }
}
