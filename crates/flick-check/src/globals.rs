//! Globals: dictionaries, counters and gauges.
//! Promises: a dictionary has a bound, its key and value types can be stored, and both fit their limits.
//! Rejects: messages, channels and lists in a dictionary; key types whose equal values may have different bytes.

use flick_abi::limits::{COUNTERS_MAX, DICT_KEY_BYTES_MAX, DICT_VALUE_BYTES_MAX, DICTS_MAX};
use flick_syntax::LiteralValue;
use flick_syntax::ast::{self, AstNode};

use crate::diagnostic::Sink;
use crate::hir::{Counter, CounterId, Dict, DictId, Evict, Snapshot, Span, Ty};
use crate::items::{GlobalItem, InFile, Items};
use crate::layout::{NotStorable, key_bytes, layout};
use crate::limits::{DICT_ENTRIES_MAX, SNAPSHOT_INTERVAL_NS, SNAPSHOT_NAME_BYTES_MAX};
use crate::load::span_of;
use crate::{report, types};

/// Enters every `global`.
pub(crate) fn check(decls: &[InFile<ast::GlobalDecl>], items: &mut Items, sink: &mut Sink) {
    for decl in decls {
        let Some(name) = decl.node.name() else { continue };
        let span = span_of(decl.file, name.range());
        if let Some((_, first)) = items.globals.get(name.text()) {
            sink.push(report::names::duplicate(span, "global", name.text(), first.clone()));
            continue;
        }
        let item = global(decl, name.text(), &span, items, sink).unwrap_or(GlobalItem::Broken);
        items.globals.insert(name.text().to_owned(), (item, span));
    }
}

fn global(
    decl: &InFile<ast::GlobalDecl>,
    name: &str,
    span: &Span,
    items: &mut Items,
    sink: &mut Sink,
) -> Option<GlobalItem> {
    let ty = decl.node.ty()?;
    let ty_span = span_of(decl.file, ty.range());
    let word = match &ty {
        ast::Type::Named(named) => named.name().map(|name| name.text().to_owned()),
        _ => None,
    };
    match (word.as_deref(), &ty) {
        (Some("dict"), ast::Type::Named(named)) => dict(decl, named, name, span, items, sink),
        (Some(word @ ("counter" | "gauge")), _) => {
            if let Some(prop) = decl.node.props().next() {
                let span = span_of(decl.file, ast::range_of(prop.syntax()));
                sink.push(report::state::property_of_a_counter(span, word, property_name(&prop)));
            }
            if items.counters.len() >= COUNTERS_MAX {
                sink.push(report::state::too_many_globals(span.clone(), "counters and gauges", COUNTERS_MAX));
                return None;
            }
            let counter = Counter { name: name.to_owned(), is_gauge: word == "gauge", span: span.clone() };
            items.counters.push(counter);
            Some(GlobalItem::Counter(CounterId(items.counters.len() as u32 - 1)))
        }
        _ => {
            sink.push(report::state::global_type(ty_span, name));
            None
        }
    }
}

fn property_name(prop: &ast::GlobalProp) -> &'static str {
    match prop {
        ast::GlobalProp::Max(_) => "max",
        ast::GlobalProp::Expire(_) => "expire",
        ast::GlobalProp::Evict(_) => "evict",
        ast::GlobalProp::Snapshot(_) => "snapshot",
    }
}

fn dict(
    decl: &InFile<ast::GlobalDecl>,
    named: &ast::NamedType,
    name: &str,
    span: &Span,
    items: &mut Items,
    sink: &mut Sink,
) -> Option<GlobalItem> {
    let args: Vec<ast::Type> = named.args().collect();
    let [key, value] = args.as_slice() else {
        sink.push(report::state::dict_arguments(span_of(decl.file, named.range()), args.len()));
        return None;
    };
    let (key_span, value_span) = (span_of(decl.file, key.range()), span_of(decl.file, value.range()));
    let key = types::value_type(items, key, decl.file, sink);
    let value = types::value_type(items, value, decl.file, sink);
    let key = fitting_key(key, key_span, items, sink);
    let value = fitting_value(value, value_span, items, sink);
    let entries_max = entries_max(decl, name, span, sink);
    let bytes_max = decl.node.max().and_then(|prop| bytes_max(prop.bytes()?, decl.file, sink));
    let expire_ns = decl.node.expire().and_then(|prop| {
        let location = span_of(decl.file, prop.range());
        positive_duration(prop.duration(), location, decl.file, "`expire`", "expire 60s", sink)
    });
    let evict = match decl.node.evict().and_then(|prop| prop.policy()) {
        Some(ast::EvictPolicy::Lru) | None => Evict::Lru,
        Some(ast::EvictPolicy::Oldest) => Evict::Oldest,
        Some(ast::EvictPolicy::Nothing) => Evict::Nothing,
    };
    let snapshot = decl.node.snapshot().and_then(|prop| snapshot(&prop, decl.file, items, sink));
    if items.dicts.len() >= DICTS_MAX {
        sink.push(report::state::too_many_globals(span.clone(), "dictionaries", DICTS_MAX));
        return None;
    }
    items.dicts.push(Dict {
        name: name.to_owned(),
        key,
        value,
        entries_max: entries_max.unwrap_or(1),
        bytes_max,
        expire_ns,
        evict,
        snapshot,
        span: span.clone(),
    });
    Some(GlobalItem::Dict(DictId(items.dicts.len() as u32 - 1)))
}

/// The key type, or `Unknown` if it was rejected.
fn fitting_key(ty: Ty, span: Span, items: &Items, sink: &mut Sink) -> Ty {
    match key_bytes(items, &ty) {
        Ok(bytes) if bytes > DICT_KEY_BYTES_MAX as u64 => {
            sink.push(report::state::too_large(span, "a key", bytes, DICT_KEY_BYTES_MAX as u64));
            Ty::Unknown
        }
        Ok(_) => ty,
        Err(NotStorable(part)) => {
            sink.push(report::state::key_type(span, &items.describe(&part), part == ty));
            Ty::Unknown
        }
    }
}

fn fitting_value(ty: Ty, span: Span, items: &Items, sink: &mut Sink) -> Ty {
    if let Ty::Option(_) = ty {
        sink.push(report::state::stored_option(span, &items.describe(&ty)));
        return Ty::Unknown;
    }
    match layout(items, &ty).map(|layout| layout.packed_bytes()) {
        Ok(bytes) if bytes > DICT_VALUE_BYTES_MAX as u64 => {
            sink.push(report::state::too_large(span, "a value", bytes, DICT_VALUE_BYTES_MAX as u64));
            Ty::Unknown
        }
        Ok(_) => ty,
        Err(NotStorable(part)) => {
            let is_message = matches!(part, Ty::Record(_));
            sink.push(report::state::value_type(span, &items.describe(&part), part == ty, is_message));
            Ty::Unknown
        }
    }
}

fn entries_max(decl: &InFile<ast::GlobalDecl>, name: &str, span: &Span, sink: &mut Sink) -> Option<u64> {
    let Some(prop) = decl.node.max() else {
        sink.push(report::state::no_bound(span.clone(), name));
        return None;
    };
    let written = prop.entries()?;
    let location = span_of(decl.file, written.range());
    match literal(&written) {
        Some(LiteralValue::Int(entries)) if (1..=DICT_ENTRIES_MAX).contains(&entries) => Some(entries),
        Some(LiteralValue::Int(0)) => {
            sink.push(report::state::bad_entries(
                location,
                "the number of entries must be above 0",
                DICT_ENTRIES_MAX,
            ));
            None
        }
        Some(LiteralValue::Int(_)) => {
            sink.push(report::state::bad_entries(location, "too many entries", DICT_ENTRIES_MAX));
            None
        }
        _ => {
            sink.push(report::state::bad_entries(location, "expected a literal number", DICT_ENTRIES_MAX));
            None
        }
    }
}

fn bytes_max(written: ast::Expr, file: u32, sink: &mut Sink) -> Option<u64> {
    match literal(&written) {
        Some(LiteralValue::Int(bytes) | LiteralValue::Size(bytes)) if bytes > 0 => Some(bytes),
        _ => {
            sink.push(report::state::bad_bytes(span_of(file, written.range())));
            None
        }
    }
}

/// Returns a literal duration above zero, in nanoseconds; anything else is reported. `what` names the construct,
/// `example` shows its syntax.
pub(crate) fn positive_duration(
    written: Option<ast::Expr>,
    around: Span,
    file: u32,
    what: &str,
    example: &str,
    sink: &mut Sink,
) -> Option<u64> {
    let written = written?;
    let location = span_of(file, written.range());
    match literal(&written) {
        Some(LiteralValue::Duration(0)) => {
            sink.push(report::state::bad_interval(location, what, "a duration above zero", example));
        }
        Some(LiteralValue::Duration(ns)) if i64::try_from(ns).is_ok() => return Some(ns),
        Some(LiteralValue::Duration(_)) => {
            sink.push(report::state::bad_interval(location, what, "a duration of at most 2562047h", example));
        }
        Some(LiteralValue::Int(number)) => {
            let example = format!("{} {number}s", example.split(' ').next().unwrap_or_default());
            sink.push(report::state::bad_interval(location, what, "a duration with a unit", &example));
        }
        _ if location.range.is_empty() => {
            sink.push(report::state::bad_interval(around, what, "a literal duration", example));
        }
        _ => sink.push(report::state::bad_interval(location, what, "a literal duration", example)),
    }
    None
}

fn snapshot(prop: &ast::SnapshotProp, file: u32, items: &Items, sink: &mut Sink) -> Option<Snapshot> {
    let literal = prop.file()?;
    let location = span_of(file, literal.range());
    let name = match literal.value() {
        Some(LiteralValue::Bytes(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => return None,
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty()
        || name.len() > SNAPSHOT_NAME_BYTES_MAX
        || name.starts_with('.')
        || !name.chars().all(is_plain)
    {
        sink.push(report::state::snapshot_name(location, &name));
        return None;
    }
    let same = items.dicts.iter().find(|dict| dict.snapshot.as_ref().is_some_and(|known| known.file == name));
    if let Some(same) = same {
        sink.push(report::state::snapshot_twice(location, &name, &same.name, same.span.clone()));
        return None;
    }
    let every_ns = match prop.every() {
        None => SNAPSHOT_INTERVAL_NS,
        written => {
            let around = span_of(file, prop.range());
            positive_duration(written, around, file, "`every`", "every 30s", sink)?
        }
    };
    Some(Snapshot { file: name, every_ns })
}

fn literal(expr: &ast::Expr) -> Option<LiteralValue> {
    match expr.clone().unparenthesised()? {
        ast::Expr::Literal(literal) => literal.value(),
        _ => None,
    }
}
