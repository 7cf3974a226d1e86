//! Listening sockets opened before the workers start, one per worker.
//! Promises: the workers of one process share an address: TCP by one socket each that the kernel spreads peers
//! over (port 0 becomes the same port for all), Unix by one socket they all accept from; the socket file is
//! removed when the last of them is closed, and one left by a process that died is replaced.
//! Refuses: taking a Unix path away from somebody who still answers on it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::address::Endpoint;
use crate::socket;

/// One listening socket, ready to be given to a driver of any thread.
#[derive(Debug)]
pub struct ListenSocket {
    fd: OwnedFd,
    at: Endpoint,
    /// The last holder removes the file.
    file: Option<Arc<SocketFile>>,
}

/// The sockets of one address, for the workers to take.
#[derive(Debug)]
pub struct ListenSockets {
    at: Endpoint,
    waiting: Vec<ListenSocket>,
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Another process listens on it and removes it.
    is_given_away: AtomicBool,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.is_given_away.load(Ordering::Acquire) {
            // Somebody may have removed it before us, which is what we want.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl ListenSocket {
    /// Opens one socket. Errors: the system's, `AddrInUse` for one.
    pub fn open(at: &Endpoint) -> io::Result<ListenSocket> {
        Self::of(socket::open_listener(at)?)
    }

    /// A socket that somebody else has opened, and that listens. Errors: the system's; it is no such socket.
    pub fn adopt(fd: OwnedFd) -> io::Result<ListenSocket> {
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        Self::of(fd)
    }

    fn of(fd: OwnedFd) -> io::Result<ListenSocket> {
        let at = socket::local_endpoint(&fd)?;
        let file = match &at {
            Endpoint::Unix(path) => {
                Some(Arc::new(SocketFile { path: path.clone(), is_given_away: AtomicBool::new(false) }))
            }
            Endpoint::Tcp(_) => None,
        };
        Ok(ListenSocket { fd, at, file })
    }

    /// Another process listens on it from now on: its file stays when the last of ours is closed.
    pub fn give_away(&self) {
        if let Some(file) = &self.file {
            file.is_given_away.store(true, Ordering::Release);
        }
    }

    /// No other process listens on it any more: its file goes with the last of ours.
    pub fn take_over(&self) {
        if let Some(file) = &self.file {
            file.is_given_away.store(false, Ordering::Release);
        }
    }

    /// A second socket for the same address: see the module.
    pub fn share(&self) -> io::Result<ListenSocket> {
        match &self.at {
            Endpoint::Tcp(_) => ListenSocket::open(&self.at),
            Endpoint::Unix(_) => {
                Ok(ListenSocket { fd: self.fd.try_clone()?, at: self.at.clone(), file: self.file.clone() })
            }
        }
    }

    /// The same socket again: peers wait in one queue, whoever of the holders takes them, and as long as one is left it
    /// listens.
    pub fn duplicate(&self) -> io::Result<ListenSocket> {
        Ok(ListenSocket { fd: self.fd.try_clone()?, at: self.at.clone(), file: self.file.clone() })
    }

    /// The address the socket really got.
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
    /// Errors: somebody else has it (`AddrInUse`), though it might let us share it: clients would be split between the two; the system's.
    pub fn open(at: &Endpoint, count: usize) -> io::Result<ListenSockets> {
        socket::refuse_taken(at)?;
        let first = ListenSocket::open(at)?;
        let at = first.at.clone();
        let mut waiting = Vec::with_capacity(count);
        for _ in 1..count {
            waiting.push(first.share()?);
        }
        waiting.push(first);
        Ok(ListenSockets { at, waiting })
    }

    /// The same sockets again, and new ones beside them if they are fewer than `count`.
    ///
    /// Errors: the system's.
    pub fn duplicate(&self, count: usize) -> io::Result<ListenSockets> {
        let mut waiting = self.waiting.iter().map(ListenSocket::duplicate).collect::<io::Result<Vec<_>>>()?;
        while waiting.len() < count
            && let Some(first) = self.waiting.first()
        {
            waiting.push(first.share()?);
        }
        Ok(ListenSockets { at: self.at.clone(), waiting })
    }

    /// The address the sockets really got.
    pub fn local_addr(&self) -> &Endpoint {
        &self.at
    }

    /// Sockets of one address that somebody else has opened. Panics without any.
    pub fn of(sockets: Vec<ListenSocket>) -> ListenSockets {
        let at = sockets.first().expect("an address has a socket").at.clone();
        ListenSockets { at, waiting: sockets }
    }

    /// Those that are not taken.
    pub fn iter(&self) -> impl Iterator<Item = &ListenSocket> {
        self.waiting.iter()
    }

    /// Sockets that are not taken.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether all are taken.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// One of the sockets, until all are taken.
    pub fn take(&mut self) -> Option<ListenSocket> {
        self.waiting.pop()
    }
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
    fn two_services_on_one_port_shared_its_clients_silently() {
        let first = ListenSockets::open(&"127.0.0.1:0".parse().expect("an endpoint"), 2).expect("loopback");
        let second = ListenSockets::open(first.local_addr(), 2).expect_err("it is taken");
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(first.duplicate(3).expect("the holder may have more").len(), 3);
        let at = first.local_addr().clone();
        drop(first);
        ListenSockets::open(&at, 2).expect("it is free again");
    }

    #[test]
    fn the_socketfile_lives_as_long_as_its_last_socket() {
        let path = path("shared");
        let mut sockets = ListenSockets::open(&Endpoint::Unix(path.clone()), 2).expect("a fresh path");
        drop(sockets.take());
        UnixStream::connect(&path).expect("the second socket still listens");
        drop(sockets);
        assert!(!path.exists());
    }

    #[test]
    fn a_stalefile_is_replaced_and_a_live_one_is_not() {
        let path = path("stale");
        let at = Endpoint::Unix(path.clone());
        let living = UnixListener::bind(&path).expect("a fresh path");
        let refused = ListenSocket::open(&at).expect_err("somebody listens");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(living);
        assert!(path.exists(), "the standard library leaves the file behind");
        ListenSocket::open(&at).expect("nobody answers any more");
    }

    #[test]
    fn afile_that_is_no_socket_is_left_alone() {
        let path = path("plain");
        std::fs::write(&path, "precious").expect("the temporary directory is writable");
        ListenSocket::open(&Endpoint::Unix(path.clone())).expect_err("not a socket");
        assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
        std::fs::remove_file(&path).expect("ours");
    }
}
