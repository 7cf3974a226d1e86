//! The phases of checking, in their order.

use crate::asked::Asked;
use crate::diagnostic::{Diagnostic, Severity, Sink, Sources};
use crate::hir::{Program, Span};
use crate::items::{self, Items};
use crate::limits::PROCESSES_MAX;
use crate::load::{self, Damage, Loader};
use crate::{complete, cost, effects, funs, globals, grammar, locals, process, usage, views};

/// Checks a program and the files it uses.
///
/// Shape:  `name` is for people; `loader` turns the name of a `use` line into a name for people and a text.
/// Cost:   linear in the texts, but for what is quadratic in the number of errors.
/// Errors: as diagnostics, in the order of the files and the places in them, at most `DIAGNOSTICS_MAX`; all phases run
/// whatever the ones before found. The program is `None` when there is an error.
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

/// Checks the program once for each of its processes: what a process reads decides what is decoded for it.
fn each_process(files: &[load::File]) -> (Program, Sink) {
    let places = process_places(files);
    let mut sinks = vec![Sink::default()];
    let mut program = phases(files, 0, &mut sinks[0]);
    for index in 1..places.len().min(PROCESSES_MAX) {
        let mut sink = Sink::default();
        program.siblings.push(phases(files, index, &mut sink));
        sinks.push(sink);
    }
    (program, merge(sinks, &places))
}

/// Where the processes of the program stand.
fn process_places(files: &[load::File]) -> Vec<Span> {
    let procs = files.first().into_iter().flat_map(|file| file.tree.procs().map(|node| (file.id, node)));
    procs.map(|(file, node)| load::span_of(file, node.range())).collect()
}

/// What was found for all processes: an error for one is an error of the program; what one process has no use for,
/// another may have.
fn merge(sinks: Vec<Sink>, processes: &[Span]) -> Sink {
    let mut all: Vec<Vec<Diagnostic>> = sinks.into_iter().map(Sink::into_sorted).collect();
    let rest = all.split_off(1);
    let is_of_process = |diagnostic: &Diagnostic| {
        processes.iter().any(|process| {
            process.file == diagnostic.span.file
                && process.range.start <= diagnostic.span.range.start
                && diagnostic.span.range.end <= process.range.end
        })
    };
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

/// All phases, with the process of that number.
fn phases(files: &[load::File], process: usize, sink: &mut Sink) -> Program {
    let mut items = Items::default();
    let decls = items::collect(files, process, &mut items, sink);
    grammar::check(&decls, &mut items, sink);
    items::declare_values(&decls, &mut items, sink);
    views::check(&decls, &mut items, sink);
    globals::check(&decls.globals, &mut items, sink);
    let fun_decls = funs::headings(&decls, &mut items, sink);
    if let Some(process) = &decls.process {
        locals::check(process, &mut items, sink);
    }
    let funs = funs::bodies(&fun_decls, &items, sink);
    let asked = Asked::of(&funs);
    let mut process = decls.process.as_ref().and_then(|decl| process::check(decl, &items, &asked, sink));
    usage::check(&funs, &asked, &mut process, &mut items, sink);
    effects::check(&funs, process.as_ref(), &items, sink);
    cost::check(&funs, &process, &items, sink);
    complete::check(&funs, process.as_ref(), sink);
    items.close_keys(sink);
    Program {
        enums: items.enums,
        structs: items.structs,
        variants: items.variants,
        dicts: items.dicts,
        counters: items.counters,
        states: items.states,
        classes: items.classes,
        units: items.units,
        funs,
        process,
        siblings: Vec::new(),
    }
}

/// Adds what the later phases found to what the parser found, without echoes: where the parser lost something, names
/// are missing for no fault of their own, and what is inside a damaged declaration is not judged.
fn join(mut syntax: Sink, found: Sink, damage: &Damage) -> Sink {
    let has_errors = syntax.has_errors() || found.has_errors();
    for diagnostic in found.into_sorted() {
        let is_missing_name =
            matches!(diagnostic.code, "E0202" | "E0203" | "E0204" | "E0205" | "E0206" | "E0208" | "E0402");
        let is_inside = |span: &Span| {
            damage.broken.iter().any(|broken| {
                broken.file == span.file
                    && broken.range.start <= span.range.start
                    && span.range.end <= broken.range.end
            })
        };
        let is_damaged =
            is_inside(&diagnostic.span) || diagnostic.labels.iter().any(|label| is_inside(&label.span));
        // What looks unused may be used by what was refused.
        let is_premature = has_errors && diagnostic.severity == Severity::Warning;
        let is_echo = damage.names_lost && is_missing_name || is_damaged;
        if !is_echo && !is_premature {
            syntax.push(diagnostic);
        }
    }
    syntax
}
