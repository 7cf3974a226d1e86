//! Names, types, channels, grammars and bounds of a program; one file per family of diagnostics.
//! Promises: any text gives a program or at least one error, never a panic; a program without errors obeys every rule
//! that [`hir`] states. No I/O.
//! Start reading at [`check`] (the phases in `check.rs`), then [`hir`], what this crate makes of a syntax tree;
//! `report/` holds the wording of every mistake, by family.
#![forbid(unsafe_code)]

mod asked;
mod asks;
mod body;
mod check;
mod complete;
mod cost;
pub mod diagnostic;
mod effects;
mod explain;
mod expr;
mod funs;
mod globals;
mod grammar;
pub mod hir;
mod items;
mod layout;
pub mod limits;
mod load;
mod locals;
mod possible;
mod process;
mod range;
mod render;
mod report;
mod scope;
mod state;
mod summary;
mod types;
mod usage;
mod views;
pub mod walk;

pub use check::check;
pub use diagnostic::{Diagnostic, Severity, Sources};
pub use explain::{codes, explain};
pub use load::{Loader, check_syntax};
pub use render::render;
pub use report::late::{Excess, crowded, exceeded};
pub use summary::summary;
