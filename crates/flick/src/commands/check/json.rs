//! The result of `flick check` for other programs.

use flick_check::{Diagnostic, Severity, Sources, hir};
use serde::Serialize;

use super::bounds::Needs;

/// Everything, in one object.
#[derive(Debug, Serialize)]
pub struct Told<'a> {
    ok: bool,
    process: Option<&'a str>,
    channels: Vec<Channel<'a>>,
    bounds: Option<&'a Needs>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    /// The program's further processes; the first one stands above.
    further: Vec<Process<'a>>,
    diagnostics: Vec<Mistake<'a>>,
}

#[derive(Debug, Serialize)]
struct Process<'a> {
    process: &'a str,
    channels: Vec<Channel<'a>>,
    bounds: Option<&'a Needs>,
}

#[derive(Debug, Serialize)]
struct Channel<'a> {
    name: &'a str,
    array: bool,
    receives: Option<&'a str>,
    sends: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Mistake<'a> {
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

impl<'a> Told<'a> {
    /// Gathers it.
    pub fn new(
        program: Option<&'a hir::Program>,
        bounds: &'a [Needs],
        diagnostics: &'a [Diagnostic],
        sources: &'a Sources,
    ) -> Self {
        let told = |(number, program): (usize, &'a hir::Program)| {
            let process = program.process.as_ref()?;
            let unit = |id: Option<hir::UnitId>| id.map(|id| program.units[id.0 as usize].name.as_str());
            let channel = |channel: &'a hir::Channel| Channel {
                name: &channel.name,
                array: channel.is_array,
                receives: unit(channel.receives),
                sends: unit(channel.sends),
            };
            let channels = process.channels.iter().map(channel).collect();
            Some(Process { process: &process.name, channels, bounds: bounds.get(number) })
        };
        let programs = program.into_iter().flat_map(hir::Program::each);
        let mut processes = programs.enumerate().filter_map(told);
        let first = processes.next();
        let mistake = |diagnostic: &'a Diagnostic| {
            let span = &diagnostic.span;
            let (line, column) = sources.line_column(span.file, span.range.start);
            Mistake {
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
            ok: program.is_some(),
            process: first.as_ref().map(|first| first.process),
            bounds: first.as_ref().and_then(|first| first.bounds),
            channels: first.map_or_else(Vec::new, |first| first.channels),
            further: processes.collect(),
            diagnostics: diagnostics.iter().map(mistake).collect(),
        }
    }

    /// One line of JSON.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and lists always have a JSON form")
    }
}
