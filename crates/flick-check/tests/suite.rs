//! What the checker says about whole programs: golden files, pages of errors, the reference, mutated programs.
//! Promises: all texts come from the repository; nothing here waits, listens or depends on the machine.

#[path = "suite/golden.rs"]
mod golden;
#[path = "suite/mutation.rs"]
mod mutation;
#[path = "suite/pages.rs"]
mod pages;
#[path = "suite/support.rs"]
mod support;
