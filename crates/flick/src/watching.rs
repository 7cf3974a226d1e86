//! Files that are watched for change: looked at now and then, so that it does not matter how an editor writes them.
//! Promises: a change is told once, when the files have been the same for one look; a file that is missing for a moment is a
//! change like any other.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// How often the files are looked at, and how long they must be the same.
const LOOK_EVERY: Duration = Duration::from_millis(250);

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
    /// Watches these from now on.
    pub fn new(files: &[PathBuf]) -> Self {
        let known = stamps(files);
        Self { files: files.to_vec(), last: known.clone(), known, due: Instant::now() + LOOK_EVERY }
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
