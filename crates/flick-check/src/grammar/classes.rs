//! Classes: named sets of bytes.
//! Promises: a class in the tables is complete, and no class is recursive.

use std::collections::BTreeSet;

use flick_syntax::ast::{self, ClassItemKind};

use crate::diagnostic::Sink;
use crate::hir::{Class, ClassId};
use crate::items::{Decls, Items, TypeItem};
use crate::limits::CLASS_NESTING_MAX;
use crate::load::span_of;
use crate::report;

/// Computes the sets of all classes.
pub(super) fn check(decls: &Decls, items: &mut Items, sink: &mut Sink) {
    let mut reported = BTreeSet::new();
    for index in 0..decls.classes.len() {
        let mut reader = ClassReader { decls, items, sink, reported: &mut reported, is_damaged: false };
        let set = reader.set(ClassId(index as u32), &mut Vec::new());
        let is_damaged =
            reader.is_damaged || decls.classes[index].node.items().any(|item| item.kind().is_none());
        let class = &items.classes[index];
        if set == [0; 4] && !is_damaged {
            sink.push(report::structured::empty_class(class.span.clone(), &class.name));
        }
        items.classes[index].set = set;
    }
}

struct ClassReader<'a> {
    decls: &'a Decls,
    items: &'a Items,
    sink: &'a mut Sink,
    /// Classes whose cycle was reported.
    reported: &'a mut BTreeSet<u32>,
    /// Whether a part of the class was rejected.
    is_damaged: bool,
}

impl ClassReader<'_> {
    /// Returns the set of a class; the classes of `path` contain it.
    fn set(&mut self, id: ClassId, path: &mut Vec<ClassId>) -> [u64; 4] {
        path.push(id);
        let decl = &self.decls.classes[id.0 as usize];
        let (file, node) = (decl.file, decl.node.clone());
        let mut set = [0u64; 4];
        for item in node.items() {
            let span = span_of(file, item.range());
            match item.kind() {
                None => {}
                Some(ClassItemKind::Bytes(bytes)) => bytes.iter().for_each(|byte| add(&mut set, *byte)),
                Some(ClassItemKind::Range(from, to)) => match (from.as_slice(), to.as_slice()) {
                    ([from], [to]) if from <= to => (*from..=*to).for_each(|byte| add(&mut set, byte)),
                    ([_], [_]) => self.damaged(report::structured::class_range_backwards(span)),
                    _ => self.damaged(report::structured::class_range(span)),
                },
                Some(ClassItemKind::Class(name)) => {
                    let library = item.library();
                    let library = library.as_ref().map(ast::Name::text);
                    let Some(TypeItem::Class(inner)) = self.items.type_named(file, library, name.text())
                    else {
                        let known = class_names(self.items);
                        let report = report::structured::unknown_class(span, name.text(), &known);
                        self.damaged(report);
                        continue;
                    };
                    if path.contains(&inner) || path.len() > CLASS_NESTING_MAX {
                        if !self.reported.contains(&inner.0) {
                            let report = report::structured::recursive_class(span, name.text());
                            self.damaged(report);
                        }
                        self.is_damaged = true;
                        self.reported.extend(path.iter().map(|class| class.0));
                        continue;
                    }
                    let inner = self.set(inner, path);
                    set.iter_mut().zip(inner).for_each(|(word, inner)| *word |= inner);
                }
            }
        }
        if node.is_complement() {
            set.iter_mut().for_each(|word| *word = !*word);
        }
        path.pop();
        set
    }

    fn damaged(&mut self, report: crate::diagnostic::Diagnostic) {
        self.is_damaged = true;
        self.sink.push(report);
    }
}

/// The names of all classes, for diagnostics.
pub(super) fn class_names(items: &Items) -> Vec<&str> {
    items.classes.iter().map(|class: &Class| class.name.as_str()).collect()
}

/// Adds a byte to a set.
pub(super) fn add(set: &mut [u64; 4], byte: u8) {
    set[usize::from(byte) / 64] |= 1 << (byte % 64);
}
