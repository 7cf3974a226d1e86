//! A driver's ends of simulated connections, on the same connection core as the kernel drivers.
//! Promises: data is delivered only while receiving is on (asserted), and behind it the fault that cut it off.

use std::collections::VecDeque;

use flick_buffers::Pool;

use super::connection::{DriverSide, Side, peer_addr};
use super::core::Core;
use super::event_queue::{Segment, SimConnId};
use crate::address::{Endpoint, PeerAddr};
use crate::conn::report::FaultReport;
use crate::conn::{Conns, Then};
use crate::driver::{DriverEvent, DriverLimits, ListenerId};
use crate::event_sink::EventSink;
use crate::fault::ConnFault;
use crate::limits::{ACCEPTS_PER_POLL_MAX, RECEIVES_PER_CONN_MAX};
use crate::listeners::{Accepting, Listeners};
use crate::receive_buffer::ReceiveBuffer;
use crate::slot_queue::SlotQueue;

/// State of the simulated network for one driver.
pub(super) struct DriverEnd {
    pub(super) side: Side,
    pub(super) limits: DriverLimits,
    pub(super) conns: Conns<SimConnId>,
    pub(super) listeners: Listeners<SimListener>,
    receive_buffer: ReceiveBuffer,
    /// Connections that wait for a receive buffer and for nothing else.
    starved: SlotQueue,
    /// Filled again by every poll.
    order: Vec<u32>,
    /// The watched descriptor is readable, and the driver is about to learn it.
    pub(super) has_news: bool,
    /// The driver has learned it.
    pub(super) is_watch_ready: bool,
}

pub(super) struct SimListener {
    pub(super) at: Endpoint,
    pub(super) accepting: Accepting,
    /// Closed, but its backlog is still delivered.
    pub(super) is_finished: bool,
    pub(super) backlog: VecDeque<SimConnId>,
}

/// Result of serving one connection.
enum Served {
    Done,
    More,
    Starved,
}

impl DriverEnd {
    pub(super) fn new(side: Side, limits: DriverLimits) -> DriverEnd {
        DriverEnd {
            side,
            limits,
            // Closed connections linger in the network.
            conns: Conns::new(&limits, 0),
            listeners: Listeners::new(),
            receive_buffer: ReceiveBuffer::default(),
            starved: SlotQueue::new(limits.conns_max),
            order: Vec::with_capacity(limits.conns_max as usize),
            has_news: false,
            is_watch_ready: false,
        }
    }

    /// Returns the open listener that a connect to this address reaches.
    pub(super) fn listener_at(&mut self, to: &Endpoint) -> Option<&mut SimListener> {
        self.listeners.iter_mut().find(|listener| !listener.is_finished && reaches(&listener.at, to))
    }

    /// Returns whether the next poll has nothing to write and nothing to deliver.
    pub(super) fn is_idle(&self) -> bool {
        let accepts =
            |listener: &SimListener| listener.accepting == Accepting::On && !listener.backlog.is_empty();
        let has_work =
            !self.conns.ready.is_empty() || !self.starved.is_empty() || !self.conns.dirty.is_empty();
        !has_work && !self.listeners.iter().any(accepts)
    }

    /// Does what the connection core asks for.
    pub(super) fn apply(&mut self, core: &mut Core, index: u32, then: Then) {
        match then {
            Then::Nothing => {}
            // The write that follows sends the FIN.
            Then::ShutDownWrite => self.conns.dirty.push(index),
            Then::Linger | Then::Close => self.detach(core, index, Segment::Fin),
            Then::Drop | Then::Reset => self.detach(core, index, Segment::Reset),
        }
    }

    pub(super) fn fail(&mut self, core: &mut Core, index: u32, fault: ConnFault) {
        let then = self.conns.fail(index, fault);
        self.conns.ready.push(index);
        self.apply(core, index, then);
    }

    /// Queues the connections that the other side has changed.
    pub(super) fn absorb(&mut self, core: &mut Core) {
        for conn in core.touched[self.side as usize].drain(..) {
            let Some(handle) = core.conns[conn].handle(self.side) else { continue };
            self.conns.ready.push(handle.index);
            self.conns.dirty.push(handle.index);
        }
    }

    pub(super) fn write_dirty(&mut self, core: &mut Core) {
        for _ in 0..self.conns.dirty.len() {
            if let Some(index) = self.conns.dirty.pop() {
                self.write(core, index);
            }
        }
    }

    /// Sends as much output as the window allows.
    fn write(&mut self, core: &mut Core, index: u32) {
        while let Some(conn) = self.conns.at(index).filter(|conn| conn.is_sendable()) {
            let id = conn.part;
            let stream = core.conns[id].stream_to(self.side.other());
            let free_bytes = core.config.window_bytes.saturating_sub(stream.held_bytes);
            let offered = conn.output_bytes().min(free_bytes);
            if offered == 0 {
                break;
            }
            let taken = core.segment_bytes(offered);
            let mut bytes = Vec::with_capacity(taken);
            for slice in self.conns.output(conn, taken) {
                let part = slice.bytes();
                bytes.extend_from_slice(&part[..part.len().min(taken - bytes.len())]);
            }
            self.conns.consume(index, taken);
            let stream = core.conns[id].stream_to_mut(self.side.other());
            let offset = stream.sent_bytes;
            stream.sent_bytes += taken as u64;
            stream.held_bytes += taken;
            core.send_to(self.side.other(), id, Segment::Bytes { offset, bytes });
        }
        let then = self.conns.sent(index, core.now_ns);
        if let Some(conn) = self.conns.at(index).filter(|conn| conn.is_shut_down()) {
            core.send_fin_to(self.side.other(), conn.part);
        }
        if then != Then::ShutDownWrite {
            self.apply(core, index, then);
        }
    }

    /// Ends this side of a connection with a last segment.
    pub(super) fn detach(&mut self, core: &mut Core, index: u32, last: Segment) {
        let Some(id) = self.conns.remove(index) else { return };
        for listener in self.listeners.iter_mut() {
            if listener.accepting == Accepting::WaitsForSlot {
                listener.accepting = Accepting::On;
            }
        }
        match last {
            Segment::Fin => core.send_fin_to(self.side.other(), id),
            segment => core.send_to(self.side.other(), id, segment),
        }
        let at_ns = core.now_ns;
        let conn = &mut core.conns[id];
        conn.set_end(self.side, DriverSide::Closed { at_ns, discarded_bytes: 0 });
        conn.discard_arrived(self.side);
        core.opened_window(self.side, id);
    }

    /// Reports and delivers what connections have, then accepts.
    pub(super) fn deliver(&mut self, core: &mut Core, pool: &Pool, sink: &mut EventSink<'_>) {
        if !self.starved.is_empty() && self.receive_buffer.is_available(pool) {
            while let Some(index) = self.starved.pop() {
                self.conns.ready.push(index);
            }
        }
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(std::iter::from_fn(|| self.conns.ready.pop()));
        if core.config.reorder {
            core.rng.shuffle(&mut order);
        }
        for &index in &order {
            let served = if sink.is_full() { Served::More } else { self.serve(core, index, pool, sink) };
            match served {
                Served::Done => {}
                Served::More => self.conns.ready.push(index),
                Served::Starved => self.starved.push(index),
            }
        }
        self.order = order;
        for id in self.listeners.ids() {
            self.accept_pending(core, id, sink);
        }
    }

    fn serve(&mut self, core: &mut Core, index: u32, pool: &Pool, sink: &mut EventSink<'_>) -> Served {
        if self.conns.at(index).is_some_and(|conn| conn.is_connecting()) {
            self.take_connect_result(core, index);
        }
        self.report_progress(index, sink);
        if self.conns.at(index).is_some_and(|conn| conn.awaits_input()) {
            let received = self.receive_some(core, index, pool, sink);
            if !matches!(received, Served::Done) {
                return received;
            }
        }
        let Some(conn) = self.conns.at(index) else { return Served::Done };
        if !conn.awaits_input() && !conn.is_connecting() && core.conns[conn.part].has_reset(self.side) {
            let then = self.conns.fail(index, ConnFault::Reset);
            self.apply(core, index, then);
        }
        if self.conns.at(index).is_none() {
            return Served::Done;
        }
        match self.conns.report_fault(index, sink) {
            FaultReport::None if self.conns.has_report(index) => Served::More,
            FaultReport::None => Served::Done,
            FaultReport::Later => Served::More,
            FaultReport::Ended => {
                self.detach(core, index, Segment::Reset);
                Served::Done
            }
        }
    }

    fn report_progress(&mut self, index: u32, sink: &mut EventSink<'_>) {
        if self.conns.at(index).is_some() {
            self.conns.report_progress(index, sink);
        }
    }

    /// Takes the result of a connect, which is the first segment to arrive.
    fn take_connect_result(&mut self, core: &mut Core, index: u32) {
        let Some(conn) = self.conns.at(index) else { return };
        let then = match core.conns[conn.part].stream_to_mut(self.side).arrived.pop_front() {
            Some(Segment::Established) => {
                self.conns.dirty.push(index);
                self.conns.established(index)
            }
            Some(Segment::Refused) => self.conns.fail(index, ConnFault::Refused),
            Some(_) => self.conns.fail(index, ConnFault::Reset),
            None => Then::Nothing,
        };
        self.apply(core, index, then);
    }

    fn receive_some(&mut self, core: &mut Core, index: u32, pool: &Pool, sink: &mut EventSink<'_>) -> Served {
        let handle = self.conns.handle(index);
        for _ in 0..RECEIVES_PER_CONN_MAX {
            if sink.is_full() {
                return Served::More;
            }
            let Some(conn) = self.conns.at(index) else { return Served::Done };
            assert!(conn.awaits_input(), "nothing is delivered while receiving is off");
            let id = conn.part;
            let arrived = &mut core.conns[id].stream_to_mut(self.side).arrived;
            match arrived.pop_front() {
                None => return Served::Done,
                Some(Segment::Established | Segment::Refused) => {}
                Some(Segment::Reset) => {
                    let then = self.conns.fail(index, ConnFault::Reset);
                    self.apply(core, index, then);
                    return Served::Done;
                }
                Some(Segment::Fin) => {
                    self.conns.end_input(index);
                    self.conns.report_end(index, sink);
                    return Served::Done;
                }
                Some(Segment::Bytes { offset, mut bytes }) => {
                    let Some(buf) = self.receive_buffer.get(pool) else {
                        arrived.push_front(Segment::Bytes { offset, bytes });
                        return Served::Starved;
                    };
                    let start = buf.len();
                    let asked = (bytes.len() as u32).min(self.limits.receive_bytes);
                    let taken = buf.append(&bytes[..asked as usize]);
                    if (taken as usize) < bytes.len() {
                        let rest = bytes.split_off(taken as usize);
                        let offset = offset + u64::from(taken);
                        arrived.push_front(Segment::Bytes { offset, bytes: rest });
                    }
                    core.conns[id].stream_to_mut(self.side).note_read(offset, taken as usize);
                    core.opened_window(self.side, id);
                    sink.put(DriverEvent::Data { conn: handle, data: buf.slice(start..start + taken) });
                }
            }
        }
        Served::More
    }

    fn accept_pending(&mut self, core: &mut Core, id: ListenerId, sink: &mut EventSink<'_>) {
        let Some(listener) = self.listeners.get_mut(id) else { return };
        for _ in 0..ACCEPTS_PER_POLL_MAX.min(sink.capacity()) {
            if listener.accepting != Accepting::On || listener.backlog.is_empty() {
                break;
            }
            let is_full = self.conns.is_full();
            if listener.is_finished {
                // The system has accepted them already.
                if is_full {
                    return;
                }
            } else if let Some(errno) = core.accept_errno.take().or(is_full.then_some(libc::ENFILE)) {
                listener.accepting = if is_full { Accepting::WaitsForSlot } else { Accepting::Off };
                sink.put(DriverEvent::AcceptFailed { listener: id, errno });
                return;
            }
            let Some(conn) = listener.backlog.pop_front() else { return };
            let handle = self.conns.insert(conn, true);
            core.conns[conn].set_end(self.side, DriverSide::Attached(handle));
            let peer = match &listener.at {
                Endpoint::Tcp(_) => peer_addr(conn),
                Endpoint::Unix(_) | Endpoint::Shm(_) | Endpoint::Descriptor(_) => PeerAddr::Unix,
            };
            sink.put(DriverEvent::Accepted { listener: id, conn: handle, peer });
        }
        if listener.is_finished && listener.backlog.is_empty() {
            self.listeners.remove(id);
        }
    }
}

/// Returns whether a connect to `to` reaches a listener: `0.0.0.0:80` listens on every IPv4 address with that port,
/// `[::]:80` on every IPv6 address.
fn reaches(listener: &Endpoint, to: &Endpoint) -> bool {
    match (listener, to) {
        (Endpoint::Tcp(listener), Endpoint::Tcp(to)) if listener.ip().is_unspecified() => {
            listener.port() == to.port() && listener.is_ipv4() == to.is_ipv4()
        }
        _ => listener == to,
    }
}
