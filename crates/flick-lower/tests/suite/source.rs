//! From source text to a verified module.

use flick_check::hir::Program;
use flick_check::{Diagnostic, Severity, Sources, check, render};
use flick_ir::data::Module;

/// The grammar of the standard library, as it is now.
pub const LIBRARY: &str = include_str!("../../../../stdlib/memcached_binary.flick");
/// A grammar of the same messages that stays as it is, for tests that count on its facts.
pub const FIXTURE: &str = include_str!("memcached.flick");

/// Listing 1 of the paper, with its `use` line.
pub const LISTING_1: &str = include_str!("../../../../examples/memcached_proxy/memcached_proxy.flick");

/// Checks and lowers a program for which `memcached_binary` is the given grammar. Panics with the diagnostics or
/// verifier errors.
pub fn lower(text: &str, memcached: &str) -> Module {
    lower_with(text, &[("memcached_binary", memcached)])
}

/// As [`lower`], with these files to be used.
pub fn lower_with(text: &str, files: &[(&str, &str)]) -> Module {
    verified(flick_lower::lower(&program_with(text, files)))
}

/// As [`lower_with`], but only checked.
pub fn program_with(text: &str, files: &[(&str, &str)]) -> Program {
    let (program, diagnostics, sources) = checked(text, files);
    let errors: Vec<String> = diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.severity == Severity::Error)
        .map(|diagnostic| render(diagnostic, &sources, false))
        .collect();
    program.unwrap_or_else(|| panic!("{}\n{text}", errors.join("\n")))
}

/// As [`program_with`]; `None` when the checker refuses the text.
pub fn try_program_with(text: &str, files: &[(&str, &str)]) -> Option<Program> {
    checked(text, files).0
}

/// As [`lower`]; `None` when the text is no program with a process, for which its own tests answer.
pub fn try_lower(text: &str) -> Option<Module> {
    let program = try_program_with(text, &[("memcached_binary", LIBRARY)])?;
    program.process.as_ref()?;
    Some(verified(flick_lower::lower(&program)))
}

fn checked(text: &str, files: &[(&str, &str)]) -> (Option<Program>, Vec<Diagnostic>, Sources) {
    let loader = |name: &str| {
        let file = files.iter().find(|(known, _)| *known == name);
        file.map(|(name, text)| (format!("{name}.flick"), (*text).to_owned()))
    };
    check("test.flick", text, &loader)
}

/// The module, if the verifier has nothing against it.
pub fn verified(module: Module) -> Module {
    let errors: Vec<String> = flick_ir::verify(&module).iter().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{}\n{}", errors.join("\n"), flick_ir::text::print(&module));
    module
}
