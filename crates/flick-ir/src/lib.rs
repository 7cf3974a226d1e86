//! Task graphs and code as data: text form, verifier, bounds, interpreter.
//! Start reading at [`data`] (what code is), then [`semantics`] (what it means), then [`interp`] (how it runs).
#![forbid(unsafe_code)]

pub mod cfg;
pub mod data;
pub mod interp;
pub mod semantics;
pub mod text;
pub mod weights;

pub use interp::Interpreter;
