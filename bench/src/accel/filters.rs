//! Packet filters between standard input and standard output, by `read` and `write` or by stdio.

use std::io::{self, Read, pipe};
use std::process::Stdio;

use super::setting::{Mode, Setting};
use crate::chain::{self, joint};
use crate::process::Children;

/// Records per second from a source through filters to a sink.
pub(super) fn measure(setting: &Setting<'_>, side: Mode, how: &str, length: usize) -> io::Result<f64> {
    let capture = setting.scratch.0.join("capture");
    std::fs::write(&capture, chain::capture(setting.args.records))?;
    let command = |role: &str| {
        let mut command = setting.command(side, setting.programs());
        command.args([role, how]);
        command
    };
    let uses_tcp = side == Mode::PlainTcp;
    let mut programs = Children::default();
    let (mut input, output) = joint(uses_tcp)?;
    programs.start(command("source").arg(&capture).stdin(Stdio::null()).stdout(output))?;
    for _ in 0..length {
        let (next, output) = joint(uses_tcp)?;
        programs.start(command("filter").stdin(input).stdout(output))?;
        input = next;
    }
    let (mut elapsed, reply) = pipe()?;
    programs.start(command("sink").arg(&capture).stdin(input).stdout(reply))?;
    setting.look_until_ended(&mut programs)?;
    programs.finish()?;
    let mut line = String::new();
    elapsed.read_to_string(&mut line)?;
    let elapsed_ns: f64 = line.trim().parse().map_err(io::Error::other)?;
    Ok(setting.args.records as f64 / elapsed_ns * 1e9)
}
