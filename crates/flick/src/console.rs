//! Texts in and out: what somebody has written is read with a bound, and a result is written whole or not in silence.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use flick_syntax::limits::SOURCE_BYTES_MAX;

use crate::failure::Failure;

/// As `print!`, for results: where they cannot be written, a full disk say, the tool ends and says so.
macro_rules! say {
    ($($text:tt)*) => { $crate::console::write_out(format_args!($($text)*)) };
}

/// As [`say`], with the end of a line.
macro_rules! sayln {
    ($($text:tt)*) => { $crate::console::write_out(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {say, sayln};

/// Writes a result to standard output.
pub fn write_out(text: fmt::Arguments<'_>) {
    let mut out = anstream::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        Failure::failed(format!("cannot write to standard output: {error}")).report();
        std::process::exit(1);
    }
}

/// Reads a text that somebody has written, with one byte more than a source may have at most: its reader refuses it then.
///
/// Errors: the system's; it is not UTF-8.
pub fn read_source(path: &Path) -> io::Result<String> {
    read_bounded(File::open(path)?)
}

/// As [`read_source`], from what is open.
pub fn read_bounded(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(SOURCE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
