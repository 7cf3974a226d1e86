//! Fuzz target `programs`: see `targets::programs`.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|data: &[u8]| {
    flick_fuzz::targets::programs(data);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    flick_fuzz::mutate::mutate(data, size, max_size, seed)
});
