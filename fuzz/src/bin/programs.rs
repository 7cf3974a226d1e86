//! Fuzz target `programs`: see `targets::programs`.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

flick_fuzzers::counters!(REACHED);

fuzz_target!(
    init: { flick_fuzz::reach::count_in(&REACHED) },
    |data: &[u8]| {
        flick_fuzz::targets::programs(data);
    }
);

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    flick_fuzzers::mutate::mutate(data, size, max_size, seed)
});
