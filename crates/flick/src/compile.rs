//! From a program's text to running code, one phase after the other, each timed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flick_abi::Engine;
use flick_check::{Diagnostic, Excess, Sources, hir};
use flick_codegen::Options;
use flick_ir::Interpreter;
use flick_ir::bounds::Limit;
use flick_ir::data::Module;

use crate::failure::Failure;
use crate::library::Loader;
use crate::report;

/// What runs the code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Machine code.
    #[default]
    Native,
    /// The reference interpreter: the same answers, slowly.
    Interpreter,
}

/// A program as far as the checker takes it.
pub struct Checked {
    /// Its meaning; `None` when it was refused.
    pub program: Option<hir::Program>,
    /// What there is to say about it.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts.
    pub sources: Sources,
}

/// How long each phase took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Text to trees, of the program and what it uses.
    pub parse: Duration,
    /// Reading the files; names, types, channels, bounds.
    pub check: Duration,
    /// To IR, and the IR's verifier.
    pub lower: Duration,
    /// To code that runs.
    pub compile: Duration,
}

impl Times {
    /// One line for `-v`.
    pub fn line(&self) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        format!(
            "source to running code: {:.2} ms (parse {:.2}, check {:.2}, lower {:.2}, compile {:.2})",
            ms(self.parse + self.check + self.lower + self.compile),
            ms(self.parse),
            ms(self.check),
            ms(self.lower),
            ms(self.compile)
        )
    }
}

/// Code that runs, and what it came from.
pub struct Ready {
    /// Program and code as data.
    pub module: Arc<Module>,
    /// What runs it.
    pub engine: Arc<dyn Engine>,
    /// How long it took.
    pub times: Times,
    /// The files it came from.
    pub files: Arc<[PathBuf]>,
}

/// Reads and checks the program at `path`.
///
/// Errors: the file, or one it uses, cannot be read. Mistakes in it are diagnostics, not errors.
pub fn check_file(path: &Path) -> Result<Checked, Failure> {
    let text = crate::console::read_source(path)
        .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))?;
    check_text(path, &text)
}

/// Checks `text` as the program at `path`.
///
/// Errors: as [`check_file`].
pub fn check_text(path: &Path, text: &str) -> Result<Checked, Failure> {
    let loader = Loader::beside(path);
    let name = path.display().to_string();
    let (program, diagnostics, sources) = flick_check::check(&name, text, &|name| loader.load(name));
    match loader.troubles().first() {
        Some(trouble) => Err(Failure::failed(trouble.clone())),
        None => Ok(Checked { program, diagnostics, sources }),
    }
}

/// Reports what there is to say about a program that was accepted. Errors: it was not, and why.
pub fn accepted(checked: Checked) -> Result<(hir::Program, Sources), Failure> {
    match checked.program {
        Some(program) => {
            report::warnings(&checked.diagnostics, &checked.sources);
            Ok((program, checked.sources))
        }
        None => Err(Failure::diagnosed(report::text(&checked.diagnostics, &checked.sources).0)),
    }
}

/// Lowers a program that has a process; what refuses it is reported.
///
/// Errors: no process; a program that needs more than there is, which only its code tells.
pub fn lower(program: &hir::Program, sources: &Sources) -> Result<Module, Failure> {
    if program.process.is_none() {
        return Err(Failure::failed(
            "the file has no process, so there is nothing to run; write one: `proc NAME: (TYPE/TYPE client, ...)`",
        ));
    }
    lowered(program, sources).map_err(|diagnostics| Failure::diagnosed(report::text(&diagnostics, sources).0))
}

/// Lowers a program that has a process. Panics when the result is not well-formed: our mistake, not the author's.
///
/// Errors: as diagnostics, for a program that needs more than there is.
pub fn lowered(program: &hir::Program, sources: &Sources) -> Result<Module, Vec<Diagnostic>> {
    let crowded = flick_lower::crowded(program);
    if !crowded.is_empty() {
        let told = crowded
            .iter()
            .map(|found| flick_check::crowded(program, found.unit, found.slots, &found.by_field));
        return Err(told.collect());
    }
    let module = flick_lower::lower(program);
    let excesses = flick_ir::bounds::excesses(&module);
    if !excesses.is_empty() {
        return Err(excesses.iter().map(|excess| excess_told(program, excess, sources)).collect());
    }
    let errors = flick_ir::verify(&module);
    assert!(errors.is_empty(), "lowering makes well-formed code: {}", errors[0]);
    Ok(module)
}

/// What a rule needs too much of, and where.
fn excess_told(program: &hir::Program, excess: &flick_ir::bounds::Excess, sources: &Sources) -> Diagnostic {
    let what = match excess.limit {
        Limit::Sends => Excess::Sends,
        Limit::Messages => Excess::Asks,
        Limit::Output | Limit::Kept => Excess::Made,
    };
    let process = program.process.as_ref().map_or_else(hir::Span::default, |process| process.span.clone());
    let span = excess.origin.map_or(process, |origin| {
        let text = sources.get(origin.file).map_or("", |source| source.text.as_str());
        let rest = text.get(origin.offset as usize..).unwrap_or("");
        let len = rest.lines().next().unwrap_or("").trim_end().len() as u32;
        hir::Span { file: origin.file, range: origin.offset..origin.offset + len }
    });
    flick_check::exceeded(span, what, &excess.message)
}

/// Makes the first process of the program at `path` ready to run, or of the given `text` as if it were there.
pub fn ready(path: &Path, text: Option<&str>, engine: EngineKind) -> Result<Ready, Failure> {
    Ok(each(path, text, engine)?.swap_remove(0))
}

/// Makes all processes of the program at `path` ready to run, or of the given `text` as if it were there.
pub fn each(path: &Path, text: Option<&str>, engine: EngineKind) -> Result<Vec<Ready>, Failure> {
    let start = Instant::now();
    let checked = match text {
        Some(text) => check_text(path, text)?,
        None => check_file(path)?,
    };
    let checked_at = Instant::now();
    let (program, sources) = accepted(checked)?;
    // What is part of the tool is no file; its name is no path that there is.
    let files: Arc<[PathBuf]> = sources.iter().map(|source| PathBuf::from(&source.name)).collect();
    let parse = parse_time(&sources);
    let checked = (checked_at - start).saturating_sub(parse);
    let mut made = Vec::new();
    for (number, program) in program.each().enumerate() {
        let lower_from = Instant::now();
        let module = Arc::new(lower(program, &sources)?);
        let lowered_at = Instant::now();
        let engine: Arc<dyn Engine> = match engine {
            EngineKind::Native => {
                let mut code = native(&module, &Options::default())?;
                code.announce(&format!("flick::{}", module.program.name));
                Arc::new(code)
            }
            EngineKind::Interpreter => Arc::new(Interpreter::new(Arc::clone(&module))),
        };
        let (lower, compile) = (lowered_at - lower_from, lowered_at.elapsed());
        // The text is parsed and checked once for all.
        let first =
            if number == 0 { Times { parse, check: checked, ..Times::default() } } else { Times::default() };
        let (times, files) = (Times { lower, compile, ..first }, Arc::clone(&files));
        made.push(Ready { module, engine, times, files });
    }
    Ok(made)
}

/// Compiles to machine code.
pub fn native(module: &Module, options: &Options) -> Result<flick_codegen::Compiled, Failure> {
    flick_codegen::compile(module, options).map_err(|error| Failure::failed(error.to_string()))
}

/// What parsing takes of the time to check: the checker parses and checks in one go, so it is measured once more.
fn parse_time(sources: &Sources) -> Duration {
    let start = Instant::now();
    for source in sources.iter() {
        std::hint::black_box(flick_syntax::parse(&source.text));
    }
    start.elapsed()
}
