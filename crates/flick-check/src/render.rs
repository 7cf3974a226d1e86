//! Renders diagnostics: title, excerpt with labels, notes, help.
//! Promises: any span is shown or clamped, none panics; without colour the text is plain ASCII graphics.
//! Source: the structure of Gleam's messages; drawing by annotate-snippets.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::diagnostic::{Diagnostic, Severity, SourceFile, Sources};

/// Renders `diagnostic` with its excerpt, ending in a line break.
pub fn render(diagnostic: &Diagnostic, sources: &Sources, color: bool) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut report = Group::with_title(level.primary_title(diagnostic.title.as_str()).id(diagnostic.code));
    for snippet in snippets(diagnostic, sources) {
        report = report.element(snippet);
    }
    for note in &diagnostic.notes {
        report = report.element(Level::NOTE.message(note.as_str()));
    }
    for help in &diagnostic.help {
        report = report.element(Level::HELP.message(help.as_str()));
    }
    let renderer =
        if color { Renderer::styled().decor_style(DecorStyle::Unicode) } else { Renderer::plain() };
    let groups = [report];
    format!("{}\nMore: flick explain {}\n", renderer.render(&groups), diagnostic.code)
}

/// One excerpt per file that the diagnostic points into, the one with the primary location first.
fn snippets<'a>(
    diagnostic: &'a Diagnostic,
    sources: &'a Sources,
) -> Vec<Snippet<'a, annotate_snippets::Annotation<'a>>> {
    let mut files = vec![diagnostic.span.file];
    for label in &diagnostic.labels {
        if !files.contains(&label.span.file) {
            files.push(label.span.file);
        }
    }
    let mut out = Vec::new();
    for file in files {
        let Some(source) = sources.get(file) else { continue };
        let mut snippet = Snippet::source(source.text.as_str()).path(source.name.as_str());
        if file == diagnostic.span.file {
            let location = clamp(&diagnostic.span.range, source);
            let annotation = AnnotationKind::Primary.span(location);
            let text = (!diagnostic.label.is_empty()).then_some(diagnostic.label.as_str());
            snippet = snippet.annotation(annotation.label(text));
        }
        for label in diagnostic.labels.iter().filter(|label| label.span.file == file) {
            let location = clamp(&label.span.range, source);
            snippet = snippet.annotation(AnnotationKind::Context.span(location).label(label.text.as_str()));
        }
        out.push(snippet);
    }
    out
}

/// Clamps both ends of `range` to character boundaries of the text.
fn clamp(range: &Range<u32>, source: &SourceFile) -> Range<usize> {
    let text = source.text.as_str();
    let mut start = (range.start as usize).min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let mut end = (range.end as usize).clamp(start, text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    start..end
}
