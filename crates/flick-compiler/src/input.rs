//! Input of the compiler: a text, and the files that its `use` lines find.
//! Promises: a `use` name means one thing. A file beside the program with the name of a library file is refused, so
//! that a program never changes its meaning with the directory it lies in.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flick_syntax::limits::SOURCE_BYTES_MAX;

use crate::error::CompileFailure;
use crate::stdlib;

/// A program's text and where its `use` lines find files: the standard library always, and what is added.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The name that diagnostics show.
    pub name: String,
    /// The program.
    pub text: String,
    directory: Option<PathBuf>,
    files: &'a [(&'a str, &'a str)],
}

impl<'a> Input<'a> {
    /// A text that uses the standard library only.
    pub fn text(name: &str, text: impl Into<String>) -> Self {
        Self { name: name.to_owned(), text: text.into(), directory: None, files: &[] }
    }

    /// A text as the program at `path`: `use` also finds the files beside it.
    pub fn at(path: &Path, text: impl Into<String>) -> Self {
        let directory = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let name = path.display().to_string();
        Self { name, text: text.into(), directory: Some(directory), files: &[] }
    }

    /// The program in the file at `path`.
    ///
    /// Errors: the file cannot be read.
    pub fn file(path: &Path) -> Result<Self, CompileFailure> {
        let text = read_source(path).map_err(|error| unreadable(path, &error))?;
        Ok(Self::at(path, text))
    }

    /// Adds files, as names and texts, that `use` finds before all others, the standard library included.
    pub fn with_files(self, files: &'a [(&'a str, &'a str)]) -> Self {
        Self { files, ..self }
    }

    /// Returns name and text of the file that `use name` means; `None` when there is no such file.
    ///
    /// Errors: the file cannot be read; it has the name of a library file.
    pub fn used(&self, name: &str) -> Result<Option<(String, String)>, CompileFailure> {
        if let Some((_, text)) = self.files.iter().find(|(known, _)| *known == name) {
            return Ok(Some((format!("{name}.flick"), (*text).to_owned())));
        }
        let standard = stdlib::text(name).map(|text| (stdlib::shown(name), text.to_owned()));
        let Some(directory) = &self.directory else { return Ok(standard) };
        let path = directory.join(format!("{name}.flick"));
        match (standard, read_source(&path)) {
            (standard, Err(error)) if error.kind() == ErrorKind::NotFound => Ok(standard),
            (_, Err(error)) => Err(unreadable(&path, &error)),
            // The library's own files use each other from the directory they lie in.
            (Some(standard), Ok(text)) if text == standard.1 => Ok(Some(standard)),
            (Some(_), Ok(_)) => Err(CompileFailure::Load(format!(
                "`use {name}` means the standard library's file, but {} has the same name; rename it",
                path.display()
            ))),
            (None, Ok(text)) => Ok(Some((path.display().to_string(), text))),
        }
    }
}

/// Reads a source text, at most one byte more than a source may have, so that its parser refuses a longer one.
///
/// Errors: those of [`open_source`]; the file cannot be read; it is not UTF-8.
pub fn read_source(path: &Path) -> io::Result<String> {
    read_source_from(open_source(path)?)
}

thread_local! {
    /// Whether this thread may wait for the writer of a pipe.
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// Runs `read` with pipes refused: to open one waits for its writer, and a process that reloads its files handles no
/// signal meanwhile.
pub fn without_pipes<T>(read: impl FnOnce() -> T) -> T {
    let before = MAY_WAIT.replace(false);
    let result = read();
    MAY_WAIT.set(before);
    result
}

/// Opens a file to read.
///
/// Errors: those of open(2); within [`without_pipes`] `InvalidInput` if it is not a regular file.
pub fn open_source(path: &Path) -> io::Result<File> {
    if !MAY_WAIT.get() && !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    File::open(path)
}

/// As [`read_source`], from what is open.
pub fn read_source_from(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    source.take(SOURCE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn unreadable(path: &Path, error: &io::Error) -> CompileFailure {
    CompileFailure::Load(format!("cannot read {}: {error}", path.display()))
}
