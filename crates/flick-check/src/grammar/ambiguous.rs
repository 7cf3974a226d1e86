//! Ambiguity: the item after a field of undelimited length must not begin with a byte that the field consumes.
//! Promises: in a unit without errors, every such field, integer and optional literal has one end, whatever the
//! input. A string with `&until` begins where the field before it ends, as with spaces before the value of a header.
//! Source: FIRST sets, as in any parser generator; one pass from the end of a row to its front.

use crate::diagnostic::Sink;
use crate::hir::{Class, Field, FieldId, FieldKind, Item, List, ListEnd, Span, Unit};
use crate::report;
use crate::units::row_size;

/// The bytes that the next item may begin with, and the items that begin with them.
#[derive(Clone, Default)]
struct Starts {
    parts: Vec<([u64; 4], Span)>,
    /// Whether the message may end here.
    may_end: bool,
}

impl Starts {
    fn of(set: [u64; 4], span: &Span) -> Self {
        Starts { parts: vec![(set, span.clone())], may_end: false }
    }

    fn or(mut self, other: &Starts) -> Self {
        self.parts.extend(other.parts.iter().cloned());
        self.may_end |= other.may_end;
        self
    }

    /// A byte of `set` that one of the items begins with.
    fn meets(&self, set: &[u64; 4]) -> Option<(u8, Span)> {
        self.parts.iter().find_map(|(start, span)| {
            let shared = |byte: &u8| has(start, *byte) && has(set, *byte);
            (0..=u8::MAX).find(shared).map(|byte| (byte, span.clone()))
        })
    }
}

/// Whether two optional literals in a row are the same: it does not matter which of them is missing.
fn is_repeated(item: &Item, next: &Item) -> bool {
    match (item, next) {
        (Item::Literal(a), Item::Literal(b)) => {
            a.optional && b.optional && (&a.bytes, a.nocase, a.cut) == (&b.bytes, b.nocase, b.cut)
        }
        _ => false,
    }
}

fn has(set: &[u64; 4], byte: u8) -> bool {
    set[usize::from(byte) / 64] >> (byte % 64) & 1 == 1
}

fn bytes(all: &[u8]) -> [u64; 4] {
    let mut set = [0; 4];
    all.iter().for_each(|byte| super::classes::add(&mut set, *byte));
    set
}

const ALL: [u64; 4] = [u64::MAX; 4];

/// Reports the fields of a unit whose end is ambiguous. `travels`: messages of the unit are received.
pub(crate) fn check(unit: &Unit, fields: &[Field], classes: &[Class], travels: bool, sink: &mut Sink) {
    let Some(body) = &unit.body else { return };
    let mut walk = AmbiguityCheck { fields, classes, sink: Some(sink) };
    walk.row(body, &Starts { parts: Vec::new(), may_end: travels });
}

struct AmbiguityCheck<'a> {
    fields: &'a [Field],
    classes: &'a [Class],
    /// `None` while computing FIRST sets only.
    sink: Option<&'a mut Sink>,
}

impl AmbiguityCheck<'_> {
    /// The bytes that a row may begin with, if `follow` comes after it.
    fn row(&mut self, row: &[Item], follow: &Starts) -> Starts {
        let mut follow = follow.clone();
        for (index, item) in row.iter().enumerate().rev() {
            if !row.get(index + 1).is_some_and(|next| is_repeated(item, next)) {
                follow = self.item(item, follow);
            }
        }
        follow
    }

    fn item(&mut self, item: &Item, follow: Starts) -> Starts {
        match item {
            Item::Check(_) => follow,
            Item::Literal(literal) => {
                let first = literal.bytes[0];
                let mut set = bytes(&[first]);
                if literal.nocase {
                    set = bytes(&[first.to_ascii_lowercase(), first.to_ascii_uppercase()]);
                }
                let own = Starts::of(set, &literal.span);
                if !literal.optional {
                    return own;
                }
                if let Some((byte, next)) = follow.meets(&set) {
                    self.report(|| report::structured::optional_literal(literal.span.clone(), byte, next));
                } else if follow.may_end {
                    self.report(|| report::structured::ambiguous_optional_end(literal.span.clone()));
                }
                own.or(&follow)
            }
            Item::Switch(choice) => {
                let rows = choice.arms.iter().map(|(_, row)| row).chain(&choice.otherwise);
                let starts: Vec<Starts> = rows.map(|row| self.row(row, &follow)).collect();
                starts.into_iter().fold(Starts::default(), |all, one| all.or(&one))
            }
            Item::Field(id) => self.field(*id, follow),
        }
    }

    fn field(&mut self, id: FieldId, follow: Starts) -> Starts {
        let field = &self.fields[id.0 as usize];
        let name = field.name.as_deref().map_or("this field".to_owned(), |name| format!("`{name}`"));
        match &field.kind {
            FieldKind::Text { class, until: None, min_bytes, .. } => {
                let set = class.map_or(ALL, |class| self.classes[class.0 as usize].set);
                self.ends(field, &name, &set, &follow);
                let own = Starts::of(set, &field.span);
                // A string that may be empty is unambiguous with what a field before it leaves over, and the item
                // after it is unambiguous if it is not empty.
                if *min_bytes == 0 { Starts { parts: Vec::new(), may_end: follow.may_end } } else { own }
            }
            // It may begin with any byte; bytes that a field before it consumes are not part of its value.
            FieldKind::Text { until: Some(until), min_bytes: 0, .. } => {
                Starts::of(bytes(&until[..1]), &field.span)
            }
            FieldKind::Text { until: Some(_), .. } => Starts::default(),
            FieldKind::Number { base, signed, .. } => {
                let digits =
                    if *base == 16 { bytes(b"0123456789abcdefABCDEF") } else { bytes(b"0123456789") };
                self.ends(field, &name, &digits, &follow);
                let own = Starts::of(digits, &field.span);
                if *signed { own.or(&Starts::of(bytes(b"-"), &field.span)) } else { own }
            }
            FieldKind::List(list) => self.list(field, list, follow),
            FieldKind::Int { .. }
            | FieldKind::Vint { .. }
            | FieldKind::Varint { .. }
            | FieldKind::Bytes { .. }
            | FieldKind::ToClose { .. } => {
                let may_be_empty = row_size(self.fields, &[Item::Field(id)]).least == 0;
                let own = Starts::of(ALL, &field.span);
                if may_be_empty { own.or(&follow) } else { own }
            }
            FieldKind::Var { .. }
            | FieldKind::Flag { .. }
            | FieldKind::TextVar { .. }
            | FieldKind::Full { .. }
            | FieldKind::Kept
            | FieldKind::Carried
            | FieldKind::Bits { .. } => follow,
        }
    }

    fn list(&mut self, field: &Field, list: &List, follow: Starts) -> Starts {
        let behind = match &list.end {
            ListEnd::Until(end) => Starts::of(bytes(&end[..1]), &field.span),
            _ => follow,
        };
        let mut look = AmbiguityCheck { fields: self.fields, classes: self.classes, sink: None };
        let element = look.row(&list.body, &Starts::default());
        let next = element.clone().or(&behind);
        self.row(&list.body, &next);
        match list.end {
            ListEnd::Last(_) | ListEnd::Children(_) => element,
            _ => element.or(&behind),
        }
    }

    /// Reports a field that may consume the next item, or that ends the message.
    fn ends(&mut self, field: &Field, name: &str, set: &[u64; 4], follow: &Starts) {
        if let Some((byte, next)) = follow.meets(set) {
            self.report(|| report::structured::ambiguous_end(field.span.clone(), name, byte, next));
        } else if follow.may_end {
            self.report(|| report::structured::ambiguous_message_end(field.span.clone(), name));
        }
    }

    fn report(&mut self, report: impl FnOnce() -> crate::diagnostic::Diagnostic) {
        if let Some(sink) = &mut self.sink {
            sink.push(report());
        }
    }
}
