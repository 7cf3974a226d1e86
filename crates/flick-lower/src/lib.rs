//! From the checked program to task graphs and code: one file per construct.
//!
//! Start reading at [`lower`], then `parse/plan.rs` (what a parser decodes), `parse/emit.rs` (how it stops and goes
//! on), `value.rs` and `carrier.rs` (what a value is, and how it travels in words), `expr.rs` and its neighbours
//! (what rules do), `serialise.rs` (how messages leave), `ask.rs`, `dict.rs` and `state.rs` (who else is asked, what
//! is kept).
//! Promises: infallible on a program that was checked without errors and of which nothing is [`crowded`]; a broken
//! promise of the checker panics with the sentence that was broken.
//! Refuses: I/O, diagnostics, machine code.
#![forbid(unsafe_code)]

mod aggregate;
mod ask;
mod body;
mod branch;
mod builder;
mod builtin;
mod call;
mod carrier;
mod change;
mod condition;
mod context;
mod dict;
mod expr;
mod first;
mod guard;
mod interval;
mod keyed;
mod layout;
mod limits;
mod list;
mod merge;
mod number;
mod parse;
mod part;
mod program;
mod ready;
mod record;
mod repeat;
mod rule;
mod serialise;
mod state;
mod unit;
mod value;
mod vint;
mod walk;
mod write;

pub use context::{Crowded, crowded};
pub use program::lower;
