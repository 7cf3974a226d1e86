//! Locks on state directories: two processes that write their snapshots to one directory would overwrite each other's.
//! Promises: one process at a time keeps dictionaries in a directory, and the kernel releases the lock when it ends. In
//! an upgrade the new process inherits the lock, so that the directory is never unlocked in between.
//! Refuses: nothing where the file system has no locks, or does not share them between machines; the log says so.
//! Source: flock(2) on the directory itself, so that no lock file is left behind.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use flick_runtime::ServiceConfig;
use tracing::warn;

use crate::failure::Failure;

/// The locked directories. Dropping it releases them, unless another process shares the lock.
#[derive(Debug, Default)]
pub struct StateDirLocks(Vec<File>);

impl StateDirLocks {
    /// The locks inherited from the old process of an upgrade.
    pub fn inherited(directories: Vec<OwnedFd>) -> Self {
        Self(directories.into_iter().map(File::from).collect())
    }

    /// Creates and locks the state directories of these services. A directory that `before` has locked stays locked by
    /// both.
    ///
    /// Errors: another process has locked one of them; it cannot be created or opened; its parent is missing.
    pub fn lock(services: &[ServiceConfig], before: &Self) -> Result<Self, Failure> {
        let mut locks = Self::default();
        for directory in services.iter().filter_map(snapshot_dir) {
            let locked = locks.lock_one(directory, before);
            locks.0.extend(locked.map_err(|error| Failure::failed(error.message(directory)))?);
        }
        Ok(locks)
    }

    /// The locked directories, for the new process of an upgrade.
    pub fn directories(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(AsFd::as_fd)
    }

    /// Locks one directory; `None` if this value has locked it already.
    fn lock_one(&self, directory: &Path, before: &Self) -> Result<Option<File>, LockError> {
        create(directory)?;
        let file = File::open(directory).map_err(LockError::Io)?;
        let id = file_id(&file);
        if self.0.iter().any(|own| file_id(own) == id) {
            return Ok(None);
        }
        if let Some(own) = before.0.iter().find(|own| file_id(own) == id) {
            return own.try_clone().map(Some).map_err(LockError::Io);
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Locked(lock_owner(&file))),
            Err(TryLockError::Error(error)) => {
                let path = directory.display();
                warn!(%path, %error, "cannot lock the state directory; another process could write to it");
            }
        }
        Ok(Some(file))
    }
}

/// Checks that a start could create the state directories of these services.
///
/// Errors: a parent directory is missing.
pub fn check(services: &[ServiceConfig]) -> Result<(), Failure> {
    for directory in services.iter().filter_map(snapshot_dir) {
        require_parent(directory).map_err(|error| Failure::failed(error.message(directory)))?;
    }
    Ok(())
}

/// Creates a state directory, but not its parent: a path that is not as meant would become a tree of directories, and
/// the service would start without the snapshots that lie elsewhere.
fn create(directory: &Path) -> Result<(), LockError> {
    if directory.is_dir() {
        return Ok(());
    }
    require_parent(directory)?;
    DirBuilder::new().mode(0o700).create(directory).map_err(LockError::Io)
}

fn require_parent(directory: &Path) -> Result<(), LockError> {
    // Without a parent in its name it is in the working directory.
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent.map(|parent| (parent, std::fs::metadata(parent))) {
        Some((parent, Err(error))) if error.kind() == ErrorKind::NotFound => {
            Err(LockError::NoParent(parent.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Reason that a directory is not locked.
enum LockError {
    /// The directory in which it is to be created is missing.
    NoParent(PathBuf),
    /// Another process has locked it: its id, if it is visible.
    Locked(Option<u32>),
    /// The system refuses.
    Io(std::io::Error),
}

impl LockError {
    fn message(&self, directory: &Path) -> String {
        let path = directory.display();
        let owner = match self {
            Self::Io(error) if error.kind() == ErrorKind::AlreadyExists => {
                return format!("cannot use the state directory {path}: it is not a directory");
            }
            Self::Io(error) => return format!("cannot use the state directory {path}: {error}"),
            Self::NoParent(parent) => {
                let parent = parent.display();
                return format!(
                    "cannot create the state directory {path}: {parent} does not exist; create it, or correct the path"
                );
            }
            Self::Locked(Some(pid)) => format!("process {pid}"),
            Self::Locked(None) => "another process".to_owned(),
        };
        format!(
            "{owner} uses the state directory {path}; both would overwrite each other's snapshots; end that process, or \
             give this one another directory"
        )
    }
}

/// The directory in which a service writes snapshots, if it has any.
pub fn snapshot_dir(service: &ServiceConfig) -> Option<&Path> {
    let has_snapshots = service.program.dicts.iter().any(|dict| dict.snapshot.is_some());
    service.config.state_dir.as_deref().filter(|_| has_snapshots)
}

/// Device and inode of a file: the same for every path to it.
fn file_id(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// The process that has locked a directory, if this one may see it. After an upgrade it may be either process.
fn lock_owner(directory: &File) -> Option<u32> {
    let id = file_id(directory)?;
    let pid_of = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    entries(Path::new("/proc")).filter_map(|process| Some((pid_of(&process)?, process))).find_map(
        |(pid, process)| {
            let has_locked = |file: &PathBuf| {
                let is_same = std::fs::metadata(file).is_ok_and(|found| (found.dev(), found.ino()) == id);
                is_same && file.file_name().is_some_and(|fd| has_flock(&process.join("fdinfo").join(fd)))
            };
            entries(&process.join("fd")).any(|file| has_locked(&file)).then_some(pid)
        },
    )
}

fn has_flock(fdinfo: &Path) -> bool {
    let text = std::fs::read_to_string(fdinfo).unwrap_or_default();
    text.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK"))
}

/// The entries of a directory; none if it cannot be read, because its process has ended or belongs to another user.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}
