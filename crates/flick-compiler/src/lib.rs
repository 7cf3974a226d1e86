//! The compile pipeline in one call: load, check, lower, verify, generate.
//!
//! Start reading at [`compile`]; [`Input`] says what is compiled and where `use` finds files; [`stdlib`] is the
//! standard library, which is part of the binary. [`module`], [`check`] and [`lower`] stop after a phase.
//! Promises: the command line, tests, fuzzers and benchmarks compile a program in the same way.
//! Not here: how diagnostics look on a terminal (the command line), what each phase does (`flick-check`, `flick-lower`,
//! `flick-codegen`).
#![forbid(unsafe_code)]

mod error;
mod input;
mod pipeline;
pub mod stdlib;
mod work;

pub use error::CompileFailure;
pub use flick_check::{REQUEST_HEAD_BYTES_MAX, REQUEST_HEAD_BYTES_MIN, RequestOptions};
pub use input::{Input, open_source, read_source, read_source_from, without_pipes};
pub use pipeline::{
    Accepted, Checked, Compilation, EngineKind, Executable, PhaseTimes, check, compile, compile_with,
    generate, lower, module,
};
pub use work::{HotLine, MESSAGE_WORK_MAX, hottest_line, over_budget};
