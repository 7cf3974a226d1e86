//! Loading of code in a fragmented address space, as that of a service after several reloads.

use flick_codegen::{CompileError, Options, compile};
use flick_ir::random;

/// Holes that a few functions fit into each, and what lies between two of them: further than a call reaches.
const HOLES: usize = 6;
const HOLE_BYTES: usize = 160 * 1024;
const APART_BYTES: usize = 3 << 30;
/// Pieces that fill what is left elsewhere.
const FILLING_MAX: usize = 4_096;
/// Modules: more code than the holes hold.
const MODULES: u64 = 200;

/// Reserves address space that is never touched.
fn reserve(bytes: usize) -> Vec<u8> {
    let mut reserved = Vec::new();
    reserved.try_reserve_exact(bytes).expect("there is address space for what is never touched");
    reserved
}

#[test]
fn functions_too_far_apart_for_near_calls_load() {
    // What the kernel has left near its own is filled first.
    let low = reserve(APART_BYTES);
    let mut filling = Vec::new();
    while filling.len() < FILLING_MAX
        && filling.last().is_none_or(|last: &Vec<u8>| last.as_ptr() > low.as_ptr())
    {
        filling.push(reserve(HOLE_BYTES));
    }
    let (holes, _between): (Vec<_>, Vec<_>) =
        (0..HOLES).map(|_| (reserve(HOLE_BYTES), reserve(APART_BYTES))).unzip();
    drop(holes);
    let mut kept = Vec::new();
    for seed in 0..MODULES {
        match compile(&random::module(seed), &Options::default()) {
            Ok(code) => kept.push(code),
            Err(CompileError::Invalid(_)) => {}
            Err(error) => panic!("module {seed}: {error}"),
        }
    }
    assert!(kept.len() as u64 > MODULES / 2, "most modules pass the verifier");
}
