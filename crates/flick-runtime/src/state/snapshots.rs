//! Keeping dictionaries across restarts: read back at the start, written at intervals and at the end, by a thread of
//! their own, as they wait for the disk. Workers wait for it only where it copies a bucket that changes all the time.
//! Promises: a damaged snapshot is reported, the dictionary starts empty, and the file is kept under another name when
//! a new one is written; one that may not be read or not be written is an error at the start; one that cannot be
//! written later is reported, and the old file stays; a start that fails changes no file. Of dictionaries with the same
//! interval, whenever the process ends, the file of an earlier one in the program is not newer than that of a later
//! one: the later one knows of what an entry of the earlier one refers to.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flick_dict::snapshot::{NewSnapshot, check_writable, load, write, writer_of};
use flick_dict::{LoadError, LoadSummary, SnapshotTime};
use flick_net::monotonic_ns;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::{Dict, State, wall_ns};
use crate::limits::{CLOCK_STEP_NS_MIN, SNAPSHOT_EVERY_MIN, SNAPSHOT_NICE};

/// Handle on the thread that writes. Dropped, it leaves the files as they are.
#[derive(Debug)]
pub struct Keeper {
    state: Arc<State>,
    orders: Sender<Order>,
    /// Ends with how many files it could not write at last.
    thread: JoinHandle<usize>,
}

/// Order to the thread that writes snapshots.
#[derive(Debug)]
enum Order {
    /// Write at the intervals from now on, when nothing of these is being written any more: their keepers have left.
    Begin(Vec<Arc<State>>),
    /// End, with everything written.
    Finish,
    /// End at once, as the successor writes from now on, or the start has failed.
    Leave,
}

/// The thread that writes, seen from itself.
struct Writer {
    state: Arc<State>,
    directory: PathBuf,
    /// Files that could not be read, and are still in the way of new ones, with where they are put.
    unread: Vec<(PathBuf, PathBuf)>,
}

/// Error that prevents all snapshots from being kept.
#[derive(Debug)]
pub enum KeepError {
    /// A dictionary's file is not the name of a file in the state directory.
    Name(String),
    /// The state directory cannot be made, or the thread not started.
    Io(std::io::Error),
    /// This snapshot cannot be read, or not be written.
    File(PathBuf, std::io::Error),
}

impl std::fmt::Display for KeepError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(file) => {
                write!(f, "snapshot \"{file}\" is not a name: write a file's name without `/` and `..`")
            }
            Self::Io(error) => write!(f, "{error}"),
            Self::File(path, error) => {
                write!(f, "cannot read and write the snapshot {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for KeepError {}

impl From<std::io::Error> for KeepError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl State {
    /// Whether any dictionary is kept across restarts.
    pub fn has_snapshots(&self) -> bool {
        self.dicts().iter().any(|dict| dict.shape.snapshot.is_some())
    }

    /// Reads back what is kept in `directory`. A damaged file is logged, and its dictionary starts empty. Returns the
    /// damaged ones, with where each is to be put.
    ///
    /// Errors: a file's name that leads out of the directory; a directory that cannot be made, as without its parent; a
    /// file that may not be read or not be written.
    fn load_snapshots(&self, directory: &Path) -> Result<Vec<(PathBuf, PathBuf)>, KeepError> {
        let mut unread = Vec::new();
        if !directory.is_dir() {
            DirBuilder::new().mode(0o700).create(directory)?;
        }
        for (dict, path) in self.kept(directory) {
            let path = path?;
            if dict.is_inherited {
                continue;
            }
            check_writable(&path).map_err(|error| KeepError::File(path.clone(), error))?;
            let (name, time) = (&dict.shape.name, self.snapshot_time());
            match load(&dict.dictionary, &path, dict.shape.layout, time) {
                Ok(LoadSummary { entries, expired, refused }) => {
                    tracing::info!(dictionary = name, entries, expired, refused, "read back a snapshot");
                }
                Err(LoadError::Missing) => {}
                Err(LoadError::Io(error)) => return Err(KeepError::File(path, error)),
                Err(error) => {
                    let (file, aside) = (path.display(), aside(&path, time.wall_ns));
                    let kept = aside.display();
                    tracing::warn!(dictionary = name, %file, %error, %kept, "starts empty");
                    unread.push((path, aside));
                }
            }
        }
        Ok(unread)
    }

    /// Writes all that is kept, and says how many files could not be written.
    pub fn save_snapshots(&self, directory: &Path) -> usize {
        self.save_those(directory, &vec![true; self.dicts().len()])
    }

    /// Writes what is kept of the dictionaries at these places, and says how many files could not be written. A name
    /// that leads out of the directory is an error of the start.
    fn save_those(&self, directory: &Path, is_due: &[bool]) -> usize {
        let due = self.dicts().iter().zip(is_due).filter(|(_, is_due)| **is_due).map(|(dict, _)| dict);
        let kept = due.filter_map(|dict| {
            let snapshot = dict.shape.snapshot.as_ref()?;
            Some((dict, path_of(directory, &snapshot.file).ok()?))
        });
        let _alone = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        match self.is_left.load(Ordering::Acquire) {
            true => 0,
            false => save_together(&kept.collect::<Vec<_>>(), self.snapshot_time()),
        }
    }

    /// The time of a snapshot: entries have times of this state's clock, which no correction of the system's reaches.
    fn snapshot_time(&self) -> SnapshotTime {
        let (now_ns, wall_ns) = (self.wall_ns(monotonic_ns()).max(0) as u64, wall_ns().max(0) as u64);
        // Reading both takes time, and a clock that is slewed is never far off.
        if now_ns.abs_diff(wall_ns) < CLOCK_STEP_NS_MIN {
            return SnapshotTime::same(now_ns);
        }
        SnapshotTime { now_ns, wall_ns }
    }

    /// Waits until nothing of this state is being written, once its keeper has left.
    fn wait_for_save(&self) {
        drop(self.saving.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn kept<'a>(
        &'a self,
        directory: &'a Path,
    ) -> impl Iterator<Item = (&'a Dict, Result<PathBuf, KeepError>)> + 'a {
        self.dicts().iter().filter_map(move |dict| {
            let snapshot = dict.shape.snapshot.as_ref()?;
            Some((dict, path_of(directory, &snapshot.file)))
        })
    }
}

/// The file in the directory; refuses what would be anywhere else.
fn path_of(directory: &Path, file: &str) -> Result<PathBuf, KeepError> {
    let mut parts = Path::new(file).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(name)), None) if name == file => Ok(directory.join(name)),
        _ => Err(KeepError::Name(file.to_owned())),
    }
}

/// Returns the path for a snapshot that could not be read, out of the way of those that are written from here on: it
/// may be what a wrong program was started over.
fn aside(path: &Path, wall_ns: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".unread-{}", wall_ns / 1_000_000_000));
    PathBuf::from(name)
}

/// Writes all of them in their order, and then replaces the old files in the opposite one, up to the first that cannot
/// be. Says how many were not replaced.
fn save_together(kept: &[(&Dict, PathBuf)], time: SnapshotTime) -> usize {
    let written: Vec<_> =
        kept.iter().map(|(dict, path)| write(&dict.dictionary, path, dict.shape.layout, time)).collect();
    let mut failed = 0;
    for ((dict, path), new) in kept.iter().zip(written).rev() {
        let renamed = if failed == 0 {
            new.and_then(NewSnapshot::replace_old)
        } else {
            new.and(Err(std::io::Error::other("that of a later dictionary could not be written")))
        };
        let name = &dict.shape.name;
        match renamed {
            Ok(entries) => tracing::debug!(dictionary = name, entries, "wrote a snapshot"),
            Err(error) => {
                failed += 1;
                tracing::warn!(dictionary = name, file = %path.display(), %error, "cannot write a snapshot");
            }
        }
    }
    failed
}

impl Keeper {
    /// Reads back what is kept, and starts the thread, which changes no file before [`Keeper::begin`] or
    /// [`Keeper::finish`]; `None` when nothing is kept.
    ///
    /// Errors: [`KeepError`].
    pub fn start(state: &Arc<State>, directory: &Path) -> Result<Option<Self>, KeepError> {
        if !state.has_snapshots() {
            return Ok(None);
        }
        let unread = state.load_snapshots(directory)?;
        let (orders, received) = channel();
        let writer = Writer { state: Arc::clone(state), directory: directory.to_owned(), unread };
        let thread = std::thread::Builder::new().name("flick-keeper".into());
        let thread = thread.spawn(move || writer.run(&received))?;
        Ok(Some(Self { state: Arc::clone(state), orders, thread }))
    }

    /// Writes at the intervals from now on, as the successor of the keepers of these states, which have left.
    pub fn begin(&self, before: Vec<Arc<State>>) {
        // A thread that has panicked writes nothing.
        let _ = self.orders.send(Order::Begin(before));
    }

    /// Writes everything a last time, when the workers have ended, and returns how many files could not be written. A
    /// panic of the thread is propagated.
    pub fn finish(self) -> usize {
        // As above.
        let _ = self.orders.send(Order::Finish);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Begins to write nothing more: another keeper does. Returns the thread, which ends when it has written what it is
    /// writing.
    pub fn leave(self) -> JoinHandle<usize> {
        self.state.is_left.store(true, Ordering::Release);
        // As above.
        let _ = self.orders.send(Order::Leave);
        self.thread
    }
}

impl Writer {
    /// Follows the orders to the last one. Returns how many files it could not write at last.
    fn run(mut self, orders: &Receiver<Order>) -> usize {
        // Of this thread only. It may be refused, if the whole process is nicer already.
        let _ = rustix::process::setpriority_process(None, SNAPSHOT_NICE);
        let mut due = match orders.recv() {
            Ok(Order::Begin(before)) => {
                before.iter().for_each(|before| before.wait_for_save());
                self.remove_leftovers();
                self.due_after(Instant::now())
            }
            Ok(Order::Finish) => Vec::new(),
            Ok(Order::Leave) | Err(RecvError) => return 0,
        };
        while let Some(next) = due.iter().flatten().min().copied() {
            match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Begin(_)) => continue,
                Ok(Order::Finish) => break,
                Ok(Order::Leave) | Err(RecvTimeoutError::Disconnected) => return 0,
            }
            let is_due: Vec<bool> = due.iter().map(|due| due.is_some_and(|due| due <= next)).collect();
            self.save(&is_due);
            // Dictionaries with the same interval stay together, in the order of the program.
            let next_due = self.due_after(Instant::now());
            for (at, due) in due.iter_mut().enumerate().filter(|(at, _)| is_due[*at]) {
                *due = next_due[at];
            }
        }
        self.save(&vec![true; self.state.dicts().len()])
    }

    /// Removes what processes have left behind that ended while they wrote.
    fn remove_leftovers(&self) {
        let Ok(files) = std::fs::read_dir(&self.directory) else { return };
        for file in files.flatten() {
            let mut kept = self.state.kept(&self.directory).filter_map(|(_, path)| path.ok());
            let writer = kept.find_map(|path| writer_of(&file.file_name(), &path));
            let pid = writer.and_then(|writer| Pid::from_raw(writer.try_into().ok()?));
            if pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH)) {
                // One that cannot be removed only takes space.
                let _ = std::fs::remove_file(file.path());
            }
        }
    }

    /// When each dictionary is to be written, if it was written at this time.
    fn due_after(&self, written: Instant) -> Vec<Option<Instant>> {
        let every = |dict: &Dict| {
            let every = Duration::from_nanos(dict.shape.snapshot.as_ref()?.every_ns);
            Some(written + every.max(SNAPSHOT_EVERY_MIN))
        };
        self.state.dicts().iter().map(every).collect()
    }

    fn save(&mut self, is_due: &[bool]) -> usize {
        for (path, aside) in self.unread.drain(..) {
            if let Err(error) = std::fs::rename(&path, aside) {
                let file = path.display();
                tracing::warn!(%file, %error, "cannot keep a snapshot that could not be read");
            }
        }
        self.state.save_those(&self.directory, is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::{KeepError, path_of};
    use std::path::Path;

    #[test]
    fn a_snapshot_stays_in_its_directory() {
        assert_eq!(path_of(Path::new("/state"), "hits").ok().as_deref(), Some(Path::new("/state/hits")));
        for file in ["", ".", "..", "../x", "/x", "a/b", "a/"] {
            assert!(matches!(path_of(Path::new("/state"), file), Err(KeepError::Name(_))), "{file:?}");
        }
    }
}
