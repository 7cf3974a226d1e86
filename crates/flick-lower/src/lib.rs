//! From the checked program to task graphs and code: one file per construct.
//!
//! Start reading at [`lower`], then `parse/plan.rs` (what a parser decodes), `parse/emit.rs` (how it stops and goes
//! on), `expr.rs` and its neighbours (what rules do), `serialise.rs` (how messages leave).
//! Promises: infallible on a program that was checked without errors; a broken promise of the checker panics with
//! the sentence that was broken.
//! Refuses: I/O, diagnostics, machine code.
#![forbid(unsafe_code)]

mod body;
mod branch;
mod builder;
mod call;
mod condition;
mod context;
mod expr;
mod interval;
mod limits;
mod number;
mod parse;
mod program;
mod record;
mod rule;
mod serialise;
mod unit;
mod value;
mod walk;

pub use program::lower;
