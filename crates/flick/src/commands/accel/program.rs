//! Programs whose calls cannot be seen, judged by their file.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::elf::{Elf, segment};

/// Bits of a file's mode: set user and set group.
const SET_IDS: u32 = 0o6000;

/// Finds a program as `execvp` does.
pub fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// The reason why the library is not loaded into a program, or is without effect.
pub fn why_not_seen(path: &Path) -> Option<&'static str> {
    if fs::metadata(path).ok()?.mode() & SET_IDS != 0 {
        return Some("it runs with another user's rights, so the loader ignores LD_PRELOAD");
    }
    let bytes = fs::read(path).ok()?;
    // A script is judged by what its interpreter is.
    let elf = Elf::parse(&bytes)?;
    let interpreter = elf.segments().into_iter().find(|part| part.kind == segment::INTERPRETER);
    let is_go = elf.note(b"Go\0\0", 4).is_some();
    match interpreter.and_then(|part| elf.range(part.offset, part.bytes)) {
        None if is_go => Some("it is a program of Go without libc"),
        None => Some("it is statically linked"),
        Some(path) if path.windows(4).any(|part| part == b"musl") => Some("its libc is musl"),
        Some(_) if is_go => Some("it is a program of Go, which makes its system calls itself"),
        Some(_) => None,
    }
}
