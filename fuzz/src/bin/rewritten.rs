//! Fuzz target `rewritten`: see `targets::rewritten`.
#![no_main]

use libfuzzer_sys::fuzz_target;

flick_fuzzers::counters!(REACHED);

fuzz_target!(
    init: {
        flick_fuzz::reach::count_in(&REACHED);
        // What takes long is done before the first input, which would seem to hang.
        let _ = flick_fuzz::speakers::writers();
    },
    |data: &[u8]| {
        flick_fuzz::targets::rewritten(data);
    }
);
