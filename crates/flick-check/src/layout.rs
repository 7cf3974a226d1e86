//! The size of a stored value: in a dictionary, or in a session.
//! Promises: the sizes are those that lowering uses: a word for each integer, boolean, IPv4 address, time and
//! duration; strings and bytes by their bound; an option is a word and its value, a variant a word and the values of
//! all its cases. Rejects: messages, channels and lists, which cannot be stored.

use crate::hir::Ty;
use crate::items::Items;

/// Deepest nesting of types that is visited; a deeper one is rejected where it is declared.
const TYPE_DEPTH_MAX: usize = 32;
/// Bytes of a word.
const WORD_BYTES: u64 = 8;
/// Bytes of an IPv6 address.
const IPV6_BYTES: u64 = 16;
/// Bytes of an endpoint: an address and a port.
const ENDPOINT_BYTES: u64 = 18;

/// The size of a value, flattened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Number of words; a string or bytes is one word.
    words: u64,
    /// Bytes of all strings and bytes, at most.
    bytes: u64,
    /// Words in a session: for each string, a length and whole words.
    state_words: u64,
}

impl Layout {
    fn word() -> Self {
        Self { words: 1, bytes: 0, state_words: 1 }
    }

    fn text(max: u64) -> Self {
        Self { words: 1, bytes: max, state_words: 1 + max.div_ceil(WORD_BYTES) }
    }

    fn and(self, other: Layout) -> Layout {
        Layout {
            words: self.words.saturating_add(other.words),
            bytes: self.bytes.saturating_add(other.bytes),
            state_words: self.state_words.saturating_add(other.state_words),
        }
    }

    /// Bytes as the value of a dictionary, at most.
    pub(crate) fn packed_bytes(self) -> u64 {
        self.words.saturating_mul(WORD_BYTES).saturating_add(self.bytes)
    }

    /// Words in a session.
    pub(crate) fn state_words(self) -> u64 {
        self.state_words
    }
}

/// The part of a type that cannot be stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NotStorable(pub(crate) Ty);

/// Returns the size of a value of type `ty`. An unknown type has none, because it was reported.
pub(crate) fn layout(items: &Items, ty: &Ty) -> Result<Layout, NotStorable> {
    nested(items, ty, 0)
}

/// Bytes as the key of a dictionary, at most. A lone string, `bytes`, IPv6 address or endpoint is its own key.
pub(crate) fn key_bytes(items: &Items, ty: &Ty) -> Result<u64, NotStorable> {
    match ty {
        Ty::Bytes { max, .. } => Ok(u64::from(*max)),
        Ty::Ipv6 => Ok(IPV6_BYTES),
        Ty::Endpoint => Ok(ENDPOINT_BYTES),
        _ => match choice_in(items, ty, 0) {
            Some(choice) => Err(NotStorable(choice)),
            None => Ok(layout(items, ty)?.packed_bytes()),
        },
    }
}

fn nested(items: &Items, ty: &Ty, depth: usize) -> Result<Layout, NotStorable> {
    if depth > TYPE_DEPTH_MAX {
        return Err(NotStorable(ty.clone()));
    }
    let all = |parts: &mut dyn Iterator<Item = &Ty>| {
        let mut sum = Layout::default();
        for part in parts {
            sum = sum.and(nested(items, part, depth + 1)?);
        }
        Ok(sum)
    };
    match ty {
        Ty::Int { .. } | Ty::Bool | Ty::Enum(_) | Ty::Ipv4 | Ty::Time | Ty::Duration => Ok(Layout::word()),
        Ty::Bytes { max, .. } => Ok(Layout::text(u64::from(*max))),
        Ty::Ipv6 => Ok(Layout::text(IPV6_BYTES)),
        Ty::Endpoint => Ok(Layout::text(ENDPOINT_BYTES)),
        Ty::Struct(id) => all(&mut items.structs[id.0 as usize].fields.iter().map(|(_, ty)| ty)),
        Ty::Tuple(parts) => all(&mut parts.iter()),
        Ty::Option(inner) => Ok(Layout::word().and(nested(items, inner, depth + 1)?)),
        Ty::Variant(id) => {
            let cases =
                all(&mut items.variants[id.0 as usize].cases.iter().filter_map(|(_, ty)| ty.as_ref()))?;
            Ok(Layout::word().and(cases))
        }
        Ty::Unknown => Ok(Layout::default()),
        Ty::Record(_)
        | Ty::List { .. }
        | Ty::Dict(_)
        | Ty::Counter(_)
        | Ty::Chan { .. }
        | Ty::ChanArray { .. }
        | Ty::Nothing => Err(NotStorable(ty.clone())),
    }
}

/// The first option or variant in `ty`: equal values of those may differ in unused words.
fn choice_in(items: &Items, ty: &Ty, depth: usize) -> Option<Ty> {
    if depth > TYPE_DEPTH_MAX {
        return None;
    }
    match ty {
        Ty::Option(_) | Ty::Variant(_) => Some(ty.clone()),
        Ty::Tuple(parts) => parts.iter().find_map(|part| choice_in(items, part, depth + 1)),
        Ty::Struct(id) => {
            let fields = &items.structs[id.0 as usize].fields;
            fields.iter().find_map(|(_, part)| choice_in(items, part, depth + 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{key_bytes, layout};
    use crate::hir::Ty;
    use crate::items::Items;
    use crate::range::INT;

    fn text(max: u32) -> Ty {
        Ty::Bytes { max, text: true }
    }

    #[test]
    fn layout_counts_words_and_bytes() {
        let items = Items::default();
        let pair = Ty::Tuple(vec![INT.ty(), text(10)]);
        for (ty, packed, words) in [
            (INT.ty(), 8, 1),
            (Ty::Ipv4, 8, 1),
            (text(10), 18, 3),
            (text(16), 24, 3),
            (Ty::Ipv6, 24, 3),
            (Ty::Endpoint, 26, 4),
            (pair.clone(), 26, 4),
            (Ty::Option(Box::new(pair)), 34, 5),
        ] {
            let found = layout(&items, &ty).expect("a type that is kept");
            assert_eq!((found.packed_bytes(), found.state_words()), (packed, words), "{ty:?}");
        }
    }

    #[test]
    fn lone_string_is_its_own_key() {
        let items = Items::default();
        for (ty, bytes) in [
            (text(10), 10),
            (Ty::Ipv6, 16),
            (Ty::Endpoint, 18),
            (Ty::Ipv4, 8),
            (Ty::Tuple(vec![Ty::Ipv4, text(4)]), 20),
        ] {
            assert_eq!(key_bytes(&items, &ty), Ok(bytes), "{ty:?}");
        }
        assert!(key_bytes(&items, &Ty::Option(Box::new(Ty::Ipv4))).is_err());
        assert!(layout(&items, &Ty::List { elem: Box::new(Ty::Bool), max: 4 }).is_err());
    }
}
