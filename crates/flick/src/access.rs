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
use crate::settings::file::{Place, shown_at};
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
    /// Where the settings file names the file, if it does.
    pub place: Option<Place>,
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

    /// Opens what is wanted; `write_to` has it written to.
    ///
    /// Errors: it cannot be opened.
    pub fn open(&mut self, wanted: Option<&Wanted>, user: Option<&User>) -> Result<Opened, Failure> {
        let is_new = wanted.map(|wanted| &wanted.path) != self.wanted.as_ref().map(|wanted| &wanted.path);
        let opened = wanted.filter(|_| is_new).map(|wanted| {
            self.opened(wanted, user).map_err(|failure| shown_at(wanted.place.as_ref(), failure))
        });
        let file = opened.transpose()?;
        Ok(Opened { wanted: wanted.cloned(), file })
    }

    /// Writes there from here on.
    pub fn write_to(&mut self, opened: Opened) {
        if let Some(file) = opened.file {
            *self.orders.to.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
            self.port.call();
        }
        self.wanted = opened.wanted.or(self.wanted.take());
    }

    /// Opens the file anew: it may have been moved away.
    pub fn reopen(&mut self, user: Option<&User>) {
        let Some(wanted) = self.wanted.clone() else { return info!("there is no access log to open anew") };
        match self.opened(&wanted, user) {
            Ok(file) => {
                info!(path = %wanted.path.display(), "access log opened anew");
                self.write_to(Opened { wanted: Some(wanted), file: Some(file) });
            }
            Err(failure) => warn!("the access log goes on where it was: {}", failure.text()),
        }
    }

    /// Opens a file, and has somebody there who can write to it.
    fn opened(&mut self, wanted: &Wanted, user: Option<&User>) -> Result<File, Failure> {
        let refused = |error: io::Error| {
            Failure::failed(format!("cannot write the access log {}: {error}", wanted.path.display()))
        };
        let file = match wanted.file() {
            Some(path) => append(path, user),
            // Not through a buffer, which would take lines that nobody gets.
            None => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        };
        let file = file.map_err(refused)?;
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
        Ok(file)
    }
}

/// What is written to next.
#[must_use]
pub struct Opened {
    wanted: Option<Wanted>,
    /// Nothing, where it is what is written to already.
    file: Option<File>,
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
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640);
    // A pipe that nobody reads is refused: to wait for a reader would hold up all else that is asked of the process.
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND)?;
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
    /// The file has the beginning of a line at its end, of which it did not take the rest.
    is_torn: bool,
    /// Lines that were not written and of which nobody has been told.
    untold: u64,
    told: Option<Instant>,
}

impl Writer {
    fn new(port: Arc<Port>, orders: Arc<Orders>) -> Self {
        port.attend();
        let lines = Vec::with_capacity(2 * WRITE_BYTES);
        Self { port, orders, feeds: Vec::new(), to: None, lines, is_torn: false, untold: 0, told: None }
    }

    fn run(mut self) {
        loop {
            // Asked first: what was noted before is written below.
            let must_end = self.orders.must_end.load(Ordering::Acquire);
            self.feeds.extend(self.port.arrivals());
            if let Some(to) = self.orders.to.lock().unwrap_or_else(PoisonError::into_inner).take() {
                (self.to, self.is_torn) = (Some(to), false);
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
        // Or the first line that is whole would be lost with the one that is not.
        if self.is_torn && to.write(b"\n").is_ok_and(|length| length > 0) {
            self.is_torn = false;
        }
        let outcome = write_most(to, &self.lines);
        if let Err(Unwritten { error, from }) = outcome {
            let (taken, rest) = self.lines.split_at(from);
            let lines = rest.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.is_torn = taken.last().map_or(self.is_torn, |last| *last != b'\n');
            self.untold += lines;
            self.orders.unwritten.fetch_add(lines, Ordering::Relaxed);
            if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                self.told = Some(Instant::now());
                self.tell(Some(&error));
            }
        }
        self.lines.clear();
    }

    fn tell(&mut self, error: Option<&io::Error>) {
        let lines = std::mem::take(&mut self.untold);
        if lines > 0 {
            let error = error.map(tracing::field::display);
            warn!(error, lines, "lines of the access log could not be written");
        }
    }
}

/// Why bytes were not written, and the first of them.
struct Unwritten {
    error: io::Error,
    from: usize,
}

/// Writes what the file takes. Errors: the system's, with how far it came.
fn write_most(to: &mut File, lines: &[u8]) -> Result<(), Unwritten> {
    let mut from = 0;
    while from < lines.len() {
        match to.write(&lines[from..]) {
            Ok(length) if length > 0 => from += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => {
                let error = outcome.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                return Err(Unwritten { error, from });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Orders, Sample, Writer, append};
    use std::fs::File;
    use std::io::Read;
    use std::sync::Arc;

    #[test]
    fn a_pipe_that_nobody_read_held_up_whoever_opened_the_log_anew() {
        let path = std::env::temp_dir().join(format!("flick-access-pipe-{}", std::process::id()));
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).expect("it can be made");
        let error = append(&path, None).expect_err("nobody reads it");
        assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
        std::fs::remove_file(&path).expect("it is ours");
    }

    #[test]
    fn a_line_behind_one_that_was_torn_was_lost_with_it() {
        let (reader, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).expect("a pipe");
        let (mut reader, orders) = (File::from(reader), Arc::new(Orders::default()));
        let mut writer = Writer::new(Arc::default(), Arc::clone(&orders));
        writer.to = Some(File::from(to));
        let mut written = |line: &[u8]| {
            writer.lines.extend_from_slice(line);
            writer.write();
        };
        // More than a pipe takes.
        let long = vec![b'x'; 4 << 20];
        written(&[&long[..], b"\n"].concat());
        let mut found = vec![0; long.len()];
        let length = reader.read(&mut found).expect("something was written");
        assert!(length > 0 && found[..length].iter().all(|byte| *byte == b'x'));
        while reader.read(&mut found).is_ok_and(|length| length > 0) {}
        written(b"whole\n");
        let length = reader.read(&mut found).expect("something was written");
        assert_eq!(&found[..length], b"\nwhole\n");
        assert_eq!(orders.unwritten.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

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
