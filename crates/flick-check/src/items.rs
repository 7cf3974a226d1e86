//! The symbol tables: the declarations of a program and its imports.
//! Promises: after `collect`, every type name has one meaning; after the later phases, every id in the tables is
//! valid.
//! Not here: the contents of units (`grammar.rs`), records (`views.rs`) and functions (`functions.rs`).

mod describe;
mod keys;

use std::collections::{BTreeMap, BTreeSet};

use flick_syntax::ast::{self, AstNode};

use crate::diagnostic::{Diagnostic, Sink};
use crate::hir::{
    self, ClassId, CounterId, DictId, EnumId, FieldId, FunId, SessionLocalId, Span, StructId, Ty, UnitId,
    VariantId,
};
use crate::limits::{KEYS_MAX, PROCESSES_MAX};
use crate::load::{File, span_of};
use crate::{primitives, report};

/// Declaration that a type name refers to.
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

/// Declaration that the name of a `global` refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GlobalItem {
    Dict(DictId),
    Counter(CounterId),
    /// It was reported as invalid.
    Broken,
}

/// A node of the syntax tree and its file.
#[derive(Clone)]
pub(crate) struct InFile<N> {
    pub(crate) file: u32,
    pub(crate) node: N,
}

/// A record that lists the fields of a unit that the program uses.
pub(crate) struct RecordView {
    pub(crate) span: Span,
    pub(crate) fields: Vec<RecordField>,
}

/// One field of a record.
pub(crate) struct RecordField {
    /// Dotted path.
    pub(crate) name: String,
    pub(crate) field: FieldId,
    pub(crate) ty: Ty,
    /// Bound that the record declares.
    pub(crate) bound: Option<u32>,
    /// `option<...>`: none if the field is absent, longer, or streamed.
    pub(crate) optional: bool,
    pub(crate) span: Span,
}

/// The signature of a function.
pub(crate) struct FunSig {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    pub(crate) result: Ty,
    pub(crate) span: Span,
    /// Location of the return type, or of the name if there is none.
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
    /// Enums of programs, whose values are always members.
    pub(crate) units_with_params: BTreeSet<u32>,
    pub(crate) closed_enums: BTreeSet<u32>,
    pub(crate) classes: Vec<hir::Class>,
    pub(crate) units: Vec<hir::Unit>,
    pub(crate) structs: Vec<hir::Struct>,
    pub(crate) variants: Vec<hir::Variant>,
    pub(crate) dicts: Vec<hir::Dict>,
    pub(crate) counters: Vec<hir::Counter>,
    pub(crate) session_locals: Vec<hir::SessionLocal>,
    /// By file: prefix of the names of its declarations.
    pub(crate) prefixes: Vec<String>,
    /// By file and alias in it: the file that the alias refers to.
    pub(crate) aliases: BTreeMap<(u32, String), u32>,
    /// Globals, with the locations of their names.
    pub(crate) globals: BTreeMap<String, (GlobalItem, Span)>,
    /// `local`s of a session.
    pub(crate) state_names: BTreeMap<String, SessionLocalId>,
    pub(crate) types: BTreeMap<String, TypeItem>,
    /// Whether declared types are being resolved, whose sizes are not known yet.
    pub(crate) is_declaring: bool,
    pub(crate) keys: keys::Keys,
    pub(crate) views: BTreeMap<u32, RecordView>,
    pub(crate) funs: Vec<FunSig>,
    pub(crate) fun_names: BTreeMap<String, FunId>,
    /// Channels of the process and their types as written, for diagnostics.
    pub(crate) channel_texts: BTreeMap<String, String>,
    /// A channel of the process that has the directions of the other side; reported where something follows from it.
    pub(crate) reversed: Option<Diagnostic>,
}

/// Declarations that later phases check.
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

/// The name of a type or function of an imported library: `n.kind`.
pub(crate) fn qualified(library: Option<&ast::Name>, name: &str) -> String {
    library.map_or_else(|| name.to_owned(), |library| format!("{}.{name}", library.text()))
}

impl Items {
    /// The key of a name in `file`, perhaps qualified with a library. `is_known` tells whether a key exists; the
    /// declarations of the file itself come first.
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

    /// Resolves a type name, perhaps qualified, in `file`.
    pub(crate) fn type_named(&self, file: u32, library: Option<&str>, name: &str) -> Option<TypeItem> {
        let key = self.key(file, library, name, |key| self.types.contains_key(key))?;
        self.types.get(&key).copied()
    }

    /// Resolves a function name, perhaps qualified, in `file`.
    pub(crate) fn fun_named(&self, file: u32, library: Option<&str>, name: &str) -> Option<FunId> {
        let key = self.key(file, library, name, |key| self.fun_names.contains_key(key))?;
        self.fun_names.get(&key).copied()
    }

    /// The key of a name that `file` declares.
    pub(crate) fn own_key(&self, file: u32, name: &str) -> String {
        format!("{}{name}", self.prefixes.get(file as usize).map_or("", String::as_str))
    }

    /// Copies the keys that the grammar and the program look up to their lists.
    pub(crate) fn copy_keys(&mut self, sink: &mut Sink) {
        for (unit, declared) in self.units.iter_mut().enumerate() {
            for (index, field) in declared.fields.iter_mut().enumerate() {
                let hir::FieldKind::List(list) = &mut field.kind else { continue };
                let Some(keyed) = &mut list.keyed else { continue };
                keyed.keys = self.keys.of(UnitId(unit as u32), FieldId(index as u32));
                if keyed.keys.len() > KEYS_MAX {
                    let (span, found) = (field.span.clone(), keyed.keys.len());
                    sink.push(report::structured::too_many_keys(span, found, KEYS_MAX));
                }
            }
        }
    }

    pub(crate) fn enumeration(&self, id: EnumId) -> &hir::Enum {
        &self.enums[id.0 as usize]
    }

    /// Names of the state that is in scope in `file`, with their locations.
    pub(crate) fn state_names_in(&self, file: u32) -> Vec<(String, Span)> {
        let globals = self.globals.iter().map(|(name, (_, span))| (name.clone(), span.clone()));
        let states = self.session_locals.iter().filter(|_| file == 0);
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

    /// Whether two types are the same, except for ranges and bounds.
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

impl Items {
    /// Number of words of a value of this type. While types are being declared, those of declared types are not
    /// known.
    pub(crate) fn words(&self, ty: &Ty) -> u32 {
        let sum = |words: &mut dyn Iterator<Item = u32>| words.fold(0, u32::saturating_add);
        match ty {
            Ty::Struct(_) | Ty::Variant(_) if self.is_declaring => 1,
            Ty::Struct(id) => {
                sum(&mut self.structs[id.0 as usize].fields.iter().map(|(_, ty)| self.words(ty)))
            }
            Ty::Variant(id) => {
                let cases = &self.variants[id.0 as usize].cases;
                sum(&mut cases.iter().flat_map(|(_, ty)| ty).map(|ty| self.words(ty))).saturating_add(1)
            }
            Ty::Option(inner) => self.words(inner).saturating_add(1),
            Ty::Tuple(parts) => sum(&mut parts.iter().map(|part| self.words(part))),
            Ty::Nothing => 0,
            _ => 1,
        }
    }
}

/// Enters every declaration and reports duplicate names.
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
            if what != "function" && primitives::PRIMITIVES.contains(&name.text()) {
                sink.push(report::names::reserved(span, name.text(), "a built-in type"));
                continue;
            }
            let key = items.own_key(file.id, name.text());
            if let Some(first) = spans.get(&key) {
                let first = first.clone();
                sink.push(match first.file == file.id {
                    true => report::names::duplicate(span, what, name.text(), first),
                    false => report::names::duplicate_of_files(span, what, name.text(), first, &file.name),
                });
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

/// Enters a process; returns whether it is allowed in this file.
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

/// Reports records with the name of another type; one with the name of a unit is a view.
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
