//! The phases of checking, in order.

use flick_syntax::ast;

use crate::ask_targets::AskTargets;
use crate::diagnostic::{Diagnostic, Severity, Sink, Sources};
use crate::hir::{Program, Span};
use crate::items::{self, Items};
use crate::limits::PROCESSES_MAX;
use crate::load::{self, Loader, SyntaxDamage};
use crate::{
    cost, effects, functions, globals, grammar, open_types, process, session_locals, usage, value_types,
    views,
};

/// Checks a program and the files it imports.
///
/// Shape:  `name` is used in messages; `loader` maps the name of a `use` line to a name for messages and a text.
/// Cost:   linear in the texts, except for what is quadratic in the number of errors.
/// Errors: as diagnostics, sorted by file and location, at most `DIAGNOSTICS_MAX`; all phases run whatever the
/// earlier ones found. The program is `None` if there is an error.
pub fn check(name: &str, text: &str, loader: Loader<'_>) -> (Option<Program>, Vec<Diagnostic>, Sources) {
    let mut sources = Sources::default();
    let mut sink = Sink::default();
    let (files, damage) = load::load(name, text, loader, &mut sources, &mut sink);
    let syntax = std::mem::take(&mut sink);
    let (program, sink) = each_process(&files);
    let sink = join(syntax, sink, &damage);
    let program = (!sink.has_errors()).then_some(program);
    (program, sink.into_sorted(), sources)
}

/// Checks the program once for each of its processes: the fields that a process reads decide which ones are decoded.
fn each_process(files: &[load::File]) -> (Program, Sink) {
    let locations = process_spans(files);
    let mut sinks = vec![Sink::default()];
    let mut program = phases(files, 0, &mut sinks[0]);
    for index in 1..locations.len().min(PROCESSES_MAX) {
        let mut sink = Sink::default();
        program.siblings.push(phases(files, index, &mut sink));
        sinks.push(sink);
    }
    (program, merge(sinks, files, &locations))
}

/// Says in each error inside a function which processes call it, if it is no error of the others.
fn name_callers(found: &mut [Vec<Diagnostic>], files: &[load::File]) {
    if found.len() < 2 {
        return;
    }
    let procs = files.first().into_iter().flat_map(|file| file.tree.procs());
    let names = procs.map(|node| node.name().map_or(String::new(), |name| format!("`{}`", name.text())));
    let names: Vec<String> = names.collect();
    let funs: Vec<Span> = files
        .iter()
        .flat_map(|file| file.tree.decls().map(|decl| (file.id, decl)))
        .filter(|(_, decl)| matches!(decl, ast::Decl::Fun(_)))
        .map(|(file, decl)| load::span_of(file, decl.range()))
        .collect();
    let is_of_function = |diagnostic: &Diagnostic| funs.iter().any(|fun| contains(fun, &diagnostic.span));
    let before = found.to_vec();
    for diagnostic in found.iter_mut().flatten() {
        if diagnostic.severity != Severity::Error || !is_of_function(diagnostic) {
            continue;
        }
        let has = before.iter().map(|found| found.contains(diagnostic));
        let callers: Vec<&str> =
            names.iter().zip(has).filter(|(_, has)| *has).map(|(name, _)| &**name).collect();
        if callers.len() < before.len() {
            let (processes, calls) =
                if callers.len() == 1 { ("process", "calls") } else { ("processes", "call") };
            let list = callers.join(" and ");
            diagnostic.notes.push(format!("This is an error where {processes} {list} {calls} the function."));
        }
    }
}

/// Whether a part of a text is inside another.
fn contains(outer: &Span, inner: &Span) -> bool {
    outer.file == inner.file && outer.range.start <= inner.range.start && inner.range.end <= outer.range.end
}

/// The locations of the processes of the program.
fn process_spans(files: &[load::File]) -> Vec<Span> {
    let procs = files.first().into_iter().flat_map(|file| file.tree.procs().map(|node| (file.id, node)));
    procs.map(|(file, node)| load::span_of(file, node.range())).collect()
}

/// Merges the diagnostics of all processes: an error in one is an error of the program; something that one process
/// does not use may be used by another.
fn merge(sinks: Vec<Sink>, files: &[load::File], processes: &[Span]) -> Sink {
    let mut all: Vec<Vec<Diagnostic>> = sinks.into_iter().map(Sink::into_sorted).collect();
    name_callers(&mut all, files);
    let rest = all.split_off(1);
    let is_of_process =
        |diagnostic: &Diagnostic| processes.iter().any(|process| contains(process, &diagnostic.span));
    let mut sink = Sink::default();
    let stays = |diagnostic: &Diagnostic| {
        diagnostic.severity == Severity::Error
            || is_of_process(diagnostic)
            || rest.iter().all(|other| other.contains(diagnostic))
    };
    all.into_iter().flatten().filter(stays).for_each(|diagnostic| sink.push(diagnostic));
    let further =
        |diagnostic: &&Diagnostic| diagnostic.severity == Severity::Error || is_of_process(diagnostic);
    rest.iter().flatten().filter(further).for_each(|diagnostic| sink.push(diagnostic.clone()));
    sink
}

/// Runs all phases for the process of that number.
fn phases(files: &[load::File], process: usize, sink: &mut Sink) -> Program {
    let mut items = Items::default();
    let decls = items::collect(files, process, &mut items, sink);
    grammar::check(&decls, &mut items, sink);
    value_types::declare(&decls, &mut items, sink);
    views::check(&decls, &mut items, sink);
    globals::check(&decls.globals, &mut items, sink);
    let fun_decls = functions::headings(&decls, &mut items, sink);
    if let Some(process) = &decls.process {
        session_locals::check(process, &mut items, sink);
    }
    if let Some(process) = &decls.process {
        process::note_reversed(process, &mut items);
    }
    let funs = functions::bodies(&fun_decls, &items, sink);
    let ask_targets = AskTargets::of(&funs);
    let mut process =
        decls.process.as_ref().and_then(|decl| process::check(decl, &items, &ask_targets, sink));
    usage::check(&funs, &ask_targets, &mut process, &mut items, sink);
    effects::check(&funs, process.as_ref(), &items, sink);
    cost::check(&funs, &process, &items, sink);
    open_types::check(&funs, process.as_ref(), sink);
    items.copy_keys(sink);
    Program {
        enums: items.enums,
        structs: items.structs,
        variants: items.variants,
        dicts: items.dicts,
        counters: items.counters,
        session_locals: items.session_locals,
        classes: items.classes,
        units: items.units,
        funs,
        process,
        siblings: Vec::new(),
    }
}

/// The files that declare what another file has declared: their own uses of it mean something else.
fn clashing_files(found: &[Diagnostic]) -> Vec<u32> {
    let duplicates = found.iter().filter(|diagnostic| is_duplicate(diagnostic));
    duplicates.map(|diagnostic| diagnostic.span.file).collect()
}

/// Whether an error is about a name that another file has declared.
fn is_duplicate(diagnostic: &Diagnostic) -> bool {
    let is_elsewhere = |span: &Span| span.file != diagnostic.span.file;
    diagnostic.code == "E0201" && diagnostic.labels.iter().any(|label| is_elsewhere(&label.span))
}

/// Adds the diagnostics of the later phases to those of the parser, without follow-up errors: where the parser lost
/// something, names are missing, and the inside of a damaged declaration is not reported; nor is that of a file whose
/// declarations have the names of others.
fn join(mut syntax: Sink, found: Sink, damage: &SyntaxDamage) -> Sink {
    let has_errors = syntax.has_errors() || found.has_errors();
    let found = found.into_sorted();
    let clashing = clashing_files(&found);
    for diagnostic in found {
        let is_missing_name =
            matches!(diagnostic.code, "E0202" | "E0203" | "E0204" | "E0205" | "E0206" | "E0208" | "E0402");
        let is_inside = |span: &Span| damage.broken.iter().any(|broken| contains(broken, span));
        let is_damaged =
            is_inside(&diagnostic.span) || diagnostic.labels.iter().any(|label| is_inside(&label.span));
        // Something that seems unused may be used by code that was rejected.
        let is_premature = has_errors && diagnostic.severity == Severity::Warning;
        let clashes = clashing.contains(&diagnostic.span.file) && !is_duplicate(&diagnostic);
        let is_echo = damage.names_lost && is_missing_name || is_damaged || clashes;
        if !is_echo && !is_premature {
            syntax.push(diagnostic);
        }
    }
    syntax
}
