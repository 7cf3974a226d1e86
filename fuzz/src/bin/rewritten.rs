//! Fuzz target `rewritten`: see `targets::rewritten`.
#![no_main]

use libfuzzer_sys::fuzz_target;

flick_fuzzers::counters!(REACHED);

fuzz_target!(
    init: {
        flick_fuzz::reach::count_in(&REACHED);
        // Compiles before the first input: libFuzzer would report that input as slow.
        let _ = flick_fuzz::speakers::writers();
    },
    |data: &[u8]| {
        flick_fuzz::targets::rewritten(data);
    }
);
