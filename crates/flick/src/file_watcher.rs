//! Watches files for changes by polling, so that it does not matter how an editor writes them.
//! Promises: a change is reported once, after the files have been stable for one interval; a file that is missing for a
//! moment counts as a change.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// Polling interval, and how long the files must be stable.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Longest time by which the kernel's modification times lag behind the clock.
const MTIME_SLACK: Duration = Duration::from_millis(10);

/// Modification time and size of a file; `None` if it does not exist.
type FileStamp = Option<(SystemTime, u64)>;

/// The files that are watched.
pub struct FileWatcher {
    files: Vec<PathBuf>,
    /// Their stamps when the last change was reported.
    known: Vec<FileStamp>,
    /// Their stamps at the last poll.
    last: Vec<FileStamp>,
    due: Instant,
}

impl FileWatcher {
    /// Watches files that were read after `read_at`. One modified since then counts as changed.
    pub fn new(files: Vec<PathBuf>, read_at: SystemTime) -> Self {
        let last = stamps(&files);
        let since = read_at.checked_sub(MTIME_SLACK).unwrap_or(read_at);
        let known = last.iter().map(|stamp| stamp.filter(|(changed, _)| *changed < since)).collect();
        Self { files, last, known, due: Instant::now() + POLL_INTERVAL }
    }

    /// The files.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Time until the next poll.
    pub fn due_in(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Whether the files have changed since this last returned true, and are stable. Polls only when it is due.
    pub fn has_changed(&mut self) -> bool {
        let now = Instant::now();
        if now < self.due {
            return false;
        }
        self.due = now + POLL_INTERVAL;
        let stamps = stamps(&self.files);
        let has_changed = stamps != self.known && stamps == self.last;
        if has_changed {
            self.known.clone_from(&stamps);
        }
        self.last = stamps;
        has_changed
    }
}

fn stamps(files: &[PathBuf]) -> Vec<FileStamp> {
    let stamp = |file: &PathBuf| {
        let found = std::fs::metadata(file).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    files.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks whether a file counts as changed that was read so long after it was written; before, if negative.
    fn check(read_ms_after: i64, expected: bool) {
        let name = format!("flick-file-watcher-{}-{read_ms_after}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "text").expect("the temporary directory is writable");
        let written = std::fs::metadata(&path).and_then(|data| data.modified()).expect("it is there");
        let by = Duration::from_millis(read_ms_after.unsigned_abs());
        let read_at = if read_ms_after < 0 { written - by } else { written + by };
        let mut watcher = FileWatcher::new(vec![path.clone()], read_at);
        watcher.due = Instant::now();
        assert_eq!(watcher.has_changed(), expected, "{read_ms_after}");
        watcher.due = Instant::now();
        assert!(!watcher.has_changed(), "a change is reported once");
        std::fs::remove_file(&path).expect("the test created it");
    }

    #[test]
    fn write_during_a_read_counts_as_change() {
        check(-100, true);
        check(1_000, false);
    }
}
