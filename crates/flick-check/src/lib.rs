//! The checker: name resolution, type inference, bounds, effects and grammars of a program.
//! Promises: any text results in a program or at least one error, never a panic; a program without errors obeys every
//! rule that [`hir`] states. No I/O.
//! Start reading at [`check`] (the phases, in `check.rs`), then [`hir`], the result; `report/` has the texts of all
//! diagnostics, by family of codes.
#![forbid(unsafe_code)]

mod ask_targets;
mod check;
mod cost;
pub mod diagnostic;
mod effects;
mod explain;
mod expr;
mod functions;
mod globals;
mod grammar;
pub mod hir;
mod items;
mod known_values;
mod layout;
pub mod limits;
mod load;
mod open_types;
mod primitives;
mod process;
mod range;
mod render;
mod report;
mod request_options;
mod scope;
mod session_locals;
mod summary;
mod ty;
mod types;
mod units;
mod usage;
mod value_types;
mod views;
pub mod walk;

pub use check::check;
pub use diagnostic::{Diagnostic, Severity, Sources};
pub use explain::{codes, explain};
pub use load::{Loader, check_syntax};
pub use render::render;
pub use report::lowering::{RuleLimit, limit_exceeded, too_many_slots, too_much_work};
pub use report::names::LIBRARIES;
pub use report::{counted, similar};
pub use request_options::{
    REQUEST_HEAD_BYTES_MAX, REQUEST_HEAD_BYTES_MIN, RequestOptionError, RequestOptions, apply_request_options,
};
pub use summary::summary;
