//! Diagnostics, and the source files they point into.
//! Promises: every diagnostic has a code with a page, a location, and a title.
//! Not here: rendering (`render.rs`), the texts (`report/`).

use crate::hir::Span;
use crate::limits::DIAGNOSTICS_MAX;

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The program is rejected.
    Error,
    /// The program runs, but likely not as meant.
    Warning,
}

/// A secondary location, which explains the primary one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Location that the label marks.
    pub span: Span,
    /// Text of the label.
    pub text: String,
}

/// One error or warning about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// `E0301`; `crate::explain` returns its page.
    pub code: &'static str,
    /// Severity.
    pub severity: Severity,
    /// The primary location: what to change.
    pub span: Span,
    /// Message: one sentence without a period.
    pub title: String,
    /// Label under the primary location; may be empty.
    pub label: String,
    /// Secondary locations.
    pub labels: Vec<Label>,
    /// Facts, in whole sentences.
    pub notes: Vec<String>,
    /// Suggestions for a correction.
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

    /// Sets the label of the primary location.
    pub fn label(mut self, text: impl Into<String>) -> Self {
        self.label = text.into();
        self
    }

    /// Adds a secondary location.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    /// Adds a note.
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

/// One source file.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Name in messages: a path, or `<stdlib>/memcached_binary.flick`.
    pub name: String,
    /// The text.
    pub text: String,
}

/// The source files of a program, by `Span::file`; the program itself is file 0.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

impl Sources {
    /// Adds a file and returns its number.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> u32 {
        self.files.push(SourceFile { name: name.into(), text: text.into() });
        self.files.len() as u32 - 1
    }

    /// The file with that number, if there is one.
    pub fn get(&self, file: u32) -> Option<&SourceFile> {
        self.files.get(file as usize)
    }

    /// All files in order.
    pub fn iter(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter()
    }

    /// Line and column of an offset, both 1-based; the column counts characters.
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

/// The diagnostics of a run: the first `DIAGNOSTICS_MAX`, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    found: Vec<Diagnostic>,
}

impl Sink {
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        // The same wrong type may occur at many locations; one report is enough.
        let is_about_a_type = matches!(diagnostic.code, "E0203" | "E0208" | "E0515");
        let is_new = !self.found.iter().any(|known| {
            known.code == diagnostic.code
                && (known.span == diagnostic.span || is_about_a_type && known.title == diagnostic.title)
        });
        if !is_new {
            return;
        }
        // An error replaces a warning: a program is accepted exactly if there is no error.
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

    /// Whether a diagnostic of that code has a secondary label at `location`.
    pub(crate) fn explains(&self, code: &str, location: &Span) -> bool {
        let mut same_code = self.found.iter().filter(|known| known.code == code);
        same_code.any(|known| known.labels.iter().any(|label| label.span == *location))
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|known| known.severity == Severity::Error)
    }

    /// Returns all diagnostics, sorted by file and location.
    pub(crate) fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.found.sort_by_key(|found| (found.span.file, found.span.range.start, found.severity));
        self.found
    }
}
