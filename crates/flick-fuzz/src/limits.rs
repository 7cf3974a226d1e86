//! Every bound of the fuzz targets.

/// Longest input that is formatted a second time: formatting is linear, but a fuzz run has better things to do.
pub const FORMATTED_BYTES_MAX: usize = 64 * 1024;
