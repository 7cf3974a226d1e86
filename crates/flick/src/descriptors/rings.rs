//! Pipes between two flick processes: the bytes go through shared memory instead.
//! The reader listens at a name that both compute from the pipe. The writer asks there once, before it writes. The
//! reader answers with the name of a listener for rings when the pipe is empty, and its service reads from rings until
//! the writer closes the connection on which it asked; then the pipe goes on. So the order of bytes is that of the
//! pipe.
//! Promises: a writer that gets no answer writes to the pipe, and a reader that is not asked reads it; both have the
//! same user.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use flick_net::{Continuation, ContinuationEnd, internal_shm_name};
use flick_shm::limits::NAME_BYTES_MAX;
use flick_shm::pairing::{PairListener, PairPolicy, peer_credentials};
use flick_shm::stream::ShmStream;
use rustix::fs::{FileType, fstat};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect, socket_with,
};

use super::DescriptorEvent;
use super::copying::{CopyError, has_input, wait_for};

/// Longest time that a writer looks for a reader that is a flick process.
const SEARCH_TIME_MAX: Duration = Duration::from_millis(100);
/// Interval of its attempts.
const SEARCH_INTERVAL: Duration = Duration::from_millis(1);
/// Longest time that it waits for the answer of one.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// Returns the abstract name at which the reader of this pipe listens; `None` if it is no pipe.
fn name_of(file: BorrowedFd<'_>) -> Option<String> {
    let stat = fstat(file).ok().filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)?;
    Some(format!("flick-pipe-{}-{}", stat.st_dev, stat.st_ino))
}

/// Connects to a name without waiting to be accepted: another user may listen there and accept no connection.
fn connect_at_once(name: &str) -> Option<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).ok()?;
    Some(stream)
}

/// Returns the number of the process at the other end, if it has the same user; 0 in another PID namespace.
fn peer_of(stream: &UnixStream) -> Option<i32> {
    let peer = peer_credentials(stream.as_fd()).ok()?;
    (peer.uid == rustix::process::geteuid().as_raw()).then_some(peer.pid)
}

/// The reader's side of a pipe.
pub(super) struct RingOffer(UnixListener);

impl RingOffer {
    /// Listens for writers of a pipe; `None` if it is no pipe or another process does.
    pub(super) fn of(file: BorrowedFd<'_>) -> Option<Self> {
        let address = SocketAddr::from_abstract_name(name_of(file)?).ok()?;
        UnixListener::bind_addr(&address).ok().map(Self)
    }

    /// The socket, which is readable when a writer asks.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Answers a writer, and lets the service behind `to` read what it sends, until it is gone or `stop` is readable.
    pub(super) fn serve(
        &self,
        rings: &Continuation,
        to: &mut ShmStream,
        stop: BorrowedFd<'_>,
    ) -> Result<(), CopyError> {
        let name = internal_shm_name();
        let (Ok((mut writer, _)), Ok(listener)) =
            (self.0.accept(), PairListener::bind(&name, PairPolicy::SameUser))
        else {
            return Ok(());
        };
        if peer_of(&writer).is_none() || writer.write_all(name.as_bytes()).is_err() {
            return Ok(());
        }
        loop {
            match wait_for([Some(listener.socket()), Some(writer.as_fd()), Some(stop)])? {
                [_, _, true] => return Ok(()),
                [true, ..] => {
                    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                    if let Ok(socket) = accept_with(listener.socket(), flags) {
                        rings.begin(socket);
                        await_end(rings, to, stop)?;
                    }
                }
                // It has connected before it went, or not at all.
                [false, true, _] if !has_input(listener.socket()) => return Ok(()),
                [false, ..] => {}
            }
        }
    }
}

/// Waits until a service has read rings to their end, or has stopped to, as `stop` is readable.
fn await_end(rings: &Continuation, to: &mut ShmStream, stop: BorrowedFd<'_>) -> Result<(), CopyError> {
    let mut stop = Some(stop);
    loop {
        let [_, stops] = wait_for([Some(rings.ends()), stop])?;
        match rings.take_end() {
            Some(ContinuationEnd::OfRings) => return Ok(()),
            Some(ContinuationEnd::OfConnection) => return Err(CopyError::Closed),
            None if to.peer().is_gone() => return Err(CopyError::Closed),
            None => {}
        }
        if stops {
            rings.stop();
            stop = None;
        }
    }
}

/// The writer's side of a pipe whose reader takes rings.
pub(super) struct Upstream {
    reader: UnixStream,
    process: i32,
    name: String,
}

impl Upstream {
    /// Looks for a reader of this pipe that is a flick process. Blocks while it looks.
    pub(super) fn find(file: BorrowedFd<'_>) -> Option<Self> {
        let name = name_of(file)?;
        let deadline = Instant::now() + SEARCH_TIME_MAX;
        let mut reader = loop {
            match connect_at_once(&name) {
                Some(reader) => break reader,
                None if Instant::now() < deadline => std::thread::sleep(SEARCH_INTERVAL),
                None => return None,
            }
        };
        let process = peer_of(&reader)?;
        reader.set_read_timeout(Some(ANSWER_TIME_MAX)).ok()?;
        let mut answer = [0; NAME_BYTES_MAX];
        let count = reader.read(&mut answer).ok().filter(|count| *count > 0)?;
        let name = String::from_utf8(answer[..count].to_vec()).ok()?;
        Some(Self { reader, process, name })
    }

    /// The name in shared memory at which the reader takes rings.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the end of the reader, or of the service.
    pub(super) fn watch(self, stop: &OwnedFd) -> DescriptorEvent {
        tracing::info!(
            process = self.process,
            "the reader of the pipe is a flick process: using shared memory"
        );
        loop {
            match wait_for([Some(self.reader.as_fd()), Some(stop.as_fd())]) {
                // A reader ends its connection behind the writer's, if it does not die.
                Ok([true, _]) => return DescriptorEvent::OutputClosed,
                Ok([false, true]) | Err(_) => return DescriptorEvent::OutputEnded,
                Ok([false, false]) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_listens_and_does_not_accept_kept_a_filter_from_starting() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let name = name_of(reader.as_fd()).expect("it is a pipe");
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let listener = listener.expect("a socket");
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a short name");
        rustix::net::bind(&listener, &address).expect("the name is free");
        rustix::net::listen(&listener, 0).expect("a bound socket listens");
        let waiting: Vec<UnixStream> = std::iter::from_fn(|| connect_at_once(&name)).collect();
        assert!(!waiting.is_empty(), "the queue has a place");
        let begun = Instant::now();
        assert!(Upstream::find(reader.as_fd()).is_none());
        assert!(begun.elapsed() >= SEARCH_TIME_MAX);
    }
}
