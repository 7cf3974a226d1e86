//! Writes results to standard output, or exits with an error. Without a message if its reader is gone (`| head`).

use std::fmt;
use std::io::{IsTerminal, Write};

use crate::failure::Failure;

/// As `print!`, but exits with an error if standard output cannot be written, for example to a full disk.
macro_rules! say {
    ($($text:tt)*) => { $crate::console::write_out(format_args!($($text)*)) };
}

/// As [`say`], with a line break.
macro_rules! sayln {
    ($($text:tt)*) => { $crate::console::write_out(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {say, sayln};

/// Whether standard output is a terminal that can show a screen.
pub fn has_screen() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Exits with what clap says of the arguments: wrong ones, or a text that was asked for.
pub fn exit_with(said: &clap::Error) -> ! {
    if said.use_stderr() {
        said.exit();
    }
    write_out(format_args!("{}", said.render().ansi()));
    std::process::exit(0);
}

/// Writes a result to standard output.
pub fn write_out(text: fmt::Arguments<'_>) {
    let mut out = anstream::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(128 + libc::SIGPIPE);
        }
        Failure::failed(format!("cannot write to standard output: {error}")).report();
        std::process::exit(1);
    }
}
