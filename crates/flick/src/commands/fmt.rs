//! `flick fmt`: gives programs their one layout.
//! Promises: comments and meaning stay; a file is replaced whole or not at all, and only if it changes; a file with
//! mistakes in its spelling is left alone and its mistakes are told; the other files are still formatted.
//! Refuses: to know what names mean, so a program need not be complete to be formatted.

mod changes;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::failure::{Failure, Outcome};
use crate::report;

/// Gives programs their one layout.
#[derive(Debug, Args)]
pub struct Fmt {
    /// The programs; `-` formats stdin to stdout
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write nothing: print what would change, and end with 1 if something would
    #[arg(long)]
    check: bool,
}

/// What became of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    AsItWas,
    Changed,
    /// It was told why it was not formatted.
    Refused,
}

impl Fmt {
    /// Formats every file; a mistake in one does not keep the others from it.
    pub fn run(self) -> Outcome {
        let mut is_right = true;
        for path in &self.files {
            let fate = if path.as_os_str() == "-" { self.stdin()? } else { self.file(path) };
            is_right &= match fate {
                Fate::AsItWas => true,
                Fate::Changed => !self.check,
                Fate::Refused => false,
            };
        }
        if is_right { Ok(()) } else { Err(Failure::reported()) }
    }

    fn file(&self, path: &Path) -> Fate {
        let name = path.display().to_string();
        let text = match flick_compiler::read_source(path) {
            Ok(text) => text,
            Err(error) => return refuse(&format!("cannot read {name}: {error}")),
        };
        let Some(formatted) = formatted(&name, &text) else { return Fate::Refused };
        if formatted == text {
            return Fate::AsItWas;
        }
        if self.check {
            crate::console::say!("{}", changes::text(&name, &text, &formatted));
            return Fate::Changed;
        }
        match replace(path, &formatted) {
            Ok(()) => {
                crate::console::sayln!("formatted {name}");
                Fate::Changed
            }
            Err(error) => refuse(&format!("cannot write {name}: {error}")),
        }
    }

    fn stdin(&self) -> Result<Fate, Failure> {
        let text = flick_compiler::read_source_from(std::io::stdin().lock())
            .map_err(|error| Failure::failed(format!("cannot read stdin: {error}")))?;
        let Some(formatted) = formatted("stdin", &text) else { return Ok(Fate::Refused) };
        let fate = if formatted == text { Fate::AsItWas } else { Fate::Changed };
        if !self.check {
            let written = std::io::stdout().lock().write_all(formatted.as_bytes());
            written.map_err(|error| Failure::failed(format!("cannot write stdout: {error}")))?;
        } else if fate == Fate::Changed {
            crate::console::say!("{}", changes::text("stdin", &text, &formatted));
        }
        Ok(fate)
    }
}

/// The layout of `text`; `None` when it has mistakes, which are then told.
fn formatted(name: &str, text: &str) -> Option<String> {
    let (parse, diagnostics, sources) = flick_check::check_syntax(name, text);
    if report::report(&diagnostics, &sources) || !parse.errors().is_empty() {
        return None;
    }
    Some(flick_syntax::format(&parse))
}

fn refuse(message: &str) -> Fate {
    Failure::failed(message).report();
    Fate::Refused
}

/// Writes a new file beside the old one and puts it in its place; links stay links, permissions stay.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let path = path.canonicalize()?;
    let permissions = fs::metadata(&path)?.permissions();
    if permissions.readonly() {
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, "the file is read-only"));
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let beside = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let result = write_new(&beside, text, permissions).and_then(|()| fs::rename(&beside, &path));
    if result.is_err() {
        // It may never have been made; then there is nothing to remove.
        let _ = fs::remove_file(&beside);
    }
    result
}

fn write_new(path: &Path, text: &str, permissions: fs::Permissions) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.set_permissions(permissions)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
