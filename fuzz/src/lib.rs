//! The fuzz targets for libFuzzer, and a mutator that changes a program into text that is still nearly a program.
//! Not here: the properties that are checked (`crates/flick-fuzz`), coverage, corpus, time and memory limits
//! (libFuzzer's), building and running (`cargo xtask fuzz`).
#![forbid(unsafe_code)]

mod limits;
pub mod mutate;
mod random;
mod seeds;

/// Declares a target's counters in the section where libFuzzer looks for them.
///
/// libFuzzer reads the counters after each input and clears them before the next.
#[macro_export]
macro_rules! counters {
    ($name:ident) => {
        // The section holds bytes of any value, and libFuzzer takes all of it for counters.
        #[unsafe(link_section = "__libfuzzer_extra_counters")]
        static $name: flick_fuzz::reach::ReachCounters =
            [const { std::sync::atomic::AtomicU8::new(0) }; flick_fuzz::reach::COUNTERS];
    };
}
