//! The driver's end of every simulated connection: what is waiting to be sent, read and reported.
//! Promises: the same intake and output queues as behind a kernel driver; data is handed out only while receiving
//! is on (asserted), and behind it the fault that cut it off.

use std::collections::VecDeque;

use flick_buffers::Pool;

use super::agenda::{LinkId, Piece};
use super::link::peer_addr;
use super::world::Core;
use crate::address::{Endpoint, PeerAddr};
use crate::driver::{ConnFault, DriverLimits, Event, Handle, ListenerId};
use crate::intake::Intake;
use crate::limits::{ACCEPTS_PER_POLL_MAX, RECEIVES_PER_CONN_MAX};
use crate::output::{Marks, OutputQueue, OutputSlab};
use crate::queue::{Sink, SlotQueue};
use crate::table::Table;

/// What the world keeps for its driver.
pub(super) struct DriverState {
    pub(super) limits: DriverLimits,
    pub(super) marks: Marks,
    pub(super) conns: Table<Conn>,
    pub(super) listeners: Vec<Option<SimListener>>,
    pub(super) outputs: OutputSlab,
    intake: Intake,
    ready: SlotQueue,
    is_starved: bool,
    pub(super) dirty: SlotQueue,
    /// Kept to be filled anew by every poll.
    order: Vec<u32>,
}

pub(super) struct SimListener {
    pub(super) at: Endpoint,
    pub(super) is_accepting: bool,
    /// Paused by the driver because the table was full; resumed when it is not.
    pub(super) waits_for_slot: bool,
    pub(super) waiting: VecDeque<LinkId>,
}

pub(super) struct Conn {
    link: LinkId,
    pub(super) output: OutputQueue,
    pub(super) is_up: bool,
    pub(super) wants: bool,
    pub(super) is_shutting: bool,
    pub(super) is_held: bool,
    pub(super) is_closing: bool,
    saw_eof: bool,
    pub(super) is_above_high: bool,
    drained: bool,
    connected: bool,
    pub(super) fault: Option<ConnFault>,
}

impl Conn {
    pub(super) fn new(link: LinkId, is_up: bool) -> Conn {
        Conn {
            link,
            output: OutputQueue::default(),
            is_up,
            wants: false,
            is_shutting: false,
            is_held: false,
            is_closing: false,
            saw_eof: false,
            is_above_high: false,
            drained: false,
            connected: false,
            fault: None,
        }
    }
}

/// What looking at one connection came to.
enum Served {
    Done,
    More,
    Starved,
}

type EventSink<'poll> = Sink<'poll, Event>;

impl DriverState {
    pub(super) fn new(limits: DriverLimits) -> DriverState {
        DriverState {
            limits,
            marks: Marks::default(),
            conns: Table::new(limits.conns_max),
            listeners: Vec::new(),
            outputs: OutputSlab::new(limits.output_slices_max),
            intake: Intake::default(),
            ready: SlotQueue::new(limits.conns_max),
            is_starved: false,
            dirty: SlotQueue::new(limits.conns_max),
            order: Vec::with_capacity(limits.conns_max as usize),
        }
    }

    /// The open listener that a dial of this address reaches.
    pub(super) fn listener_at(&mut self, to: &Endpoint) -> Option<&mut SimListener> {
        self.listeners.iter_mut().flatten().find(|listener| reaches(&listener.at, to))
    }

    /// The next poll has nothing to write and nothing to hand out.
    pub(super) fn is_idle(&self) -> bool {
        let is_accepting = |listener: &SimListener| listener.is_accepting && !listener.waiting.is_empty();
        self.ready.is_empty() && self.dirty.is_empty() && !self.listeners.iter().flatten().any(is_accepting)
    }

    pub(super) fn open_conn(&mut self, conn: Handle) -> Option<&mut Conn> {
        self.conns.get_mut(conn).filter(|conn| !conn.is_closing)
    }

    pub(super) fn push_ready(&mut self, index: u32) {
        self.is_starved = false;
        self.ready.push(index);
    }

    pub(super) fn hold_output(&mut self, conn: Handle, on: bool) {
        let Some(state) = self.conns.get_mut(conn) else { return };
        let holds = on && !state.is_closing && !state.is_shutting;
        if std::mem::replace(&mut state.is_held, holds) && !holds {
            self.dirty.push(conn.index);
        }
    }

    pub(super) fn fail(&mut self, index: u32, fault: ConnFault) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        self.outputs.clear(&mut conn.output);
        conn.fault.get_or_insert(fault);
        self.push_ready(index);
    }

    /// Looks at what the peers' side has changed.
    pub(super) fn absorb(&mut self, core: &mut Core) {
        for link in core.touched.drain(..) {
            let Some(handle) = core.links[link].conn else { continue };
            self.push_ready(handle.index);
            self.dirty.push(handle.index);
        }
    }

    pub(super) fn write_dirty(&mut self, core: &mut Core) {
        for _ in 0..self.dirty.len() {
            if let Some(index) = self.dirty.pop() {
                self.write(core, index);
            }
        }
    }

    /// Puts as much output under way as the window lets.
    fn write(&mut self, core: &mut Core, index: u32) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        if !conn.is_up || conn.is_held || conn.fault.is_some() {
            return;
        }
        loop {
            let stream = &core.links[conn.link].to_peer;
            let room = core.config.window_bytes.saturating_sub(stream.held_bytes);
            let offered = conn.output.bytes().min(room);
            if offered == 0 {
                break;
            }
            let taken = core.piece_bytes(offered);
            let mut bytes = Vec::with_capacity(taken);
            for slice in self.outputs.iter(&conn.output) {
                let part = slice.bytes();
                bytes.extend_from_slice(&part[..part.len().min(taken - bytes.len())]);
                if bytes.len() == taken {
                    break;
                }
            }
            self.outputs.consume(&mut conn.output, taken);
            let stream = &mut core.links[conn.link].to_peer;
            let offset = stream.sent_bytes;
            stream.sent_bytes += taken as u64;
            stream.held_bytes += taken;
            core.send_to_peer(conn.link, Piece::Bytes { offset, bytes });
        }
        if conn.is_shutting && conn.output.is_empty() {
            send_fin(core, conn.link);
        }
        if conn.is_closing {
            if conn.output.is_empty() {
                self.leave(core, index, None);
            }
        } else if conn.is_above_high && conn.output.bytes() <= self.marks.low_bytes {
            conn.is_above_high = false;
            conn.drained = true;
            self.push_ready(index);
        }
    }

    /// Ends the driver's side of a connection, cleanly or by a last piece.
    pub(super) fn leave(&mut self, core: &mut Core, index: u32, last: Option<Piece>) {
        let Some(mut conn) = self.conns.remove(index) else { return };
        self.outputs.clear(&mut conn.output);
        for listener in self.listeners.iter_mut().flatten() {
            listener.is_accepting |= std::mem::take(&mut listener.waits_for_slot);
        }
        match last {
            Some(piece) => core.send_to_peer(conn.link, piece),
            None => send_fin(core, conn.link),
        }
        let now_ns = core.now_ns;
        let link = &mut core.links[conn.link];
        link.conn = None;
        link.driver_is_gone = true;
        link.driver_gone_ns = now_ns;
        drop_arrived(core, conn.link);
        core.pump_to_driver(conn.link);
    }

    pub(super) fn hand_out(&mut self, core: &mut Core, pool: &Pool, sink: &mut EventSink<'_>) {
        if !self.is_starved || self.intake.has_room(pool) {
            let mut order = std::mem::take(&mut self.order);
            order.clear();
            order.extend(std::iter::from_fn(|| self.ready.pop()));
            if core.config.reorder {
                core.rng.shuffle(&mut order);
            }
            let mut all_starved = true;
            for &index in &order {
                let served = if sink.is_full() { Served::More } else { self.serve(core, index, pool, sink) };
                match served {
                    Served::Done => {}
                    Served::More => {
                        all_starved = false;
                        self.ready.push(index);
                    }
                    Served::Starved => self.ready.push(index),
                }
            }
            self.is_starved = all_starved;
            self.order = order;
        }
        for index in 0..self.listeners.len() {
            self.accept_waiting(core, ListenerId(index as u32), sink);
        }
    }

    fn serve(&mut self, core: &mut Core, index: u32, pool: &Pool, sink: &mut EventSink<'_>) -> Served {
        let handle = self.conns.handle(index);
        let Some(conn) = self.conns.at_mut(index) else { return Served::Done };
        meet_dial_outcome(core, conn);
        if conn.connected {
            conn.connected = false;
            self.dirty.push(index);
            if !conn.is_closing {
                core.trace(10, u64::from(index), &[]);
                sink.put(Event::Connected { conn: handle });
            }
        }
        if conn.drained && !sink.is_full() {
            conn.drained = false;
            core.trace(11, u64::from(index), &[]);
            sink.put(Event::Drained { conn: handle });
        }
        if conn.is_up && conn.wants && !conn.saw_eof {
            let received = self.receive_some(core, handle, pool, sink);
            if !matches!(received, Served::Done) {
                return received;
            }
        }
        let Some(conn) = self.conns.at_mut(index) else { return Served::Done };
        if (!conn.wants || conn.saw_eof) && is_reset(core, conn.link) {
            conn.fault.get_or_insert(ConnFault::Reset);
        }
        if sink.is_full() && (conn.drained || conn.fault.is_some()) {
            return Served::More;
        }
        if let Some(fault) = conn.fault {
            if !conn.is_closing {
                core.trace(12, u64::from(index), &[]);
                sink.put(Event::Failed { conn: handle, fault });
            }
            self.leave(core, index, Some(Piece::Reset));
        }
        Served::Done
    }

    fn receive_some(
        &mut self,
        core: &mut Core,
        handle: Handle,
        pool: &Pool,
        sink: &mut EventSink<'_>,
    ) -> Served {
        let Some(conn) = self.conns.get_mut(handle) else { return Served::Done };
        assert!(conn.wants, "nothing is handed out while receiving is off");
        for _ in 0..RECEIVES_PER_CONN_MAX {
            if sink.is_full() {
                return Served::More;
            }
            let arrived = &mut core.links[conn.link].to_driver.arrived;
            match arrived.pop_front() {
                None => return Served::Done,
                Some(Piece::Up | Piece::Refused) => {}
                Some(Piece::Reset) => {
                    self.outputs.clear(&mut conn.output);
                    conn.fault.get_or_insert(ConnFault::Reset);
                    return Served::Done;
                }
                Some(Piece::Fin) => {
                    conn.saw_eof = true;
                    core.trace(13, u64::from(handle.index), &[]);
                    sink.put(Event::Eof { conn: handle });
                    return Served::Done;
                }
                Some(Piece::Bytes { offset, mut bytes }) => {
                    let Some(buf) = self.intake.room(pool) else {
                        arrived.push_front(Piece::Bytes { offset, bytes });
                        return Served::Starved;
                    };
                    let start = buf.len();
                    let asked = (bytes.len() as u32).min(self.limits.receive_bytes);
                    let taken = buf.append(&bytes[..asked as usize]);
                    if (taken as usize) < bytes.len() {
                        let rest = bytes.split_off(taken as usize);
                        let offset = offset + u64::from(taken);
                        arrived.push_front(Piece::Bytes { offset, bytes: rest });
                    }
                    core.links[conn.link].to_driver.note_read(offset, taken as usize);
                    core.pump_to_driver(conn.link);
                    core.trace(14, u64::from(handle.index), &bytes);
                    sink.put(Event::Data { conn: handle, data: buf.slice(start..start + taken) });
                }
            }
        }
        Served::More
    }

    fn accept_waiting(&mut self, core: &mut Core, id: ListenerId, sink: &mut EventSink<'_>) {
        let Some(listener) = self.listeners[id.0 as usize].as_mut() else { return };
        for _ in 0..ACCEPTS_PER_POLL_MAX.min(sink.room()) {
            if !listener.is_accepting || listener.waiting.is_empty() {
                return;
            }
            let is_full = self.conns.is_full();
            if let Some(errno) = core.accept_errno.take().or(is_full.then_some(libc::ENFILE)) {
                listener.is_accepting = false;
                listener.waits_for_slot = is_full;
                core.trace(15, u64::from(id.0), &[]);
                sink.put(Event::AcceptFailed { listener: id, errno });
                return;
            }
            let Some(link) = listener.waiting.pop_front() else { return };
            let conn = self.conns.insert(Conn::new(link, true)).expect("the table was not full just above");
            core.links[link].conn = Some(conn);
            let peer = match &listener.at {
                Endpoint::Tcp(_) => peer_addr(link),
                Endpoint::Unix(_) => PeerAddr::Unix,
            };
            core.trace(16, u64::from(conn.index), &[]);
            sink.put(Event::Accepted { listener: id, conn, peer });
        }
    }
}

/// `0.0.0.0:80` is reached by a dial of any IPv4 address with that port, `[::]:80` by any IPv6 address.
fn reaches(listener: &Endpoint, dialled: &Endpoint) -> bool {
    match (listener, dialled) {
        (Endpoint::Tcp(listener), Endpoint::Tcp(dialled)) if listener.ip().is_unspecified() => {
            listener.port() == dialled.port() && listener.is_ipv4() == dialled.is_ipv4()
        }
        _ => listener == dialled,
    }
}

fn send_fin(core: &mut Core, link: LinkId) {
    if !std::mem::replace(&mut core.links[link].to_peer.fin_is_sent, true) {
        core.send_to_peer(link, Piece::Fin);
    }
}

/// Takes the answer to a dial, which is the first thing to arrive.
fn meet_dial_outcome(core: &mut Core, conn: &mut Conn) {
    let arrived = &mut core.links[conn.link].to_driver.arrived;
    if conn.is_up {
        return;
    }
    match arrived.pop_front() {
        Some(Piece::Up) => {
            conn.is_up = true;
            conn.connected = true;
        }
        Some(Piece::Refused) => conn.fault = Some(ConnFault::Refused),
        Some(_) => conn.fault = Some(ConnFault::Reset),
        None => {}
    }
}

fn is_reset(core: &Core, link: LinkId) -> bool {
    core.links[link].to_driver.arrived.iter().any(|piece| matches!(piece, Piece::Reset))
}

/// Throws away what arrived and nobody will read.
pub(super) fn drop_arrived(core: &mut Core, link: LinkId) {
    let stream = &mut core.links[link].to_driver;
    while let Some(piece) = stream.arrived.pop_front() {
        if let Piece::Bytes { offset, bytes } = piece {
            stream.note_read(offset, bytes.len());
        }
    }
}
