//! From source text to a verified module.

use flick_check::Sources;
use flick_check::hir::Program;
use flick_compiler::{Accepted, CompileFailure, Input, stdlib};
use flick_ir::data::Module;

/// A grammar of the same messages that stays as it is, for tests that count on its facts.
pub const FIXTURE: &str = include_str!("memcached.flick");

/// Listing 1 of the paper, with its `use` line.
pub const LISTING_1: &str = include_str!("../../../../examples/memcached_proxy/memcached_proxy.flick");

/// Returns the standard library's grammar of memcached's binary protocol.
pub fn library() -> &'static str {
    stdlib::text("memcached_binary").expect("it is in the standard library")
}

/// Compiles a program for which `memcached_binary` is the given grammar. Panics when it is refused.
pub fn lower(text: &str, memcached: &str) -> Module {
    lower_with(text, &[("memcached_binary", memcached)])
}

/// As [`lower`], with these files to be used.
pub fn lower_with(text: &str, files: &[(&str, &str)]) -> Module {
    let module = flick_compiler::module(&Input::text("test.flick", text).with_files(files));
    module.unwrap_or_else(|failure| panic!("{failure}\n{text}"))
}

/// As [`lower_with`], but only checked.
pub fn program_with(text: &str, files: &[(&str, &str)]) -> Program {
    checked(text, files).unwrap_or_else(|failure| panic!("{failure}\n{text}")).program
}

/// As [`lower_with`]; `None` when the text is refused or has no process.
pub fn try_lower_with(text: &str, files: &[(&str, &str)]) -> Option<(Program, Module)> {
    let accepted = checked(text, files).ok()?;
    let module = accepted.module(&accepted.program).ok()?;
    Some((accepted.program, module))
}

/// As [`try_lower_with`], with the standard library and nothing else.
pub fn try_lower(text: &str) -> Option<Module> {
    try_lower_with(text, &[]).map(|(_, module)| module)
}

fn checked(text: &str, files: &[(&str, &str)]) -> Result<Accepted, CompileFailure> {
    flick_compiler::check(&Input::text("test.flick", text).with_files(files))?.accept()
}

/// Lowers a program that no text stands for. Panics when it exceeds a limit or its module is not well-formed.
pub fn lowered(program: &Program) -> Module {
    let module = flick_compiler::lower(program, &Sources::default());
    module.unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"))
}
