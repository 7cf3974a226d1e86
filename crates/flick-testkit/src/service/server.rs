//! A scripted memcached server: honest until its manner shows.
//! Promises: every reply carries the tag (`cas`) of its request, so that a client can tell whose reply it got whatever
//! the platform has done to the opaque.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use flick_net::sim::{Actor, PeerIo, SimRng};

use super::memcached::{Cmd, opcode, status, value_of};

/// Behaviour of one connection of a server. A variant with an `at` acts at that request, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As it should.
    Honest,
    /// Answers each request late by a random time up to this.
    Slow {
        /// Longest delay.
        delay_ns_max: u64,
    },
    /// Refuses values of more than 16 KiB as soon as it has seen the key, and reads on.
    Early,
    /// As `Early`, and closes.
    EarlyAndGone,
    /// Answers one request twice.
    Twice {
        /// Index of the request.
        at: u32,
    },
    /// Leaves one request out.
    Skips {
        /// Index of the request.
        at: u32,
    },
    /// Repeats another number than the request's.
    WrongNumber {
        /// Index of the request.
        at: u32,
    },
    /// Sends what is not of the protocol.
    Nonsense {
        /// Index of the request.
        at: u32,
    },
    /// Sends half a reply and resets.
    CutsReply {
        /// Index of the request.
        at: u32,
    },
    /// Answers no more and closes its side.
    HalfCloses {
        /// Index of the request.
        at: u32,
    },
    /// Answers no more and says nothing.
    FallsSilent {
        /// Index of the request.
        at: u32,
    },
    /// Stops reading for a while.
    StopsReading {
        /// Index of the request.
        at: u32,
        /// Length of the pause.
        pause_ns: u64,
    },
}

impl Manner {
    /// One of the dishonest ones.
    pub fn random(rng: &mut SimRng) -> Self {
        let at = rng.between(0, 12) as u32;
        match rng.between(0, 10) {
            0 => Manner::Slow { delay_ns_max: rng.between(1, 40) * 1_000_000 },
            1 => Manner::Early,
            2 => Manner::EarlyAndGone,
            3 => Manner::Twice { at },
            4 => Manner::Skips { at },
            5 => Manner::WrongNumber { at },
            6 => Manner::Nonsense { at },
            7 => Manner::CutsReply { at },
            8 => Manner::HalfCloses { at },
            9 => Manner::FallsSilent { at },
            _ => Manner::StopsReading { at, pause_ns: rng.between(1, 60) * 1_000_000 },
        }
    }
}

/// Errors that servers found in what reached them.
pub type Complaints = Rc<RefCell<Vec<String>>>;

/// By client: how far its requests have come at one server, whichever connections brought them. Clients number them in
/// their tags ([`super::client::tag`]).
pub type Order = Rc<RefCell<BTreeMap<u64, u64>>>;

/// One connection of a server. Keys that begin with `miss` are not found.
pub struct MemcachedServer {
    manner: Manner,
    /// From here on it is honest.
    calm_ns: u64,
    complaints: Complaints,
    order: Option<Order>,
    input: Vec<u8>,
    served_count: u32,
    /// Of a request that was refused early: bytes of it still to come.
    swallow_bytes: usize,
    late: VecDeque<Vec<u8>>,
    is_silent: bool,
}

impl MemcachedServer {
    /// A connection that behaves like this until `calm_ns`.
    pub fn new(manner: Manner, calm_ns: u64, complaints: Complaints) -> Self {
        let (input, late) = (Vec::new(), VecDeque::new());
        let (order, is_silent) = (None, false);
        Self { manner, calm_ns, complaints, order, input, served_count: 0, swallow_bytes: 0, late, is_silent }
    }

    /// The same connection, complaining of requests that come out of their client's order.
    pub fn minding(self, order: Order) -> Self {
        Self { order: Some(order), ..self }
    }

    fn check_order(&self, request: &Cmd) {
        let (client, number) = (request.cas >> 48, request.cas >> 32 & 0xffff);
        if let Some(order) = &self.order
            && let Some(earlier) = order.borrow_mut().insert(client, number)
            && earlier >= number
        {
            let complaint =
                format!("request {number} of client {client} arrived after its request {earlier}");
            self.complaints.borrow_mut().push(complaint);
        }
    }

    /// An honest connection that complains by panicking.
    pub fn honest() -> Self {
        Self::new(Manner::Honest, 0, Complaints::default())
    }

    fn refuse_early(&mut self, io: &mut PeerIo<'_>) {
        let is_large = Cmd::wire_bytes(&self.input).is_some_and(|wire| wire > 16 * 1024);
        let Some(head) = Cmd::head(&self.input).filter(|_| is_large) else { return };
        io.write(&Cmd::reply_to(&head, status::TOO_LARGE).bytes());
        let wire = Cmd::wire_bytes(&self.input).expect("its head is there");
        let present = wire.min(self.input.len());
        self.input.drain(..present);
        self.swallow_bytes = wire - present;
        if self.manner == Manner::EarlyAndGone {
            io.close();
        }
    }

    fn serve(&mut self, io: &mut PeerIo<'_>, request: &Cmd) {
        if let Some(complaint) = complaint_about(request) {
            self.complaints.borrow_mut().push(complaint);
        }
        self.check_order(request);
        let count = self.served_count;
        self.served_count += 1;
        let mut bytes: Vec<u8> = answer(request).iter().flat_map(Cmd::bytes).collect();
        let manner = if io.now_ns() < self.calm_ns { self.manner } else { Manner::Honest };
        match manner {
            Manner::Twice { at } if at == count => bytes.extend_from_within(..),
            Manner::Skips { at } if at == count => bytes.clear(),
            Manner::WrongNumber { at } if at == count => bytes[15] ^= 0x5a,
            Manner::Nonsense { at } if at == count => bytes = b"\x00nonsense\r\n".to_vec(),
            Manner::CutsReply { at } if at == count => {
                io.write(&bytes[..bytes.len() / 2]);
                io.reset();
            }
            Manner::HalfCloses { at } if at == count => {
                io.shutdown_write();
                self.is_silent = true;
            }
            Manner::FallsSilent { at } if at == count => self.is_silent = true,
            Manner::StopsReading { at, pause_ns } if at == count => {
                io.pause_reading(true);
                io.timer(pause_ns, READ_AGAIN);
            }
            Manner::Slow { delay_ns_max } => {
                // One timer for each reply; whichever is due sends the oldest, so the order stays.
                self.late.push_back(std::mem::take(&mut bytes));
                let delay_ns = io.rng().between(1, delay_ns_max);
                io.timer(delay_ns, SEND_LATE);
            }
            _ if !self.late.is_empty() => {
                self.late.push_back(std::mem::take(&mut bytes));
                io.timer(1, SEND_LATE);
            }
            _ => {}
        }
        if !self.is_silent {
            io.write(&bytes);
        }
    }
}

const READ_AGAIN: u64 = 1;
const SEND_LATE: u64 = 2;

impl Actor for MemcachedServer {
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        let swallowed = self.swallow_bytes.min(data.len());
        self.swallow_bytes -= swallowed;
        self.input.extend(&data[swallowed..]);
        while let Some(request) = Cmd::take(&mut self.input) {
            self.serve(io, &request);
        }
        if matches!(self.manner, Manner::Early | Manner::EarlyAndGone) && io.now_ns() < self.calm_ns {
            self.refuse_early(io);
        }
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) {
        if id == READ_AGAIN {
            io.pause_reading(false);
        } else if let Some(bytes) = self.late.pop_front() {
            io.write(&bytes);
        }
    }
}

/// Returns what is wrong with a request: servers see each as its non-quiet twin, with the value that was sent.
fn complaint_about(request: &Cmd) -> Option<String> {
    if request.is_quiet() || matches!(request.opcode, opcode::QUIT | opcode::QUITQ) {
        return Some(format!("opcode {:#04x} reached a shared connection", request.opcode));
    }
    if request.opcode == opcode::SET && request.value != value_of(&request.key) {
        let key = String::from_utf8_lossy(&request.key);
        return Some(format!(
            "{} bytes arrived as the value of {key}, not what was sent",
            request.value.len()
        ));
    }
    None
}

/// Returns the replies of a memcached server to a request.
pub fn answer(request: &Cmd) -> Vec<Cmd> {
    let reply = Cmd::reply_to(request, status::OK);
    match request.opcode {
        opcode::GET if request.key.starts_with(b"miss") => vec![Cmd { status: status::MISS, ..reply }],
        opcode::GET => {
            vec![Cmd { extras: vec![1, 2, 3, 4], value: value_of(&request.key), ..reply }]
        }
        // Success or failure of a change depends on the key, so that quiet ones have both outcomes.
        opcode::DELETE if request.key.starts_with(b"miss") => vec![Cmd { status: status::MISS, ..reply }],
        opcode::STAT => {
            let line = |at: u64| Cmd {
                key: format!("stat{at}").into_bytes(),
                value: b"1".to_vec(),
                ..reply.clone()
            };
            (0..request.cas % 4).map(line).chain([reply.clone()]).collect()
        }
        _ => vec![reply],
    }
}
