//! Programs from source text to what runs, with either engine: Listing 1, and the services of `tests/services`.

use std::path::Path;
use std::sync::Arc;

use flick_codegen::Options;
use flick_compiler::{CompileFailure, Input};
use flick_ir::Interpreter;
use flick_ir::data::Module;
use flick_testkit::service::Subject;

const LISTING_1: &str = include_str!("../../../../examples/memcached_proxy/memcached_proxy.flick");

fn module(input: Result<Input<'_>, CompileFailure>) -> Arc<Module> {
    let module = input.and_then(|input| flick_compiler::module(&input));
    Arc::new(module.unwrap_or_else(|failure| panic!("{failure}")))
}

fn listing_1() -> Arc<Module> {
    module(Ok(Input::text("memcached_proxy.flick", LISTING_1)))
}

/// A program below `examples`, with machine code and with the interpreter.
pub fn example(path: &str) -> (Subject, Subject) {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    both(module(Input::file(&examples.join(path))))
}

/// A program that uses the library, with machine code and with the interpreter.
pub fn text(text: &str) -> (Subject, Subject) {
    both_of("text.flick", text)
}

/// Listing 1 with machine code.
pub fn native() -> Subject {
    native_of(listing_1())
}

/// Listing 1 with the interpreter.
pub fn interpreted() -> Subject {
    interpreted_of(listing_1())
}

/// Another program, with machine code and with the interpreter.
pub fn both_of(name: &str, text: &str) -> (Subject, Subject) {
    both(module(Ok(Input::text(name, text))))
}

fn both(module: Arc<Module>) -> (Subject, Subject) {
    (native_of(Arc::clone(&module)), interpreted_of(module))
}

fn native_of(module: Arc<Module>) -> Subject {
    let engine = flick_compiler::generate(&module, &Options::default());
    let engine = engine.unwrap_or_else(|failure| panic!("{failure}"));
    Subject { program: Arc::new(module.program.clone()), engine: Arc::new(engine) }
}

fn interpreted_of(module: Arc<Module>) -> Subject {
    let program = Arc::new(module.program.clone());
    Subject { program, engine: Arc::new(Interpreter::new(module)) }
}
