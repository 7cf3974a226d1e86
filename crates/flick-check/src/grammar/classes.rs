//! Classes: sets of bytes with names.
//! Promises: a class in the tables is complete, and no class is made of itself.

use flick_syntax::ast::{self, ClassItemKind};

use crate::diagnostic::Sink;
use crate::hir::{Class, ClassId};
use crate::items::{Decls, Items, TypeItem};
use crate::limits::CLASS_NESTING_MAX;
use crate::load::span_of;
use crate::report;

/// Fills in the sets of all classes.
pub(super) fn check(decls: &Decls, items: &mut Items, sink: &mut Sink) {
    for index in 0..decls.classes.len() {
        let mut reader = Reader { decls, items, sink };
        let set = reader.set(ClassId(index as u32), 0);
        let class = &items.classes[index];
        // A circle was reported where it closes.
        if let (Some([0, 0, 0, 0]), true) = (set, is_whole(&decls.classes[index].node)) {
            sink.push(report::wire::empty_class(class.span.clone(), &class.name));
        }
        items.classes[index].set = set.unwrap_or([u64::MAX; 4]);
    }
}

/// Every member could be read.
fn is_whole(node: &ast::ClassDecl) -> bool {
    node.items().all(|item| item.kind().is_some())
}

struct Reader<'a> {
    decls: &'a Decls,
    items: &'a Items,
    sink: &'a mut Sink,
}

impl Reader<'_> {
    /// The set of a class; `None` where it is made of itself.
    fn set(&mut self, id: ClassId, depth: usize) -> Option<[u64; 4]> {
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
                    ([_], [_]) => self.sink.push(report::wire::class_range_backwards(span)),
                    _ => self.sink.push(report::wire::class_range(span)),
                },
                Some(ClassItemKind::Class(name)) => {
                    let library = item.library();
                    let library = library.as_ref().map(ast::Name::text);
                    let Some(TypeItem::Class(inner)) = self.items.type_named(file, library, name.text())
                    else {
                        let known = class_names(self.items);
                        self.sink.push(report::wire::unknown_class(span, name.text(), &known));
                        continue;
                    };
                    if inner == id || depth >= CLASS_NESTING_MAX {
                        self.sink.push(report::wire::class_of_itself(span, name.text()));
                        return None;
                    }
                    let inner = self.set(inner, depth + 1)?;
                    set.iter_mut().zip(inner).for_each(|(word, inner)| *word |= inner);
                }
            }
        }
        if node.is_complement() {
            set.iter_mut().for_each(|word| *word = !*word);
        }
        Some(set)
    }
}

/// The names of all classes, for messages.
pub(super) fn class_names(items: &Items) -> Vec<&str> {
    items.classes.iter().map(|class: &Class| class.name.as_str()).collect()
}

/// Adds a byte to a set.
pub(super) fn add(set: &mut [u64; 4], byte: u8) {
    set[usize::from(byte) / 64] |= 1 << (byte % 64);
}
