//! Tests of whole programs: golden files, error pages, the reference, mutated programs.
//! Promises: all texts come from the repository; nothing here waits, listens or depends on the machine.

#[path = "suite/golden.rs"]
mod golden;
#[path = "suite/mutation.rs"]
mod mutation;
#[path = "suite/pages.rs"]
mod pages;
#[path = "suite/support.rs"]
mod support;
