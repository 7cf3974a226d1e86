//! Fuzz target `messages`: see `targets::messages`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    flick_fuzz::targets::messages(data);
});
