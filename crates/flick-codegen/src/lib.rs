//! From code as data to machine code in memory, through Cranelift.
//! Start reading at [`compile`], then `translate` (one IR operation after the other), then `symbols` (what generated
//! code calls), then `load` (how it is called).
//!
//! Promises: the compiled program answers every call as `flick_ir::Interpreter` does; it allocates nothing; its
//! memory is never writable and executable at once; a panic in what it calls passes through it to its caller.
//! Refuses: a module that the verifier refuses.

mod announce;
mod load;
mod options;
mod parallel;
mod raw;
mod symbols;
mod translate;
mod unwind;

use std::time::{Duration, Instant};

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use cranelift_module::{FuncId as JitId, Linkage, Module as _, ModuleReloc};
use flick_abi::{Engine, Frame, FuncId, MessageDone, MessageRun, ParseStep, RuleCall, RuleOutcome};
use flick_ir::data::{Function, Module, Op};
use flick_ir::passes;

use symbols::scan::ClassTable;

pub use announce::keep_perf_map;
pub use options::{CompileError, Optimise, Options};

/// One function of a compiled program, for profilers and listings.
#[derive(Clone, Debug)]
pub struct FunctionInfo {
    /// Its name in the IR.
    pub name: String,
    /// Address of its first instruction.
    pub address: usize,
    /// Size of its code in bytes.
    pub size_bytes: usize,
    /// Cranelift's text, if [`Options::listings`] was set.
    pub clif: String,
    /// Instructions of the machine, if [`Options::listings`] was set.
    pub asm: String,
}

/// A program in machine code.
pub struct Compiled {
    /// Goes before the code does.
    announced: Option<announce::Announced>,
    code: load::Code,
    functions: Vec<FunctionInfo>,
    compile_time: Duration,
}

impl Compiled {
    /// The functions, by `FuncId`.
    pub fn functions(&self) -> &[FunctionInfo] {
        &self.functions
    }

    /// Tells debuggers and profilers the names of the functions, each behind this and `::`, for as long as they are
    /// there.
    pub fn announce(&mut self, whose: &str) {
        let symbol = |function: &FunctionInfo| announce::FunctionSymbol {
            name: format!("{whose}::{}", function.name),
            address: function.address,
            size_bytes: function.size_bytes,
        };
        self.announced = Some(announce::Announced::new(self.functions.iter().map(symbol).collect()));
    }

    /// Returns the duration of [`compile`].
    pub fn compile_time(&self) -> Duration {
        self.compile_time
    }

    /// All functions in Cranelift's text form. Empty without [`Options::listings`].
    pub fn clif(&self) -> String {
        self.functions.iter().map(|f| format!("; {}\n{}\n", f.name, f.clif)).collect()
    }

    /// All functions as instructions of the machine. Empty without [`Options::listings`].
    pub fn asm(&self) -> String {
        let listing = |f: &FunctionInfo| format!("; {} ({} bytes)\n{}\n", f.name, f.size_bytes, f.asm);
        self.functions.iter().map(listing).collect()
    }
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").field("functions", &self.functions.len()).finish_non_exhaustive()
    }
}

impl Engine for Compiled {
    #[inline]
    fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep {
        let word = self.code.parse(parser, frame, data);
        if word == 0 { ParseStep::Done } else { unfinished(word) }
    }

    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome {
        match self.code.run(rule, call) {
            0 => RuleOutcome::Finished,
            state => RuleOutcome::Suspended(u32::try_from(state).expect("states are numbered from 1")),
        }
    }

    fn run_each(
        &self,
        run: MessageRun<'_>,
        call: &mut RuleCall<'_>,
        done: &mut dyn FnMut(MessageDone<'_>) -> Option<usize>,
    ) -> usize {
        self.code.run_each(run, call, done)
    }

    fn order(&self, order: FuncId, call: &mut RuleCall<'_>) -> i64 {
        self.code.order(order, call)
    }

    fn build(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> usize {
        self.code.build(builder, frame, out)
    }
}

/// The step of a message that is not complete; kept out of the way of those that are.
#[inline(never)]
fn unfinished(word: u64) -> ParseStep {
    if word as i64 & 3 == symbols::BUG_WORD {
        panic!("{}", symbols::BUGS[(word >> 2) as usize]);
    }
    ParseStep::from_word(word)
}

/// Machine code of one module at most: address space that is reserved for it, of which only what is used becomes
/// memory.
const CODE_BYTES_MAX: usize = 128 << 20;

/// Compiles all functions of a module into memory.
///
/// Errors: the module is not well-formed, or the machine is not one Cranelift knows.
/// Cost: about a millisecond for a page of program.
pub fn compile(module: &Module, options: &Options) -> Result<Compiled, CompileError> {
    let started = Instant::now();
    let errors = flick_ir::verify(module);
    if !errors.is_empty() {
        return Err(CompileError::Invalid(errors));
    }
    let threads = parallel::threads();
    let mut optimised;
    let module = if options.optimise == Optimise::Speed {
        optimised = module.clone();
        let all = optimised.functions.iter_mut().collect();
        parallel::map(threads, all, |function| function.size(), passes::optimise);
        &optimised
    } else {
        module
    };
    let mut jit = JITModule::new(jit_builder(options.isa()?)?);
    let consts: Box<[u8]> = module.consts.clone().into_boxed_slice();
    let classes: Box<[_]> = module.classes.iter().map(|set| ClassTable::new(*set)).collect();
    let lines = symbols::lines::tables(module, options.optimise == Optimise::Speed);
    let symbols = translate::declare_symbols(&mut jit)?;
    let ids = declare_functions(&mut jit, module)?;
    let is_gauge: Vec<_> = module.program.counters.iter().map(|counter| counter.is_gauge).collect();
    let shared = translate::Shared {
        isa: jit.isa(),
        declarations: jit.declarations(),
        consts: &consts,
        classes: &classes,
        lines: &lines,
        steps_by_sixteen: options.steps_by_sixteen(),
        ids: &ids,
        channels: module.program.channels.len(),
        is_gauge: &is_gauge,
        symbols: &symbols,
    };
    let work = module.functions.iter().zip(ids.iter().copied()).collect();
    let compile = |(function, id)| compile_function(&shared, function, id, options.listings);
    let compiled = parallel::map(threads, work, |(function, _)| function.size(), compile);
    let mut functions = Vec::with_capacity(ids.len());
    let mut frames = unwind::Frames::default();
    for ((compiled, function), id) in compiled.into_iter().zip(&module.functions).zip(&ids) {
        let (context, clif) = compiled?;
        define(&mut jit, *id, &context, function)?;
        functions.push(info(&context, &function.name, clif));
        frames.add(&context, jit.isa())?;
    }
    jit.finalize_definitions().map_err(|error| CompileError::Backend(error.to_string()))?;
    for (info, id) in functions.iter_mut().zip(&ids) {
        info.address = jit.get_finalized_function(*id) as usize;
    }
    let kinds: Vec<_> = module.functions.iter().map(|function| function.kind).collect();
    let frames = frames.register(jit.isa(), functions.iter().map(|function| function.address))?;
    let code = load::Code::new((jit, frames), &ids, &kinds, (consts, classes, lines), needs(module));
    Ok(Compiled { announced: None, code, functions, compile_time: started.elapsed() })
}

/// Returns the requirements of a module's code on every call.
fn needs(module: &Module) -> load::Needs {
    let blocks = module.functions.iter().flat_map(|function| &function.blocks);
    let kept = blocks.flat_map(|block| &block.insts).filter_map(|inst| match inst.op {
        Op::SpillSet { slot, .. } | Op::SpillGet { slot } => Some(usize::from(slot) + 1),
        _ => None,
    });
    load::Needs {
        channels: module.program.channels.len(),
        state_words: module.program.state_words as usize,
        spill_words: kept.max().unwrap_or(0),
    }
}

fn jit_builder(isa: OwnedTargetIsa) -> Result<JITBuilder, CompileError> {
    let mut builder = JITBuilder::with_isa(isa, cranelift_module::default_libcall_names());
    // One function calls another at a distance of 32 bits. Mapped one by one, those of a process that has been
    // reloaded a few times lie in holes further apart.
    let reserved = ArenaMemoryProvider::new_with_size(CODE_BYTES_MAX)
        .map_err(|error| CompileError::Backend(format!("no address space for code: {error}")))?;
    builder.memory_provider(Box::new(reserved));
    for symbol in symbols::all() {
        builder.symbol(symbol.name, symbol.address);
    }
    Ok(builder)
}

fn declare_functions(jit: &mut JITModule, module: &Module) -> Result<Vec<JitId>, CompileError> {
    let declare = |(index, function): (usize, &flick_ir::data::Function)| {
        let signature = translate::signature(jit, function);
        let name = format!("{index}.{}", function.name);
        jit.declare_function(&name, Linkage::Local, &signature)
            .map_err(|error| CompileError::Backend(error.to_string()))
    };
    module.functions.iter().enumerate().map(declare).collect()
}

/// Compiles a declared function; with it comes its text, if that is to be listed.
fn compile_function(
    shared: &translate::Shared<'_>,
    function: &Function,
    id: JitId,
    listings: bool,
) -> Result<(Context, String), CompileError> {
    let mut context = Context::new();
    context.func.signature = shared.declarations.get_function_decl(id).signature.clone();
    translate::function(shared, &mut context.func, function);
    context.set_disasm(listings);
    let clif = if listings { context.func.display().to_string() } else { String::new() };
    match context.compile(shared.isa, &mut ControlPlane::default()) {
        Ok(_) => Ok((context, clif)),
        Err(error) => Err(failed(function, &error.inner)),
    }
}

/// Gives a declared function the code that `context` has compiled.
fn define(
    jit: &mut JITModule,
    id: JitId,
    context: &Context,
    function: &Function,
) -> Result<(), CompileError> {
    let code = context.compiled_code().expect("the function was compiled without an error");
    let relocate = |reloc| ModuleReloc::from_mach_reloc(reloc, &context.func, id);
    let relocs: Vec<_> = code.buffer.relocs().iter().map(relocate).collect();
    let defined =
        jit.define_function_bytes(id, u64::from(code.buffer.alignment), code.code_buffer(), &relocs);
    defined.map_err(|error| failed(function, &error))
}

fn failed(function: &Function, error: &dyn std::fmt::Debug) -> CompileError {
    CompileError::Backend(format!("{}: {error:?}", function.name))
}

fn info(context: &Context, name: &str, clif: String) -> FunctionInfo {
    let code = context.compiled_code().expect("the function was compiled without an error");
    let size_bytes = code.buffer.data().len();
    let asm = code.vcode.clone().unwrap_or_default();
    FunctionInfo { name: name.to_owned(), address: 0, size_bytes, clif, asm }
}
