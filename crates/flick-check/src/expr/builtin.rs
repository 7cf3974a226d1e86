//! Built-in functions: their names.

use crate::hir::Builtin;

/// Every built-in with the name that calls it.
pub(crate) const NAMES: &[(&str, Builtin)] = &[
    ("hash", Builtin::Hash),
    ("len", Builtin::Len),
    ("starts_with", Builtin::StartsWith),
    ("ends_with", Builtin::EndsWith),
    ("contains", Builtin::Contains),
    ("min", Builtin::Min),
    ("max", Builtin::Max),
    ("abs", Builtin::Abs),
    ("find", Builtin::Find),
    ("split", Builtin::Split),
    ("lower", Builtin::Lower),
    ("upper", Builtin::Upper),
    ("trim", Builtin::Trim),
    ("same_text", Builtin::SameText),
    ("parse_int", Builtin::ParseInt),
    ("parse_hex", Builtin::ParseHex),
    ("str", Builtin::Str),
    ("hex", Builtin::Hex),
    ("text", Builtin::Text),
    ("raw", Builtin::Raw),
    ("now", Builtin::Now),
    ("random", Builtin::Random),
    ("log", Builtin::Log),
    ("count", Builtin::Count),
    ("set", Builtin::Set),
    ("value", Builtin::Value),
    ("alive", Builtin::Alive),
    ("load", Builtin::Load),
    ("peer", Builtin::Peer),
    ("address", Builtin::Address),
    ("port", Builtin::Port),
    ("ketama", Builtin::Ketama),
    ("rendezvous", Builtin::Rendezvous),
    ("round_robin", Builtin::RoundRobin),
    ("least_loaded", Builtin::LeastLoaded),
    ("two_choices", Builtin::TwoChoices),
    ("remove", Builtin::Remove),
    ("nanos", Builtin::InUnits(1)),
    ("micros", Builtin::InUnits(1_000)),
    ("millis", Builtin::InUnits(1_000_000)),
    ("seconds", Builtin::InUnits(1_000_000_000)),
    ("unix", Builtin::Unix),
];

/// The built-in of that name.
pub(crate) fn named(name: &str) -> Option<Builtin> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, builtin)| *builtin)
}

/// How a built-in is written.
pub(crate) fn builtin_name(builtin: Builtin) -> &'static str {
    let known = NAMES.iter().find(|(_, known)| *known == builtin);
    known.map_or("a built-in", |(name, _)| name)
}
