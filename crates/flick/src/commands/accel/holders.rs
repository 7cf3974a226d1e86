//! Holders of pipes and sockets: a look at the descriptors of all processes of this host.
//! Promises: the processes are looked at in the order of their numbers, and a new process has a larger number than the
//! one that made it, so that a pipe cannot be handed from one that was not yet looked at to one that was; a look during
//! which numbers began again counts for nothing.
//! Refuses: descriptors that are on their way in a message, or were opened by `/proc` or `pidfd_getfd` of another
//! process.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A descriptor of a pipe or a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// Its number.
    pub fd: u32,
    /// Whether it can be read.
    pub reads: bool,
    /// Whether it can be written.
    pub writes: bool,
}

/// The descriptors of some pipes and sockets.
#[derive(Debug, Default)]
pub struct Holders {
    /// By the pipe's inode.
    pub of_pipe: HashMap<u64, Vec<Holder>>,
    /// By the socket's inode.
    pub of_socket: HashMap<u64, Vec<Holder>>,
    /// Sessions with a process whose descriptors cannot be read: it may hold any file of its session.
    pub unreadable: HashSet<u32>,
    /// Whether processes of other users are hidden (`hidepid` of `/proc`), so that any may hold any file.
    pub is_hidden: bool,
}

/// The session of a process.
pub fn session(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(3)?.parse().ok()
}

/// The number that the kernel has given to a process last.
fn last_pid() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().nth(4)?.parse().ok()
}

/// The inode of a file that the kernel names so, from the name of a descriptor.
fn inode(name: &Path, kind: &str) -> Option<u64> {
    name.to_str()?.strip_prefix(kind)?.strip_suffix(']')?.parse().ok()
}

/// Pipes and sockets, by their inodes.
#[derive(Debug, Default)]
pub struct Wanted {
    /// The pipes.
    pub pipes: HashSet<u64>,
    /// The sockets.
    pub sockets: HashSet<u64>,
}

/// Looks for the holders of pipes and sockets. `None`: the look counts for nothing.
pub fn look(wanted: &Wanted) -> Option<Holders> {
    let before = last_pid()?;
    let is_hidden = !Path::new("/proc/1").exists();
    let mut holders = Holders { is_hidden, ..Holders::default() };
    for entry in fs::read_dir("/proc").ok()? {
        let Some(pid) = entry.ok()?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let outcome = look_at(pid, wanted, &mut holders);
        let is_denied = outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        if is_denied || matches!(outcome, Ok(false)) {
            match session(pid) {
                Some(session) => {
                    holders.unreadable.insert(session);
                }
                // One that has ended has nothing.
                None => holders.is_hidden |= is_denied,
            }
        }
    }
    (last_pid()? >= before).then_some(holders)
}

/// Looks at the descriptors of one process. Each thread has them until it ends, which the first one may do before the
/// others; what a thread shows that still has some afterwards is all. Returns false if no thread has shown all.
///
/// Errors: they cannot be read.
fn look_at(pid: u32, wanted: &Wanted, holders: &mut Holders) -> io::Result<bool> {
    let mut shows_all = |directory: &Path| match look_at_thread(pid, directory, wanted, holders) {
        // It has ended meanwhile.
        Err(error) if error.kind() != ErrorKind::PermissionDenied => Ok(false),
        result => result,
    };
    if shows_all(Path::new(&format!("/proc/{pid}/fd")))? {
        return Ok(true);
    }
    let mut is_only_one = true;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?;
        if thread.file_name().to_str().and_then(|name| name.parse().ok()) == Some(pid) {
            continue;
        }
        is_only_one = false;
        if shows_all(&thread.path().join("fd"))? {
            return Ok(true);
        }
    }
    // It has no descriptors, or has ended.
    Ok(is_only_one)
}

/// Looks at the descriptors of one thread; returns whether it still has some afterwards.
///
/// Errors: they cannot be read; a descriptor that is closed meanwhile is none.
fn look_at_thread(pid: u32, directory: &Path, wanted: &Wanted, holders: &mut Holders) -> io::Result<bool> {
    for descriptor in fs::read_dir(directory)? {
        let path = descriptor?.path();
        let name = match fs::read_link(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            name => name?,
        };
        let pipe = inode(&name, "pipe:[").filter(|inode| wanted.pipes.contains(inode));
        let socket = inode(&name, "socket:[").filter(|inode| wanted.sockets.contains(inode));
        let list = match (pipe, socket) {
            (Some(inode), _) => holders.of_pipe.entry(inode).or_default(),
            (_, Some(inode)) => holders.of_socket.entry(inode).or_default(),
            _ => continue,
        };
        let fd = path.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(u32::MAX);
        // The permissions of the name say how the file was opened.
        let Ok(facts) = fs::symlink_metadata(&path) else { continue };
        let mode = facts.permissions().mode();
        let holder = Holder { pid, fd, reads: mode & 0o400 != 0, writes: mode & 0o200 != 0 };
        // Another thread may have shown it.
        if !list.contains(&holder) {
            list.push(holder);
        }
    }
    Ok(fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()))
}
