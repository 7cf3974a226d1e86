//! Where a run of bytes ends: what follows must not begin with a byte that the run takes.
//! Promises: in a unit without errors, every run, number and optional literal has one end, whatever comes. A text with
//! `&until` begins where the run before it ends, as with blanks before the value of a header.
//! Source: FIRST sets, as of any parser generator; in one pass from the end of a row to its front.

use super::sizes;
use crate::diagnostic::Sink;
use crate::hir::{Class, Field, FieldId, FieldKind, Item, List, ListEnd, Span, Unit};
use crate::report;

/// Which bytes something may begin with, and what begins with them.
#[derive(Clone, Default)]
struct Starts {
    parts: Vec<([u64; 4], Span)>,
    /// Nothing may follow at all: the message may be over.
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

    /// A byte of `set` that one of them begins with.
    fn meets(&self, set: &[u64; 4]) -> Option<(u8, Span)> {
        self.parts.iter().find_map(|(start, span)| {
            let shared = |byte: &u8| has(start, *byte) && has(set, *byte);
            (0..=u8::MAX).find(shared).map(|byte| (byte, span.clone()))
        })
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

/// Reports the runs of a unit whose end nobody can tell. `travels`: messages of it are received.
pub(crate) fn check(unit: &Unit, fields: &[Field], classes: &[Class], travels: bool, sink: &mut Sink) {
    let Some(body) = &unit.body else { return };
    let mut walk = Walk { fields, classes, sink: Some(sink) };
    walk.row(body, &Starts { parts: Vec::new(), may_end: travels });
}

struct Walk<'a> {
    fields: &'a [Field],
    classes: &'a [Class],
    /// `None` while only looking.
    sink: Option<&'a mut Sink>,
}

impl Walk<'_> {
    /// What a row may begin with, when `follow` stands behind it.
    fn row(&mut self, row: &[Item], follow: &Starts) -> Starts {
        row.iter().rev().fold(follow.clone(), |follow, item| self.item(item, follow))
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
                    self.report(|| report::wire::optional_literal(literal.span.clone(), byte, next));
                } else if follow.may_end {
                    self.report(|| report::wire::optional_end(literal.span.clone()));
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
                // One that may be empty is content with what a run before it leaves; and what stands behind it can
                // be told from that run when it is not empty.
                if *min_bytes == 0 { Starts { parts: Vec::new(), may_end: follow.may_end } } else { own }
            }
            // Its bytes may be any; those that a run before it takes are no part of the value.
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
                let may_be_empty = sizes::row(self.fields, &[Item::Field(id)]).least == 0;
                let own = Starts::of(ALL, &field.span);
                if may_be_empty { own.or(&follow) } else { own }
            }
            FieldKind::Var { .. }
            | FieldKind::Flag { .. }
            | FieldKind::TextVar { .. }
            | FieldKind::Asked
            | FieldKind::Bits { .. } => follow,
        }
    }

    fn list(&mut self, field: &Field, list: &List, follow: Starts) -> Starts {
        let behind = match &list.end {
            ListEnd::Until(end) => Starts::of(bytes(&end[..1]), &field.span),
            _ => follow,
        };
        let mut look = Walk { fields: self.fields, classes: self.classes, sink: None };
        let element = look.row(&list.body, &Starts::default());
        let next = element.clone().or(&behind);
        self.row(&list.body, &next);
        match list.end {
            ListEnd::Last(_) | ListEnd::Children(_) => element,
            _ => element.or(&behind),
        }
    }

    /// Reports a run that may take what follows, or whose end is the end of the message.
    fn ends(&mut self, field: &Field, name: &str, set: &[u64; 4], follow: &Starts) {
        if let Some((byte, next)) = follow.meets(set) {
            self.report(|| report::wire::run_goes_on(field.span.clone(), name, byte, next));
        } else if follow.may_end {
            self.report(|| report::wire::open_end(field.span.clone(), name));
        }
    }

    fn report(&mut self, report: impl FnOnce() -> crate::diagnostic::Diagnostic) {
        if let Some(sink) = &mut self.sink {
            sink.push(report());
        }
    }
}
