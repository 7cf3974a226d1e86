//! Task graphs and code as data: text form, verifier, bounds, interpreter.
//! Start reading at [`data`].
#![forbid(unsafe_code)]

pub mod data;
