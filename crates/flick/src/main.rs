//! The flick command line.
fn main() {}
