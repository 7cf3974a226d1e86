//! The fuzz targets for libFuzzer, and how to change a program so that it stays nearly one.
//! Not here: what must hold (`crates/flick-fuzz`), coverage, corpus, time and memory limits (libFuzzer's), building and running
//! (`cargo xtask fuzz`).
#![forbid(unsafe_code)]

mod limits;
pub mod mutate;
mod random;
mod seeds;

/// Declares a target's counters, where libFuzzer finds them by the name of their section: it reads them after each input and
/// clears them before the next.
#[macro_export]
macro_rules! counters {
    ($name:ident) => {
        // The section holds bytes of any value, and libFuzzer takes all of it for counters.
        #[unsafe(link_section = "__libfuzzer_extra_counters")]
        static $name: flick_fuzz::reach::Counters =
            [const { std::sync::atomic::AtomicU8::new(0) }; flick_fuzz::reach::COUNTERS];
    };
}
