//! State directories, held against other processes: two that write their snapshots to one would overwrite each other's.
//! Promises: one process, and whoever takes its place, keeps dictionaries in a directory at a time; the kernel ends it with
//! the process, however that ends. In an upgrade both have the same hold, so that there is no moment without.
//! Refuses: to mind what other machines do on a shared file system that does not tell, and file systems that hold nothing;
//! those are told in the log.
//! Source: flock(2), on the directory itself: nothing is left behind in it.

use std::fs::{File, TryLockError};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flick_runtime::Service;
use tracing::warn;

use crate::failure::Failure;

/// The directories that are held, until it is dropped.
#[derive(Debug, Default)]
pub struct Held(Vec<File>);

impl Held {
    /// What the process held whose place this one takes.
    pub fn inherited(directories: Vec<OwnedFd>) -> Self {
        Self(directories.into_iter().map(File::from).collect())
    }

    /// Makes the directories that these services keep something in, and holds them; those that are held already go on
    /// being held, by both.
    ///
    /// Errors: another process holds one of them; it cannot be made or opened.
    pub fn take(services: &[Service], before: &Self) -> Result<Self, Failure> {
        let mut held = Self::default();
        for directory in services.iter().filter_map(kept_in) {
            let taken = held.hold(directory, before);
            held.0.extend(taken.map_err(|why| Failure::failed(refusal(directory, &why)))?);
        }
        Ok(held)
    }

    /// For the process that takes this one's place.
    pub fn directories(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(AsFd::as_fd)
    }

    /// Nothing, where this is held already by what was asked for before.
    fn hold(&self, directory: &Path, before: &Self) -> Result<Option<File>, Refusal> {
        std::fs::create_dir_all(directory).map_err(Refusal::System)?;
        let file = File::open(directory).map_err(Refusal::System)?;
        let this = place(&file);
        if self.0.iter().any(|own| place(own) == this) {
            return Ok(None);
        }
        if let Some(own) = before.0.iter().find(|own| place(own) == this) {
            return own.try_clone().map(Some).map_err(Refusal::System);
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Refusal::Held(holder(&file))),
            Err(TryLockError::Error(error)) => {
                let path = directory.display();
                warn!(%path, %error, "cannot hold the state directory: nothing keeps others from writing there");
            }
        }
        Ok(Some(file))
    }
}

/// Why a directory is not held.
enum Refusal {
    /// By another process; its number, if it can be seen.
    Held(Option<u32>),
    /// By the system.
    System(std::io::Error),
}

fn refusal(directory: &Path, why: &Refusal) -> String {
    let path = directory.display();
    let other = match why {
        Refusal::System(error) => return format!("cannot use the state directory {path}: {error}"),
        Refusal::Held(Some(pid)) => format!("process {pid}"),
        Refusal::Held(None) => "another process".to_owned(),
    };
    format!(
        "{other} keeps its dictionaries in the state directory {path}, where both would overwrite each other's; \
         end that one first, or give this one a `--state-dir` of its own"
    )
}

/// Where a service keeps dictionaries, if it keeps any.
pub fn kept_in(service: &Service) -> Option<&Path> {
    let keeps = service.program.dicts.iter().any(|dict| dict.snapshot.is_some());
    service.config.state_dir.as_deref().filter(|_| keeps)
}

/// What tells a directory from others, whatever it is called.
fn place(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// The process that holds a directory, as far as this one may look: which may be another one than took hold of it first.
fn holder(directory: &File) -> Option<u32> {
    let this = place(directory)?;
    let numbered = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    entries(Path::new("/proc")).filter_map(|process| Some((numbered(&process)?, process))).find_map(
        |(pid, process)| {
            let holds = |file: &PathBuf| {
                let is_this = std::fs::metadata(file).is_ok_and(|found| (found.dev(), found.ino()) == this);
                is_this
                    && file.file_name().is_some_and(|number| has_lock(&process.join("fdinfo").join(number)))
            };
            entries(&process.join("fd")).any(|file| holds(&file)).then_some(pid)
        },
    )
}

fn has_lock(information: &Path) -> bool {
    let text = std::fs::read_to_string(information).unwrap_or_default();
    text.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK"))
}

/// What is in a directory; nothing of one that cannot be read, as its process has gone or is somebody else's.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}
