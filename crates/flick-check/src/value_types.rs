//! Declared types of plain values: records that are not views, and variants.
//! Promises: afterwards every record without a unit of its name and every variant is resolved, none is recursive, and
//! none is larger than `VALUE_WORDS_MAX` words.

use std::collections::BTreeMap;

use flick_syntax::ast::{self, AstNode};

use crate::diagnostic::Sink;
use crate::hir::{Span, Struct, StructId, Ty};
use crate::items::{Decls, InFile, Items, TypeItem};
use crate::limits::{TYPE_NESTING_MAX, VALUE_WORDS_MAX};
use crate::load::span_of;
use crate::ty::has_part;
use crate::{report, types};

/// A declared type whose fields may have declared types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Declared {
    Struct(usize),
    Variant(usize),
}

/// Resolves records that are not views, and variants.
pub(crate) fn declare(decls: &Decls, items: &mut Items, sink: &mut Sink) {
    items.is_declaring = true;
    let records: Vec<&InFile<ast::RecordDecl>> = decls
        .records
        .iter()
        .filter(|record| {
            record.node.name().is_some_and(|name| items.type_named(record.file, None, name.text()).is_none())
        })
        .collect();
    for record in &records {
        let Some(name) = record.node.name() else { continue };
        let span = span_of(record.file, name.range());
        let id = StructId(items.structs.len() as u32);
        let key = items.own_key(record.file, name.text());
        items.types.insert(key.clone(), TypeItem::Struct(id));
        items.structs.push(Struct { name: key, fields: Vec::new(), span });
    }
    for (index, record) in records.iter().enumerate() {
        items.structs[index].fields = fields(record, items, sink);
    }
    for (index, variant) in decls.variants.iter().enumerate() {
        items.variants[index].cases = cases(variant, items, sink);
    }
    check_sizes(items, sink);
}

fn fields(record: &InFile<ast::RecordDecl>, items: &Items, sink: &mut Sink) -> Vec<(String, Ty)> {
    let mut out: Vec<(String, Ty)> = Vec::new();
    let mut locations: Vec<Span> = Vec::new();
    for field in record.node.fields() {
        let (Some(name), Some(ty)) = (field.name(), field.ty()) else { continue };
        let location = span_of(record.file, name.range());
        if let Some(first) = out.iter().position(|(known, _)| known == name.text()) {
            sink.push(report::names::duplicate(location, "field", name.text(), locations[first].clone()));
            continue;
        }
        out.push((name.text().to_owned(), part(&ty, record.file, items, sink)));
        locations.push(location);
    }
    out
}

fn cases(variant: &InFile<ast::VariantDecl>, items: &Items, sink: &mut Sink) -> Vec<(String, Option<Ty>)> {
    let mut out: Vec<(String, Option<Ty>)> = Vec::new();
    let mut locations: Vec<Span> = Vec::new();
    for case in variant.node.cases() {
        let Some(name) = case.name() else { continue };
        let location = span_of(variant.file, name.range());
        if let Some(first) = out.iter().position(|(known, _)| known == name.text()) {
            sink.push(report::names::duplicate(location, "case", name.text(), locations[first].clone()));
            continue;
        }
        let ty = case.ty().map(|ty| part(&ty, variant.file, items, sink));
        out.push((name.text().to_owned(), ty));
        locations.push(location);
    }
    out
}

/// Resolves the type of a field; messages are not plain values.
fn part(ty: &ast::Type, file: u32, items: &Items, sink: &mut Sink) -> Ty {
    let checked = types::value_type(items, ty, file, sink);
    if has_part(&checked, &|ty| matches!(ty, Ty::Record(_))) {
        let span = span_of(file, ast::range_of(ty.syntax()));
        sink.push(report::values::message_inside(span, &items.describe(&checked)));
        return Ty::Unknown;
    }
    checked
}

/// Rejects recursive types, and those that are too large or nested too deeply. A rejected type loses its fields, so
/// that walks over types terminate.
fn check_sizes(items: &mut Items, sink: &mut Sink) {
    let structs = (0..items.structs.len()).map(Declared::Struct);
    let all: Vec<Declared> = structs.chain((0..items.variants.len()).map(Declared::Variant)).collect();
    let mut sizes: BTreeMap<Declared, Option<TypeSize>> = BTreeMap::new();
    for declared in &all {
        // Iterative, because a program may declare more types than fit the stack.
        let mut path = vec![*declared];
        while let Some(current) = path.last().copied() {
            if matches!(sizes.get(&current), Some(Some(_))) {
                path.pop();
                continue;
            }
            sizes.entry(current).or_insert(None);
            let next =
                parts(items, current).into_iter().find(|part| !matches!(sizes.get(part), Some(Some(_))));
            match next {
                Some(part) if sizes.contains_key(&part) => {
                    let (name, span) = name_of(items, part);
                    sink.push(report::values::recursive_type(span, &name));
                    // The types of the cycle lose their fields, which breaks it.
                    let start = path.iter().position(|known| *known == part).unwrap_or(0);
                    path[start..].iter().for_each(|known| forget(items, *known));
                }
                Some(part) => path.push(part),
                None => {
                    let size = size_of(items, current, &sizes);
                    let size =
                        if is_fitting(items, current, size, sink) { size } else { TypeSize::default() };
                    sizes.insert(current, Some(size));
                    path.pop();
                }
            }
        }
    }
    items.is_declaring = false;
    all.into_iter().for_each(|declared| check_lists(items, declared, sink));
}

/// The size of a type.
#[derive(Clone, Copy, Default)]
struct TypeSize {
    words: u32,
    /// Nesting depth.
    depth: usize,
}

fn size_of(items: &Items, declared: Declared, sizes: &BTreeMap<Declared, Option<TypeSize>>) -> TypeSize {
    let (tys, own): (Vec<&Ty>, u32) = match declared {
        Declared::Struct(index) => (items.structs[index].fields.iter().map(|(_, ty)| ty).collect(), 0),
        Declared::Variant(index) => (items.variants[index].cases.iter().flat_map(|(_, ty)| ty).collect(), 1),
    };
    tys.into_iter().fold(TypeSize { words: own, depth: 0 }, |sum, ty| {
        let size = size_within(ty, sizes);
        TypeSize { words: sum.words.saturating_add(size.words), depth: sum.depth.max(size.depth + 1) }
    })
}

/// The size of a type as written; the parser bounds its nesting.
fn size_within(ty: &Ty, sizes: &BTreeMap<Declared, Option<TypeSize>>) -> TypeSize {
    let known = |declared: Declared| sizes.get(&declared).copied().flatten().unwrap_or_default();
    let deeper = |size: TypeSize, words: u32| TypeSize {
        words: size.words.saturating_add(words),
        depth: size.depth + 1,
    };
    match ty {
        Ty::Struct(id) => known(Declared::Struct(id.0 as usize)),
        Ty::Variant(id) => known(Declared::Variant(id.0 as usize)),
        Ty::Option(inner) => deeper(size_within(inner, sizes), 1),
        Ty::List { elem, .. } => TypeSize { words: 1, depth: size_within(elem, sizes).depth + 1 },
        Ty::Tuple(parts) => {
            parts.iter().map(|part| size_within(part, sizes)).fold(TypeSize::default(), |sum, size| {
                TypeSize { words: sum.words.saturating_add(size.words), depth: sum.depth.max(size.depth + 1) }
            })
        }
        _ => TypeSize { words: 1, depth: 0 },
    }
}

/// Rejects a type that is too large or nested too deeply.
fn is_fitting(items: &mut Items, declared: Declared, size: TypeSize, sink: &mut Sink) -> bool {
    let (name, span) = name_of(items, declared);
    if size.depth > TYPE_NESTING_MAX {
        sink.push(report::values::too_deep(span, &name, TYPE_NESTING_MAX));
    } else if size.words > VALUE_WORDS_MAX {
        sink.push(report::values::too_wide(span, &name, size.words, VALUE_WORDS_MAX));
    } else {
        return true;
    }
    forget(items, declared);
    false
}

/// Checks lists in declared types, whose element types were not known before.
fn check_lists(items: &mut Items, declared: Declared, sink: &mut Sink) {
    let tys: Vec<Ty> = match declared {
        Declared::Struct(index) => items.structs[index].fields.iter().map(|(_, ty)| ty.clone()).collect(),
        Declared::Variant(index) => {
            items.variants[index].cases.iter().filter_map(|(_, ty)| ty.clone()).collect()
        }
    };
    let is_bad = |ty: &Ty| match ty {
        Ty::List { elem, max } => {
            types::invalid_element(items, elem).is_some() || *max > types::longest_list(items, elem)
        }
        _ => false,
    };
    let bad = tys.iter().find(|ty| has_part(ty, &is_bad));
    if let Some(ty) = bad {
        let (_, span) = name_of(items, declared);
        sink.push(report::values::list_element(span, &items.spell(ty)));
        forget(items, declared);
    }
}

fn name_of(items: &Items, declared: Declared) -> (String, Span) {
    match declared {
        Declared::Struct(index) => (items.structs[index].name.clone(), items.structs[index].span.clone()),
        Declared::Variant(index) => (items.variants[index].name.clone(), items.variants[index].span.clone()),
    }
}

/// Removes the fields of a rejected type.
fn forget(items: &mut Items, declared: Declared) {
    match declared {
        Declared::Struct(index) => {
            items.structs[index].fields.iter_mut().for_each(|(_, ty)| *ty = Ty::Unknown);
        }
        Declared::Variant(index) => {
            items.variants[index].cases.iter_mut().for_each(|(_, ty)| *ty = ty.as_ref().map(|_| Ty::Unknown));
        }
    }
}

/// The declared types directly in `ty`.
fn direct(ty: &Ty, out: &mut Vec<Declared>) {
    match ty {
        Ty::Struct(id) => out.push(Declared::Struct(id.0 as usize)),
        Ty::Variant(id) => out.push(Declared::Variant(id.0 as usize)),
        Ty::Option(inner) | Ty::List { elem: inner, .. } => direct(inner, out),
        Ty::Tuple(parts) => parts.iter().for_each(|part| direct(part, out)),
        _ => {}
    }
}

fn parts(items: &Items, declared: Declared) -> Vec<Declared> {
    let mut out = Vec::new();
    match declared {
        Declared::Struct(index) => {
            items.structs[index].fields.iter().for_each(|(_, ty)| direct(ty, &mut out))
        }
        Declared::Variant(index) => {
            items.variants[index].cases.iter().flat_map(|(_, ty)| ty).for_each(|ty| direct(ty, &mut out));
        }
    }
    out
}
