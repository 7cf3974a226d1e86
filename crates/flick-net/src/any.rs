//! A kernel driver chosen at start: io_uring where the kernel grants it, else epoll.
//! Promises: a worker is compiled for one type; the choice and its reason are logged.
//! Refuses: the simulator, which production workers never use.

use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::Duration;

use flick_buffers::{Pool, Slice};

use crate::address::Endpoint;
use crate::driver::{Detached, Driver, DriverEvent, DriverLimits, Handle, ListenerId};
use crate::epoll::EpollDriver;
use crate::limits::EVENTS_MIN;
use crate::listen::ListenSocket;
use crate::poller::Poller;
use crate::queue_delay::QueueDelay;
use crate::uring::UringDriver;
use crate::waker::Waker;

/// The driver to open: the option `--io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoKind {
    /// io_uring if the kernel has and grants it, else epoll.
    #[default]
    Auto,
    /// epoll, which every Linux has.
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
    /// Errors: those of epoll_create(2), eventfd(2) and io_uring_setup(2); for `Auto` only if epoll fails too.
    pub fn open(kind: IoKind, limits: DriverLimits) -> io::Result<AnyDriver> {
        match kind {
            IoKind::Epoll => EpollDriver::new(limits).map(AnyDriver::Epoll),
            IoKind::Uring => UringDriver::new(limits).map(AnyDriver::Uring),
            IoKind::Auto => match UringDriver::new(limits) {
                Ok(driver) => Ok(AnyDriver::Uring(driver)),
                Err(error) => {
                    tracing::info!(%error, "io_uring is denied or too old here; using epoll");
                    EpollDriver::new(limits).map(AnyDriver::Epoll)
                }
            },
        }
    }

    /// Returns which driver it is: `epoll` or `uring`.
    pub fn name(&self) -> &'static str {
        match self {
            AnyDriver::Epoll(_) => "epoll",
            AnyDriver::Uring(_) => "uring",
        }
    }

    /// Adds this driver to `poller` under `token`. [`Driver::poll_timeout`] covers the work that no descriptor signals.
    ///
    /// Errors: those of epoll_ctl(2) and eventfd(2).
    pub fn register(&mut self, poller: &mut Poller, token: u32) -> io::Result<()> {
        match self {
            AnyDriver::Epoll(driver) => poller.add(driver.as_fd(), token),
            AnyDriver::Uring(driver) => {
                driver.use_eventfd()?;
                driver.eventfds().try_for_each(|eventfd| poller.add_edge_triggered(eventfd, token))
            }
        }
    }

    /// Pauses or resumes the poller's reports of this driver.
    ///
    /// Errors: those of epoll_ctl(2).
    pub fn set_paused(&self, poller: &mut Poller, token: u32, paused: bool) -> io::Result<()> {
        match self {
            AnyDriver::Epoll(driver) => poller.set_paused(driver.as_fd(), token, paused),
            // Edge-triggered, so an unhandled report does not repeat.
            AnyDriver::Uring(_) => Ok(()),
        }
    }

    /// Limits each later poll to `events_max` events (never more than the driver was opened for) and to about
    /// `sent_bytes_max` bytes sent.
    pub fn limit_poll(&mut self, events_max: usize, sent_bytes_max: usize) {
        let (limits, quota) = match self {
            AnyDriver::Epoll(driver) => driver.bounds_mut(),
            AnyDriver::Uring(driver) => driver.bounds_mut(),
        };
        limits.events_max = events_max.max(EVENTS_MIN);
        quota.set(sent_bytes_max.max(1));
    }

    /// Returns a handle with which other threads end this driver's wait.
    pub fn waker(&self) -> Waker {
        match self {
            AnyDriver::Epoll(driver) => driver.waker(),
            AnyDriver::Uring(driver) => driver.waker(),
        }
    }
}

/// Calls the same method of either driver.
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

    fn is_hung_up(&self, conn: Handle) -> bool {
        either!(self, driver => driver.is_hung_up(conn))
    }

    fn detach(&mut self, conn: Handle) -> Detached {
        either!(self, driver => driver.detach(conn))
    }

    fn drain_listener(&mut self, listener: ListenerId) {
        either!(self, driver => driver.drain_listener(listener));
    }

    fn is_draining_listeners(&self) -> bool {
        either!(self, driver => driver.is_draining_listeners())
    }

    fn poll_timeout(&mut self, pool: &Pool, timeout: Option<Duration>) -> Option<Duration> {
        either!(self, driver => driver.poll_timeout(pool, timeout))
    }

    #[inline]
    fn receive(&mut self, conn: Handle, on: bool) {
        either!(self, driver => driver.receive(conn, on));
    }

    #[inline]
    fn pause_is_free(&self) -> bool {
        either!(self, driver => driver.pause_is_free())
    }

    #[inline]
    fn send(&mut self, conn: Handle, data: Slice) {
        either!(self, driver => driver.send(conn, data));
    }

    fn set_corked(&mut self, conn: Handle, on: bool) {
        either!(self, driver => driver.set_corked(conn, on));
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
    fn queue_delay(&self) -> QueueDelay {
        either!(self, driver => driver.queue_delay())
    }

    fn is_flushing(&self) -> bool {
        either!(self, driver => driver.is_flushing())
    }

    fn set_watermarks(&mut self, high_bytes: usize, low_bytes: usize) {
        either!(self, driver => driver.set_watermarks(high_bytes, low_bytes));
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

    fn poll(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> io::Result<()> {
        either!(self, driver => driver.poll(pool, timeout, events))
    }
}
