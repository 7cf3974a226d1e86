//! Listing 1 from source text to a program that runs, with either engine; compiled once for each test.

use std::sync::Arc;

use flick_codegen::Options;
use flick_ir::Interpreter;
use flick_ir::data::Module;
use flick_testkit::service::Subject;

const LISTING_1: &str = include_str!("../../../../examples/memcached_proxy/memcached_proxy.flick");
const MEMCACHED: &str = include_str!("../../../../stdlib/memcached_binary.flick");

fn module() -> Arc<Module> {
    let loader = |name: &str| {
        (name == "memcached_binary").then(|| ("memcached_binary.flick".to_owned(), MEMCACHED.to_owned()))
    };
    let (program, diagnostics, _) = flick_check::check("memcached_proxy.flick", LISTING_1, &loader);
    let program = program.unwrap_or_else(|| panic!("the example is refused: {diagnostics:?}"));
    let module = flick_lower::lower(&program);
    let errors = flick_ir::verify(&module);
    assert!(errors.is_empty(), "lowering makes well-formed code: {}", errors[0]);
    Arc::new(module)
}

/// With machine code.
pub fn native() -> Subject {
    let module = module();
    let engine = flick_codegen::compile(&module, &Options::default()).expect("the example compiles");
    Subject { program: Arc::new(module.program.clone()), engine: Arc::new(engine) }
}

/// With the interpreter.
pub fn interpreted() -> Subject {
    let module = module();
    let program = Arc::new(module.program.clone());
    Subject { program, engine: Arc::new(Interpreter::new(module)) }
}
