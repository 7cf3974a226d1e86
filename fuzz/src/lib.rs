//! Fuzz targets of the compiler: what must hold for any text, and how to change a program so that it stays nearly one.
//! Promises: a target panics exactly when a promise of the compiler is broken; nothing here reads files but the seeds.
//! Not here: coverage, corpus, time and memory limits (libFuzzer's), building and running (`cargo xtask fuzz`).
#![forbid(unsafe_code)]

mod limits;
pub mod reach;
pub mod speakers;
mod spoken;

pub mod targets;

pub mod mutate;

mod random;
mod seeds;
