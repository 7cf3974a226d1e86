//! The access log: a thread that takes what workers have noted of requests and writes a line of JSON for each.
//! Promises: workers never wait for it; what cannot be written is counted and said once in a while, and the services go on;
//! the file is appended to, and opened anew when asked (SIGUSR1), so that it can be moved away.
//! Refuses: files that a person would not expect to be changed: nothing is cut off, nothing removed.
//! Start reading at [`AccessLog`]; `access/line.rs` is what a line looks like. How it fits: `docs/internals/seeing.md`.

mod line;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flick_runtime::access::{Feed, Port};
use tracing::{info, warn};

use crate::confine::User;
use crate::failure::Failure;
use line::Clock;

/// How long lines gather, so that many are written at once and workers call seldom.
const GATHER: Duration = Duration::from_millis(5);
/// Bytes of lines that are written at once.
const WRITE_BYTES: usize = 64 * 1024;
/// Refusals of the system are told at most so often.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How long the last lines may take.
const END_MAX: Duration = Duration::from_secs(2);
/// What stands for standard output.
const STDOUT: &str = "-";

/// Which part of the requests is logged: `1/100`, or `1` for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(pub NonZeroU32);

impl Sample {
    /// Every request.
    pub const ALL: Self = Self(NonZeroU32::MIN);
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = text.strip_prefix("1/").unwrap_or(if text == "1" { "1" } else { "" });
        part.parse().map(Self).map_err(|_| {
            format!("`{text}` is no part of the requests; write `1/100` for one in a hundred, or `1` for all")
        })
    }
}

/// What the operator wants of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The file, or `-`.
    pub path: PathBuf,
    /// Which part of the requests.
    pub sample: Sample,
}

impl Wanted {
    /// The file, unless it is standard output.
    pub fn file(&self) -> Option<&Path> {
        Some(self.path.as_path()).filter(|path| !is_stdout(path))
    }
}

/// Whether that stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new(STDOUT)
}

/// The access log of a process.
#[derive(Default)]
pub struct AccessLog {
    port: Arc<Port>,
    orders: Arc<Orders>,
    /// Hangs up when the writer has ended.
    writer: Option<Receiver<()>>,
    wanted: Option<Wanted>,
}

/// What the writer is told.
#[derive(Default)]
struct Orders {
    /// Write here from now on.
    to: Mutex<Option<File>>,
    /// Write what there is, and end.
    must_end: AtomicBool,
    /// Lines that the file did not take.
    unwritten: Arc<AtomicU64>,
}

impl AccessLog {
    /// Where workers leave what they note.
    pub fn port(&self) -> Arc<Port> {
        Arc::clone(&self.port)
    }

    /// How many lines the system did not take so far.
    pub fn unwritten(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.orders.unwritten)
    }

    /// Writes to what is wanted from here on.
    ///
    /// Errors: it cannot be opened; everything stays as it was.
    pub fn open(&mut self, wanted: Option<&Wanted>, user: Option<&User>) -> Result<(), Failure> {
        let is_new = wanted.map(|wanted| &wanted.path) != self.wanted.as_ref().map(|wanted| &wanted.path);
        if let Some(wanted) = wanted.filter(|_| is_new) {
            self.write_to(wanted, user)?;
        }
        self.wanted = wanted.cloned().or(self.wanted.take());
        Ok(())
    }

    /// Opens the file anew: it may have been moved away.
    pub fn reopen(&mut self, user: Option<&User>) {
        let Some(wanted) = self.wanted.clone() else { return info!("there is no access log to open anew") };
        match self.write_to(&wanted, user) {
            Ok(()) => info!(path = %wanted.path.display(), "access log opened anew"),
            Err(failure) => warn!("the access log goes on where it was: {}", failure.text()),
        }
    }

    fn write_to(&mut self, wanted: &Wanted, user: Option<&User>) -> Result<(), Failure> {
        let refused = |error: io::Error| {
            Failure::failed(format!("cannot write the access log {}: {error}", wanted.path.display()))
        };
        let file = match wanted.file() {
            Some(path) => append(path, user),
            // Not through a buffer, which would take lines that nobody gets.
            None => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        };
        let file = file.map_err(refused)?;
        *self.orders.to.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        if self.writer.is_none() {
            let (port, orders) = (self.port(), Arc::clone(&self.orders));
            let thread = std::thread::Builder::new().name("access-log".to_owned());
            let (ends, ended) = mpsc::channel::<()>();
            let run = move || {
                Writer::new(port, orders).run();
                drop(ends);
            };
            thread.spawn(run).map_err(refused)?;
            self.writer = Some(ended);
        }
        self.port.call();
        Ok(())
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.orders.must_end.store(true, Ordering::Release);
        self.port.call();
        if let Some(writer) = self.writer.take() {
            // Nobody sends anything: it is over, or what takes the lines does not take them any more.
            if writer.recv_timeout(END_MAX) == Err(RecvTimeoutError::Timeout) {
                warn!("the access log does not take its last lines");
            }
        }
    }
}

/// Opens a file at its end. It is nobody else's business what clients ask for.
fn append(path: &Path, user: Option<&User>) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
    if let Some((user, group)) = user.filter(|_| crate::confine::is_root()).map(User::ids) {
        // The user that we become opens it anew.
        fchown(&file, Some(user), Some(group))?;
    }
    Ok(file)
}

/// Who writes.
struct Writer {
    port: Arc<Port>,
    orders: Arc<Orders>,
    feeds: Vec<Feed>,
    to: Option<File>,
    lines: Vec<u8>,
    /// Lines that were not written and of which nobody has been told.
    untold: u64,
    told: Option<Instant>,
}

impl Writer {
    fn new(port: Arc<Port>, orders: Arc<Orders>) -> Self {
        port.attend();
        let lines = Vec::with_capacity(2 * WRITE_BYTES);
        Self { port, orders, feeds: Vec::new(), to: None, lines, untold: 0, told: None }
    }

    fn run(mut self) {
        loop {
            // Asked first: what was noted before is written below.
            let must_end = self.orders.must_end.load(Ordering::Acquire);
            self.feeds.extend(self.port.arrivals());
            if let Some(to) = self.orders.to.lock().unwrap_or_else(PoisonError::into_inner).take() {
                self.to = Some(to);
            }
            self.take();
            self.write();
            if must_end {
                return self.tell(None);
            }
            let mut rests = true;
            for feed in &mut self.feeds {
                rests &= feed.rest();
            }
            if rests {
                // Whoever has something for us calls behind that, and a call that came before lets this pass.
                std::thread::park();
            }
            std::thread::sleep(GATHER);
        }
    }

    /// Makes lines of what workers have noted.
    fn take(&mut self) {
        let clock = Clock::now();
        let mut feeds = std::mem::take(&mut self.feeds);
        feeds.retain_mut(|feed| {
            let is_over = feed.is_over();
            let (service, worker) = (feed.service.clone(), feed.worker);
            feed.drain(|record| {
                line::write(&mut self.lines, &clock, (&service, worker), record);
                if self.lines.len() >= WRITE_BYTES {
                    self.write();
                }
            });
            !is_over
        });
        self.feeds = feeds;
    }

    fn write(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let Some(to) = &mut self.to else { return };
        let outcome = write_most(to, &self.lines);
        self.lines.clear();
        if let Err((error, lines)) = outcome {
            self.untold += lines;
            self.orders.unwritten.fetch_add(lines, Ordering::Relaxed);
            if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                self.told = Some(Instant::now());
                self.tell(Some(&error));
            }
        }
    }

    fn tell(&mut self, error: Option<&io::Error>) {
        let lines = std::mem::take(&mut self.untold);
        if lines > 0 {
            let error = error.map(tracing::field::display);
            warn!(error, lines, "lines of the access log could not be written");
        }
    }
}

/// Writes what the file takes. Errors: the system's, with how many lines are not there whole.
fn write_most(to: &mut File, lines: &[u8]) -> Result<(), (io::Error, u64)> {
    let mut rest = lines;
    while !rest.is_empty() {
        match to.write(rest) {
            Ok(length) if length > 0 => rest = &rest[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => {
                let error = outcome.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                return Err((error, rest.iter().filter(|byte| **byte == b'\n').count() as u64));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Sample;

    #[test]
    fn a_part_of_the_requests_is_one_in_so_many() {
        let read = |text: &str| text.parse::<Sample>().ok().map(|sample| sample.0.get());
        for (text, expected) in [("1", Some(1)), ("1/1", Some(1)), ("1/100", Some(100))] {
            assert_eq!(read(text), expected, "{text}");
        }
        for wrong in ["", "0", "2", "1/0", "1/", "2/3", "1%", "1/-1", "1/99999999999"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
