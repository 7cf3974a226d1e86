//! Runs other programs: prints the command, passes its output on, and turns a failure into a sentence.
//! Promises: commands run in the workspace's root, without a terminal or pipe as input, so that none waits for a
//! person.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// `Err` is a sentence for the person at the terminal.
pub type Outcome = Result<(), String>;

/// Lines that the summary of CI repeats.
static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints a line that the summary of CI repeats: something that was left out, say.
pub fn note(text: &str) {
    println!("{text}");
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
}

/// All notes so far.
pub fn notes() -> Vec<String> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The root of the workspace: the parent of this crate.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the crate lies in the workspace").to_path_buf()
}

/// The directory of builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command in the root of the workspace, without input.
pub fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// `cargo`, the one that runs this.
pub fn cargo(args: &[&str]) -> Command {
    command(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()), args)
}

/// `cargo` with the policy `SCHED_IDLE`, so that it runs only while a core has nothing else to do.
pub fn idle_cargo(args: &[&str]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    command("chrt", &[&["--idle", "0", &cargo], args].concat())
}

/// Shows and runs a command, and prints its output when it has ended. Errors: as of `run`.
pub fn run_printed_at_end(mut command: Command) -> Outcome {
    let shown = shown(&command);
    let output = command.output().map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    println!("$ {shown}\n{stderr}{stdout}");
    if output.status.success() { Ok(()) } else { Err(format!("`{shown}` failed: {}", output.status)) }
}

/// Shows and runs a command. Errors: it cannot be started, or exits with a status other than 0.
pub fn run(mut command: Command) -> Outcome {
    let shown = shown(&command);
    println!("$ {shown}");
    let status = command.status().map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed: {status}")) }
}

/// Whether a command exits with status 0; its output is dropped.
pub fn succeeds(mut command: Command) -> bool {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The standard output of a command that succeeds.
pub fn output(mut command: Command) -> Result<String, String> {
    let shown = shown(&command);
    let output = command.output().map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{shown}` failed: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
