//! The files of `flick accel`: the library and the patched texts in a cache directory, the states in memory.
//! Promises: files are written under another name and renamed, so that a process that starts meanwhile finds a whole
//! file; a directory that others may write to is refused.

use std::fs;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flick_preload::limits::{PAGE_BYTES, PERMITS_MAX};
use flick_preload::permits::{PERMITS_FILE, PollingPermits};
use flick_preload::state::{Chunk, ProcessTable};
use rustix::process::{Resource, getrlimit};

use super::patched_text::{self, PatchedText};
use crate::failure::{Failure, Outcome};

/// The library, for x86-64; empty for other architectures.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libflick_preload.so"));

/// The sources that a patched text depends on.
const MAKER: &[u8] = include_bytes!("patched_text.rs");

/// Places in which distributions keep glibc.
const LIBCS: &[&str] =
    &["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib64/libc.so.6", "/usr/lib/libc.so.6"];

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot {what} {}: {error}", path.display()))
}

/// Creates a directory of this user, or checks that it is one.
fn directory(path: PathBuf, mode: u32) -> Result<PathBuf, Failure> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(&path)
        .map_err(|error| failed("create", &path, &error))?;
    let facts = fs::symlink_metadata(&path).map_err(|error| failed("read", &path, &error))?;
    if !facts.is_dir() || facts.uid() != user() || facts.mode() & 0o022 != 0 {
        let text = format!("{} is not a directory that only this user may write to", path.display());
        return Err(Failure::failed(text));
    }
    Ok(path)
}

/// The directory of states: `$XDG_RUNTIME_DIR/flick-accel`, else one in shared memory.
pub fn state_directory() -> Result<PathBuf, Failure> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    let path = match runtime {
        Some(runtime) => runtime.join("flick-accel"),
        None => PathBuf::from(format!("/dev/shm/flick-accel-{}", user())),
    };
    directory(path, 0o700)
}

/// Makes the permits to poll, unless they are there: one less than the machine has cores.
///
/// Errors: the file cannot be written; programs poll for a microsecond at most then.
pub fn polling_permits(states: &Path) -> io::Result<()> {
    let mut page = vec![0; size_of::<PollingPermits>()];
    let count = cores()?.saturating_sub(1).min(PERMITS_MAX as u32);
    let at = offset_of!(PollingPermits, count);
    page.splice(at..at + size_of::<u32>(), count.to_le_bytes());
    write(&states.join(PERMITS_FILE), &page)
}

/// The cores of this machine that are online: `0-3,8` are five.
fn cores() -> io::Result<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let of_range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.trim().parse::<u32>().map_err(io::Error::other);
        Ok(number(last)?.saturating_sub(number(first)?) + 1)
    };
    text.split(',').map(of_range).sum()
}

/// Directory for caches: the user's own; of root, whose programs may change their user, `/var/cache`.
fn cache() -> Result<PathBuf, Failure> {
    let own = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    if own.is_none() && user() == 0 {
        return Ok(PathBuf::from("/var/cache/flick"));
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = own.or_else(home).ok_or_else(|| Failure::failed("neither XDG_CACHE_HOME nor HOME is set"))?;
    Ok(cache.join("flick"))
}

/// Most bytes of a file that this process may write (`ulimit -f`). Beyond, the kernel sends SIGXFSZ.
fn file_bytes_max() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Checks that a state has memory for a program's first descriptors under the limit of file sizes.
pub fn check_file_limit() -> Outcome {
    let needed = offset_of!(ProcessTable, chunks) + size_of::<Chunk>();
    let needed = needed.next_multiple_of(PAGE_BYTES);
    if file_bytes_max() >= needed as u64 {
        return Ok(());
    }
    let kib = needed.div_ceil(1024);
    Err(Failure::failed(format!("the limit of file sizes (`ulimit -f`) is below {kib} KiB")))
}

/// Installs the library and the patched texts of this machine's libcs, and returns the library's path.
pub fn library() -> Result<PathBuf, Failure> {
    if LIBRARY.is_empty() {
        return Err(Failure::failed("`flick accel` works on x86-64 only"));
    }
    let version = flick_abi::hash::hash(LIBRARY) ^ flick_abi::hash::hash(MAKER).rotate_left(1);
    let directory = directory(cache()?.join(format!("accel-{version:016x}")), 0o755)?;
    let library = directory.join("libflick_preload.so");
    let is_listable = |byte: &u8| !byte.is_ascii_whitespace() && *byte != b':';
    if !library.as_os_str().as_encoded_bytes().iter().all(is_listable) {
        let text = format!("{} cannot be in LD_PRELOAD: it has a space or a colon", library.display());
        return Err(Failure::failed(text));
    }
    let mut is_prepared = false;
    let mut refused = String::new();
    for libc in libcs() {
        match prepare(&libc, &directory) {
            Ok(()) => is_prepared = true,
            Err(why) => refused = format!(": {}: {why}", libc.display()),
        }
    }
    if !is_prepared {
        anstream::eprintln!("note: no libc of this machine can be used, calls are not seen{refused}");
    }
    write(&library, LIBRARY).map_err(|error| failed("write", &library, &error))?;
    Ok(library)
}

/// The libcs of this machine: that of this process, and those in the usual places.
fn libcs() -> Vec<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let own = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let own = own.filter(|path| path.ends_with("/libc.so.6"));
    let paths = own.chain(LIBCS.iter().copied()).filter_map(|path| fs::canonicalize(path).ok());
    let mut paths: Vec<_> = paths.collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Makes the patched text of a libc.
pub fn patched_text(libc: &Path) -> Result<PatchedText, String> {
    patched_text::make(&fs::read(libc).map_err(|error| error.to_string())?)
}

/// Writes the patched text of a libc, unless it is there. A file beside it, named by the libc's
/// file, holds its build id.
fn prepare(libc: &Path, directory: &Path) -> Result<(), String> {
    let facts = fs::metadata(libc).map_err(|error| error.to_string())?;
    let key = format!("{}-{}-{}-{}.seen", facts.dev(), facts.ino(), facts.len(), facts.mtime());
    let key = directory.join(key);
    let text_of = |build_id: &str| directory.join(format!("{build_id}.text"));
    if fs::read_to_string(&key).is_ok_and(|build_id| text_of(&build_id).exists()) {
        return Ok(());
    }
    let text = patched_text(libc)?;
    let written = write(&text_of(&text.build_id), &text.bytes);
    written.and_then(|()| write(&key, text.build_id.as_bytes())).map_err(|error| error.to_string())
}

/// Writes a file, unless it is there with the same length. What cannot be completed is removed.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|facts| facts.len() == bytes.len() as u64 && !bytes.is_empty()) {
        return Ok(());
    }
    if bytes.len() as u64 > file_bytes_max() {
        return Err(io::Error::other("the limit of file sizes (`ulimit -f`) is too low"));
    }
    let other = path.with_extension(format!("{}.new", std::process::id()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(if bytes.starts_with(b"\x7fELF") {
        0o755
    } else {
        0o644
    });
    let written = options.open(&other).and_then(|mut file| io::Write::write_all(&mut file, bytes));
    written.and_then(|()| fs::rename(&other, path)).inspect_err(|_| {
        let _ = fs::remove_file(&other);
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn file_that_could_not_be_completed_left_a_new_one() {
        let directory = std::env::temp_dir().join(format!("flick-accel-new-{}", std::process::id()));
        let occupied = directory.join("name.text");
        std::fs::create_dir_all(occupied.join("full")).expect("writable");
        assert!(super::write(&occupied, b"text").is_err(), "a directory that is not empty is not replaced");
        let names: Vec<_> = std::fs::read_dir(&directory).expect("ours").flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        std::fs::remove_dir_all(&directory).expect("ours");
    }
}
