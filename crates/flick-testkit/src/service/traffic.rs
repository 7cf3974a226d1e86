//! Peers of any protocol for fault-injection runs: clients that pipeline and check, servers with configured
//! misbehaviour. Start reading here: a protocol says how its messages are cut, what servers answer and what a client
//! may receive ([`TrafficProtocol`]); [`Peers`] makes clients and servers of it.
//! Promises: requests carry tags from which servers make their replies, so that a reply in the wrong hands, one too
//! many, or an unsolicited one is detected.
//! Refuses: anything of the compiler's or the platform's parsers, so that one fault cannot hide on both sides.

mod client;
mod faulty_server;
mod server;

pub mod frames;
pub mod http;
pub mod lines;
pub mod memcached_binary;
pub mod memcached_text;
pub mod mqtt;
pub mod resp;
pub mod stomp;
pub mod store;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use flick_net::sim::SimRng;

use super::backend_faults::TimedFault;
use super::client::{Habit, Verdict};
use super::fault_injection::{FaultPlan, Followed, Servers, Traffic};
use super::server::{Complaints, Manner};
use super::{MS, SimService, SimServiceConfig};

/// One request of a client.
#[derive(Clone, Debug)]
pub struct TrafficRequest {
    /// As it is sent.
    pub bytes: Vec<u8>,
    /// The reply that an honest server's comes out as; what it means is the protocol's affair.
    pub reply: Vec<u8>,
    /// Something of the protocol's own.
    pub kind: u32,
    /// Replies owed to the request.
    pub owed: Owed,
}

/// Replies owed to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// One reply.
    Reply,
    /// None.
    Silence,
}

/// Message at the front of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Part of a message.
    More,
    /// A message of this many bytes.
    Whole(usize),
    /// No message.
    Bad(String),
}

/// Origin of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// A server, or the program.
    Served,
    /// The platform, which tells of a failure.
    Failed,
}

/// Answer of a server to a request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Those bytes.
    pub bytes: Vec<u8>,
    /// It closes behind them.
    pub closes: bool,
    /// Name of a request that must not be sent a second time.
    pub once: Option<String>,
}

/// One connection of a server.
#[derive(Clone, Debug, Default)]
pub struct Seat {
    /// The server's number.
    pub server: usize,
    /// State that the protocol keeps for the connection.
    pub memory: String,
}

/// Protocol that peers speak.
pub trait TrafficProtocol {
    /// Settings that the service needs beside those of the plan.
    fn configure(&self, config: &mut SimServiceConfig) {
        let _ = config;
    }

    /// Returns the requests of one client. `is_last`: it is the client after the faults, which every server must serve.
    fn requests(&self, rng: &mut SimRng, client: u64, plan: &FaultPlan, is_last: bool)
    -> Vec<TrafficRequest>;

    /// Bytes that are no request.
    fn nonsense(&self, rng: &mut SimRng) -> Vec<u8>;

    /// The reply to `request` at the front of `input`.
    fn reply(&self, request: &TrafficRequest, input: &[u8], has_ended: bool) -> Cut;

    /// Returns the origin of the reply.
    ///
    /// Errors: it is not one to this request.
    fn judge(&self, request: &TrafficRequest, reply: &[u8]) -> Result<Judged, String>;

    /// The error response to a client that has sent nonsense, at the front of `input`.
    fn refusal(&self, input: &[u8]) -> Cut {
        let _ = input;
        Cut::Bad("nothing is refused in words".into())
    }

    /// Whether a connection may end in good order behind `input`, which is not all of a reply: what is joined to one
    /// here are several for the service, or nothing of the protocol says more.
    fn may_end_behind(&self, input: &[u8]) -> bool {
        let _ = input;
        false
    }

    /// Whether nothing says how long a server may take, so that one which falls silent has to close as well.
    fn may_wait_for_ever(&self) -> bool {
        false
    }

    /// The request at the front of what a server has been sent.
    fn asked(&self, seat: &Seat, input: &[u8]) -> Cut;

    /// Returns the answer of a server to a request.
    ///
    /// Errors: what is wrong with the request.
    fn answer(&self, seat: &mut Seat, request: &[u8]) -> Result<Answer, String>;

    /// Returns the reply of a server that has not waited for the whole of a large request, and the length of that
    /// request.
    fn early(&self, input: &[u8]) -> Option<(Vec<u8>, usize)> {
        let _ = input;
        None
    }

    /// Returns bytes that a server may send although they are no reply; `None`: all bytes are a reply.
    fn garbage(&self) -> Option<&'static [u8]> {
        Some(b"\x00nonsense\r\n")
    }
}

/// Rules that may be suspended at one time.
const SUSPENDED_RULES_MAX: u32 = 64;

/// State that the peers of one run share.
#[derive(Clone, Default)]
struct Common {
    /// A server has lied in a way that no client can detect: replies are not checked from now on.
    has_lied: Rc<Cell<bool>>,
    /// Requests that were sent and must not be sent a second time.
    seen: Rc<RefCell<BTreeSet<String>>>,
    /// Times at which servers were asked, each with the server.
    asked: Rc<RefCell<Vec<(u64, usize)>>>,
}

/// Clients and servers of a protocol.
pub struct Peers {
    protocol: Rc<dyn TrafficProtocol>,
    common: RefCell<Common>,
}

impl Peers {
    /// Of this protocol.
    pub fn new(protocol: impl TrafficProtocol + 'static) -> Self {
        Self { protocol: Rc::new(protocol), common: RefCell::default() }
    }

    /// Returns the protocol that they speak.
    pub(super) fn protocol(&self) -> &Rc<dyn TrafficProtocol> {
        &self.protocol
    }

    /// Servers that are faulty for a while, each with its own fault.
    pub(super) fn faulty_servers(
        &self,
        faults: Vec<(usize, TimedFault)>,
        complaints: &Complaints,
    ) -> Servers {
        self.common.replace(Common::default());
        let (protocol, common) = (Rc::clone(&self.protocol), self.common.borrow().clone());
        let complaints = Rc::clone(complaints);
        Box::new(move |index, _| {
            let (protocol, common) = (Rc::clone(&protocol), common.clone());
            let healthy =
                server::TrafficServer::new(protocol, common, index, Manner::Honest, Rc::clone(&complaints));
            let timed_fault = faults.iter().find(|(server, _)| *server == index);
            let timed_fault = timed_fault.map(|(_, timed_fault)| timed_fault.clone());
            Some(Box::new(faulty_server::FaultyServer::new(healthy, timed_fault)))
        })
    }

    /// Returns the times at which servers were asked, each with the server.
    pub(super) fn asked(&self) -> Vec<(u64, usize)> {
        self.common.borrow().asked.borrow().clone()
    }

    /// Connects a client that sends these and behaves.
    pub(super) fn connect(
        &self,
        service: &SimService,
        at_ns: u64,
        requests: Vec<TrafficRequest>,
        habit: Habit,
    ) -> Rc<RefCell<Verdict>> {
        let verdict = Rc::new(RefCell::new(Verdict::default()));
        let common = self.common.borrow().clone();
        let client = client::TrafficClient::new(
            Rc::clone(&self.protocol),
            common,
            requests,
            habit,
            Rc::clone(&verdict),
        );
        service.net.connect(&service.listen, at_ns, Box::new(client));
        verdict
    }
}

impl Traffic for Peers {
    fn configure(&self, config: &mut SimServiceConfig) {
        // The tables of what waits are laid out when a service starts, and every seed starts one.
        config.limits.max_suspended_rules = SUSPENDED_RULES_MAX;
        self.protocol.configure(config);
    }

    fn servers(&self, seed: u64, plan: &FaultPlan, complaints: &Complaints) -> Servers {
        // The first thing of a run.
        self.common.replace(Common::default());
        let (protocol, common) = (Rc::clone(&self.protocol), self.common.borrow().clone());
        let mut rng = SimRng::new(seed ^ 0x5e7e);
        let (per_mille, lies) = (plan.manners_per_mille, plan.lies);
        let complaints = Rc::clone(complaints);
        Box::new(move |index, _| {
            let manner = if rng.chance(per_mille) { Manner::random(&mut rng) } else { Manner::Honest };
            let is_lie =
                matches!(manner, Manner::Twice { .. } | Manner::Skips { .. } | Manner::WrongNumber { .. });
            let manner = if is_lie && !lies { Manner::Honest } else { manner };
            let (protocol, complaints) = (Rc::clone(&protocol), Rc::clone(&complaints));
            Some(Box::new(server::TrafficServer::new(protocol, common.clone(), index, manner, complaints)))
        })
    }

    fn client(&self, rng: &mut SimRng, plan: &FaultPlan, client: u64, service: &SimService) -> Followed {
        let requests = self.protocol.requests(rng, client, plan, false);
        let habit = match plan.habits {
            true => Habit::random_with(rng, |rng| self.protocol.nonsense(rng)),
            false => Habit::Plain,
        };
        let verdict = self.connect(service, rng.between(0, 10 * MS), requests, habit.clone());
        (habit, verdict)
    }

    fn last_client(&self, rng: &mut SimRng, plan: &FaultPlan, service: &SimService) -> Rc<RefCell<Verdict>> {
        let requests = self.protocol.requests(rng, plan.clients, plan, true);
        self.common.borrow().has_lied.set(false);
        self.connect(service, service.net.now_ns(), requests, Habit::Plain)
    }
}

/// A length for a value: mostly short, sometimes a buffer full, now and then too long to buffer.
pub fn random_len(rng: &mut SimRng, huge_per_mille: u32) -> usize {
    if rng.chance(huge_per_mille) {
        return rng.between(17_000, 60_000) as usize;
    }
    (if rng.chance(100) { rng.between(2_000, 12_000) } else { rng.between(1, 200) }) as usize
}

/// Bytes of this length that tell what they belong to.
pub fn fill(tag: &str, len: usize) -> Vec<u8> {
    format!("<{tag}>").into_bytes().into_iter().cycle().take(len).collect()
}

/// The line at the front of `input` without its end, and how many bytes it has with it.
fn line(input: &[u8]) -> Option<(&str, usize)> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    let text = std::str::from_utf8(&input[..end]).unwrap_or("\u{fffd}");
    Some((text.strip_suffix('\r').unwrap_or(text), end + 1))
}

/// Cuts off a line that begins with one of `beginnings`.
fn line_of(input: &[u8], beginnings: &[&str]) -> Cut {
    match line(input) {
        None => Cut::More,
        Some((text, len)) if beginnings.iter().any(|some| text.starts_with(some)) => Cut::Whole(len),
        Some(_) => Cut::Bad("no refusal".into()),
    }
}

/// The start of some bytes, for an error text.
fn shown(bytes: &[u8]) -> String {
    let some = &bytes[..bytes.len().min(160)];
    format!("`{}` ({} bytes)", some.escape_ascii(), bytes.len())
}

/// Judges a reply that must be as an honest server's, byte for byte, or one of the platform's failures.
fn exact(
    request: &TrafficRequest,
    reply: &[u8],
    is_failure: impl Fn(&[u8]) -> bool,
) -> Result<Judged, String> {
    if reply == request.reply {
        return Ok(Judged::Served);
    }
    if is_failure(reply) {
        return Ok(Judged::Failed);
    }
    Err(format!("{} answered by {}, not by {}", shown(&request.bytes), shown(reply), shown(&request.reply)))
}
