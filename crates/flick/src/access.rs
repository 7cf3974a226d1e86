//! The access log: a thread writes a line of JSON for each request that the workers record.
//! Promises: workers never wait for it; lines that cannot be written are counted and logged now and then; the file is
//! appended to, and reopened by SIGUSR1, so that it can be rotated.
//! Refuses: to truncate or remove a file.
//! Start reading at [`AccessLog`]; `access/line.rs` is the format of a line. See `docs/internals/observability.md`.

mod json_line;
mod rotation;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flick_runtime::access_log::{AccessLogFeed, AccessLogPort};
use flick_runtime::limits::ACCESS_FIELDS_MAX;
use tracing::{info, warn};

use crate::failure::Failure;
use crate::sandbox::{self, User};
use crate::settings::file::{Location, at_location};
use json_line::Clock;
use rotation::Rotation;
pub use rotation::RotationLimits;

/// Time for which lines are batched, so that writes are few and workers seldom wake the writer.
const BATCH_DELAY: Duration = Duration::from_millis(5);
/// Longest name of a field.
const FIELD_NAME_BYTES_MAX: usize = 64;
/// Size of a write.
const WRITE_BYTES: usize = 64 * 1024;
/// Shortest time between two warnings about failed writes.
const WARN_INTERVAL: Duration = Duration::from_secs(10);
/// Longest time to write the last lines.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);
/// The path that means standard output.
const STDOUT: &str = "-";

/// Ratio of requests that are logged: `1/100`, or `1` for all.
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
            format!("`{text}` is not a ratio; write `1/100` for one request in a hundred, or `1` for all")
        })
    }
}

/// Name of a field of requests, such as `User-Agent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldName(pub String);

impl FromStr for FieldName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = (1..=FIELD_NAME_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
        if is_name {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("`{text}` is not the name of a field; write one such as `User-Agent`"))
    }
}

/// Names of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldNames(pub Vec<FieldName>);

impl FromStr for FieldNames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<FieldName> =
            text.split(',').map(|name| name.trim().parse()).collect::<Result<_, _>>()?;
        FieldNames::check_all(&names)?;
        Ok(Self(names))
    }
}

impl FieldNames {
    /// Checks the fields of an access log. Errors: there are too many, or one is named twice.
    pub fn check_all(names: &[FieldName]) -> Result<(), String> {
        if names.len() > ACCESS_FIELDS_MAX {
            return Err(format!("{} fields; the access log has at most {ACCESS_FIELDS_MAX}", names.len()));
        }
        let is_same = |index: &usize| {
            names[..*index].iter().any(|other| other.0.eq_ignore_ascii_case(&names[*index].0))
        };
        match (0..names.len()).find(is_same) {
            Some(twice) => Err(format!("the field `{}` is named twice", names[twice].0)),
            None => Ok(()),
        }
    }
}

/// Settings of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogConfig {
    /// The file, or `-`.
    pub path: PathBuf,
    /// Ratio of requests that are logged.
    pub sample: Sample,
    /// Fields of requests that are logged.
    pub fields: Vec<String>,
    /// Limits from which it is rotated; `None`: never.
    pub rotation: Option<RotationLimits>,
    /// Location of the path in the settings file.
    pub location: Option<Location>,
}

impl AccessLogConfig {
    /// The file; `None` for standard output.
    pub fn file(&self) -> Option<&Path> {
        Some(self.path.as_path()).filter(|path| !is_stdout(path))
    }
}

/// Checks that a file of the access log can be opened, without creating it.
///
/// Errors: it cannot be written, or its directory cannot.
pub fn check(config: &AccessLogConfig) -> Result<(), Failure> {
    let Some(path) = config.file() else { return Ok(()) };
    let checked = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_directory(path),
        Err(error) => Err(error),
    };
    checked.map_err(|error| at_location(config.location.as_ref(), refused(path, &error)))
}

/// Checks that a file can be created at a path. Errors: its directory does not exist, or cannot be written.
pub fn check_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    Ok(rustix::fs::access(directory.unwrap_or(Path::new(".")), access)?)
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write the access log {}: {error}", path.display()))
}

/// Whether a path means standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new(STDOUT)
}

/// The access log of a process.
#[derive(Default)]
pub struct AccessLog {
    port: Arc<AccessLogPort>,
    orders: Arc<Orders>,
    /// Disconnected when the writer thread has ended.
    writer: Option<Receiver<()>>,
    config: Option<AccessLogConfig>,
}

/// An open file of the access log.
struct LogFile {
    path: PathBuf,
    file: File,
    /// Its rotation by size, if it is rotated.
    rotation: Option<Rotation>,
    /// Its last line was incomplete when it was opened.
    is_torn: bool,
}

/// Orders to the writer thread.
#[derive(Default)]
struct Orders {
    /// Write to this file from now on.
    to: Mutex<Option<LogFile>>,
    /// Write the remaining lines, and end.
    must_end: AtomicBool,
    /// Lines that could not be written.
    dropped: Arc<AtomicU64>,
}

impl AccessLog {
    /// Returns the port to which workers write their records.
    pub fn port(&self) -> Arc<AccessLogPort> {
        Arc::clone(&self.port)
    }

    /// Number of lines that could not be written.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.orders.dropped)
    }

    /// Opens the file, if its path has changed. `write_to` puts it to use.
    ///
    /// Errors: it cannot be opened.
    pub fn open(
        &mut self,
        config: Option<&AccessLogConfig>,
        user: Option<&User>,
    ) -> Result<OpenAccessLog, Failure> {
        let identity = |config: &AccessLogConfig| (config.path.clone(), config.rotation);
        let is_new = config.map(identity) != self.config.as_ref().map(identity);
        let opened = config.filter(|_| is_new).map(|config| {
            self.open_file(config, user).map_err(|failure| at_location(config.location.as_ref(), failure))
        });
        let file = opened.transpose()?;
        Ok(OpenAccessLog { config: config.cloned(), file })
    }

    /// Writes to this file from now on.
    pub fn write_to(&mut self, opened: OpenAccessLog) {
        if let Some(file) = opened.file {
            let config = opened.config.as_ref();
            let limits = config.and_then(|config| Some((config.file()?, config.rotation?)));
            let rotation = limits.map(|(path, limits)| Rotation::new(path, &file, limits));
            let is_torn = config.and_then(AccessLogConfig::file).is_some_and(ends_inside_line);
            let path = config.map_or_else(PathBuf::new, |config| config.path.clone());
            let opened = LogFile { path, file, rotation, is_torn };
            *self.orders.to.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
            self.port.wake();
        }
        self.config = opened.config.or(self.config.take());
    }

    /// Reopens the file, which may have been moved.
    pub fn reopen(&mut self, user: Option<&User>) {
        let Some(config) = self.config.clone() else { return info!("there is no access log to reopen") };
        match self.open_file(&config, user) {
            Ok(file) => {
                info!(path = %config.path.display(), "reopened the access log");
                self.write_to(OpenAccessLog { config: Some(config), file: Some(file) });
            }
            Err(failure) => {
                warn!("cannot reopen the access log; the old file is still written: {}", failure.text());
            }
        }
    }

    /// Opens the file, and starts the writer thread if there is none.
    fn open_file(&mut self, config: &AccessLogConfig, user: Option<&User>) -> Result<File, Failure> {
        let refused = |error: io::Error| refused(&config.path, &error);
        let file = match config.file() {
            Some(path) => append(path, user),
            // Without the buffer of `Stdout`, which would keep lines back.
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

/// A file that is open, and its settings.
#[must_use]
pub struct OpenAccessLog {
    config: Option<AccessLogConfig>,
    /// `None` if its path has not changed.
    file: Option<File>,
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.orders.must_end.store(true, Ordering::Release);
        self.port.wake();
        if let Some(writer) = self.writer.take() {
            // Nothing is sent: the channel disconnects when the writer ends.
            if writer.recv_timeout(FLUSH_TIME_MAX) == Err(RecvTimeoutError::Timeout) {
                warn!("cannot write the last lines of the access log in time");
            }
        }
    }
}

/// Opens a file for appending, readable by its owner and group only: requests may contain secrets. Root gives it to the
/// user that flick switches to, who reopens it.
///
/// Errors: it cannot be opened; the file is of another user, and the path is a symbolic link or one of several hard
/// links to it: who may write the directory could have made that of any file.
fn append(path: &Path, user: Option<&User>) -> io::Result<File> {
    let owner = user.filter(|_| sandbox::is_root()).map(User::ids);
    let mut options = OpenOptions::new();
    options.append(true).mode(0o640);
    // Opening a pipe without a reader fails, instead of blocking the control thread until there is one.
    let itself = options.clone().create(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path);
    let is_symlink = itself.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ELOOP));
    let file = match itself {
        // As root it is not created: the link may point anywhere.
        Err(_) if is_symlink => options.create(owner.is_none()).custom_flags(libc::O_NONBLOCK).open(path)?,
        itself => itself?,
    };
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND)?;
    let found = file.metadata()?;
    if let Some((user, group)) = owner.filter(|(user, _)| found.is_file() && found.uid() != *user) {
        if is_symlink || found.nlink() > 1 {
            return Err(io::Error::other(
                "it is a link to a file of another user; name the file itself, or give it to that of `--user`",
            ));
        }
        fchown(&file, Some(user), Some(group))?;
    }
    Ok(file)
}

/// Whether the last line of a file is incomplete, as a full disk or a killed process leaves it.
fn ends_inside_line(path: &Path) -> bool {
    let last = || -> io::Result<bool> {
        if !std::fs::metadata(path)?.is_file() {
            return Ok(false);
        }
        let mut file = File::open(path)?;
        let mut last = *b"\n";
        // An empty file has no last byte.
        if file.seek(io::SeekFrom::End(-1)).is_ok() {
            file.read_exact(&mut last)?;
        }
        Ok(last != *b"\n")
    };
    // A file that may be written and not read is taken for whole.
    last().unwrap_or(false)
}

/// The writer thread.
struct Writer {
    port: Arc<AccessLogPort>,
    orders: Arc<Orders>,
    feeds: Vec<AccessLogFeed>,
    to: Option<LogFile>,
    lines: Vec<u8>,
    /// The last line in the file is incomplete.
    is_torn: bool,
    /// Dropped lines that were not logged yet.
    unlogged: u64,
    /// Time of the last warning, until the log is written again.
    warned: Option<Instant>,
    /// Shortest time between two warnings.
    warn_interval: Duration,
}

impl Writer {
    fn new(port: Arc<AccessLogPort>, orders: Arc<Orders>) -> Self {
        port.set_writer();
        let lines = Vec::with_capacity(2 * WRITE_BYTES);
        let (feeds, to, warned, warn_interval) = (Vec::new(), None, None, WARN_INTERVAL);
        Self { port, orders, feeds, to, lines, is_torn: false, unlogged: 0, warned, warn_interval }
    }

    fn run(mut self) {
        loop {
            // Read first, so that all records before it are written below.
            let must_end = self.orders.must_end.load(Ordering::Acquire);
            self.feeds.extend(self.port.take_feeds());
            let next = self.orders.to.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(to) = next {
                self.warn_dropped(None);
                self.is_torn = to.is_torn;
                self.to = Some(to);
            }
            self.take();
            self.write();
            if must_end {
                return self.warn_dropped(None);
            }
            let mut is_idle = true;
            for feed in &mut self.feeds {
                is_idle &= feed.wait_for_records();
            }
            if is_idle {
                // A worker that records something after `wait_for_records` unparks this thread; an earlier unpark
                // returns at once.
                std::thread::park();
            }
            std::thread::sleep(BATCH_DELAY);
        }
    }

    /// Formats the records of the workers.
    fn take(&mut self) {
        let clock = Clock::now();
        let mut feeds = std::mem::take(&mut self.feeds);
        feeds.retain_mut(|feed| {
            let is_over = feed.is_ended();
            let (service, worker, names) =
                (feed.service.clone(), feed.worker, std::mem::take(&mut feed.fields));
            feed.drain(|record| {
                json_line::write(&mut self.lines, &clock, (&service, worker), &names, record);
                if self.lines.len() >= WRITE_BYTES {
                    self.write();
                }
            });
            feed.fields = names;
            !is_over
        });
        self.feeds = feeds;
    }

    fn write(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let Some(to) = &mut self.to else { return };
        // Ends an incomplete line, so that it does not spoil the next one. If that fails, nothing is written behind it.
        let ended = if self.is_torn { write_most(&mut to.file, b"\n") } else { Ok(()) };
        self.is_torn &= ended.is_err();
        let outcome = ended.and_then(|()| write_most(&mut to.file, &self.lines));
        let written = outcome.as_ref().map_or_else(|unwritten| unwritten.from, |()| self.lines.len());
        to.rotate(written as u64);
        if outcome.is_ok() && self.warned.is_some_and(|warned| warned.elapsed() >= self.warn_interval) {
            self.warned = None;
            self.warn_dropped(None);
            info!("the access log is written again");
        }
        if let Err(Unwritten { error, from }) = outcome {
            let (taken, rest) = self.lines.split_at(from);
            let lines = rest.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.is_torn = taken.last().map_or(self.is_torn, |last| *last != b'\n');
            self.unlogged += lines;
            self.orders.dropped.fetch_add(lines, Ordering::Relaxed);
            if self.warned.is_none_or(|warned| warned.elapsed() >= self.warn_interval) {
                self.warned = Some(Instant::now());
                self.warn_dropped(Some(&error));
            }
        }
        self.lines.clear();
    }

    fn warn_dropped(&mut self, error: Option<&io::Error>) {
        let lines = std::mem::take(&mut self.unlogged);
        if lines > 0 {
            let error = error.map(tracing::field::display);
            let path = self.to.as_ref().map(|to| tracing::field::display(to.path.display()));
            warn!(path, error, lines, "cannot write lines of the access log");
        }
    }
}

impl LogFile {
    /// Goes on with the next file if this one is full.
    fn rotate(&mut self, written: u64) {
        let Some(rotation) = &mut self.rotation else { return };
        match rotation.written(written, |path| append(path, None)) {
            Ok(Some(next)) => self.file = next,
            Ok(None) => {}
            Err(error) => warn!(%error, "cannot rotate the access log; its file grows"),
        }
    }
}

/// A failed write, and the index of the first byte that was not written.
struct Unwritten {
    error: io::Error,
    from: usize,
}

/// Writes all lines. Errors: the first write that fails.
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
    use super::{LogFile, Orders, Sample, User, Writer, append, ends_inside_line};
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::sync::Arc;

    impl LogFile {
        fn of_test(file: File, is_torn: bool) -> Self {
            Self { path: "access.log".into(), file, rotation: None, is_torn }
        }
    }

    #[test]
    fn pipe_without_reader_is_an_error() {
        let path = std::env::temp_dir().join(format!("flick-access-pipe-{}", std::process::id()));
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into())
            .expect("the temporary directory is writable");
        let error = append(&path, None).expect_err("the pipe has no reader");
        assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
        std::fs::remove_file(&path).expect("the test created it");
    }

    #[test]
    fn file_behind_a_symlink_and_device_were_given_to_the_service_user() {
        if !crate::sandbox::is_root() {
            return;
        }
        let directory = std::env::temp_dir().join(format!("flick-access-owner-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let at = |name: &str| directory.join(name);
        let user: User = "65534:65533".parse().expect("a user and a group");
        let owner = |path: &Path| std::fs::metadata(path).map(|found| (found.uid(), found.gid())).ok();
        std::fs::write(at("target"), "root's\n").expect("it can be written");
        std::os::unix::fs::symlink(at("target"), at("symlink")).expect("it can be made");
        std::fs::hard_link(at("target"), at("hard-link")).expect("it can be made");
        let null = at("null");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &null,
            rustix::fs::FileType::CharacterDevice,
            0o600.into(),
            rustix::fs::makedev(1, 3),
        )
        .expect("root can make devices");
        for (name, is_opened) in [("symlink", false), ("hard-link", false), ("null", true)] {
            let opened = append(&at(name), Some(&user));
            assert_eq!(opened.is_ok(), is_opened, "{name}: {opened:?}");
            assert_eq!(owner(&at(name)), Some((0, 0)), "{name}");
        }
        // Without a user nothing is given away, and links are followed.
        append(&at("symlink"), None).expect("it can be opened");
        append(&at("log"), Some(&user)).expect("it can be created");
        assert_eq!(owner(&at("log")), Some((65534, 65533)));
        std::os::unix::fs::symlink(at("log"), at("to-log")).expect("it can be made");
        append(&at("to-log"), Some(&user)).expect("the log is the user's already");
        std::fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn line_after_an_incomplete_one_is_whole() {
        let (reader, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).expect("a pipe");
        let (mut reader, orders) = (File::from(reader), Arc::new(Orders::default()));
        let mut writer = Writer::new(Arc::default(), Arc::clone(&orders));
        writer.to = Some(LogFile::of_test(File::from(to), false));
        let mut written = |line: &[u8]| {
            writer.lines.extend_from_slice(line);
            writer.write();
        };
        // More than the capacity of a pipe.
        let long = vec![b'x'; 4 << 20];
        written(&[&long[..], b"\n"].concat());
        let mut found = vec![0; long.len()];
        let length = reader.read(&mut found).expect("something was written");
        assert!(length > 0 && found[..length].iter().all(|byte| *byte == b'x'));
        while reader.read(&mut found).is_ok_and(|length| length > 0) {}
        written(b"whole\n");
        let length = reader.read(&mut found).expect("something was written");
        assert_eq!(&found[..length], b"\nwhole\n");
        assert_eq!(orders.dropped.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[test]
    fn torn_line_was_completed_after_the_log_was_opened_again() {
        let path = std::env::temp_dir().join(format!("flick-access-torn-{}", std::process::id()));
        for (text, is_torn) in [("", false), ("whole\n", false), ("whole\n{\"time\":\"20", true)] {
            std::fs::write(&path, text).expect("the temporary directory is writable");
            assert_eq!(ends_inside_line(&path), is_torn, "{text}");
        }
        std::fs::remove_file(&path).expect("the test created it");
    }

    #[test]
    fn line_is_not_written_behind_a_torn_one() {
        let orders = Arc::new(Orders::default());
        let mut writer = Writer::new(Arc::default(), Arc::clone(&orders));
        let full = File::options().append(true).open("/dev/full").expect("Linux has it");
        writer.to = Some(LogFile::of_test(full, true));
        writer.is_torn = true;
        writer.lines.extend_from_slice(b"line\n");
        writer.write();
        assert!(writer.is_torn, "the line break was not written");
        assert_eq!(orders.dropped.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[test]
    fn full_disk_is_warned_of_until_the_log_is_written_again() {
        let path = std::env::temp_dir().join(format!("flick-access-full-{}", std::process::id()));
        let orders = Arc::new(Orders::default());
        let mut writer = Writer::new(Arc::default(), Arc::clone(&orders));
        writer.warn_interval = std::time::Duration::ZERO;
        let mut write = |to: &str| {
            let file = File::options().append(true).create(true).open(to).expect("it can be opened");
            writer.to = Some(LogFile::of_test(file, false));
            writer.lines.extend_from_slice(b"line\n");
            writer.write();
            (writer.warned.is_some(), writer.unlogged)
        };
        // Every write to `/dev/full` fails as on a full disk.
        assert_eq!(write("/dev/full"), (true, 0));
        assert_eq!(write("/dev/full"), (true, 0), "no line is left without a warning");
        assert_eq!(write(&path.display().to_string()), (false, 0), "the warning is withdrawn");
        assert_eq!(orders.dropped.load(std::sync::atomic::Ordering::Relaxed), 2);
        std::fs::remove_file(&path).expect("the test created it");
    }

    #[test]
    fn sample_is_a_ratio() {
        let read = |text: &str| text.parse::<Sample>().ok().map(|sample| sample.0.get());
        for (text, expected) in [("1", Some(1)), ("1/1", Some(1)), ("1/100", Some(100))] {
            assert_eq!(read(text), expected, "{text}");
        }
        for wrong in ["", "0", "2", "1/0", "1/", "2/3", "1%", "1/-1", "1/99999999999"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
