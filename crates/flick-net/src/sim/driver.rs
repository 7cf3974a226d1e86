//! The driver of a simulated network: the contract's methods, and the poll in which virtual time passes.
//! Promises: the same contract as a kernel driver; a poll moves the clock to the next action that concerns the driver,
//! or to the end of its wait.
//! Not here: the driver's connections (`driver_end.rs`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use flick_buffers::{Pool, Slice};

use super::connection::DriverSide;
use super::core::Core;
use super::driver_end::{DriverEnd, SimListener};
use super::event_queue::{Action, Segment};
use super::world::World;
use crate::address::Endpoint;
use crate::driver::{Driver, DriverEvent, DriverLimits, Handle, ListenerId, checked};
use crate::event_sink::EventSink;
use crate::fault::ConnFault;
use crate::listeners::Accepting;
use crate::waker::Waker;

/// The driver of a [`super::SimNet`].
pub struct SimDriver {
    world: Rc<RefCell<World>>,
    waker: Waker,
}

impl World {
    fn poll(&mut self, pool: &Pool, timeout: Option<Duration>, woken: bool, events: &mut Vec<DriverEvent>) {
        let first = events.len();
        self.poll_until_event(pool, timeout, woken, events);
        events[first..].iter().for_each(|event| trace(&mut self.core, event));
    }

    fn poll_until_event(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        woken: bool,
        events: &mut Vec<DriverEvent>,
    ) {
        let end_ns = timeout.map(|timeout| self.core.now_ns.saturating_add(timeout.as_nanos() as u64));
        self.core.now_ns += self.core.config.poll_cost_ns;
        let events_max = self.driver.as_ref().expect("a driver polls").limits.events_max;
        let mut sink = EventSink::new(events, events_max);
        if woken {
            sink.put(DriverEvent::Woken);
        }
        loop {
            self.run_due();
            let (core, driver) = (&mut self.core, self.driver.as_mut().expect("a driver polls"));
            driver.absorb(core);
            driver.write_dirty(core);
            driver.deliver(core, pool, &mut sink);
            // A connection that has just been established may have output waiting.
            driver.write_dirty(core);
            if sink.capacity() < events_max {
                return;
            }
            match self.core.next_ns() {
                Some(at_ns) if end_ns.is_none_or(|end_ns| at_ns <= end_ns) => {
                    self.core.now_ns = self.core.now_ns.max(at_ns);
                }
                _ => {
                    self.core.now_ns = self.core.now_ns.max(end_ns.unwrap_or(0));
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
    pub(super) fn attach(world: Rc<RefCell<World>>, limits: DriverLimits) -> io::Result<SimDriver> {
        let limits = checked(limits)?;
        let earlier = world.borrow_mut().driver.replace(DriverEnd::new(limits));
        assert!(earlier.is_none(), "a simulated network has one driver");
        Ok(SimDriver { world, waker: Waker::simulated() })
    }

    /// Returns a handle that makes the next poll report `Woken`.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Runs `act` on both halves of the world.
    fn with<T>(&self, act: impl FnOnce(&mut DriverEnd, &mut Core) -> T) -> T {
        let world = &mut *self.world.borrow_mut();
        act(world.driver.as_mut().expect("attached when it was created"), &mut world.core)
    }
}

impl Driver for SimDriver {
    fn listen(&mut self, at: &Endpoint) -> io::Result<ListenerId> {
        let at = self.world.borrow_mut().resolve(at);
        self.with(|driver, _| {
            if driver.listeners.iter().any(|listener| listener.at == at) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            let backlog = VecDeque::new();
            driver.listeners.insert(SimListener { at, accepting: Accepting::On, backlog })
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
            for conn in closed.backlog {
                let at_ns = core.now_ns;
                core.conns[conn].driver_end = DriverSide::Closed { at_ns, discarded_bytes: 0 };
                core.conns[conn].discard_arrived();
                core.send_to_peer(conn, Segment::Reset);
            }
        });
    }

    fn connect(&mut self, to: &Endpoint) -> io::Result<Handle> {
        if self.with(|driver, _| driver.conns.is_full()) {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        let conn = self.world.borrow_mut().new_conn(None, Some(to.clone()));
        self.with(|driver, core| {
            let handle = driver.conns.insert(conn, false);
            core.conns[conn].driver_end = DriverSide::Attached(handle);
            let delay_ns = core.between(core.config.connect_delay_ns);
            core.schedule(core.now_ns + delay_ns, Action::Syn { conn });
            Ok(handle)
        })
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
        self.world.borrow().core.now_ns
    }

    fn poll(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> io::Result<()> {
        let woken = self.waker.take();
        self.world.borrow_mut().poll(pool, timeout, woken, events);
        Ok(())
    }
}
