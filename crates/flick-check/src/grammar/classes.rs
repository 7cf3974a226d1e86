//! Classes: named sets of bytes.
//! Promises: a class in the tables is complete, and no class is recursive.

use flick_syntax::ast::{self, ClassItemKind};

use crate::diagnostic::Sink;
use crate::hir::{Class, ClassId};
use crate::items::{Decls, Items, TypeItem};
use crate::load::span_of;
use crate::report;

/// Computes the sets of all classes, each once, in time linear in their declarations.
pub(super) fn check(decls: &Decls, items: &mut Items, sink: &mut Sink) {
    let states = vec![State::New; decls.classes.len()];
    let mut reader = ClassReader { decls, items, sink, states };
    for index in 0..decls.classes.len() {
        reader.compute(ClassId(index as u32));
    }
    let states = reader.states;
    for (class, state) in items.classes.iter_mut().zip(states) {
        let State::Done { set, is_damaged } = state else { continue };
        if set == [0; 4] && !is_damaged {
            sink.push(report::structured::empty_class(class.span.clone(), &class.name));
        }
        class.set = set;
    }
}

/// Progress of computing a class.
#[derive(Clone, Copy)]
enum State {
    New,
    /// It, or a class in it, is being read.
    Open,
    /// `is_damaged`: a part of it was rejected.
    Done {
        set: [u64; 4],
        is_damaged: bool,
    },
}

/// A class that is being read.
struct OpenClass {
    id: ClassId,
    items: Vec<ast::ClassItem>,
    /// The next of `items`.
    next: usize,
    set: [u64; 4],
    is_damaged: bool,
}

struct ClassReader<'a> {
    decls: &'a Decls,
    items: &'a Items,
    sink: &'a mut Sink,
    states: Vec<State>,
}

impl ClassReader<'_> {
    /// Computes a class and those in it. They may be nested as deep as there are classes, so they are on a list and
    /// not on the stack.
    fn compute(&mut self, id: ClassId) {
        let mut path: Vec<OpenClass> = Vec::new();
        if matches!(self.states[id.0 as usize], State::New) {
            path.push(self.open(id));
        }
        while let Some(top) = path.last_mut() {
            let Some(item) = top.items.get(top.next).cloned() else {
                let OpenClass { id, mut set, is_damaged, .. } = path.pop().expect("the loop saw it");
                if self.decls.classes[id.0 as usize].node.is_complement() {
                    set.iter_mut().for_each(|word| *word = !*word);
                }
                self.states[id.0 as usize] = State::Done { set, is_damaged };
                continue;
            };
            match self.item(top, &item) {
                // The item is looked at again when that class is done.
                Some(inner) => path.push(self.open(inner)),
                None => top.next += 1,
            }
        }
    }

    fn open(&mut self, id: ClassId) -> OpenClass {
        self.states[id.0 as usize] = State::Open;
        let items = self.decls.classes[id.0 as usize].node.items().collect();
        OpenClass { id, items, next: 0, set: [0; 4], is_damaged: false }
    }

    /// Adds an item of a class to its set. Returns the class that has to be computed before.
    fn item(&mut self, class: &mut OpenClass, item: &ast::ClassItem) -> Option<ClassId> {
        let file = self.decls.classes[class.id.0 as usize].file;
        let span = span_of(file, item.range());
        let rejected = match item.kind() {
            None => None,
            Some(ClassItemKind::Bytes(bytes)) => {
                bytes.iter().for_each(|byte| add(&mut class.set, *byte));
                return None;
            }
            Some(ClassItemKind::Range(from, to)) => match (from.as_slice(), to.as_slice()) {
                ([from], [to]) if from <= to => {
                    (*from..=*to).for_each(|byte| add(&mut class.set, byte));
                    return None;
                }
                ([_], [_]) => Some(report::structured::class_range_backwards(span)),
                _ => Some(report::structured::class_range(span)),
            },
            Some(ClassItemKind::Class(name)) => {
                let library = item.library();
                let library = library.as_ref().map(ast::Name::text);
                match self.items.type_named(file, library, name.text()) {
                    Some(TypeItem::Class(inner)) => match self.states[inner.0 as usize] {
                        State::New => return Some(inner),
                        State::Open => Some(report::structured::recursive_class(span, name.text())),
                        State::Done { set, is_damaged } => {
                            class.set.iter_mut().zip(set).for_each(|(word, inner)| *word |= inner);
                            class.is_damaged |= is_damaged;
                            return None;
                        }
                    },
                    _ => {
                        let known = class_names(self.items);
                        Some(report::structured::unknown_class(span, name.text(), &known))
                    }
                }
            }
        };
        class.is_damaged = true;
        rejected.into_iter().for_each(|report| self.sink.push(report));
        None
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
