//! Files that are watched for change: looked at now and then, so that it does not matter how an editor writes them.
//! Promises: a change is told once, when the files have been the same for one look; a file that is missing for a moment is a
//! change like any other.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// How often the files are looked at, and how long they must be the same.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How far the time that the kernel gives to what is written may lie behind the clock.
const STAMP_SLACK: Duration = Duration::from_millis(10);

/// What a file looks like from outside: when it was changed, and how long it is.
type Stamp = Option<(SystemTime, u64)>;

/// Files and how they looked.
pub struct Watching {
    files: Vec<PathBuf>,
    known: Vec<Stamp>,
    last: Vec<Stamp>,
    due: Instant,
}

impl Watching {
    /// Watches these, which were read at some time behind `read_at`: what was written since then may not have been seen.
    pub fn new(files: Vec<PathBuf>, read_at: SystemTime) -> Self {
        let last = stamps(&files);
        let since = read_at.checked_sub(STAMP_SLACK).unwrap_or(read_at);
        let known = last.iter().map(|stamp| stamp.filter(|(changed, _)| *changed < since)).collect();
        Self { files, last, known, due: Instant::now() + LOOK_EVERY }
    }

    /// Which these are.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// When it is time to look again.
    pub fn due_in(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Whether they have changed since this was last true, and have settled. Looks only when it is time to.
    pub fn has_changed(&mut self) -> bool {
        let now = Instant::now();
        if now < self.due {
            return false;
        }
        self.due = now + LOOK_EVERY;
        let stamps = stamps(&self.files);
        let has_changed = stamps != self.known && stamps == self.last;
        if has_changed {
            self.known.clone_from(&stamps);
        }
        self.last = stamps;
        has_changed
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &PathBuf| {
        let found = std::fs::metadata(file).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    files.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a file that was written when it was read `after` that (or before, if negative) counts as changed.
    fn check(read_ms_after: i64, expected: bool) {
        let name = format!("flick-watching-{}-{read_ms_after}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "text").expect("the directory for temporary files can be written");
        let written = std::fs::metadata(&path).and_then(|data| data.modified()).expect("it is there");
        let by = Duration::from_millis(read_ms_after.unsigned_abs());
        let read_at = if read_ms_after < 0 { written - by } else { written + by };
        let mut watching = Watching::new(vec![path.clone()], read_at);
        watching.due = Instant::now();
        assert_eq!(watching.has_changed(), expected, "{read_ms_after}");
        watching.due = Instant::now();
        assert!(!watching.has_changed(), "it is told once");
        std::fs::remove_file(&path).expect("it is ours");
    }

    #[test]
    fn what_was_written_while_it_was_read_was_never_seen() {
        check(-100, true);
        check(1_000, false);
    }
}
