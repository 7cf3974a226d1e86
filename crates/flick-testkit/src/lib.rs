//! What tests of several crates share.
//! Start reading at [`golden`], files that hold an input and what is expected of it.
#![forbid(unsafe_code)]

pub mod golden;
