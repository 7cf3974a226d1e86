//! Types as bytes: what a value of a type takes in packed bytes and in a session's state, and a description of a
//! type that changes whenever stored values would mean something else.
//! Promises: items stand in the order of the carrier's words.
//! Refuses: lists, which the checker keeps out, channels and messages, which live no longer than an activation.

use flick_check::hir::{Dict, Program, Ty};

/// Storage of one part of a stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredPart {
    /// A number or boolean.
    Word {
        /// It is a boolean.
        is_bool: bool,
        /// It is an unsigned word.
        unsigned: bool,
    },
    /// At most this many bytes.
    Bytes(u32),
}

/// Bytes of a word of the IR.
pub const WORD_BYTES: u32 = 8;

/// The longest value of a type that is bytes and nothing else.
pub fn plain_bytes_max(ty: &Ty) -> Option<u32> {
    match ty {
        Ty::Bytes { max, .. } => Some(*max),
        Ty::Ipv6 => Some(16),
        Ty::Endpoint => Some(18),
        _ => None,
    }
}

/// The parts of a value of a type.
pub fn items(program: &Program, ty: &Ty) -> Vec<StoredPart> {
    let mut found = Vec::new();
    push_items(program, ty, &mut found);
    found
}

fn push_items(program: &Program, ty: &Ty, found: &mut Vec<StoredPart>) {
    match ty {
        Ty::Int { unsigned, .. } => found.push(StoredPart::Word { is_bool: false, unsigned: *unsigned }),
        Ty::Enum(_) | Ty::Ipv4 | Ty::Time | Ty::Duration => {
            found.push(StoredPart::Word { is_bool: false, unsigned: false });
        }
        Ty::Bool => found.push(StoredPart::Word { is_bool: true, unsigned: false }),
        Ty::Bytes { .. } | Ty::Ipv6 | Ty::Endpoint => {
            found.push(StoredPart::Bytes(plain_bytes_max(ty).expect("these are bytes")));
        }
        Ty::Tuple(parts) => parts.iter().for_each(|part| push_items(program, part, found)),
        Ty::Struct(id) => {
            let fields = &program.structs[id.0 as usize].fields;
            fields.iter().for_each(|(_, ty)| push_items(program, ty, found));
        }
        Ty::Option(inner) => {
            found.push(StoredPart::Word { is_bool: true, unsigned: false });
            push_items(program, inner, found);
        }
        Ty::Variant(id) => {
            found.push(StoredPart::Word { is_bool: false, unsigned: false });
            let cases = &program.variants[id.0 as usize].cases;
            cases.iter().filter_map(|(_, ty)| ty.as_ref()).for_each(|ty| push_items(program, ty, found));
        }
        other => panic!("the checker keeps no {other:?}"),
    }
}

/// Longest packed form of a value of a type, in bytes. Saturates.
pub fn packed_bytes_max(program: &Program, ty: &Ty) -> u32 {
    let lens = items(program, ty).into_iter().map(|item| match item {
        StoredPart::Word { .. } => WORD_BYTES,
        StoredPart::Bytes(max) => max.saturating_add(WORD_BYTES),
    });
    lens.fold(0, u32::saturating_add)
}

/// Longest key of a dictionary, in bytes. A key that is bytes and nothing else is its own bytes.
pub fn key_bytes_max(program: &Program, dict: &Dict) -> u32 {
    plain_bytes_max(&dict.key).unwrap_or_else(|| packed_bytes_max(program, &dict.key))
}

/// Changes when keys or values of a dictionary would be read as something else.
pub fn fingerprint(program: &Program, dict: &Dict) -> u64 {
    let text = format!("1:{}->{}", describe(program, &dict.key), describe(program, &dict.value));
    flick_abi::hash::hash(text.as_bytes())
}

fn describe(program: &Program, ty: &Ty) -> String {
    let list = |types: &mut dyn Iterator<Item = String>| types.collect::<Vec<_>>().join(",");
    match ty {
        Ty::Int { lo, hi, unsigned } => format!("int({lo},{hi},{unsigned})"),
        Ty::Bool => "bool".to_owned(),
        Ty::Bytes { max, text } => format!("bytes({max},{text})"),
        Ty::Enum(id) => {
            let members = &program.enums[id.0 as usize].members;
            format!("enum({})", list(&mut members.iter().map(|(name, value)| format!("{name}={value}"))))
        }
        Ty::Ipv4 => "ipv4".to_owned(),
        Ty::Ipv6 => "ipv6".to_owned(),
        Ty::Endpoint => "endpoint".to_owned(),
        Ty::Time => "time".to_owned(),
        Ty::Duration => "duration".to_owned(),
        Ty::Struct(id) => {
            let fields = &program.structs[id.0 as usize].fields;
            let mut fields = fields.iter().map(|(name, ty)| format!("{name}:{}", describe(program, ty)));
            format!("record({})", list(&mut fields))
        }
        Ty::Variant(id) => {
            let cases = &program.variants[id.0 as usize].cases;
            let mut cases = cases.iter().map(|(name, ty)| {
                format!("{name}:{}", ty.as_ref().map_or_else(String::new, |ty| describe(program, ty)))
            });
            format!("variant({})", list(&mut cases))
        }
        Ty::Option(inner) => format!("option({})", describe(program, inner)),
        Ty::Tuple(parts) => format!("tuple({})", list(&mut parts.iter().map(|ty| describe(program, ty)))),
        other => panic!("the checker keeps no {other:?} in a dictionary"),
    }
}

/// Words of a session's state that an item takes.
pub fn state_words(item: &StoredPart) -> u32 {
    match item {
        StoredPart::Word { .. } => 1,
        StoredPart::Bytes(max) => 1 + max.div_ceil(WORD_BYTES),
    }
}
