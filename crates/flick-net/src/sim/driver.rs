//! The driver of a simulated network: the contract's methods, and the poll in which virtual time passes.
//! Promises: the same contract as a kernel driver; a poll moves the clock to the next action that concerns the driver,
//! or to the end of its wait.
//! Not here: the driver's connections (`driver_end.rs`).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use flick_buffers::{Pool, Slice};

use super::connection::{DriverSide, Side, SimConn, peer_addr};
use super::core::Core;
use super::driver_end::{DriverEnd, SimListener};
use super::event_queue::{Action, Segment, SimConnId};
use super::net::SimNet;
use crate::address::{Endpoint, PeerAddr};
use crate::conn::quota::SendQuota;
use crate::driver::{Detached, Driver, DriverEvent, DriverLimits, Handle, ListenerId, checked};
use crate::event_sink::EventSink;
use crate::fault::ConnFault;
use crate::listeners::Accepting;
use crate::socket;
use crate::waker::Waker;

/// A driver of a [`SimNet`].
pub struct SimDriver {
    net: SimNet,
    side: Side,
    limits: DriverLimits,
    /// Without effect: the windows of the network limit what a poll sends.
    quota: SendQuota,
    watch: Option<OwnedFd>,
    waker: Waker,
}

impl SimDriver {
    fn poll_until_event(&mut self, pool: &Pool, timeout: Option<Duration>, sink: &mut EventSink<'_>) {
        let world = &mut *self.net.world().borrow_mut();
        let end_ns = timeout.map(|timeout| world.core.now_ns.saturating_add(timeout.as_nanos() as u64));
        world.core.now_ns += world.core.config.poll_cost_ns;
        let capacity = sink.capacity();
        loop {
            world.run_due();
            let (core, driver) =
                (&mut world.core, world.drivers[self.side as usize].as_mut().expect("a driver polls"));
            driver.absorb(core);
            driver.write_dirty(core);
            driver.deliver(core, pool, sink);
            // A connection that has just been established may have output waiting.
            driver.write_dirty(core);
            if self.watch.as_ref().is_some_and(socket::is_readable) && !driver.has_news {
                driver.has_news = true;
                let delay_ns = core.between(core.config.wake_delay_ns);
                core.schedule(core.now_ns + delay_ns, Action::WatchReady { side: self.side });
            }
            if sink.capacity() < capacity || driver.is_watch_ready {
                return;
            }
            match world.core.next_ns() {
                Some(at_ns) if end_ns.is_none_or(|end_ns| at_ns <= end_ns) => {
                    world.core.now_ns = world.core.now_ns.max(at_ns);
                }
                _ => {
                    world.core.now_ns = world.core.now_ns.max(end_ns.unwrap_or(0));
                    return;
                }
            }
        }
    }
}

/// Adds an event to the fingerprint of the run.
fn trace(core: &mut Core, event: &DriverEvent) {
    match event {
        DriverEvent::Connected { conn } => core.trace(10, u64::from(conn.index), &[]),
        DriverEvent::Drained { conn } => core.trace(11, u64::from(conn.index), &[]),
        DriverEvent::Failed { conn, .. } => core.trace(12, u64::from(conn.index), &[]),
        DriverEvent::Eof { conn } => core.trace(13, u64::from(conn.index), &[]),
        DriverEvent::Data { conn, data } => core.trace(14, u64::from(conn.index), data.bytes()),
        DriverEvent::AcceptFailed { listener, .. } => core.trace(15, u64::from(listener.0), &[]),
        DriverEvent::Accepted { conn, .. } => core.trace(16, u64::from(conn.index), &[]),
        DriverEvent::Woken => {}
    }
}

impl SimDriver {
    pub(super) fn attach(net: &SimNet, side: Side, limits: DriverLimits) -> io::Result<SimDriver> {
        let limits = checked(limits)?;
        let earlier = net.world().borrow_mut().drivers[side as usize].replace(DriverEnd::new(side, limits));
        assert!(earlier.is_none(), "each side of a simulated network has one driver");
        let (quota, waker) = (SendQuota::unlimited(), Waker::simulated());
        Ok(SimDriver { net: net.clone(), side, limits, quota, watch: None, waker })
    }

    /// Returns a handle that makes the next poll report `Woken`.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Runs `act` on this driver's end and on what both sides share.
    fn with<T>(&self, act: impl FnOnce(&mut DriverEnd, &mut Core) -> T) -> T {
        let world = &mut *self.net.world().borrow_mut();
        let driver = world.drivers[self.side as usize].as_mut();
        act(driver.expect("attached when it was created"), &mut world.core)
    }
}

/// As of a kernel driver with shared memory beside it.
impl SimDriver {
    pub(crate) fn net(&self) -> &SimNet {
        &self.net
    }

    /// Makes polls end when a descriptor is readable, after the network's delay of a wake-up.
    pub(crate) fn watch(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.watch = Some(descriptor.try_clone_to_owned()?);
        Ok(())
    }

    /// Returns whether [`SimDriver::take_watch_ready`] is exact.
    pub(crate) fn knows_watch(&self) -> bool {
        true
    }

    pub(crate) fn take_watch_ready(&mut self) -> bool {
        self.with(|driver, _| {
            let is_ready = std::mem::take(&mut driver.is_watch_ready);
            driver.has_news &= !is_ready;
            is_ready
        })
    }

    pub(crate) fn expect_no_input(&mut self, conn: Handle) -> bool {
        self.with(|driver, core| driver.conns.expect_no_input(conn, core.now_ns))
    }

    pub(crate) fn hold_fault(&mut self, conn: Handle, on: bool) {
        self.with(|driver, _| driver.conns.hold_fault(conn, on));
    }

    pub(crate) fn take_held_fault(&mut self) -> Option<(Handle, ConnFault)> {
        self.with(|driver, _| driver.conns.take_held_fault())
    }

    pub(crate) fn fail(&mut self, index: u32, fault: ConnFault) {
        self.with(|driver, core| driver.fail(core, index, fault));
    }

    pub(crate) fn bounds_mut(&mut self) -> (&mut DriverLimits, &mut SendQuota) {
        (&mut self.limits, &mut self.quota)
    }

    /// Returns what `look` finds of a connection that the platform has.
    fn look<T>(&self, conn: Handle, look: impl FnOnce(&SimConn, PeerAddr) -> Option<T>) -> Option<T> {
        self.with(|driver, core| {
            let id = driver.conns.get(conn).filter(|conn| conn.is_live())?.part;
            look(&core.conns[id], peer_addr(id))
        })
    }

    /// Returns the two addresses of a connection: its own and the other side's.
    pub(crate) fn addresses_of(&self, conn: Handle) -> Option<(Endpoint, PeerAddr)> {
        self.look(conn, |conn, client| {
            let (Some(Endpoint::Tcp(server)), PeerAddr::Tcp(client)) = (&conn.to, client) else {
                return None;
            };
            let is_client = conn.server.is_some() == (self.side == Side::Driver);
            let (local, remote) = if is_client { (client, *server) } else { (*server, client) };
            Some((Endpoint::Tcp(local), PeerAddr::Tcp(remote)))
        })
    }

    /// Returns how many bytes of a connection were sent, and how many received.
    pub(crate) fn stream_offsets(&self, conn: Handle) -> Option<(u64, u64)> {
        self.look(conn, |conn, _| {
            Some((conn.stream_to(self.side.other()).sent_bytes, conn.stream_to(self.side).read_bytes))
        })
    }
}

/// Ends the connections as the end of a process does: output that is not in the network is lost.
impl Drop for SimDriver {
    fn drop(&mut self) {
        let Ok(mut world) = self.net.world().try_borrow_mut() else { return };
        let world = &mut *world;
        let Some(mut driver) = world.drivers[self.side as usize].take() else { return };
        for index in 0..driver.conns.used() {
            let Some(conn) = driver.conns.at(index) else { continue };
            let is_read = world.core.conns[conn.part].stream_to(self.side).arrived.is_empty();
            driver.detach(&mut world.core, index, if is_read { Segment::Fin } else { Segment::Reset });
        }
        for listener in driver.listeners.iter_mut() {
            refuse_backlog(&mut world.core, self.side, std::mem::take(&mut listener.backlog));
        }
    }
}

/// Resets connections that were not accepted.
fn refuse_backlog(core: &mut Core, side: Side, backlog: VecDeque<SimConnId>) {
    for conn in backlog {
        let end = DriverSide::Closed { at_ns: core.now_ns, discarded_bytes: 0 };
        core.conns[conn].set_end(side, end);
        core.conns[conn].discard_arrived(side);
        core.send_to(side.other(), conn, Segment::Reset);
    }
}

impl Driver for SimDriver {
    fn listen(&mut self, at: &Endpoint) -> io::Result<ListenerId> {
        let at = self.net.world().borrow_mut().resolve(at);
        self.with(|driver, _| {
            if driver.listeners.iter().any(|listener| listener.at == at && !listener.is_finished) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            let backlog = VecDeque::new();
            let accepting = Accepting::On;
            driver.listeners.insert(SimListener { at, accepting, is_finished: false, backlog })
        })
    }

    fn local_addr(&self, listener: ListenerId) -> io::Result<Endpoint> {
        self.with(|driver, _| {
            let listener = driver.listeners.get(listener);
            listener.map(|listener| listener.at.clone()).ok_or(io::ErrorKind::NotFound.into())
        })
    }

    fn accept(&mut self, listener: ListenerId, on: bool) {
        self.with(|driver, _| {
            if let Some(listener) = driver.listeners.get_mut(listener) {
                listener.accepting = if on { Accepting::On } else { Accepting::Off };
            }
        });
    }

    fn close_listener(&mut self, listener: ListenerId) {
        self.with(|driver, core| {
            let Some(closed) = driver.listeners.remove(listener) else { return };
            refuse_backlog(core, driver.side, closed.backlog);
        });
    }

    fn finish_listener(&mut self, listener: ListenerId) {
        self.with(|driver, _| {
            let Some(finished) = driver.listeners.get_mut(listener) else { return };
            (finished.is_finished, finished.accepting) = (true, Accepting::On);
            if finished.backlog.is_empty() {
                driver.listeners.remove(listener);
            }
        });
    }

    fn is_draining_listeners(&self) -> bool {
        self.with(|driver, _| driver.listeners.iter().any(|listener| listener.is_finished))
    }

    fn connect(&mut self, to: &Endpoint) -> io::Result<Handle> {
        if self.with(|driver, _| driver.conns.is_full()) {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        let server = (self.side == Side::Driver).then(|| to.clone());
        let conn = self.net.world().borrow_mut().new_conn(None, server);
        self.with(|driver, core| {
            let handle = driver.conns.insert(conn, false);
            core.conns[conn].to = Some(to.clone());
            core.conns[conn].set_end(driver.side, DriverSide::Attached(handle));
            let delay_ns = core.between(core.config.connect_delay_ns);
            let action = match driver.side {
                Side::Driver => Action::Syn { conn },
                Side::Peer => Action::ConnectToDriver { conn, to: to.clone() },
            };
            core.schedule(core.now_ns + delay_ns, action);
            Ok(handle)
        })
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Handle> {
        let detached = self.net.world().borrow_mut().detached.remove(&socket.as_raw_fd());
        let conn = detached.ok_or(io::ErrorKind::Unsupported)?;
        self.with(|driver, core| {
            if driver.conns.is_full() {
                return Err(io::Error::from_raw_os_error(libc::ENFILE));
            }
            let handle = driver.conns.insert(conn, true);
            core.conns[conn].set_end(driver.side, DriverSide::Attached(handle));
            core.touch(driver.side, conn);
            Ok(handle)
        })
    }

    fn detach(&mut self, conn: Handle) -> Detached {
        let detached = self.with(|driver, core| {
            if !driver.conns.is_detachable(conn) {
                return Err(Detached::Refused);
            }
            if driver.conns.backlog_bytes(conn) > 0 {
                return Err(Detached::Busy);
            }
            let id = driver.conns.remove(conn.index).expect("it is in the table");
            core.conns[id].set_end(driver.side, DriverSide::Pending);
            Ok(id)
        });
        let id = match detached {
            Ok(id) => id,
            Err(detached) => return detached,
        };
        let Ok(socket) = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC) else {
            return Detached::Refused;
        };
        self.net.world().borrow_mut().detached.insert(socket.as_raw_fd(), id);
        Detached::Socket(socket)
    }

    fn receive(&mut self, conn: Handle, on: bool) {
        self.with(|driver, _| {
            if driver.conns.set_receiving(conn, on).is_some() && on {
                driver.conns.ready.push(conn.index);
            }
        });
    }

    fn send(&mut self, conn: Handle, data: Slice) {
        self.with(|driver, core| {
            if driver.conns.send(conn, data).is_err() {
                driver.fail(core, conn.index, ConnFault::Exhausted);
            }
        });
    }

    fn set_corked(&mut self, conn: Handle, on: bool) {
        self.with(|driver, _| driver.conns.set_corked(conn, on));
    }

    fn backlog_bytes(&self, conn: Handle) -> usize {
        self.with(|driver, _| driver.conns.backlog_bytes(conn))
    }

    fn pinned_bytes(&self, conn: Handle) -> u64 {
        self.with(|driver, _| driver.conns.pinned_bytes(conn))
    }

    fn is_flushing(&self) -> bool {
        self.with(|driver, _| driver.conns.is_flushing())
    }

    fn set_watermarks(&mut self, high_bytes: usize, low_bytes: usize) {
        self.with(|driver, _| driver.conns.set_watermarks(high_bytes, low_bytes));
    }

    fn shutdown(&mut self, conn: Handle) {
        self.with(|driver, core| {
            let then = driver.conns.shutdown(conn);
            driver.apply(core, conn.index, then);
        });
    }

    fn close(&mut self, conn: Handle) {
        self.with(|driver, core| {
            let then = driver.conns.close(conn, core.now_ns);
            driver.apply(core, conn.index, then);
        });
    }

    fn abort(&mut self, conn: Handle) {
        self.with(|driver, core| {
            if driver.conns.get(conn).is_some() {
                driver.detach(core, conn.index, Segment::Reset);
            }
        });
    }

    fn now_ns(&self) -> u64 {
        self.net.now_ns()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.with(|driver, core| driver.write_dirty(core));
        Ok(())
    }

    fn poll(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> io::Result<()> {
        let first = events.len();
        let mut sink = EventSink::new(events, self.limits.events_max);
        if self.waker.take() {
            sink.put(DriverEvent::Woken);
        }
        self.poll_until_event(pool, timeout, &mut sink);
        self.with(|_, core| events[first..].iter().for_each(|event| trace(core, event)));
        Ok(())
    }
}
