//! The texts of `flick accel --status` and `--why`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::observed::{self, Process};
use super::patched_text::PatchedText;
use super::program;
use crate::console::{say, sayln};
use crate::failure::{Failure, Outcome};

/// Prints processes and what was counted.
pub fn show(processes: &[Process], is_json: bool) -> Outcome {
    if is_json {
        let json = serde_json::to_string_pretty(processes);
        sayln!("{}", json.map_err(|error| Failure::failed(error.to_string()))?);
        return Ok(());
    }
    if processes.is_empty() {
        sayln!("no process was started with `flick accel`");
    }
    for process in processes {
        say!("{}", text(process));
    }
    Ok(())
}

/// The lines of a process.
fn text(process: &Process) -> String {
    let mut text = String::new();
    let ended = if process.ended { ", ended" } else { "" };
    let Process { pid, program, method, sites, .. } = process;
    let _ =
        writeln!(text, "{pid} {program}{ended}: {method}, {sites} call sites, connections are counted only");
    if let Some(why) = &process.why_plain {
        let _ = writeln!(text, "  calls are not seen: {why}");
    }
    for why in &process.not_followed {
        let _ = writeln!(text, "  not followed: {why}");
    }
    if process.not_entered > 0 {
        let _ = writeln!(text, "  {} descriptors could not be entered", process.not_entered);
    }
    let closed = &process.closed;
    if closed.equal + closed.different + closed.not_compared > 0 {
        let (equal, different, not) = (closed.equal, closed.different, closed.not_compared);
        let _ = writeln!(text, "  closed: {equal} as the kernel counts, {different} not, {not} not compared");
    }
    for file in &process.files {
        let flags = file.flags.join(", ");
        let (fd, kind, sent, received) = (file.fd, file.kind, file.sent, file.received);
        let _ = writeln!(text, "  fd {fd}: {kind}, sent {sent}, received {received} ({flags})");
    }
    text
}

/// The call sites of a libc.
pub fn sites(patched: &PatchedText) -> String {
    let mut text = format!("build id {}\n", patched.build_id);
    for (call, sites) in &patched.sites {
        let _ = writeln!(text, "{}: {sites}", call.to_lowercase());
    }
    for site in &patched.unseen {
        let call = site.call.to_lowercase();
        let _ = writeln!(text, "{call} at {:#x} is not seen: {}", site.address, site.cause);
    }
    text
}

/// The text about one process.
pub fn why(pid: u32, states: &Path) -> String {
    let exe = Path::new("/proc").join(pid.to_string()).join("exe");
    let Ok(program) = fs::read_link(&exe) else {
        return format!("there is no process {pid}, or it is another user's\n");
    };
    if let Some(process) = observed::one(states, pid).filter(|process| !process.ended) {
        return self::text(&process);
    }
    let why = program::why_not_seen(&exe);
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let why = match why {
        Some(why) => why,
        None if maps.contains("/libflick_preload.so") => {
            "its state is not in this user's directory of states"
        }
        None => "it was not started with `flick accel`",
    };
    format!("{pid} {}: calls are not seen: {why}\n", program.display())
}
