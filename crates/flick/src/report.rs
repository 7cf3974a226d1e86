//! Diagnostics on standard error: coloured on a terminal, plain in a file or pipe.

use std::io::IsTerminal;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use flick_check::{Diagnostic, Severity, Sources, counted, render};
use tracing::warn;

use crate::logging;

/// Writes all diagnostics and the number of errors to standard error. Returns whether there are errors.
pub fn report(diagnostics: &[Diagnostic], sources: &Sources) -> bool {
    let (text, errors) = text(diagnostics, sources);
    if !text.is_empty() {
        anstream::eprintln!("{text}");
    }
    errors > 0
}

/// Writes warnings to standard error; each as an event if the log is JSON.
pub fn warnings(diagnostics: &[Diagnostic], sources: &Sources) {
    if !logging::is_json() {
        report(diagnostics, sources);
        return;
    }
    for diagnostic in diagnostics {
        let span = &diagnostic.span;
        let (line, column) = sources.line_column(span.file, span.range.start);
        let file = sources.get(span.file).map_or("", |source| source.name.as_str());
        warn!(code = diagnostic.code, file, line, column, "{}", diagnostic.title);
    }
}

/// Renders all diagnostics with the number of errors; also returns that number.
pub fn text(diagnostics: &[Diagnostic], sources: &Sources) -> (String, usize) {
    let color = stderr_has_color();
    let mut lines: Vec<String> =
        diagnostics.iter().map(|diagnostic| render(diagnostic, sources, color)).collect();
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).count();
    if errors > 0 {
        lines.push(format!("{}; the program was not accepted", counted(errors, "error")));
    }
    (lines.join("\n"), errors)
}

/// Renders an error in a text that is not a program, as diagnostics are.
pub fn excerpt(title: &str, name: &str, text: &str, span: Range<usize>, help: Option<&str>) -> String {
    let end = span.end.min(text.len());
    let span = span.start.min(end)..end;
    let snippet = Snippet::source(text).path(name).annotation(AnnotationKind::Primary.span(span));
    let mut group = Level::ERROR.primary_title(title).element(snippet);
    if let Some(help) = help {
        group = group.element(Level::HELP.message(help));
    }
    let renderer = if stderr_has_color() { Renderer::styled() } else { Renderer::plain() };
    renderer.render(&[group]).to_string()
}

fn stderr_has_color() -> bool {
    let choice = anstream::AutoStream::choice(&std::io::stderr());
    !matches!(choice, anstream::ColorChoice::Never) && std::io::stderr().is_terminal()
}
