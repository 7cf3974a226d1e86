//! What the compiler says about an author's program, and the texts it points into.
//! Promises: every diagnostic has a code with a page, a place, and a sentence in the author's words.
//! Not here: how it looks on a terminal (`render.rs`), which mistakes there are (`report/`).

use crate::hir::Span;
use crate::limits::DIAGNOSTICS_MAX;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The program is refused.
    Error,
    /// The program runs, but likely not as meant.
    Warning,
}

/// A second place that explains the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What is there.
    pub text: String,
}

/// One mistake of the author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// `E0301`; `crate::explain` has its page.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The place to change.
    pub span: Span,
    /// What is wrong, in one sentence without a full stop.
    pub title: String,
    /// The one useful label under the place; may be empty.
    pub label: String,
    /// Other places that matter.
    pub labels: Vec<Label>,
    /// What we know, in whole sentences.
    pub notes: Vec<String>,
    /// What to write instead.
    pub help: Vec<String>,
}

impl Diagnostic {
    /// An error at `span`.
    pub fn error(code: &'static str, span: Span, title: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            span,
            title: title.into(),
            label: String::new(),
            labels: Vec::new(),
            notes: Vec::new(),
            help: Vec::new(),
        }
    }

    /// A warning at `span`.
    pub fn warning(code: &'static str, span: Span, title: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, title) }
    }

    /// Says what stands at the place.
    pub fn label(mut self, text: impl Into<String>) -> Self {
        self.label = text.into();
        self
    }

    /// Adds a second place.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    /// Adds a fact.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Adds what to write instead.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(text.into());
        self
    }
}

/// One source text.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name for people: a path, or `<stdlib>/memcached_binary.flick`.
    pub name: String,
    /// The text.
    pub text: String,
}

/// The texts of a program, by `Span::file`; the program itself is file 0.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<Source>,
}

impl Sources {
    /// Adds a text and returns its number.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> u32 {
        self.files.push(Source { name: name.into(), text: text.into() });
        self.files.len() as u32 - 1
    }

    /// The text with that number, if there is one.
    pub fn get(&self, file: u32) -> Option<&Source> {
        self.files.get(file as usize)
    }

    /// All texts in order.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.files.iter()
    }

    /// Line and column of an offset, both from 1; the column counts characters.
    pub fn line_column(&self, file: u32, offset: u32) -> (usize, usize) {
        let text = self.get(file).map_or("", |source| source.text.as_str());
        let mut end = (offset as usize).min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &text[..end];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// The diagnostics of a run; keeps the first `DIAGNOSTICS_MAX` and none twice.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    found: Vec<Diagnostic>,
}

impl Sink {
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        // A type that is wrong is wrong wherever it stands; once is enough.
        let is_about_a_type = matches!(diagnostic.code, "E0203" | "E0208" | "E0515");
        let is_new = !self.found.iter().any(|known| {
            known.code == diagnostic.code
                && (known.span == diagnostic.span || is_about_a_type && known.title == diagnostic.title)
        });
        if !is_new {
            return;
        }
        // An error is never lost to warnings: a program is accepted exactly when no error is here.
        if self.found.len() >= DIAGNOSTICS_MAX && diagnostic.severity == Severity::Error {
            let warning = self.found.iter().rposition(|known| known.severity == Severity::Warning);
            warning.map(|index| self.found.remove(index));
        }
        if self.found.len() < DIAGNOSTICS_MAX {
            self.found.push(diagnostic);
        }
    }

    /// Whether a diagnostic of that code was reported inside `around`.
    pub(crate) fn has(&self, code: &str, around: &Span) -> bool {
        let mut same_code =
            self.found.iter().filter(|known| known.code == code && known.span.file == around.file);
        same_code.any(|known| {
            around.range.start <= known.span.range.start && known.span.range.end <= around.range.end
        })
    }

    /// Whether a diagnostic of that code points at `place` as an explanation.
    pub(crate) fn explains(&self, code: &str, place: &Span) -> bool {
        let mut same_code = self.found.iter().filter(|known| known.code == code);
        same_code.any(|known| known.labels.iter().any(|label| label.span == *place))
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|known| known.severity == Severity::Error)
    }

    /// Returns all, in the order of the files and the places in them.
    pub(crate) fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.found.sort_by_key(|found| (found.span.file, found.span.range.start, found.severity));
        self.found
    }
}
