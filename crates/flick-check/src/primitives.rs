//! Names of built-in types.

use crate::hir::IntRepr;

/// Names of built-in types.
pub(crate) const PRIMITIVES: &[&str] = &[
    "bool", "int", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "string",
    "bytes", "ipv4", "ipv6", "endpoint", "time", "duration", "option", "dict", "counter", "gauge",
];

/// The sized integer of that name.
pub(crate) fn sized_int(name: &str) -> Option<IntRepr> {
    let (signed, bits) = match name.strip_prefix("uint") {
        Some(bits) => (false, bits),
        None => (true, name.strip_prefix("int")?),
    };
    let width_bytes = match bits {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    Some(IntRepr { width_bytes, signed })
}

/// The name of a sized integer.
pub(crate) fn int_name(repr: IntRepr) -> String {
    format!("{}int{}", if repr.signed { "" } else { "u" }, u32::from(repr.width_bytes) * 8)
}
