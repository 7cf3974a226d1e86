//! The best kernel driver this machine grants, chosen once at start.
//! Promises: a worker is compiled for one type, whichever driver it gets; the choice and its reason are logged.
//! Refuses: the simulator, which no production worker has a use for.

use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::Duration;

use flick_buffers::{Pool, Slice};

use crate::address::Endpoint;
use crate::driver::{Detached, Driver, DriverLimits, Event, Handle, Line, ListenerId};
use crate::epoll::EpollDriver;
use crate::limits::EVENTS_MIN;
use crate::listen::ListenSocket;
use crate::uring::UringDriver;
use crate::waker::Waker;
use crate::watch::Watch;

/// Which driver to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoKind {
    /// io_uring if the kernel has and grants it, else epoll.
    #[default]
    Auto,
    /// epoll, always there.
    Epoll,
    /// io_uring, or an error.
    Uring,
}

/// A kernel driver.
#[expect(clippy::large_enum_variant, reason = "there is one per worker, and it is not moved once it runs")]
pub enum AnyDriver {
    /// Through epoll.
    Epoll(EpollDriver),
    /// Through io_uring.
    Uring(UringDriver),
}

impl FromStr for IoKind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<IoKind, &'static str> {
        match text {
            "auto" => Ok(IoKind::Auto),
            "epoll" => Ok(IoKind::Epoll),
            "uring" => Ok(IoKind::Uring),
            _ => Err("write `auto`, `epoll` or `uring`"),
        }
    }
}

impl AnyDriver {
    /// Opens a driver, on the thread that will use it.
    ///
    /// Errors: what the system refused; for `Auto` only if it refuses epoll too.
    pub fn open(kind: IoKind, limits: DriverLimits) -> io::Result<AnyDriver> {
        match kind {
            IoKind::Epoll => EpollDriver::new(limits).map(AnyDriver::Epoll),
            IoKind::Uring => UringDriver::new(limits).map(AnyDriver::Uring),
            IoKind::Auto => match UringDriver::new(limits) {
                Ok(driver) => Ok(AnyDriver::Uring(driver)),
                Err(error) => {
                    tracing::info!(%error, "io_uring is refused or too old here; epoll takes over");
                    EpollDriver::new(limits).map(AnyDriver::Epoll)
                }
            },
        }
    }

    /// Which driver it became: `epoll` or `uring`.
    pub fn name(&self) -> &'static str {
        match self {
            AnyDriver::Epoll(_) => "epoll",
            AnyDriver::Uring(_) => "uring",
        }
    }

    /// Has `watch` name `token` when there is something to poll for; see [`Driver::rest`] for what no descriptor tells.
    ///
    /// Errors: the system's.
    pub fn announce(&mut self, watch: &mut Watch, token: u32) -> io::Result<()> {
        match self {
            AnyDriver::Epoll(driver) => watch.add(driver.as_fd(), token),
            AnyDriver::Uring(driver) => {
                driver.announce()?;
                driver.announcers().try_for_each(|eventfd| watch.add_edges(eventfd, token))
            }
        }
    }

    /// Stops or goes on to be named by `watch`. Errors: the system's.
    pub fn hold(&self, watch: &mut Watch, token: u32, held: bool) -> io::Result<()> {
        match self {
            AnyDriver::Epoll(driver) => watch.hold(driver.as_fd(), token, held),
            // It names only what is new, which is no loop.
            AnyDriver::Uring(_) => Ok(()),
        }
    }

    /// Hands out at most so many events by one poll from now on, never more than it was opened for, and sends at most about so
    /// many bytes by it.
    pub fn limit_poll(&mut self, events_max: usize, sent_bytes_max: usize) {
        let (limits, allowance) = match self {
            AnyDriver::Epoll(driver) => driver.bounds_mut(),
            AnyDriver::Uring(driver) => driver.bounds_mut(),
        };
        limits.events_max = events_max.max(EVENTS_MIN);
        allowance.set(sent_bytes_max.max(1));
    }

    /// A handle other threads end this driver's wait with.
    pub fn waker(&self) -> Waker {
        match self {
            AnyDriver::Epoll(driver) => driver.waker(),
            AnyDriver::Uring(driver) => driver.waker(),
        }
    }
}

/// Calls the same method of whichever driver it is.
macro_rules! either {
    ($any:expr, $driver:ident => $call:expr) => {
        match $any {
            AnyDriver::Epoll($driver) => $call,
            AnyDriver::Uring($driver) => $call,
        }
    };
}

impl Driver for AnyDriver {
    fn listen(&mut self, at: &Endpoint) -> io::Result<ListenerId> {
        either!(self, driver => driver.listen(at))
    }

    fn listen_on(&mut self, socket: ListenSocket) -> io::Result<ListenerId> {
        either!(self, driver => driver.listen_on(socket))
    }

    fn local_addr(&self, listener: ListenerId) -> io::Result<Endpoint> {
        either!(self, driver => driver.local_addr(listener))
    }

    fn accept(&mut self, listener: ListenerId, on: bool) {
        either!(self, driver => driver.accept(listener, on));
    }

    fn close_listener(&mut self, listener: ListenerId) {
        either!(self, driver => driver.close_listener(listener));
    }

    fn connect(&mut self, to: &Endpoint) -> io::Result<Handle> {
        either!(self, driver => driver.connect(to))
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Handle> {
        either!(self, driver => driver.adopt(socket))
    }

    fn is_gone(&self, conn: Handle) -> bool {
        either!(self, driver => driver.is_gone(conn))
    }

    fn detach(&mut self, conn: Handle) -> Detached {
        either!(self, driver => driver.detach(conn))
    }

    fn leave_listener(&mut self, listener: ListenerId) {
        either!(self, driver => driver.leave_listener(listener));
    }

    fn is_leaving(&self) -> bool {
        either!(self, driver => driver.is_leaving())
    }

    fn rest(&mut self, pool: &Pool, timeout: Option<Duration>) -> Option<Duration> {
        either!(self, driver => driver.rest(pool, timeout))
    }

    #[inline]
    fn receive(&mut self, conn: Handle, on: bool) {
        either!(self, driver => driver.receive(conn, on));
    }

    #[inline]
    fn pauses_for_free(&self) -> bool {
        either!(self, driver => driver.pauses_for_free())
    }

    #[inline]
    fn send(&mut self, conn: Handle, data: Slice) {
        either!(self, driver => driver.send(conn, data));
    }

    fn hold_output(&mut self, conn: Handle, on: bool) {
        either!(self, driver => driver.hold_output(conn, on));
    }

    #[inline]
    fn backlog_bytes(&self, conn: Handle) -> usize {
        either!(self, driver => driver.backlog_bytes(conn))
    }

    fn flush(&mut self) -> io::Result<()> {
        either!(self, driver => driver.flush())
    }

    fn waited_ns(&self) -> u64 {
        either!(self, driver => driver.waited_ns())
    }

    #[inline]
    fn line(&self) -> Line {
        either!(self, driver => driver.line())
    }

    fn is_flushing(&self) -> bool {
        either!(self, driver => driver.is_flushing())
    }

    fn set_marks(&mut self, high_bytes: usize, low_bytes: usize) {
        either!(self, driver => driver.set_marks(high_bytes, low_bytes));
    }

    fn shutdown(&mut self, conn: Handle) {
        either!(self, driver => driver.shutdown(conn));
    }

    fn close(&mut self, conn: Handle) {
        either!(self, driver => driver.close(conn));
    }

    fn abort(&mut self, conn: Handle) {
        either!(self, driver => driver.abort(conn));
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        either!(self, driver => driver.now_ns())
    }

    fn poll(&mut self, pool: &Pool, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        either!(self, driver => driver.poll(pool, timeout, events))
    }
}
