//! The phases, one after the other, each timed.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flick_abi::{Engine, Program};
use flick_check::{Diagnostic, RequestOptions, RuleLimit, Sources, apply_request_options, hir};
use flick_codegen::{Compiled, Options};
use flick_ir::Interpreter;
use flick_ir::bounds::Limit;
use flick_ir::data::Module;

use crate::error::CompileFailure;
use crate::input::Input;
use crate::work::over_budget;

/// Engine that runs the code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum, serde::Deserialize))]
#[cfg_attr(feature = "cli", serde(rename_all = "lowercase"))]
pub enum EngineKind {
    /// Machine code.
    #[default]
    Native,
    /// The reference interpreter: the same answers, slowly.
    Interpreter,
}

/// A program as the checker leaves it.
pub struct Checked {
    /// Its meaning; `None` when it was refused.
    pub program: Option<hir::Program>,
    /// Errors and warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts.
    pub sources: Sources,
}

/// A program that the checker accepted.
pub struct Accepted {
    /// Its meaning.
    pub program: hir::Program,
    /// Warnings: parts of the program that are likely not meant as written.
    pub warnings: Vec<Diagnostic>,
    /// The texts.
    pub sources: Sources,
}

/// Duration of each phase of the compilation.
#[derive(Clone, Copy, Debug, Default)]
pub struct PhaseTimes {
    /// Text to trees, of the program and what it uses.
    pub parse: Duration,
    /// Reading the files; names, types, channels, bounds.
    pub check: Duration,
    /// To IR, and the IR's verifier.
    pub lower: Duration,
    /// To code that runs.
    pub generate: Duration,
}

/// One process of a program, ready to run.
#[derive(Clone)]
pub struct Executable {
    /// Program and code as data.
    pub module: Arc<Module>,
    /// Engine that runs it.
    pub engine: Arc<dyn Engine>,
    /// Duration of each phase. Parsing and checking count for the first process of a program.
    pub times: PhaseTimes,
}

/// All processes of a program, ready to run.
pub struct Compilation {
    /// The processes in the order of the file; at least one.
    pub executables: Vec<Executable>,
    /// Warnings: parts of the program that are likely not meant as written.
    pub warnings: Vec<Diagnostic>,
    /// The texts.
    pub sources: Sources,
}

/// Compiles all processes of a program.
///
/// Errors: the first phase that fails.
pub fn compile(input: &Input<'_>, kind: EngineKind) -> Result<Compilation, CompileFailure> {
    compile_with(input, kind, &RequestOptions::default())
}

/// Compiles all processes of a program, whose parsers obey an operator's choices about requests.
///
/// Errors: the first phase that fails.
pub fn compile_with(
    input: &Input<'_>,
    kind: EngineKind,
    options: &RequestOptions,
) -> Result<Compilation, CompileFailure> {
    let started = Instant::now();
    let checked = check(input)?;
    let elapsed = started.elapsed();
    let Accepted { mut program, warnings, sources } = checked.accept()?;
    apply_request_options(&mut program, options).map_err(CompileFailure::RequestOption)?;
    let parse = parse_time(&sources);
    let mut front = PhaseTimes { parse, check: elapsed.saturating_sub(parse), ..PhaseTimes::default() };
    let mut executables = Vec::new();
    for program in program.each() {
        let started = Instant::now();
        let module = Arc::new(process_module(program, &sources)?);
        let lower = started.elapsed();
        let engine: Arc<dyn Engine> = match kind {
            EngineKind::Native => {
                let mut code = generate(&module, &Options::default())?;
                code.announce(&format!("flick::{}", module.program.name));
                Arc::new(code)
            }
            EngineKind::Interpreter => Arc::new(Interpreter::new(Arc::clone(&module))),
        };
        let generate = started.elapsed().saturating_sub(lower);
        let times = PhaseTimes { lower, generate, ..std::mem::take(&mut front) };
        executables.push(Executable { module, engine, times });
    }
    Ok(Compilation { executables, warnings, sources })
}

/// Compiles the first process of a program to a verified module, without an engine.
///
/// Errors: the first phase that fails.
pub fn module(input: &Input<'_>) -> Result<Module, CompileFailure> {
    let accepted = check(input)?.accept()?;
    process_module(&accepted.program, &accepted.sources)
}

/// Reads and checks a program and the files it uses.
///
/// Errors: a file cannot be read. What is wrong with the program is a diagnostic, not an error.
pub fn check(input: &Input<'_>) -> Result<Checked, CompileFailure> {
    let failure = RefCell::new(None);
    let loader = |name: &str| {
        input.used(name).unwrap_or_else(|error| {
            failure.borrow_mut().get_or_insert(error);
            None
        })
    };
    let (program, diagnostics, sources) = flick_check::check(&input.name, &input.text, &loader);
    match failure.into_inner() {
        Some(failure) => Err(failure),
        None => Ok(Checked { program, diagnostics, sources }),
    }
}

/// Lowers a program that has a process. Panics when the result is not well-formed: an error of ours, not of the
/// program.
///
/// Errors: as diagnostics, for a program that exceeds a limit which only its code shows.
pub fn lower(program: &hir::Program, sources: &Sources) -> Result<Module, Vec<Diagnostic>> {
    let crowded = flick_lower::crowded(program);
    if !crowded.is_empty() {
        let diagnostics = crowded
            .iter()
            .map(|found| flick_check::too_many_slots(program, found.unit, found.slots, &found.by_field));
        return Err(diagnostics.collect());
    }
    let module = flick_lower::lower(program);
    let errors = flick_ir::verify(&module);
    if errors.is_empty() {
        return Ok(module);
    }
    // The verifier refuses what exceeds a limit too, but speaks of functions and blocks.
    let excesses = flick_ir::bounds::excesses(&module);
    assert!(!excesses.is_empty(), "lowering makes well-formed code: {}", errors[0]);
    Err(excesses.iter().map(|excess| excess_diagnostic(program, excess, sources)).collect())
}

/// Generates machine code for a module.
///
/// Errors: the module is not well-formed, or Cranelift has no code for this machine.
pub fn generate(module: &Module, options: &Options) -> Result<Compiled, CompileFailure> {
    flick_codegen::compile(module, options).map_err(CompileFailure::Codegen)
}

impl Checked {
    /// Returns the program when the checker accepted it.
    ///
    /// Errors: [`CompileFailure::Refused`].
    pub fn accept(self) -> Result<Accepted, CompileFailure> {
        let Checked { program, diagnostics, sources } = self;
        match program {
            Some(program) => Ok(Accepted { program, warnings: diagnostics, sources }),
            None => Err(CompileFailure::Refused { diagnostics, sources }),
        }
    }
}

impl Accepted {
    /// Lowers one process of the program.
    ///
    /// Errors: `process` is a library, or exceeds a limit.
    pub fn module(&self, process: &hir::Program) -> Result<Module, CompileFailure> {
        process_module(process, &self.sources)
    }
}

impl Compilation {
    /// Returns the program if no message takes more than `steps_max` steps; 0 allows any.
    ///
    /// Errors: each process that exceeds it.
    pub fn within(self, steps_max: u64) -> Result<Self, CompileFailure> {
        let modules = self.executables.iter().map(|executable| &executable.module);
        let over = modules.filter_map(|module| over_budget(module, &self.sources, steps_max));
        let diagnostics: Vec<Diagnostic> = over.collect();
        if diagnostics.is_empty() {
            return Ok(self);
        }
        Err(CompileFailure::Refused { diagnostics, sources: self.sources })
    }

    /// Returns the first process.
    pub fn into_first(mut self) -> Executable {
        self.executables.swap_remove(0)
    }

    /// Returns the files that the program came from. A library file's name is no path of the file system.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.sources.iter().map(|source| PathBuf::from(&source.name))
    }
}

impl Executable {
    /// Returns what the platform runs.
    pub fn program(&self) -> Arc<Program> {
        Arc::new(self.module.program.clone())
    }
}

impl PhaseTimes {
    /// Returns one line for `-v`.
    pub fn line(&self) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        format!(
            "source to running code: {:.2} ms (parse {:.2}, check {:.2}, lower {:.2}, compile {:.2})",
            ms(self.total()),
            ms(self.parse),
            ms(self.check),
            ms(self.lower),
            ms(self.generate)
        )
    }

    /// Returns the sum of all phases.
    pub fn total(&self) -> Duration {
        self.parse + self.check + self.lower + self.generate
    }
}

/// Lowers one process. Errors: there is none; [`lower`] refuses it.
fn process_module(program: &hir::Program, sources: &Sources) -> Result<Module, CompileFailure> {
    if program.process.is_none() {
        return Err(CompileFailure::NoProcess);
    }
    lower(program, sources)
        .map_err(|diagnostics| CompileFailure::Refused { diagnostics, sources: sources.clone() })
}

/// Says which limit a rule exceeds, and where.
fn excess_diagnostic(
    program: &hir::Program,
    excess: &flick_ir::bounds::Excess,
    sources: &Sources,
) -> Diagnostic {
    let what = match excess.limit {
        Limit::Sends => RuleLimit::Sends,
        Limit::Messages => RuleLimit::Asks,
        Limit::Output | Limit::Kept => RuleLimit::Memory,
    };
    let process = program.process.as_ref().map_or_else(hir::Span::default, |process| process.span.clone());
    let span = excess.origin.map_or(process, |origin| {
        let text = sources.get(origin.file).map_or("", |source| source.text.as_str());
        let rest = text.get(origin.offset as usize..).unwrap_or("");
        let len = rest.lines().next().unwrap_or("").trim_end().len() as u32;
        hir::Span { file: origin.file, range: origin.offset..origin.offset + len }
    });
    flick_check::limit_exceeded(span, what, &excess.message)
}

/// Measures how much of the time to check was parsing: the checker does both in one go, so all texts are parsed again.
fn parse_time(sources: &Sources) -> Duration {
    let started = Instant::now();
    for source in sources.iter() {
        std::hint::black_box(flick_syntax::parse(&source.text));
    }
    started.elapsed()
}
