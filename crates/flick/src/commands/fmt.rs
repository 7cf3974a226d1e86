//! `flick fmt`: formats programs.
//! Promises: comments and meaning stay; a file is replaced atomically, and only if it changes; a file with syntax
//! errors is reported and left unchanged, and the other files are formatted.
//! Not here: names and types, so a program need not be complete to be formatted.

mod changes;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::failure::{Failure, Outcome};
use crate::replace_file::replace_file;
use crate::report;

/// Formats programs.
#[derive(Debug, Args)]
pub struct Fmt {
    /// The programs; `-` formats stdin to stdout
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write nothing: print what would change, and exit with 1 if something would
    #[arg(long)]
    check: bool,
}

/// The result for one file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Formatting {
    Unchanged,
    Changed,
    /// The file could not be formatted; the reason was reported.
    Failed,
}

impl Fmt {
    /// Formats every file, also behind one with errors.
    pub fn run(self) -> Outcome {
        let mut is_right = true;
        for path in &self.files {
            let result = if path.as_os_str() == "-" { self.stdin()? } else { self.file(path) };
            is_right &= match result {
                Formatting::Unchanged => true,
                Formatting::Changed => !self.check,
                Formatting::Failed => false,
            };
        }
        if is_right { Ok(()) } else { Err(Failure::reported()) }
    }

    fn file(&self, path: &Path) -> Formatting {
        let name = path.display().to_string();
        let text = match flick_compiler::read_source(path) {
            Ok(text) => text,
            Err(error) => return fail(&format!("cannot read {name}: {error}")),
        };
        let Some(formatted) = formatted(&name, &text) else { return Formatting::Failed };
        if formatted == text {
            return Formatting::Unchanged;
        }
        if self.check {
            crate::console::say!("{}", changes::text(&name, &text, &formatted));
            return Formatting::Changed;
        }
        match replace_file(path, &formatted) {
            Ok(()) => {
                crate::console::sayln!("formatted {name}");
                Formatting::Changed
            }
            Err(error) => fail(&format!("cannot write {name}: {error}")),
        }
    }

    fn stdin(&self) -> Result<Formatting, Failure> {
        let text = flick_compiler::read_source_from(std::io::stdin().lock())
            .map_err(|error| Failure::failed(format!("cannot read stdin: {error}")))?;
        let Some(formatted) = formatted("stdin", &text) else { return Ok(Formatting::Failed) };
        let result = if formatted == text { Formatting::Unchanged } else { Formatting::Changed };
        if !self.check {
            let written = std::io::stdout().lock().write_all(formatted.as_bytes());
            written.map_err(|error| Failure::failed(format!("cannot write stdout: {error}")))?;
        } else if result == Formatting::Changed {
            crate::console::say!("{}", changes::text("stdin", &text, &formatted));
        }
        Ok(result)
    }
}

/// Formats `text`. Returns `None` if it has errors, which are reported then.
fn formatted(name: &str, text: &str) -> Option<String> {
    let (parse, diagnostics, sources) = flick_check::check_syntax(name, text);
    if report::report(&diagnostics, &sources) || !parse.errors().is_empty() {
        return None;
    }
    Some(flick_syntax::format(&parse))
}

fn fail(message: &str) -> Formatting {
    Failure::failed(message).report();
    Formatting::Failed
}
