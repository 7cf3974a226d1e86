//! Programs from source text to what runs, with either engine: Listing 1, and the services of `tests/services`.

use std::path::Path;
use std::sync::Arc;

use flick_codegen::Options;
use flick_ir::Interpreter;
use flick_ir::data::Module;
use flick_testkit::service::Subject;

const LISTING_1: &str = include_str!("../../../../examples/memcached_proxy/memcached_proxy.flick");
const MEMCACHED: &str = include_str!("../../../../stdlib/memcached_binary.flick");

fn module() -> Arc<Module> {
    module_of("memcached_proxy.flick", LISTING_1)
}

fn module_of(name: &str, text: &str) -> Arc<Module> {
    let loader = |name: &str| {
        (name == "memcached_binary").then(|| ("memcached_binary.flick".to_owned(), MEMCACHED.to_owned()))
    };
    lowered(name, text, &loader)
}

fn lowered(name: &str, text: &str, loader: &dyn Fn(&str) -> Option<(String, String)>) -> Arc<Module> {
    let (program, diagnostics, _) = flick_check::check(name, text, loader);
    let program = program.unwrap_or_else(|| panic!("{name} is refused: {diagnostics:?}"));
    let module = flick_lower::lower(&program);
    let errors = flick_ir::verify(&module);
    assert!(errors.is_empty(), "lowering makes well-formed code: {}", errors[0]);
    Arc::new(module)
}

/// A program below `examples`, with machine code and with the interpreter. What it uses is beside it or in the library.
pub fn example(path: &str) -> (Subject, Subject) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("examples").join(path);
    let folder = path.parent().expect("a program is in a folder").to_owned();
    let loader = move |name: &str| {
        let file = format!("{name}.flick");
        let beside = std::fs::read_to_string(folder.join(&file)).ok();
        Some((
            file.clone(),
            beside.or_else(|| std::fs::read_to_string(root.join("stdlib").join(&file)).ok())?,
        ))
    };
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let module = lowered(&path.display().to_string(), &text, &loader);
    (native_of(Arc::clone(&module)), interpreted_of(module))
}

/// A program that uses the library, with machine code and with the interpreter.
pub fn text(text: &str) -> (Subject, Subject) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../stdlib");
    let loader = move |name: &str| {
        let file = format!("{name}.flick");
        Some((file.clone(), std::fs::read_to_string(folder.join(&file)).ok()?))
    };
    let module = lowered("text.flick", text, &loader);
    (native_of(Arc::clone(&module)), interpreted_of(module))
}

/// Listing 1 with machine code.
pub fn native() -> Subject {
    native_of(module())
}

/// Listing 1 with the interpreter.
pub fn interpreted() -> Subject {
    interpreted_of(module())
}

/// Another program, with machine code and with the interpreter.
pub fn both_of(name: &str, text: &str) -> (Subject, Subject) {
    let module = module_of(name, text);
    (native_of(Arc::clone(&module)), interpreted_of(module))
}

fn native_of(module: Arc<Module>) -> Subject {
    let engine = flick_codegen::compile(&module, &Options::default()).expect("the example compiles");
    Subject { program: Arc::new(module.program.clone()), engine: Arc::new(engine) }
}

fn interpreted_of(module: Arc<Module>) -> Subject {
    let program = Arc::new(module.program.clone());
    Subject { program, engine: Arc::new(Interpreter::new(module)) }
}
