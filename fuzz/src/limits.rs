//! Every bound of changed programs.

/// Most changes made to one input at a time.
pub const CHANGES_MAX: usize = 6;

/// Longest piece of a program that is put into another, in bytes.
pub const PIECE_BYTES_MAX: usize = 600;

/// Most pieces kept of one kind of node.
pub const PIECES_MAX: usize = 4_000;

/// Longest text that is changed as a program; longer ones are changed as bytes.
pub const PROGRAM_BYTES_MAX: usize = 64 * 1024;
