//! A scripted server of any protocol: honest until its manner shows.
//! Promises: a lie that no client can detect is noted before it is sent (`Common::has_lied`); what reaches it and must
//! not is a complaint.

use std::collections::VecDeque;
use std::rc::Rc;

use flick_net::sim::{Actor, PeerIo};

use super::{Answer, Common, Cut, Seat, TrafficProtocol, shown};
use crate::service::fault_injection::CALM_NS;
use crate::service::server::{Complaints, Manner};

pub(super) struct TrafficServer {
    protocol: Rc<dyn TrafficProtocol>,
    common: Common,
    seat: Seat,
    manner: Manner,
    complaints: Complaints,
    input: Vec<u8>,
    served_count: u32,
    /// Of a request that was answered early: bytes of it still to come.
    swallow_bytes: usize,
    late: VecDeque<Answer>,
    is_silent: bool,
    /// Every reply breaks off.
    cuts: bool,
}

const READ_AGAIN: u64 = 1;
const SEND_LATE: u64 = 2;

impl TrafficServer {
    pub(super) fn new(
        protocol: Rc<dyn TrafficProtocol>,
        common: Common,
        server: usize,
        manner: Manner,
        complaints: Complaints,
    ) -> Self {
        Self {
            protocol,
            common,
            seat: Seat { server, memory: String::new() },
            manner,
            complaints,
            input: Vec::new(),
            served_count: 0,
            swallow_bytes: 0,
            late: VecDeque::new(),
            is_silent: false,
            cuts: false,
        }
    }

    pub(super) fn protocol(&self) -> &dyn TrafficProtocol {
        &*self.protocol
    }

    /// Lets every reply break off, or none any more.
    pub(super) fn set_cuts(&mut self, cuts: bool) {
        self.cuts = cuts;
    }

    fn complain(&self, what: &str) {
        // An undetectable lie may also make clients' requests look strange: a retry, for one.
        if !self.common.has_lied.get() {
            self.complaints.borrow_mut().push(format!("server {}: {what}", self.seat.server));
        }
    }

    fn manner_now(&self, io: &PeerIo<'_>) -> Manner {
        if io.now_ns() < CALM_NS { self.manner } else { Manner::Honest }
    }

    fn answer_early(&mut self, io: &mut PeerIo<'_>) {
        let Some((bytes, wire)) = self.protocol.early(&self.input) else { return };
        io.write(&bytes);
        let present = wire.min(self.input.len());
        self.input.drain(..present);
        self.swallow_bytes = wire - present;
        if self.manner == Manner::EarlyAndGone {
            self.is_silent = true;
            io.close();
        }
    }

    fn send(&mut self, io: &mut PeerIo<'_>, answer: &Answer) {
        io.write(&answer.bytes);
        if answer.closes {
            self.is_silent = true;
            io.close();
        }
    }

    fn break_off(&mut self, io: &mut PeerIo<'_>, answer: &Answer) {
        io.write(&answer.bytes[..answer.bytes.len() / 2]);
        self.is_silent = true;
        io.reset();
    }

    fn serve(&mut self, io: &mut PeerIo<'_>, request: &[u8]) {
        let mut answer = match self.protocol.answer(&mut self.seat, request) {
            Ok(answer) => answer,
            Err(what) => return self.complain(&format!("{what}: {}", shown(request))),
        };
        if let Some(once) = &answer.once
            && !self.common.seen.borrow_mut().insert(once.clone())
        {
            self.complain(&format!("asked a second time: {}", shown(request)));
        }
        self.common.asked.borrow_mut().push((io.now_ns(), self.seat.server));
        let count = self.served_count;
        self.served_count += 1;
        if self.cuts {
            return self.break_off(io, &answer);
        }
        let is_due = |at: u32| at == count;
        match self.manner_now(io) {
            Manner::Twice { at } if is_due(at) => {
                self.common.has_lied.set(true);
                answer.bytes.extend_from_within(..);
            }
            Manner::Skips { at } if is_due(at) => {
                self.common.has_lied.set(true);
                answer.bytes.clear();
                answer.closes |= self.protocol.may_wait_for_ever();
            }
            Manner::WrongNumber { at } if is_due(at) => {
                self.common.has_lied.set(true);
                answer.bytes.iter_mut().rev().skip(2).take(1).for_each(|byte| *byte ^= 1);
            }
            Manner::Nonsense { at } if is_due(at) => match self.protocol.garbage() {
                Some(garbage) => answer.bytes = garbage.to_vec(),
                None => {
                    self.is_silent = true;
                    io.close();
                }
            },
            Manner::CutsReply { at } if is_due(at) => self.break_off(io, &answer),
            Manner::HalfCloses { at } if is_due(at) => {
                io.shutdown_write();
                self.is_silent = true;
            }
            Manner::FallsSilent { at } if is_due(at) => {
                self.is_silent = true;
                if self.protocol.may_wait_for_ever() {
                    io.close();
                }
            }
            Manner::StopsReading { at, pause_ns } if is_due(at) => {
                io.pause_reading(true);
                io.timer(pause_ns, READ_AGAIN);
            }
            Manner::Slow { delay_ns_max } => {
                let delay_ns = io.rng().between(1, delay_ns_max);
                return self.put_off(io, answer, delay_ns);
            }
            _ if !self.late.is_empty() => return self.put_off(io, answer, 1),
            _ => {}
        }
        if !self.is_silent {
            self.send(io, &answer);
        }
    }

    /// One timer for each reply; whichever is due sends the oldest, so the order stays.
    fn put_off(&mut self, io: &mut PeerIo<'_>, answer: Answer, delay_ns: u64) {
        self.late.push_back(answer);
        io.timer(delay_ns, SEND_LATE);
    }
}

impl Actor for TrafficServer {
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        let swallowed = self.swallow_bytes.min(data.len());
        self.swallow_bytes -= swallowed;
        self.input.extend(&data[swallowed..]);
        while !self.is_silent && !self.input.is_empty() {
            match self.protocol.asked(&self.seat, &self.input) {
                Cut::More => break,
                Cut::Whole(len) => {
                    let request: Vec<u8> = self.input.drain(..len).collect();
                    self.serve(io, &request);
                }
                Cut::Bad(what) => {
                    self.complain(&format!("{what}: {}", shown(&self.input)));
                    self.is_silent = true;
                }
            }
        }
        let is_early = matches!(self.manner_now(io), Manner::Early | Manner::EarlyAndGone);
        if is_early && !self.is_silent && self.late.is_empty() {
            self.answer_early(io);
        }
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) {
        if id == READ_AGAIN {
            io.pause_reading(false);
        } else if let Some(answer) = self.late.pop_front()
            && !self.is_silent
        {
            self.send(io, &answer);
        }
    }
}
