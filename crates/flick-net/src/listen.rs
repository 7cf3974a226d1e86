//! Listening sockets, opened before the workers start, one per worker.
//! Promises: the workers of one process share an address. TCP: one `SO_REUSEPORT` socket per worker, over which the
//! kernel spreads peers (port 0 becomes the same port for all). Unix and shared memory: one socket from which all
//! workers accept; its file is removed when the last of them is closed, unless another file has its path by then, and
//! the stale file of a dead process is replaced.
//! Refuses: replacing a Unix socket file on which another process still accepts.
//! Source: sd_listen_fds(3) for sockets inherited from systemd.

mod raw;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::address::Endpoint;
use crate::continuation::Continuation;
use crate::limits::{INHERITED_SOCKETS_MAX, LISTEN_BACKLOG_MAX};
use crate::socket;

/// One listening socket, for a driver of any thread.
#[derive(Debug)]
pub struct ListenSocket {
    fd: OwnedFd,
    at: Endpoint,
    /// The last holder removes the socket file.
    file: Option<Arc<SocketFile>>,
    continuation: Option<Continuation>,
}

/// The sockets of one address, for the workers to take.
#[derive(Debug)]
pub struct ListenSockets {
    at: Endpoint,
    sockets: Vec<ListenSocket>,
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file. Another file may have the path by now.
    id: Option<(u64, u64)>,
    /// Another process listens on the socket and removes the file.
    is_released: AtomicBool,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_own = self.id.is_some_and(|id| file_id(&self.path) == Some(id));
        if is_own && !self.is_released.load(Ordering::Acquire) {
            // The file may be gone already, which is the goal.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns the device and the inode of a socket file; `None` if there is none, or something else.
fn file_id(path: &Path) -> Option<(u64, u64)> {
    let file = std::fs::symlink_metadata(path).ok()?;
    file.file_type().is_socket().then(|| (file.dev(), file.ino()))
}

impl ListenSocket {
    /// Opens one socket.
    ///
    /// Errors: those of socket(2), bind(2) and listen(2), e.g. `AddrInUse`, `PermissionDenied`.
    pub fn open(at: &Endpoint) -> io::Result<ListenSocket> {
        Self::of(socket::open_listener(at)?)
    }

    /// Adopts a listening socket that another process opened.
    ///
    /// Errors: `EBADF`, `ENOTSOCK`, `EINVAL` when the descriptor is no socket with a TCP or Unix address.
    pub fn adopt(fd: OwnedFd) -> io::Result<ListenSocket> {
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        Self::of(fd)
    }

    fn of(fd: OwnedFd) -> io::Result<ListenSocket> {
        let at = socket::local_endpoint(&fd)?;
        let file = match &at {
            Endpoint::Unix(path) => {
                let (path, id) = (path.clone(), file_id(path));
                Some(Arc::new(SocketFile { path, id, is_released: AtomicBool::new(false) }))
            }
            Endpoint::Tcp(_) | Endpoint::Shm(_) | Endpoint::Descriptor(_) => None,
        };
        Ok(ListenSocket { fd, at, file, continuation: None })
    }

    /// Lets the first connection that this process makes to the socket go on in rings of another process. The socket
    /// is one of shared memory, and one driver listens on it.
    #[must_use]
    pub fn with_continuation(self, continuation: Continuation) -> ListenSocket {
        ListenSocket { continuation: Some(continuation), ..self }
    }

    pub(crate) fn continuation(&self) -> Option<&Continuation> {
        self.continuation.as_ref()
    }

    /// Shows the present user of this process to those that connect through a Unix socket or shared memory from now on,
    /// and not the one that it had when the socket was opened (unix(7), `SO_PEERCRED`).
    ///
    /// Errors: those of listen(2).
    pub fn renew_user(&self) -> io::Result<()> {
        match self.at {
            Endpoint::Shm(_) => Ok(rustix::net::listen(&self.fd, flick_shm::limits::PAIRING_BACKLOG)?),
            Endpoint::Unix(_) => Ok(rustix::net::listen(&self.fd, LISTEN_BACKLOG_MAX)?),
            Endpoint::Tcp(_) | Endpoint::Descriptor(_) => Ok(()),
        }
    }

    /// Leaves the socket file to another process: it stays when this process closes its last socket.
    pub fn release_file(&self) {
        if let Some(file) = &self.file {
            file.is_released.store(true, Ordering::Release);
        }
    }

    /// Takes the socket file back: it is removed when this process closes its last socket.
    pub fn reclaim_file(&self) {
        if let Some(file) = &self.file {
            file.is_released.store(false, Ordering::Release);
        }
    }

    /// Opens a second socket for the same address, as the module's header says.
    ///
    /// Errors: as [`ListenSocket::open`].
    pub fn share(&self) -> io::Result<ListenSocket> {
        match &self.at {
            Endpoint::Tcp(_) => ListenSocket::open(&self.at),
            Endpoint::Unix(_) | Endpoint::Shm(_) | Endpoint::Descriptor(_) => self.duplicate(),
        }
    }

    /// Duplicates the descriptor: all duplicates accept from one queue, and the socket listens while one is open.
    ///
    /// Errors: `EMFILE`.
    pub fn duplicate(&self) -> io::Result<ListenSocket> {
        let (fd, at) = (self.fd.try_clone()?, self.at.clone());
        Ok(ListenSocket { fd, at, file: self.file.clone(), continuation: self.continuation.clone() })
    }

    /// Returns the address the socket is bound to.
    pub fn local_addr(&self) -> &Endpoint {
        &self.at
    }
}

impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl ListenSockets {
    /// Opens `count` sockets for one address.
    ///
    /// Errors: `AddrInUse` when another process or service listens there, even if `SO_REUSEPORT` would let both share
    /// it and split the clients; otherwise as [`ListenSocket::open`].
    pub fn open(at: &Endpoint, count: usize) -> io::Result<ListenSockets> {
        socket::refuse_taken(at)?;
        let first = ListenSocket::open(at)?;
        let at = first.at.clone();
        let mut sockets = Vec::with_capacity(count);
        for _ in 1..count {
            sockets.push(first.share()?);
        }
        sockets.push(first);
        Ok(ListenSockets { at, sockets })
    }

    /// Duplicates the sockets, and opens new ones until there are `count`.
    ///
    /// Errors: as [`ListenSocket::open`].
    pub fn duplicate(&self, count: usize) -> io::Result<ListenSockets> {
        let mut sockets = self.sockets.iter().map(ListenSocket::duplicate).collect::<io::Result<Vec<_>>>()?;
        while sockets.len() < count
            && let Some(first) = self.sockets.first()
        {
            sockets.push(first.share()?);
        }
        Ok(ListenSockets { at: self.at.clone(), sockets })
    }

    /// Returns the address the sockets are bound to.
    pub fn local_addr(&self) -> &Endpoint {
        &self.at
    }

    /// Wraps sockets of one address that another process opened. Panics when the list is empty.
    pub fn of(sockets: Vec<ListenSocket>) -> ListenSockets {
        let at = sockets.first().expect("an address has a socket").at.clone();
        ListenSockets { at, sockets }
    }

    /// Iterates over the sockets that are not taken.
    pub fn iter(&self) -> impl Iterator<Item = &ListenSocket> {
        self.sockets.iter()
    }

    /// Returns how many sockets are not taken.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Returns whether all sockets are taken.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Takes one of the sockets; `None` when all are taken.
    pub fn take(&mut self) -> Option<ListenSocket> {
        self.sockets.pop()
    }
}

/// Returns the listening sockets that systemd opened for this process (`LISTEN_PID`, `LISTEN_FDS`). Call it once, at
/// the start: a second call would own the same descriptors again.
///
/// Errors: one of them is no listening socket with a TCP or Unix address.
pub fn inherited_sockets() -> io::Result<Vec<ListenSocket>> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
    let (Some(pid), Some(count)) = (number("LISTEN_PID"), number("LISTEN_FDS")) else {
        return Ok(Vec::new());
    };
    if pid != std::process::id() {
        return Ok(Vec::new());
    }
    let count = count.min(INHERITED_SOCKETS_MAX);
    (0..count).map(|index| ListenSocket::adopt(raw::take_inherited_fd(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    /// A path in the system's directory for temporary files, unique to this process and test.
    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("flick-listen-{}-{name}", std::process::id()))
    }

    #[test]
    fn port_zero_becomes_one_port_for_all_workers() {
        let mut sockets =
            ListenSockets::open(&"127.0.0.1:0".parse().expect("an endpoint"), 3).expect("loopback");
        let at = sockets.local_addr().clone();
        assert_ne!(at.port(), Some(0));
        let taken: Vec<ListenSocket> = std::iter::from_fn(|| sockets.take()).collect();
        assert_eq!(taken.len(), 3);
        assert!(taken.iter().all(|socket| socket.local_addr() == &at));
    }

    #[test]
    fn a_second_service_on_a_used_port_is_refused() {
        let first = ListenSockets::open(&"127.0.0.1:0".parse().expect("an endpoint"), 2).expect("loopback");
        let second = ListenSockets::open(first.local_addr(), 2).expect_err("the port is in use");
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(first.duplicate(3).expect("the holder may have more").len(), 3);
        let at = first.local_addr().clone();
        drop(first);
        ListenSockets::open(&at, 2).expect("it is free again");
    }

    #[test]
    fn the_socket_file_is_removed_with_the_last_socket() {
        let path = path("shared");
        let mut sockets = ListenSockets::open(&Endpoint::Unix(path.clone()), 2).expect("a fresh path");
        drop(sockets.take());
        UnixStream::connect(&path).expect("the second socket still listens");
        drop(sockets);
        assert!(!path.exists());
    }

    #[test]
    fn exit_removed_the_socket_file_of_another_process() {
        let path = path("replaced");
        let at = Endpoint::Unix(path.clone());
        let own = ListenSocket::open(&at).expect("a fresh path");
        std::fs::remove_file(&path).expect("it is there");
        let other = ListenSocket::open(&at).expect("the path is free");
        drop(own);
        assert!(path.exists());
        std::fs::remove_file(&path).expect("it is there");
        std::fs::write(&path, "precious").expect("the temporary directory is writable");
        drop(other);
        assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn a_stale_socket_file_is_replaced_and_a_live_one_is_not() {
        let path = path("stale");
        let at = Endpoint::Unix(path.clone());
        let living = UnixListener::bind(&path).expect("a fresh path");
        let refused = ListenSocket::open(&at).expect_err("another socket listens");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(living);
        assert!(path.exists(), "the standard library leaves the file behind");
        ListenSocket::open(&at).expect("nothing accepts any more");
    }

    #[test]
    fn a_file_that_is_no_socket_is_kept() {
        let path = path("plain");
        std::fs::write(&path, "precious").expect("the temporary directory is writable");
        let error = ListenSocket::open(&Endpoint::Unix(path.clone())).expect_err("not a socket");
        assert_eq!(error.to_string(), "there is a file with this name that is no socket");
        assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
        std::fs::remove_file(&path).expect("ours");
    }
}
