//! What a program declares: the tables that names are looked up in.
//! Promises: after `collect`, every type name has one meaning; after the later phases, every id in the tables is valid.
//! Not here: what is inside a unit (`grammar.rs`), a record (`views.rs`), a function (`funs.rs`).

mod describe;
mod keys;
mod values;

pub(crate) use values::declare as declare_values;

use std::collections::{BTreeMap, BTreeSet};

use flick_syntax::ast::{self, AstNode};

use crate::diagnostic::Sink;
use crate::hir::{
    self, ClassId, CounterId, DictId, EnumId, FieldId, FunId, Span, StateId, StructId, Ty, UnitId, VariantId,
};
use crate::limits::{KEYS_MAX, PROCESSES_MAX};
use crate::load::{File, span_of};
use crate::{report, types};

/// What a type name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TypeItem {
    Enum(EnumId),
    Unit(UnitId),
    /// A set of bytes.
    Class(ClassId),
    /// A record of plain values: no unit has its name.
    Struct(StructId),
    Variant(VariantId),
}

/// What the name of a `global` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GlobalItem {
    Dict(DictId),
    Counter(CounterId),
    /// It was reported.
    Broken,
}

/// A unit or record or function with the file it stands in.
#[derive(Clone)]
pub(crate) struct InFile<N> {
    pub(crate) file: u32,
    pub(crate) node: N,
}

/// The record that says which fields of a unit the program uses.
pub(crate) struct View {
    pub(crate) span: Span,
    pub(crate) fields: Vec<ViewField>,
}

/// One field of a view.
pub(crate) struct ViewField {
    /// Dotted path.
    pub(crate) name: String,
    pub(crate) field: FieldId,
    pub(crate) ty: Ty,
    /// Bound that the record writes.
    pub(crate) bound: Option<u32>,
    /// `option<...>`: none where it is absent, longer, or passed on as it arrives.
    pub(crate) optional: bool,
    pub(crate) span: Span,
}

/// What calls of a function need to know.
pub(crate) struct FunSig {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    pub(crate) result: Ty,
    pub(crate) span: Span,
    /// Place of the result types, or of the name where none are written.
    pub(crate) result_span: Span,
}

/// A parameter.
#[derive(Clone)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) ty: Ty,
    pub(crate) span: Span,
}

/// All tables.
#[derive(Default)]
pub(crate) struct Items {
    pub(crate) enums: Vec<hir::Enum>,
    /// Enumerations that never travel: a value is always a member.
    /// Units that are given values where they are used.
    pub(crate) units_with_params: BTreeSet<u32>,
    pub(crate) closed_enums: BTreeSet<u32>,
    pub(crate) classes: Vec<hir::Class>,
    pub(crate) units: Vec<hir::Unit>,
    pub(crate) structs: Vec<hir::Struct>,
    pub(crate) variants: Vec<hir::Variant>,
    pub(crate) dicts: Vec<hir::Dict>,
    pub(crate) counters: Vec<hir::Counter>,
    pub(crate) states: Vec<hir::State>,
    /// By file: what stands before the names of its declarations here.
    pub(crate) prefixes: Vec<String>,
    /// By file and name there: the file that has this name.
    pub(crate) aliases: BTreeMap<(u32, String), u32>,
    /// What sessions share, with the places of the names.
    pub(crate) globals: BTreeMap<String, (GlobalItem, Span)>,
    /// What lives with a session.
    pub(crate) state_names: BTreeMap<String, StateId>,
    pub(crate) types: BTreeMap<String, TypeItem>,
    /// Parts of declared types are being looked up; how large they are is not known yet.
    pub(crate) is_declaring: bool,
    pub(crate) keys: keys::Keys,
    pub(crate) views: BTreeMap<u32, View>,
    pub(crate) funs: Vec<FunSig>,
    pub(crate) fun_names: BTreeMap<String, FunId>,
    /// Channels of the process and their types as written, for messages.
    pub(crate) channel_texts: BTreeMap<String, String>,
}

/// Declarations that still have to be looked into.
#[derive(Default)]
pub(crate) struct Decls {
    /// By `UnitId`.
    pub(crate) units: Vec<InFile<ast::UnitDecl>>,
    /// By `ClassId`.
    pub(crate) classes: Vec<InFile<ast::ClassDecl>>,
    pub(crate) records: Vec<InFile<ast::RecordDecl>>,
    pub(crate) funs: Vec<InFile<ast::FunDecl>>,
    /// By `EnumId`.
    pub(crate) enums: Vec<InFile<ast::EnumDecl>>,
    pub(crate) globals: Vec<InFile<ast::GlobalDecl>>,
    /// By `VariantId`.
    pub(crate) variants: Vec<InFile<ast::VariantDecl>>,
    pub(crate) process: Option<InFile<ast::ProcDecl>>,
}

/// How a type or function of a library is called that has a name of its own here: `n.kind`.
pub(crate) fn qualified(library: Option<&ast::Name>, name: &str) -> String {
    library.map_or_else(|| name.to_owned(), |library| format!("{}.{name}", library.text()))
}

impl Items {
    /// How a name is entered that stands in `file`, perhaps behind the name of a library. `is_known` tells whether
    /// something is entered so; what a file declares itself comes first.
    pub(crate) fn key(
        &self,
        file: u32,
        library: Option<&str>,
        name: &str,
        is_known: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let prefix = |file: u32| self.prefixes.get(file as usize).map_or("", String::as_str);
        let target = match library {
            Some(library) => *self.aliases.get(&(file, library.to_owned()))?,
            None => file,
        };
        let own = format!("{}{name}", prefix(target));
        if library.is_some() || is_known(&own) { Some(own) } else { Some(name.to_owned()) }
    }

    /// The type of that name, of that library, for `file`.
    pub(crate) fn type_named(&self, file: u32, library: Option<&str>, name: &str) -> Option<TypeItem> {
        let key = self.key(file, library, name, |key| self.types.contains_key(key))?;
        self.types.get(&key).copied()
    }

    /// The function of that name, of that library, for `file`.
    pub(crate) fn fun_named(&self, file: u32, library: Option<&str>, name: &str) -> Option<FunId> {
        let key = self.key(file, library, name, |key| self.fun_names.contains_key(key))?;
        self.fun_names.get(&key).copied()
    }

    /// How `file` enters a name that it declares.
    pub(crate) fn own_key(&self, file: u32, name: &str) -> String {
        format!("{}{name}", self.prefixes.get(file as usize).map_or("", String::as_str))
    }

    /// Enters the keys that grammar and program name into their lists.
    pub(crate) fn close_keys(&mut self, sink: &mut Sink) {
        for (unit, declared) in self.units.iter_mut().enumerate() {
            for (index, field) in declared.fields.iter_mut().enumerate() {
                let hir::FieldKind::List(list) = &mut field.kind else { continue };
                let Some(keyed) = &mut list.keyed else { continue };
                keyed.keys = self.keys.of(UnitId(unit as u32), FieldId(index as u32));
                if keyed.keys.len() > KEYS_MAX {
                    let (span, found) = (field.span.clone(), keyed.keys.len());
                    sink.push(report::wire::too_many_keys(span, found, KEYS_MAX));
                }
            }
        }
    }

    pub(crate) fn enumeration(&self, id: EnumId) -> &hir::Enum {
        &self.enums[id.0 as usize]
    }

    /// Names of what is kept that code in `file` sees, with their places.
    pub(crate) fn kept(&self, file: u32) -> Vec<(String, Span)> {
        let globals = self.globals.iter().map(|(name, (_, span))| (name.clone(), span.clone()));
        let states = self.states.iter().filter(|_| file == 0);
        globals.chain(states.map(|state| (state.name.clone(), state.span.clone()))).collect()
    }

    pub(crate) fn unit(&self, id: UnitId) -> &hir::Unit {
        &self.units[id.0 as usize]
    }

    pub(crate) fn field(&self, unit: UnitId, field: FieldId) -> &hir::Field {
        &self.unit(unit).fields[field.0 as usize]
    }

    pub(crate) fn fun(&self, id: FunId) -> &FunSig {
        &self.funs[id.0 as usize]
    }

    /// Whether the two are the same kind of value; ranges and bounds are not compared.
    pub(crate) fn same_kind(a: &Ty, b: &Ty) -> bool {
        match (a, b) {
            (Ty::Unknown, _) | (_, Ty::Unknown) | (Ty::Int { .. }, Ty::Int { .. }) => true,
            (Ty::Bytes { text: a, .. }, Ty::Bytes { text: b, .. }) => a == b,
            (Ty::Option(a), Ty::Option(b)) => Self::same_kind(a, b),
            (Ty::List { elem: a, .. }, Ty::List { elem: b, .. }) => Self::same_kind(a, b),
            (Ty::Tuple(a), Ty::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Self::same_kind(a, b))
            }
            _ => a == b,
        }
    }
}

/// Enters every declaration under its name and reports names given twice.
pub(crate) fn collect(files: &[File], chosen: usize, items: &mut Items, sink: &mut Sink) -> Decls {
    let mut decls = Decls::default();
    let mut processes: Vec<(String, Span)> = Vec::new();
    let mut type_spans: BTreeMap<String, Span> = BTreeMap::new();
    let mut record_spans: BTreeMap<String, Span> = BTreeMap::new();
    let mut fun_spans: BTreeMap<String, Span> = BTreeMap::new();
    items.prefixes = files.iter().map(|file| file.prefix.clone()).collect();
    for file in files {
        items.aliases.extend(file.aliases.iter().map(|(name, target)| ((file.id, name.clone()), *target)));
    }
    for file in files {
        for decl in file.tree.decls() {
            let (name, spans, what) = match &decl {
                ast::Decl::Use(_) => continue,
                ast::Decl::Global(node) => {
                    decls.globals.push(InFile { file: file.id, node: node.clone() });
                    continue;
                }
                ast::Decl::Unit(node) => (node.name(), &mut type_spans, "type"),
                ast::Decl::Enum(node) => (node.name(), &mut type_spans, "type"),
                ast::Decl::Variant(node) => (node.name(), &mut type_spans, "type"),
                ast::Decl::Class(node) => (node.name(), &mut type_spans, "type"),
                ast::Decl::Record(node) => (node.name(), &mut record_spans, "record"),
                ast::Decl::Fun(node) => (node.name(), &mut fun_spans, "function"),
                ast::Decl::Proc(node) => {
                    if process(node, file, &mut processes, sink) && processes.len() == chosen + 1 {
                        decls.process = Some(InFile { file: file.id, node: node.clone() });
                    }
                    continue;
                }
            };
            let Some(name) = name else { continue };
            let span = span_of(file.id, name.range());
            if what != "function" && types::PRIMITIVES.contains(&name.text()) {
                let help = format!("choose another name, for example `my_{}`", name.text());
                let report = report::names::wrong_kind(
                    span,
                    name.text(),
                    "a type of the language",
                    "free as a name",
                    &help,
                );
                sink.push(report);
                continue;
            }
            let key = items.own_key(file.id, name.text());
            if let Some(first) = spans.get(&key) {
                sink.push(report::names::duplicate(span, what, name.text(), first.clone()));
                continue;
            }
            spans.insert(key.clone(), span.clone());
            enter(decl, &key, span, file.id, items, &mut decls);
        }
    }
    let params = decls.process.iter().flat_map(|process| process.node.params());
    for param in params {
        if let (Some(name), Some(channel)) = (param.name(), param.channel()) {
            items.channel_texts.insert(name.text().to_owned(), channel.syntax().text().to_string());
        }
    }
    type_and_record_clashes(items, &type_spans, &record_spans, sink);
    decls
}

fn enter(decl: ast::Decl, name: &str, span: Span, file: u32, items: &mut Items, decls: &mut Decls) {
    match decl {
        ast::Decl::Unit(node) => {
            items.types.insert(name.to_owned(), TypeItem::Unit(UnitId(items.units.len() as u32)));
            if node.params().next().is_some() {
                items.units_with_params.insert(items.units.len() as u32);
            }
            let facts = hir::Facts::default();
            items.units.push(hir::Unit {
                name: name.to_owned(),
                fields: Vec::new(),
                body: None,
                facts,
                span,
            });
            decls.units.push(InFile { file, node });
        }
        ast::Decl::Enum(node) => {
            items.types.insert(name.to_owned(), TypeItem::Enum(EnumId(items.enums.len() as u32)));
            if !node.has_braces() && node.base().is_none() {
                items.closed_enums.insert(items.enums.len() as u32);
            }
            items.enums.push(hir::Enum { name: name.to_owned(), repr: None, members: Vec::new(), span });
            decls.enums.push(InFile { file, node });
        }
        ast::Decl::Variant(node) => {
            items.types.insert(name.to_owned(), TypeItem::Variant(VariantId(items.variants.len() as u32)));
            items.variants.push(hir::Variant { name: name.to_owned(), cases: Vec::new(), span });
            decls.variants.push(InFile { file, node });
        }
        ast::Decl::Record(node) => decls.records.push(InFile { file, node }),
        ast::Decl::Fun(node) => decls.funs.push(InFile { file, node }),
        ast::Decl::Class(node) => {
            items.types.insert(name.to_owned(), TypeItem::Class(ClassId(items.classes.len() as u32)));
            items.classes.push(hir::Class { name: name.to_owned(), set: [0; 4], span });
            decls.classes.push(InFile { file, node });
        }
        ast::Decl::Use(_) | ast::Decl::Proc(_) | ast::Decl::Global(_) => {}
    }
}

/// Notes a process; says whether it may be one of this file.
fn process(node: &ast::ProcDecl, file: &File, known: &mut Vec<(String, Span)>, sink: &mut Sink) -> bool {
    let name = node.name();
    let span = span_of(file.id, name.as_ref().map_or(node.range(), ast::Name::range));
    let text = name.as_ref().map_or("", |name| name.text());
    if file.id != 0 {
        sink.push(report::channels::process_in_library(span, text));
        return false;
    }
    if let Some((_, first)) = known.iter().find(|(known, _)| known == text && !text.is_empty()) {
        sink.push(report::channels::second_process(span.clone(), text, first.clone()));
    }
    if known.len() == PROCESSES_MAX {
        sink.push(report::channels::too_many_processes(span, PROCESSES_MAX));
        return false;
    }
    known.push((text.to_owned(), span));
    true
}

/// A record may share its name with a unit, which makes it a view, but not with another type.
fn type_and_record_clashes(
    items: &Items,
    types: &BTreeMap<String, Span>,
    records: &BTreeMap<String, Span>,
    sink: &mut Sink,
) {
    for (name, span) in records {
        if let (Some(TypeItem::Enum(_) | TypeItem::Variant(_)), Some(first)) =
            (items.types.get(name), types.get(name))
        {
            sink.push(report::names::duplicate(span.clone(), "type", name, first.clone()));
        }
    }
}
