//! Mutated programs.
