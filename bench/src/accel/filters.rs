//! Packet filters between standard input and standard output, by `read` and `write` or by stdio.

use std::io::{self, Read, pipe};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use super::setting::{Mode, Programs, Setting};
use crate::chain;

/// Records per second from a source through filters to a sink.
pub(super) fn measure(setting: &Setting<'_>, side: Mode, how: &str, length: usize) -> io::Result<f64> {
    let capture = setting.scratch.0.join("capture");
    std::fs::write(&capture, chain::capture(setting.args.records))?;
    let command = |role: &str| {
        let mut command = setting.command(side, setting.programs());
        command.args([role, how]);
        command
    };
    let mut programs = Programs::default();
    let (mut input, output) = joint(side)?;
    programs.start(command("source").arg(&capture).stdin(Stdio::null()).stdout(output))?;
    for _ in 0..length {
        let (next, output) = joint(side)?;
        programs.start(command("filter").stdin(input).stdout(output))?;
        input = next;
    }
    let (mut elapsed, reply) = pipe()?;
    programs.start(command("sink").arg(&capture).stdin(input).stdout(reply))?;
    programs.finish(setting)?;
    let mut line = String::new();
    elapsed.read_to_string(&mut line)?;
    let elapsed_ns: f64 = line.trim().parse().map_err(io::Error::other)?;
    Ok(setting.args.records as f64 / elapsed_ns * 1e9)
}

/// The two ends between two filters: the one that is read, and the one that is written to.
fn joint(side: Mode) -> io::Result<(OwnedFd, OwnedFd)> {
    if side != Mode::PlainTcp {
        let (reader, writer) = pipe()?;
        return Ok((reader.into(), writer.into()));
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let writer = TcpStream::connect(listener.local_addr()?)?;
    let (reader, _) = listener.accept()?;
    Ok((reader.into(), writer.into()))
}
