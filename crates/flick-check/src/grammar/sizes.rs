//! How many bytes a row has at least and at most.
//! Promises: a message of the grammar is never shorter or longer.

use crate::hir::{Expr, ExprKind, Field, FieldId, FieldKind, Item, ListEnd};
use crate::limits::VINT_BYTES_MAX;

/// Bytes on the wire; `most` is `None` without a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) least: u64,
    pub(crate) most: Option<u64>,
}

impl Size {
    fn exactly(bytes: u64) -> Self {
        Size { least: bytes, most: Some(bytes) }
    }

    fn and(self, other: Size) -> Size {
        let most = self.most.zip(other.most).map(|(a, b)| a.saturating_add(b));
        Size { least: self.least.saturating_add(other.least), most }
    }

    fn or(self, other: Size) -> Size {
        let most = self.most.zip(other.most).map(|(a, b)| a.max(b));
        Size { least: self.least.min(other.least), most }
    }
}

/// Of a row.
pub(crate) fn row(fields: &[Field], items: &[Item]) -> Size {
    items.iter().fold(Size::exactly(0), |sum, item| sum.and(self::item(fields, item)))
}

fn item(fields: &[Field], item: &Item) -> Size {
    match item {
        Item::Field(id) => field(fields, *id),
        Item::Check(_) => Size::exactly(0),
        Item::Literal(literal) => {
            let bytes = literal.bytes.len() as u64;
            Size { least: if literal.optional { 0 } else { bytes }, most: Some(bytes) }
        }
        Item::Switch(choice) => {
            let rows = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
            rows.map(|items| row(fields, items)).reduce(Size::or).unwrap_or(Size::exactly(0))
        }
    }
}

fn field(fields: &[Field], id: FieldId) -> Size {
    match &fields[id.0 as usize].kind {
        FieldKind::Int { repr, .. } => Size::exactly(u64::from(repr.width_bytes)),
        FieldKind::Vint { .. } => Size { least: 1, most: Some(VINT_BYTES_MAX) },
        FieldKind::Varint { bytes_max, .. } => Size { least: 1, most: Some(u64::from(*bytes_max)) },
        FieldKind::Number { digits_max, signed, .. } => {
            Size { least: 1, most: Some(u64::from(*digits_max) + u64::from(*signed)) }
        }
        FieldKind::Text { until, min_bytes, max_bytes, .. } => {
            let end = until.as_ref().map_or(0, Vec::len) as u64;
            Size { least: u64::from(*min_bytes) + end, most: Some(u64::from(*max_bytes) + end) }
        }
        FieldKind::Bytes { length: Expr { kind: ExprKind::Int(bytes), .. }, .. } => {
            Size::exactly((*bytes).clamp(0, i128::from(u32::MAX)) as u64)
        }
        FieldKind::Bytes { max_bytes, .. } => Size { least: 0, most: max_bytes.map(u64::from) },
        FieldKind::ToClose { .. } => Size { least: 0, most: None },
        FieldKind::List(list) => {
            let element = row(fields, &list.body);
            let end = if let ListEnd::Until(bytes) = &list.end { bytes.len() as u64 } else { 0 };
            let most =
                element.most.zip(list.max).map(|(most, max)| most.saturating_mul(u64::from(max)) + end);
            let least = match list.end {
                ListEnd::Children(_) | ListEnd::Last(_) => element.least,
                _ => end,
            };
            Size { least, most }
        }
        FieldKind::Var { .. }
        | FieldKind::Flag { .. }
        | FieldKind::TextVar { .. }
        | FieldKind::Asked
        | FieldKind::Bits { .. } => Size::exactly(0),
    }
}
