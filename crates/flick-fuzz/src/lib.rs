//! Fuzz targets of the compiler: what must hold for any text, and for any bytes from a peer.
//! Promises: a target panics exactly when a promise of the compiler is broken; nothing here reads files.
//! Not here: coverage, time and memory limits (libFuzzer's), how inputs are changed (`fuzz/`), building and running
//! (`cargo xtask fuzz`). The tests play what earlier runs have kept.
#![forbid(unsafe_code)]

mod limits;
pub mod reach;
pub mod speakers;
mod spoken;
pub mod targets;
