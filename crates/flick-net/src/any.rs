//! The driver of a worker: io_uring where the kernel grants it, else epoll; and shared memory beside it.
//! Promises: a worker is compiled for one type; the choice and its reason are logged; a driver without a listener or a
//! connection of shared memory pays one comparison per call for it; neither of the two starves the other.
//! In the simulator the kernel's connections are simulated, and those through shared memory are real.

/// Calls the same method of either driver.
macro_rules! either {
    ($any:expr, $driver:ident => $call:expr) => {
        match &mut $any.kernel {
            KernelDriver::Epoll($driver) => $call,
            KernelDriver::Uring($driver) => $call,
            KernelDriver::Simulated($driver) => $call,
        }
    };
    (ref $any:expr, $driver:ident => $call:expr) => {
        match &$any.kernel {
            KernelDriver::Epoll($driver) => $call,
            KernelDriver::Uring($driver) => $call,
            KernelDriver::Simulated($driver) => $call,
        }
    };
}

mod busy_poll;
mod kernel;
mod upgrade;

use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::Duration;

use flick_buffers::{Pool, Slice};
use flick_shm::busy_poll::BusyPoll;

use crate::address::Endpoint;
use crate::clock::Clock;
use crate::driver::{
    Detached, Driver, DriverEvent, DriverLimits, Handle, ListenerId, ShmStats, TransportKind,
};
use crate::epoll::EpollDriver;
use crate::event_sink::EventSink;
use crate::limits::{EVENTS_MIN, LISTENERS_MAX, SHM_POLLS_MAX, SHM_POLLS_NS_MAX};
use crate::listen::ListenSocket;
use crate::poller::Poller;
use crate::queue_delay::QueueDelay;
use crate::shm::ShmTransport;
use crate::sim::SimDriver;
use crate::socket::peer_addr;
use crate::tap::{self, TapSink};
use crate::uring::UringDriver;
use crate::waker::Waker;
use upgrade::{Translated, UpgradeTable};

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

/// A kernel driver, and beside it the connections through shared memory.
pub struct AnyDriver {
    kernel: KernelDriver,
    shm: ShmTransport,
    /// Handles from this index on are of shared memory.
    shm_from: u32,
    /// Connections of the kernel that may use rings; `None` if none does.
    upgrades: Option<Box<UpgradeTable>>,
    /// Outgoing connections that could use rings if `upgrades` were there.
    plain_off: u64,
    /// Polls since the kernel was asked, and when that was.
    shm_polls: u32,
    kernel_polled_ns: u64,
    /// The watch of shared memory is still to be looked at.
    defers_news: bool,
    /// Whether a wait busy-polls rings before it sleeps; see `busy_poll.rs`.
    busy_poll: BusyPoll,
    busy_polled_ns: u64,
    tap: Option<Box<dyn TapSink>>,
}

#[expect(clippy::large_enum_variant, reason = "there is one per worker, and it is not moved once it runs")]
enum KernelDriver {
    Epoll(EpollDriver),
    Uring(UringDriver),
    Simulated(SimDriver),
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
        let kernel = match kind {
            IoKind::Epoll => KernelDriver::Epoll(EpollDriver::new(limits)?),
            IoKind::Uring => KernelDriver::Uring(UringDriver::new(limits)?),
            IoKind::Auto => match UringDriver::new(limits) {
                Ok(driver) => KernelDriver::Uring(driver),
                Err(error) => {
                    tracing::info!(%error, "io_uring is denied or too old here; using epoll");
                    KernelDriver::Epoll(EpollDriver::new(limits)?)
                }
            },
        };
        Self::beside(kernel, &limits, Clock::Monotonic)
    }

    /// Adds shared memory to the driver of a simulated network, on whose clock it runs.
    ///
    /// Errors: those of epoll_create(2).
    pub fn simulated(mut driver: SimDriver) -> io::Result<AnyDriver> {
        let (limits, clock) = (*driver.bounds_mut().0, Clock::Simulated(driver.net().clone()));
        Self::beside(KernelDriver::Simulated(driver), &limits, clock)
    }

    fn beside(kernel: KernelDriver, limits: &DriverLimits, clock: Clock) -> io::Result<AnyDriver> {
        let shm = ShmTransport::new(limits, clock)?;
        let mut any = AnyDriver {
            kernel,
            shm,
            shm_from: limits.conns_max,
            upgrades: None,
            plain_off: 0,
            shm_polls: 0,
            kernel_polled_ns: 0,
            defers_news: false,
            busy_poll: BusyPoll::new(0),
            busy_polled_ns: 0,
            tap: None,
        };
        either!(any, driver => driver.watch(any.shm.watch_fd()))?;
        Ok(any)
    }

    /// Returns which driver it is: `epoll` or `uring`.
    pub fn name(&self) -> &'static str {
        match &self.kernel {
            KernelDriver::Epoll(_) => "epoll",
            KernelDriver::Uring(_) => "uring",
            KernelDriver::Simulated(_) => "simulated",
        }
    }

    /// Adds this driver to `poller` under `token`. [`Driver::poll_timeout`] covers the work that no descriptor signals.
    ///
    /// Errors: those of epoll_ctl(2) and eventfd(2).
    pub fn register(&mut self, poller: &mut Poller, token: u32) -> io::Result<()> {
        match &mut self.kernel {
            KernelDriver::Epoll(driver) => poller.add(driver.as_fd(), token),
            KernelDriver::Uring(driver) => {
                driver.use_eventfd()?;
                driver.watched().map_or(Ok(()), |watched| poller.add(watched, token))?;
                driver.eventfds().try_for_each(|eventfd| poller.add_edge_triggered(eventfd, token))
            }
            KernelDriver::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Pauses or resumes the poller's reports of this driver.
    ///
    /// Errors: those of epoll_ctl(2).
    pub fn set_paused(&self, poller: &mut Poller, token: u32, paused: bool) -> io::Result<()> {
        match &self.kernel {
            KernelDriver::Epoll(driver) => poller.set_paused(driver.as_fd(), token, paused),
            // The others are edge-triggered, so an unhandled report does not repeat.
            KernelDriver::Uring(driver) => {
                driver.watched().map_or(Ok(()), |watched| poller.set_paused(watched, token, paused))
            }
            KernelDriver::Simulated(_) => Ok(()),
        }
    }

    /// Takes this driver out of `poller`, in which it was registered under `token`, and makes its own polls end when
    /// `poller` has a report. So a thread waits for this driver without a system call of the poller.
    ///
    /// Errors: those of epoll_ctl(2) and dup(2); the driver stays registered then.
    pub fn host_poller(&mut self, poller: &mut Poller, token: u32) -> io::Result<()> {
        match &mut self.kernel {
            KernelDriver::Epoll(driver) => {
                poller.remove(driver.as_fd())?;
                driver.host_poller(poller).or_else(|error| {
                    poller.add(driver.as_fd(), token)?;
                    Err(error)
                })
            }
            KernelDriver::Uring(driver) => {
                driver.host_poller(poller)?;
                driver.watched().map_or(Ok(()), |watched| poller.set_paused(watched, token, true))
            }
            KernelDriver::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Ends [`AnyDriver::host_poller`]: registers the driver again. The next poll must not wait.
    ///
    /// Errors: those of epoll_ctl(2).
    pub fn release_poller(&mut self, poller: &mut Poller, token: u32) -> io::Result<()> {
        match &mut self.kernel {
            KernelDriver::Epoll(driver) => {
                driver.release_poller(poller)?;
                poller.add(driver.as_fd(), token)
            }
            KernelDriver::Uring(driver) => {
                driver.release_poller();
                driver.watched().map_or(Ok(()), |watched| poller.set_paused(watched, token, false))
            }
            KernelDriver::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns whether the poller that it hosts may have a report that was not taken.
    pub fn take_poller_ready(&mut self) -> bool {
        match &mut self.kernel {
            KernelDriver::Epoll(driver) => driver.take_poller_ready(),
            KernelDriver::Uring(driver) => driver.take_poller_ready(),
            KernelDriver::Simulated(_) => false,
        }
    }

    /// Limits each later poll to `events_max` events (never more than the driver was opened for) and to about
    /// `sent_bytes_max` bytes sent, for each of the kernel and shared memory.
    pub fn limit_poll(&mut self, events_max: usize, sent_bytes_max: usize) {
        let kernel = either!(self, driver => driver.bounds_mut());
        for (limits, quota) in [kernel, self.shm.bounds_mut()] {
            limits.events_max = events_max.max(EVENTS_MIN);
            quota.set(sent_bytes_max.max(1));
        }
    }

    /// Limits the bytes of this driver's rings in shared memory. A connection without memory for a larger ring keeps
    /// its own; one without memory for a first ring is refused.
    pub fn limit_rings(&mut self, bytes_max: u64) {
        self.shm.limit_rings(bytes_max);
    }

    /// Returns a handle with which other threads end this driver's wait.
    pub fn waker(&self) -> Waker {
        either!(ref self, driver => driver.waker())
    }

    /// Returns the handle within shared memory, if it is one of those.
    #[inline]
    fn shm_handle(&self, conn: Handle) -> Option<Handle> {
        let index = conn.index.checked_sub(self.shm_from)?;
        Some(Handle { index, ..conn })
    }

    /// Serves connections through shared memory. Returns whether there were events, or are to be soon.
    fn serve_shm(&mut self, pool: &Pool, events: &mut Vec<DriverEvent>, events_max: usize) -> bool {
        let before = events.len();
        self.shm.serve_all(pool, &mut EventSink::new(events, events_max));
        let mut kept = before;
        for at in before..events.len() {
            if self.convert(&mut events[at]) {
                events.swap(kept, at);
                kept += 1;
            }
        }
        events.truncate(kept);
        self.advance_claims();
        events.len() > before || self.shm.has_work(pool)
    }

    /// Gives an event of shared memory the platform's handles; returns whether the platform gets it.
    fn convert(&mut self, event: &mut DriverEvent) -> bool {
        match self.translate(event) {
            Translated::Own => {}
            Translated::Kernel => return true,
            Translated::Hidden => return false,
        }
        let from = self.shm_from;
        match event {
            DriverEvent::Accepted { listener, conn, .. } => {
                listener.0 += LISTENERS_MAX as u32;
                conn.index += from;
            }
            DriverEvent::AcceptFailed { listener, .. } => listener.0 += LISTENERS_MAX as u32,
            DriverEvent::Connected { conn }
            | DriverEvent::Data { conn, .. }
            | DriverEvent::Eof { conn }
            | DriverEvent::Failed { conn, .. }
            | DriverEvent::Drained { conn } => conn.index += from,
            DriverEvent::Woken => {}
        }
        true
    }

    /// Polls the kernel while shared memory has nothing to do, except to wait for a first process.
    fn poll_kernel(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> io::Result<()> {
        let before = events.len();
        either!(self, driver => driver.poll(pool, timeout, events))?;
        if self.upgrades.is_some() {
            self.note_kernel_events(events, before);
            // Where only a look shows whether the watch is readable, it costs a system call.
            let is_known = either!(ref self, driver => driver.knows_watch());
            self.shm_polls += 1;
            self.defers_news = !is_known && events.len() > before && self.shm_polls < SHM_POLLS_MAX;
            if !self.defers_news {
                self.shm_polls = 0;
                if either!(self, driver => driver.take_watch_ready()) {
                    self.shm.begin_poll(either!(ref self, driver => driver.now_ns()));
                    self.shm.take_news();
                }
            }
        }
        Ok(())
    }

    /// Polls the kernel and shared memory. A poll that finds something in shared memory does without the kernel for a
    /// bounded time; the last one before a wait stores the sleep words.
    fn poll_both(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> io::Result<()> {
        let now_ns = self.shm.clock.now_ns();
        self.shm.begin_poll(now_ns);
        let events_max = either!(self, driver => driver.bounds_mut()).0.events_max;
        let before = events.len();
        let is_busy = self.serve_shm(pool, events, events_max / 2);
        let waits = !is_busy && timeout != Some(Duration::ZERO);
        if !waits {
            self.shm_polls += 1;
            let since_ns = now_ns.saturating_sub(self.kernel_polled_ns);
            if self.shm_polls < SHM_POLLS_MAX && since_ns < SHM_POLLS_NS_MAX {
                return either!(self, driver => driver.flush());
            }
        }
        if waits && self.busy_poll(pool, timeout, events)? {
            return Ok(());
        }
        let timeout = if !waits || !self.shm.prepare_sleep() {
            Some(Duration::ZERO)
        } else {
            self.shm.wait_time().into_iter().chain(timeout).min()
        };
        // One limit on events for both.
        self.poll_kernel_beside(pool, timeout, events, events_max - (events.len() - before))?;
        self.busy_poll.slept();
        let left = events_max - (events.len() - before);
        self.serve_shm(pool, events, left);
        Ok(())
    }

    /// Polls the kernel for at most `events_max` events, and takes over what it tells about shared memory.
    fn poll_kernel_beside(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
        events_max: usize,
    ) -> io::Result<()> {
        let before = events.len();
        let own_max =
            either!(self, driver => std::mem::replace(&mut driver.bounds_mut().0.events_max, events_max));
        let polled = either!(self, driver => driver.poll(pool, timeout, events));
        either!(self, driver => driver.bounds_mut()).0.events_max = own_max;
        polled?;
        self.note_kernel_events(events, before);
        (self.shm_polls, self.kernel_polled_ns) = (0, either!(ref self, driver => driver.now_ns()));
        self.shm.begin_poll(self.kernel_polled_ns);
        if either!(self, driver => driver.take_watch_ready()) || self.shm.is_due() {
            self.shm.take_news();
        }
        Ok(())
    }

    /// Closes what of a listener is in shared memory. Whether the kernel has one, too, which is still to be closed.
    fn closes_in_kernel(&mut self, listener: ListenerId) -> bool {
        match shm_listener(listener) {
            Some(listener) => self.shm.close_listener(listener),
            None => self.close_claims(listener),
        }
        shm_listener(listener).is_none()
    }
}

impl Driver for AnyDriver {
    fn listen(&mut self, at: &Endpoint) -> io::Result<ListenerId> {
        if let (KernelDriver::Simulated(driver), false) = (&mut self.kernel, matches!(at, Endpoint::Shm(_))) {
            let id = driver.listen(at)?;
            let at = driver.local_addr(id)?;
            self.listen_for_claims(id, &at);
            return Ok(id);
        }
        self.listen_on(ListenSocket::open(at)?)
    }

    fn listen_on(&mut self, socket: ListenSocket) -> io::Result<ListenerId> {
        if let Endpoint::Shm(_) = socket.local_addr() {
            let id = self.shm.listen_on(socket)?;
            return Ok(ListenerId(id.0 + LISTENERS_MAX as u32));
        }
        let at = socket.local_addr().clone();
        let id = either!(self, driver => driver.listen_on(socket))?;
        self.listen_for_claims(id, &at);
        Ok(id)
    }

    fn local_addr(&self, listener: ListenerId) -> io::Result<Endpoint> {
        match shm_listener(listener) {
            Some(listener) => self.shm.local_addr(listener),
            None => either!(ref self, driver => driver.local_addr(listener)),
        }
    }

    fn accept(&mut self, listener: ListenerId, on: bool) {
        match shm_listener(listener) {
            Some(listener) => self.shm.accept(listener, on),
            None => either!(self, driver => driver.accept(listener, on)),
        }
    }

    fn close_listener(&mut self, listener: ListenerId) {
        if self.closes_in_kernel(listener) {
            either!(self, driver => driver.close_listener(listener));
        }
    }

    fn connect(&mut self, to: &Endpoint) -> io::Result<Handle> {
        if let Endpoint::Shm(name) = to {
            let conn = self.shm.connect(name)?;
            return Ok(Handle { index: conn.index + self.shm_from, ..conn });
        }
        let conn = either!(self, driver => driver.connect(to))?;
        self.note_connect(conn, to);
        Ok(conn)
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Handle> {
        let peer = self.tap.as_ref().and_then(|_| peer_addr(&socket));
        let conn = either!(self, driver => driver.adopt(socket))?;
        self.note_adopt(conn);
        if let (Some(tap), Some(peer)) = (&mut self.tap, peer) {
            tap.accepted(conn, peer);
        }
        Ok(conn)
    }

    fn evict_greedy(&mut self) -> bool {
        self.shm.evict_greedy()
    }

    fn limit_accepts(&mut self, most: u32) {
        self.shm.limit_accepts(most);
    }

    fn wait_for_session(&mut self, conn: Handle) {
        if let Some(conn) = self.shm_handle(conn) {
            self.shm.wait_for_session(conn);
        }
    }

    fn is_hung_up(&self, conn: Handle) -> bool {
        match self.shm_handle(conn) {
            Some(conn) => self.shm.is_hung_up(conn),
            None => {
                let is_gone = self.ring_of(conn).is_some_and(|ring| self.shm.is_gone(ring.index));
                is_gone || either!(ref self, driver => driver.is_hung_up(conn))
            }
        }
    }

    fn transport(&self, conn: Handle) -> TransportKind {
        if let Some(conn) = self.shm_handle(conn) {
            return TransportKind::SharedMemory { wake_ups: self.shm.wake_ups_of(conn.index) };
        }
        match self.ring_of(conn) {
            Some(ring) => TransportKind::Upgraded { wake_ups: self.shm.wake_ups_of(ring.index) },
            None => TransportKind::Kernel(self.plain_reason(conn)),
        }
    }

    fn set_tap(&mut self, tap: Option<Box<dyn TapSink>>) -> Option<Box<dyn TapSink>> {
        std::mem::replace(&mut self.tap, tap)
    }

    fn can_detach(&self, conn: Handle) -> bool {
        self.shm_handle(conn).is_none() && self.is_downgradable(conn)
    }

    fn detach(&mut self, conn: Handle) -> Detached {
        if self.shm_handle(conn).is_some() {
            return Detached::Refused;
        }
        if let Some(detached) = self.downgrade(conn) {
            return detached;
        }
        let detached = either!(self, driver => driver.detach(conn));
        if let (Detached::Socket(_), Some(tap)) = (&detached, &mut self.tap) {
            tap.ended(conn);
        }
        if let (Detached::Socket(_), Some(upgrades)) = (&detached, &mut self.upgrades) {
            upgrades.forget(conn);
        }
        detached
    }

    fn finish_listener(&mut self, listener: ListenerId) {
        if self.closes_in_kernel(listener) {
            either!(self, driver => driver.finish_listener(listener));
        }
    }

    fn drain_listener(&mut self, listener: ListenerId) {
        if self.closes_in_kernel(listener) {
            either!(self, driver => driver.drain_listener(listener));
        }
    }

    fn is_draining_listeners(&self) -> bool {
        either!(ref self, driver => driver.is_draining_listeners())
    }

    fn poll_timeout(&mut self, pool: &Pool, timeout: Option<Duration>) -> Option<Duration> {
        let timeout = either!(self, driver => driver.poll_timeout(pool, timeout));
        if self.defers_news {
            return Some(Duration::ZERO);
        }
        if !self.shm.is_active() || timeout == Some(Duration::ZERO) {
            return timeout;
        }
        if self.shm.has_work(pool) || !self.shm.prepare_sleep() {
            return Some(Duration::ZERO);
        }
        self.shm.wait_time().into_iter().chain(timeout).min()
    }

    #[inline]
    fn receive(&mut self, conn: Handle, on: bool) {
        match self.shm_handle(conn) {
            Some(conn) => self.shm.receive(conn, on),
            None => match self.set_receiving(conn, on) {
                Some(ring) => self.shm.receive(ring, on),
                None => either!(self, driver => driver.receive(conn, on)),
            },
        }
    }

    #[inline]
    fn pause_is_free(&self) -> bool {
        either!(ref self, driver => driver.pause_is_free())
    }

    #[inline]
    fn send(&mut self, conn: Handle, data: Slice) {
        if let Some(tap) = &mut self.tap {
            tap.sent(conn, data.bytes());
        }
        match self.shm_handle(conn) {
            Some(conn) => self.shm.send(conn, data),
            None => {
                if let Some(data) = self.send_ring(conn, data) {
                    either!(self, driver => driver.send(conn, data));
                }
            }
        }
    }

    fn set_corked(&mut self, conn: Handle, on: bool) {
        match self.shm_handle(conn) {
            Some(conn) => self.shm.set_corked(conn, on),
            None => {
                if let Some(ring) = self.ring_of(conn) {
                    self.shm.set_corked(ring, on);
                }
                either!(self, driver => driver.set_corked(conn, on));
            }
        }
    }

    #[inline]
    fn backlog_bytes(&self, conn: Handle) -> usize {
        match self.shm_handle(conn) {
            Some(conn) => self.shm.backlog_bytes(conn),
            None => {
                let in_ring = self.ring_of(conn).map_or(0, |ring| self.shm.backlog_bytes(ring));
                in_ring + either!(ref self, driver => driver.backlog_bytes(conn))
            }
        }
    }

    fn pinned_bytes(&self, conn: Handle) -> u64 {
        match self.shm_handle(conn) {
            Some(conn) => self.shm.pinned_bytes(conn),
            None => {
                let in_ring = self.ring_of(conn).map_or(0, |ring| self.shm.pinned_bytes(ring));
                in_ring + either!(ref self, driver => driver.pinned_bytes(conn))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.shm.flush();
        either!(self, driver => driver.flush())
    }

    fn waited_ns(&self) -> u64 {
        self.busy_polled_ns + either!(ref self, driver => driver.waited_ns())
    }

    #[inline]
    fn shm_stats(&self) -> Option<ShmStats> {
        let is_used = self.shm.is_used() || self.upgrades.is_some() || self.plain_off > 0;
        let busy_polled_ns = self.busy_polled_ns;
        is_used.then(|| ShmStats { busy_polled_ns, ..self.with_upgrades(self.shm.stats()) })
    }

    #[inline]
    fn queue_delay(&self) -> QueueDelay {
        either!(ref self, driver => driver.queue_delay())
    }

    fn is_flushing(&self) -> bool {
        either!(ref self, driver => driver.is_flushing()) || self.shm.is_flushing()
    }

    fn accept_singly(&mut self) {
        either!(self, driver => driver.accept_singly());
    }

    fn set_watermarks(&mut self, high_bytes: usize, low_bytes: usize) {
        self.shm.set_watermarks(high_bytes, low_bytes);
        either!(self, driver => driver.set_watermarks(high_bytes, low_bytes));
    }

    fn shutdown(&mut self, conn: Handle) {
        match self.shm_handle(conn) {
            Some(conn) => self.shm.shutdown(conn),
            None => {
                self.shut_down_ring(conn);
                either!(self, driver => driver.shutdown(conn));
            }
        }
    }

    fn expect_no_input(&mut self, conn: Handle) -> bool {
        let is_plain = self.shm_handle(conn).is_none() && !self.has_rings(conn);
        is_plain && either!(self, driver => driver.expect_no_input(conn))
    }

    fn close(&mut self, conn: Handle) {
        if let Some(tap) = &mut self.tap {
            tap.ended(conn);
        }
        match self.shm_handle(conn) {
            Some(conn) => self.shm.close(conn),
            None => {
                self.close_rings(conn, false);
                either!(self, driver => driver.close(conn));
            }
        }
    }

    fn abort(&mut self, conn: Handle) {
        if let Some(tap) = &mut self.tap {
            tap.ended(conn);
        }
        match self.shm_handle(conn) {
            Some(conn) => self.shm.abort(conn),
            None => {
                self.close_rings(conn, true);
                either!(self, driver => driver.abort(conn));
            }
        }
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        either!(ref self, driver => driver.now_ns()).max(self.shm.now_ns())
    }

    fn poll(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> io::Result<()> {
        let before = events.len();
        if let Some(tap) = &mut self.tap {
            tap.publish(self.shm.clock.now_ns());
        }
        if self.shm.is_active() {
            self.poll_both(pool, timeout, events)?;
        } else {
            self.poll_kernel(pool, timeout, events)?;
        }
        self.look_for_upgrades();
        if let Some(tap) = &mut self.tap {
            let now_ns = either!(ref self, driver => driver.now_ns()).max(self.shm.now_ns());
            tap::show_events(&mut **tap, &events[before..], now_ns);
        }
        Ok(())
    }
}

/// Returns the number of a listener within shared memory, if it is one of those.
fn shm_listener(listener: ListenerId) -> Option<ListenerId> {
    listener.0.checked_sub(LISTENERS_MAX as u32).map(ListenerId)
}
