//! Types as text for diagnostics.
//! Promises: the result of `describe` fits after "expected" and "found"; the result of `spell` is the syntax of the
//! type.

use super::Items;
use crate::hir::Ty;
use crate::primitives;
use crate::range::{INT, Range};

impl Items {
    /// Describes a type, with its article.
    pub(crate) fn describe(&self, ty: &Ty) -> String {
        match ty {
            Ty::Int { .. } => "an integer".to_owned(),
            Ty::Bool => "a boolean".to_owned(),
            Ty::Bytes { text: true, .. } => "a string".to_owned(),
            Ty::Bytes { text: false, .. } => "bytes".to_owned(),
            Ty::Enum(id) => format!("a member of enum `{}`", self.enumeration(*id).name),
            Ty::Record(id) => format!("a message `{}`", self.unit(*id).name),
            Ty::Ipv4 => "an IPv4 address".to_owned(),
            Ty::Ipv6 => "an IPv6 address".to_owned(),
            Ty::Endpoint => "an endpoint".to_owned(),
            Ty::Time => "a time".to_owned(),
            Ty::Duration => "a duration".to_owned(),
            Ty::Struct(id) => format!("a record `{}`", self.structs[id.0 as usize].name),
            Ty::Variant(id) => format!("a value of variant `{}`", self.variants[id.0 as usize].name),
            Ty::Option(_) => format!("an `{}`", self.spell(ty)),
            Ty::Tuple(_) => format!("a tuple `{}`", self.spell(ty)),
            Ty::List { .. } => format!("a list `{}`", self.spell(ty)),
            Ty::Dict(id) => format!("the dictionary `{}`", self.dicts[id.0 as usize].name),
            Ty::Counter(id) => {
                let counter = &self.counters[id.0 as usize];
                let what = if counter.is_gauge { "gauge" } else { "counter" };
                format!("the {what} `{}`", counter.name)
            }
            Ty::Chan { .. } => "a channel".to_owned(),
            Ty::ChanArray { .. } => "an array of channels".to_owned(),
            Ty::Nothing => "nothing".to_owned(),
            Ty::Unknown => "an unknown type".to_owned(),
        }
    }

    /// The syntax of a type; a range of integers is the narrowest type that holds it.
    pub(crate) fn spell(&self, ty: &Ty) -> String {
        let end = |unit: &Option<crate::hir::UnitId>| unit.map_or("-", |id| self.unit(id).name.as_str());
        match ty {
            Ty::Int { lo, hi, .. } => {
                let range = Range { lo: *lo, hi: *hi };
                let sized = primitives::PRIMITIVES.iter().find(|name| {
                    primitives::sized_int(name).is_some_and(|repr| Range::of_repr(repr) == range)
                        && range != INT
                });
                let wide = if range.is_inside(INT) { "int" } else { "uint64" };
                sized.copied().unwrap_or(wide).to_owned()
            }
            Ty::Bool => "bool".to_owned(),
            Ty::Bytes { max, text } => format!("{}<{max}>", if *text { "string" } else { "bytes" }),
            Ty::Enum(id) => self.enumeration(*id).name.clone(),
            Ty::Record(id) => self.unit(*id).name.clone(),
            Ty::Ipv4 => "ipv4".to_owned(),
            Ty::Ipv6 => "ipv6".to_owned(),
            Ty::Endpoint => "endpoint".to_owned(),
            Ty::Time => "time".to_owned(),
            Ty::Duration => "duration".to_owned(),
            Ty::Struct(id) => self.structs[id.0 as usize].name.clone(),
            Ty::Variant(id) => self.variants[id.0 as usize].name.clone(),
            Ty::Option(inner) => format!("option<{}>", self.spell(inner)),
            Ty::Tuple(parts) => {
                format!("({})", parts.iter().map(|part| self.spell(part)).collect::<Vec<_>>().join(", "))
            }
            Ty::List { elem, max } => format!("[{}]<{max}>", self.spell(elem)),
            Ty::Dict(id) => {
                let dict = &self.dicts[id.0 as usize];
                format!("dict<{}, {}>", self.spell(&dict.key), self.spell(&dict.value))
            }
            Ty::Counter(id) if self.counters[id.0 as usize].is_gauge => "gauge".to_owned(),
            Ty::Counter(_) => "counter".to_owned(),
            Ty::Chan { receives, sends } => format!("{}/{}", end(receives), end(sends)),
            Ty::ChanArray { receives, sends } => format!("[{}/{}]", end(receives), end(sends)),
            Ty::Nothing => "nothing".to_owned(),
            Ty::Unknown => "...".to_owned(),
        }
    }
}
