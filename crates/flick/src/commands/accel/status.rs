//! The texts of `flick accel --status` and `--why`.

use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use flick_preload::limits::MOVE_CALLS_MIN;
use serde::Serialize;

use super::observed::{self, Closed, Process};
use super::patched_text::PatchedText;
use super::program;
use crate::console::{say, sayln};
use crate::failure::{Failure, Outcome};

/// Prints a value as JSON.
fn show_json(value: &(impl Serialize + ?Sized)) -> Outcome {
    let json = serde_json::to_string_pretty(value);
    sayln!("{}", json.map_err(|error| Failure::failed(error.to_string()))?);
    Ok(())
}

/// Prints processes and what was counted.
pub fn show(processes: &[Process], is_json: bool) -> Outcome {
    if is_json {
        return show_json(processes);
    }
    if processes.is_empty() {
        sayln!("no process that was started with `flick accel` is running");
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
    let _ = writeln!(text, "{pid} {program}{ended}: {method}, {sites} call sites");
    if let Some(why) = &process.why_plain {
        let _ = writeln!(text, "  calls are not seen: {why}");
    }
    for why in &process.not_followed {
        let _ = writeln!(text, "  not followed: {why}");
    }
    if let Some(why) = process.why_stays {
        let _ = writeln!(text, "  everything stays in the kernel: {why}");
    }
    if process.not_entered > 0 {
        let _ = writeln!(text, "  {} descriptors could not be entered", process.not_entered);
    }
    let waits = &process.waits;
    if waits.slept + waits.woken + waits.refused > 0 {
        let (slept, woken) = (waits.slept, waits.woken);
        let _ = writeln!(text, "  waits: {slept} sleeps beside rings, {woken} wake-ups of other processes");
    }
    if waits.refused > 0 {
        let refused = waits.refused;
        let _ = writeln!(
            text,
            "  {refused} wake-ups by the kernel: the event of a sleeper cannot be had (`pidfd_getfd`)"
        );
    }
    if waits.polls_refused > 0 {
        let refused = waits.polls_refused;
        let _ = writeln!(text, "  {refused} waits slept early: other programs polled on all cores but one");
    }
    if waits.controls_kept > 0 {
        let (kept, sent) = (waits.controls_kept, waits.controls_sent);
        let _ = writeln!(text, "  {kept} calls of epoll_ctl were kept, {sent} were made in their place");
    }
    let closed = &process.closed;
    if closed.equal + closed.different + closed.not_compared > 0 {
        let (equal, different, not) = (closed.equal, closed.different, closed.not_compared);
        let _ =
            writeln!(text, "  compared: {equal} as the kernel counts, {different} not, {not} not compared");
    }
    if closed.files > 0 {
        let Closed { files, sent, received, .. } = closed;
        let _ = writeln!(text, "  {files} closed, sent {sent}, received {received}");
    }
    if process.ring_bytes > 0 {
        let _ = writeln!(text, "  {} bytes by ring, of open and closed ones", process.ring_bytes);
    }
    for file in &process.files {
        let flags =
            if file.flags.is_empty() { String::new() } else { format!(" ({})", file.flags.join(", ")) };
        let (fd, kind, sent, received) = (file.fd, file.kind, file.sent, file.received);
        let _ = write!(text, "  fd {fd}: {kind}, sent {sent}, received {received}{flags}");
        let transport = match (process.moves, file.transport, file.why_kernel) {
            (false, ..) => String::new(),
            (true, "kernel", Some(why)) => format!(", kernel: {why}"),
            (true, "kernel", None) if file.kind.starts_with("pipe") || file.flags.contains(&"connected") => {
                format!(", kernel: fewer than {MOVE_CALLS_MIN} calls, or not paired yet")
            }
            (true, transport, _) => format!(", {transport}"),
        };
        let _ = writeln!(text, "{transport}, {} bytes by ring", file.ring_bytes);
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

/// A process whose calls are not seen.
#[derive(Debug, Serialize)]
struct NotSeen {
    pid: u32,
    program: PathBuf,
    why_not_seen: &'static str,
}

/// Prints what is seen of a process, or why nothing is.
///
/// Errors: there is no such process, or it is another user's.
pub fn why(pid: u32, states: &Path, is_json: bool) -> Outcome {
    let exe = Path::new("/proc").join(pid.to_string()).join("exe");
    let program = fs::read_link(&exe).map_err(|error| {
        let exists = exe.parent().is_some_and(Path::exists);
        Failure::failed(match exists && error.kind() == ErrorKind::NotFound {
            true => format!("process {pid} has no program: it is a thread of the kernel, or has ended"),
            false => format!("there is no process {pid}, or it is another user's"),
        })
    })?;
    if let Some(process) = observed::one(states, pid).filter(|process| !process.ended) {
        if is_json {
            return show_json(&process);
        }
        say!("{}", self::text(&process));
        return Ok(());
    }
    let why = program::why_not_seen(&exe);
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let why = match why {
        Some(why) => why,
        None if maps.contains("/libflick_preload.so") => {
            "its state is not in this user's directory of states, which was another one when it started, or not \
             writable"
        }
        None => "it was not started with `flick accel`",
    };
    if is_json {
        return show_json(&NotSeen { pid, program, why_not_seen: why });
    }
    sayln!("{pid} {}: calls are not seen: {why}", program.display());
    Ok(())
}
