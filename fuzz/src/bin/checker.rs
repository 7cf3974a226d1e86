//! Fuzz target `checker`: see `targets::checker`.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|data: &[u8]| {
    let _ = flick_fuzz::targets::checker(data);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    flick_fuzzers::mutate::mutate(data, size, max_size, seed)
});
