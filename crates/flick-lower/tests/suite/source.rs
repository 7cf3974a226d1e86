//! From source text to a verified module.

use flick_check::{Checked, Severity, check, render};
use flick_ir::data::Module;

const MEMCACHED: &str = include_str!("../../../../stdlib/memcached_binary.flick");

/// Listing 1 of the paper, with its `use` line.
pub const LISTING_1: &str = include_str!("../../../../examples/memcached_proxy/memcached_proxy.flick");

/// Checks and lowers a program that may use the standard library. Panics with the diagnostics or verifier errors.
pub fn lower(text: &str) -> Module {
    let checked = checked(text);
    let errors: Vec<String> = checked
        .diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.severity == Severity::Error)
        .map(|diagnostic| render(diagnostic, &checked.sources, false))
        .collect();
    let program = checked.program.unwrap_or_else(|| panic!("{}\n{text}", errors.join("\n")));
    verified(flick_lower::lower(&program))
}

/// As [`lower`]; `None` when the text is no program with a process, for which its own tests answer.
pub fn try_lower(text: &str) -> Option<Module> {
    let program = checked(text).program?;
    program.process.as_ref()?;
    Some(verified(flick_lower::lower(&program)))
}

fn checked(text: &str) -> Checked {
    let loader = |name: &str| {
        (name == "memcached_binary").then(|| ("memcached_binary.flick".to_owned(), MEMCACHED.to_owned()))
    };
    check("test.flick", text, &loader)
}

/// The module, if the verifier has nothing against it.
pub fn verified(module: Module) -> Module {
    let errors: Vec<String> = flick_ir::verify(&module).iter().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{}\n{}", errors.join("\n"), flick_ir::text::print(&module));
    module
}
