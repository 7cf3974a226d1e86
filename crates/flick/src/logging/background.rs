//! Standard error without waiting: a thread writes the lines of the log, so that a reader that has stopped (a full
//! pipe, a stopped terminal) delays no worker and no request of the admin endpoint.
//! Promises: a line is queued or dropped, never waited for; dropped lines are counted and reported once the reader goes
//! on; lines keep their order. Before [`start`], lines are written at once.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written; further ones are dropped.
const LINES_MAX: usize = 4096;
/// Bytes that may wait to be written; lines beyond are dropped.
const BYTES_MAX: usize = 1024 * 1024;
/// Longest time to write the last lines.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// The queue to the writing thread, once it runs.
static QUEUE: OnceLock<SyncSender<Box<[u8]>>> = OnceLock::new();
/// Bytes that are queued or being written.
static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Lines that were dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Writer of the lines of `tracing`.
pub struct Lines;

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl Write for Lines {
    /// Queues a line; the formatter writes each line with one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(queue) = QUEUE.get() else { return io::stderr().write(line) };
        let waiting = WAITING_BYTES.fetch_add(line.len(), Ordering::AcqRel);
        if waiting + line.len() > BYTES_MAX || queue.try_send(line.into()).is_err() {
            WAITING_BYTES.fetch_sub(line.len(), Ordering::AcqRel);
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the thread that writes. Call it once the sandbox restricts files, because the thread inherits that.
///
/// Errors: the thread cannot be started.
pub fn start() -> io::Result<()> {
    let (queue, lines) = mpsc::sync_channel(LINES_MAX);
    thread::Builder::new().name("flick-log".to_owned()).spawn(move || write_all(&lines))?;
    // A second thread would end at once, because its queue is dropped here.
    let _ = QUEUE.set(queue);
    Ok(())
}

/// Number of lines that were dropped.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Waits until all lines are written, for at most a second.
pub fn flush() {
    let deadline = Instant::now() + FLUSH_TIME_MAX;
    while WAITING_BYTES.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

fn write_all(lines: &Receiver<Box<[u8]>>) {
    let mut reported = 0;
    while let Ok(line) = lines.recv() {
        // There is no other place to report a failed write in.
        let _ = io::stderr().write_all(&line);
        WAITING_BYTES.fetch_sub(line.len(), Ordering::AcqRel);
        let dropped = dropped();
        if dropped > reported {
            tracing::warn!(
                lines = dropped - reported,
                "log lines were dropped because standard error was not read"
            );
            reported = dropped;
        }
    }
}
