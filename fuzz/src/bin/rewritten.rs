//! Fuzz target `rewritten`: see `targets::rewritten`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    flick_fuzz::targets::rewritten(data);
});
