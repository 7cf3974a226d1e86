//! Names, types, channels, grammars and bounds of a program; one file per family of diagnostics.
//! Start reading at [`hir`], what this crate makes of a syntax tree.
#![forbid(unsafe_code)]

pub mod hir;
