//! The output of `flick check --json`: one line for each file.

use flick_check::{Diagnostic, Severity, Sources, hir};
use serde::Serialize;

use super::bounds::ResourceBounds;

/// The whole result of one file, as one object.
#[derive(Debug, Serialize)]
pub struct CheckResult<'a> {
    /// The file as given. Diagnostics name theirs, which may be a library.
    file: &'a str,
    ok: bool,
    process: Option<&'a str>,
    channels: Vec<Channel<'a>>,
    bounds: Option<&'a ResourceBounds>,
    /// The processes of the program but the first, which is above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    further: Vec<Process<'a>>,
    diagnostics: Vec<JsonDiagnostic<'a>>,
}

#[derive(Debug, Serialize)]
struct Process<'a> {
    process: &'a str,
    channels: Vec<Channel<'a>>,
    bounds: Option<&'a ResourceBounds>,
}

#[derive(Debug, Serialize)]
struct Channel<'a> {
    name: &'a str,
    array: bool,
    receives: Option<&'a str>,
    sends: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct JsonDiagnostic<'a> {
    code: &'a str,
    severity: &'static str,
    file: &'a str,
    line: usize,
    column: usize,
    title: &'a str,
    label: &'a str,
    notes: &'a [String],
    help: &'a [String],
}

impl<'a> CheckResult<'a> {
    /// Collects the result.
    pub fn new(
        file: &'a str,
        program: Option<&'a hir::Program>,
        bounds: &'a [ResourceBounds],
        diagnostics: &'a [Diagnostic],
        sources: &'a Sources,
    ) -> Self {
        let process = |(index, program): (usize, &'a hir::Program)| {
            let process = program.process.as_ref()?;
            let unit = |id: Option<hir::UnitId>| id.map(|id| program.units[id.0 as usize].name.as_str());
            let channel = |channel: &'a hir::Channel| Channel {
                name: &channel.name,
                array: channel.is_array,
                receives: unit(channel.receives),
                sends: unit(channel.sends),
            };
            let channels = process.channels.iter().map(channel).collect();
            Some(Process { process: &process.name, channels, bounds: bounds.get(index) })
        };
        let programs = program.into_iter().flat_map(hir::Program::each);
        let mut processes = programs.enumerate().filter_map(process);
        let first = processes.next();
        let to_json = |diagnostic: &'a Diagnostic| {
            let span = &diagnostic.span;
            let (line, column) = sources.line_column(span.file, span.range.start);
            JsonDiagnostic {
                code: diagnostic.code,
                severity: if diagnostic.severity == Severity::Error { "error" } else { "warning" },
                file: sources.get(span.file).map_or("", |source| source.name.as_str()),
                line,
                column,
                title: &diagnostic.title,
                label: &diagnostic.label,
                notes: &diagnostic.notes,
                help: &diagnostic.help,
            }
        };
        Self {
            file,
            ok: program.is_some(),
            process: first.as_ref().map(|first| first.process),
            bounds: first.as_ref().and_then(|first| first.bounds),
            channels: first.map_or_else(Vec::new, |first| first.channels),
            further: processes.collect(),
            diagnostics: diagnostics.iter().map(to_json).collect(),
        }
    }

    /// The result for a file that cannot be read.
    pub fn unread(file: &'a str, error: &'a str) -> Self {
        Self::of_settings(file, Some(error))
    }

    /// The result for a settings file, with the first error in it or in its programs.
    pub fn of_settings(file: &'a str, error: Option<&'a str>) -> Self {
        let diagnostic = |title| JsonDiagnostic {
            code: "",
            severity: "error",
            file,
            line: 1,
            column: 1,
            title,
            label: "",
            notes: &[],
            help: &[],
        };
        let diagnostics = error.map(diagnostic).into_iter().collect();
        let (channels, further) = (Vec::new(), Vec::new());
        Self { file, ok: error.is_none(), process: None, channels, bounds: None, further, diagnostics }
    }

    /// The result as one line of JSON.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and lists are valid JSON")
    }
}
