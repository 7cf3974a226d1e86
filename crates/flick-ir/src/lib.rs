//! Task graphs and code as data: text form, verifier, bounds, interpreter. Start reading at [`data`] (what code is),
//! then [`semantics`] (what it means), [`interp`] (how it runs), [`mod@verify`] (what may run), [`text`] (how people
//! read it).
#![forbid(unsafe_code)]

pub mod bounds;
pub mod calls;
pub mod cfg;
pub mod data;
pub mod fuzz;
pub mod graph;
pub mod interp;
pub mod limits;
pub mod lookups;
mod operands;
pub mod passes;
#[cfg(any(test, feature = "random"))]
pub mod random;
pub mod semantics;
pub mod text;
pub mod verify;
pub mod weights;

pub use fuzz::fuzz_ir;
pub use interp::{Interpreter, Visitor};
pub use verify::{Covered, VerifyError, verify};
