//! The driver of a simulated network: the contract's methods, and the poll in which virtual time passes.
//! Promises: the same contract as a kernel driver; a poll moves the clock to the next thing that concerns the
//! driver, or to the end of its wait.
//! Not here: the driver's connections (`state.rs`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use flick_buffers::{Pool, Slice};

use super::agenda::{Action, Piece};
use super::state::{Conn, DriverState, SimListener, drop_arrived};
use super::world::{Core, World};
use crate::address::Endpoint;
use crate::driver::{ConnFault, Driver, DriverLimits, Event, Handle, ListenerId, checked};
use crate::limits::LISTENERS_MAX;
use crate::output::Marks;
use crate::queue::Sink;
use crate::waker::Waker;

/// The driver of a [`super::SimNet`].
pub struct SimDriver {
    world: Rc<RefCell<World>>,
    waker: Waker,
}

impl World {
    fn poll(&mut self, pool: &Pool, timeout: Option<Duration>, woken: bool, events: &mut Vec<Event>) {
        let end_ns = timeout.map(|timeout| self.core.now_ns.saturating_add(timeout.as_nanos() as u64));
        self.core.now_ns += self.core.config.poll_cost_ns;
        let events_max = self.driver.as_ref().expect("a driver polls").limits.events_max;
        let mut sink = Sink::new(events, events_max);
        if woken {
            sink.put(Event::Woken);
        }
        loop {
            self.run_due();
            let (core, driver) = (&mut self.core, self.driver.as_mut().expect("a driver polls"));
            driver.absorb(core);
            driver.write_dirty(core);
            driver.hand_out(core, pool, &mut sink);
            // A dial that has just come up may have output waiting.
            driver.write_dirty(core);
            if sink.room() < events_max {
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

impl SimDriver {
    pub(super) fn attach(world: Rc<RefCell<World>>, limits: DriverLimits) -> io::Result<SimDriver> {
        let limits = checked(limits)?;
        let state = DriverState::new(limits);
        let earlier = world.borrow_mut().driver.replace(state);
        assert!(earlier.is_none(), "a simulated network has one driver");
        Ok(SimDriver { world, waker: Waker::simulated() })
    }

    /// A handle that makes the next poll report `Woken`.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Runs `act` on both halves of the world.
    fn with<T>(&self, act: impl FnOnce(&mut DriverState, &mut Core) -> T) -> T {
        let world = &mut *self.world.borrow_mut();
        act(world.driver.as_mut().expect("attached when it was made"), &mut world.core)
    }
}

impl Driver for SimDriver {
    fn listen(&mut self, at: &Endpoint) -> io::Result<ListenerId> {
        let at = self.world.borrow_mut().resolve(at);
        self.with(|driver, _| {
            if driver.listeners.iter().flatten().any(|listener| listener.at == at) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            if driver.listeners.len() == LISTENERS_MAX {
                return Err(io::Error::other("a driver has at most 64 listeners"));
            }
            driver.listeners.push(Some(SimListener {
                at,
                is_accepting: true,
                waits_for_slot: false,
                waiting: VecDeque::new(),
            }));
            Ok(ListenerId(driver.listeners.len() as u32 - 1))
        })
    }

    fn local_addr(&self, listener: ListenerId) -> io::Result<Endpoint> {
        self.with(|driver, _| {
            let listener = driver.listeners.get(listener.0 as usize).and_then(Option::as_ref);
            listener.map(|listener| listener.at.clone()).ok_or(io::ErrorKind::NotFound.into())
        })
    }

    fn accept(&mut self, listener: ListenerId, on: bool) {
        self.with(|driver, _| {
            if let Some(Some(listener)) = driver.listeners.get_mut(listener.0 as usize) {
                listener.is_accepting = on;
                listener.waits_for_slot = false;
            }
        });
    }

    fn close_listener(&mut self, listener: ListenerId) {
        self.with(|driver, core| {
            let closed = driver.listeners.get_mut(listener.0 as usize).and_then(Option::take);
            for link in closed.into_iter().flat_map(|listener| listener.waiting) {
                core.links[link].driver_is_gone = true;
                drop_arrived(core, link);
                core.send_to_peer(link, Piece::Reset);
            }
        });
    }

    fn connect(&mut self, to: &Endpoint) -> io::Result<Handle> {
        if self.with(|driver, _| driver.conns.is_full()) {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        let link = self.world.borrow_mut().new_link(None, Some(to.clone()));
        self.with(|driver, core| {
            let conn = driver.conns.insert(Conn::new(link, false)).expect("a slot was free just above");
            core.links[link].conn = Some(conn);
            let delay_ns = core.between(core.config.connect_delay_ns);
            core.schedule(core.now_ns + delay_ns, Action::Syn { link });
            Ok(conn)
        })
    }

    fn receive(&mut self, conn: Handle, on: bool) {
        self.with(|driver, _| {
            let Some(state) = driver.open_conn(conn) else { return };
            state.wants = on;
            if on {
                driver.push_ready(conn.index);
            }
        });
    }

    fn send(&mut self, conn: Handle, data: Slice) {
        self.with(|driver, _| {
            let high_bytes = driver.marks.high_bytes;
            let Some(state) = driver.conns.get_mut(conn) else { return };
            if state.is_closing || state.is_shutting || state.fault.is_some() {
                return;
            }
            if !driver.outputs.push(&mut state.output, data) {
                return driver.fail(conn.index, ConnFault::Exhausted);
            }
            state.is_above_high |= state.output.bytes() >= high_bytes;
            driver.dirty.push(conn.index);
        });
    }

    fn hold_output(&mut self, conn: Handle, on: bool) {
        self.with(|driver, _| driver.hold_output(conn, on));
    }

    fn backlog_bytes(&self, conn: Handle) -> usize {
        self.with(|driver, _| {
            let state = driver.conns.get(conn).filter(|conn| !conn.is_closing);
            state.map_or(0, |state| state.output.bytes())
        })
    }

    fn is_flushing(&self) -> bool {
        self.with(|driver, _| driver.conns.values().any(|conn| conn.is_closing && conn.output.bytes() > 0))
    }

    fn set_marks(&mut self, high_bytes: usize, low_bytes: usize) {
        self.with(|driver, _| driver.marks = Marks { high_bytes, low_bytes });
    }

    fn shutdown(&mut self, conn: Handle) {
        self.with(|driver, _| {
            driver.hold_output(conn, false);
            let Some(state) = driver.open_conn(conn) else { return };
            state.is_shutting = true;
            driver.dirty.push(conn.index);
        });
    }

    fn close(&mut self, conn: Handle) {
        self.with(|driver, core| {
            driver.hold_output(conn, false);
            let Some(state) = driver.open_conn(conn) else { return };
            state.is_closing = true;
            state.wants = false;
            if state.fault.is_some() || (!state.is_up && state.output.is_empty()) {
                driver.leave(core, conn.index, Some(Piece::Reset));
            } else if state.output.is_empty() {
                driver.leave(core, conn.index, None);
            }
        });
    }

    fn abort(&mut self, conn: Handle) {
        self.with(|driver, core| {
            if driver.conns.get(conn).is_some() {
                driver.leave(core, conn.index, Some(Piece::Reset));
            }
        });
    }

    fn now_ns(&self) -> u64 {
        self.world.borrow().core.now_ns
    }

    fn poll(&mut self, pool: &Pool, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let woken = self.waker.take();
        self.world.borrow_mut().poll(pool, timeout, woken, events);
        Ok(())
    }
}
