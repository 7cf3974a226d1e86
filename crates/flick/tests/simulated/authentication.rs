//! Backends whose clients authenticate on their connection (`%stateful`): all that follows stays on that connection,
//! with both engines.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use flick_net::sim::{Actor, PeerIo};
use flick_testkit::service::memcached::{Cmd, opcode, status, value_of};
use flick_testkit::service::server::answer;
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject};

use super::subject;

/// Opcode of the request that authenticates its connection.
const SASL_AUTH: u8 = 0x21;
/// The status for requests on a connection without authentication.
const AUTH_ERROR: u16 = 0x20;
/// Requests of each client for a long value.
const REQUESTS: u32 = 40;

/// Numbers of the server's connections that carried a request for a value.
type Carriers = Rc<RefCell<BTreeSet<usize>>>;

/// One connection of the server.
struct Server {
    number: usize,
    is_open_to_all: bool,
    carriers: Carriers,
    input: Vec<u8>,
}

impl Actor for Server {
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        while let Some(request) = Cmd::take(&mut self.input) {
            if request.opcode == SASL_AUTH {
                self.is_open_to_all = true;
            } else {
                self.carriers.borrow_mut().insert(self.number);
            }
            let refused = vec![Cmd::reply_to(&request, AUTH_ERROR)];
            let replies = if self.is_open_to_all { answer(&request) } else { refused };
            replies.iter().for_each(|reply| io.write(&reply.bytes()));
        }
    }
}

/// A client that may authenticate first, and then asks for a long value, one request after the other.
struct Client {
    authenticates: bool,
    asked: u32,
    input: Vec<u8>,
    served: Rc<Cell<u32>>,
}

impl Client {
    const KEY: &'static [u8] = b"long#100000";

    fn ask(&mut self, io: &mut PeerIo<'_>) {
        if self.asked == REQUESTS {
            io.close();
            return;
        }
        self.asked += 1;
        io.write(&Cmd::request(opcode::GET, self.asked, Self::KEY, b"").bytes());
    }
}

impl Actor for Client {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        if self.authenticates {
            io.write(&Cmd::request(SASL_AUTH, 0, b"PLAIN", b"\0user\0secret").bytes());
        } else {
            self.ask(io);
        }
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        self.input.extend(data);
        let Some(reply) = Cmd::take(&mut self.input) else { return };
        let is_value = reply.opcode == opcode::GET;
        if is_value && reply.status == status::OK && reply.value == value_of(Self::KEY) {
            self.served.set(self.served.get() + 1);
        }
        self.ask(io);
    }
}

/// Plays two clients, the second of which begins when the first has authenticated. Returns how many of their requests
/// were served, and on how many connections.
fn play(subject: &Subject, authenticates: bool) -> (u32, usize) {
    let mut config = SimServiceConfig::new(3, 1);
    config.limits.max_dedicated_connections = 8;
    config.limits.buffer_memory = 32 << 20;
    let carriers = Carriers::default();
    let (own, mut opened) = (Rc::clone(&carriers), 0);
    let mut service = SimService::new(&config, subject, move |_, _| {
        opened += 1;
        let (number, carriers) = (opened, Rc::clone(&own));
        Some(Box::new(Server { number, is_open_to_all: !authenticates, carriers, input: Vec::new() }))
    });
    let served = Rc::<Cell<u32>>::default();
    for (at_ns, authenticates) in [(0, authenticates), (5 * MS, false)] {
        let client = Client { authenticates, asked: 0, input: Vec::new(), served: Rc::clone(&served) };
        service.net.connect(&service.listen, at_ns, Box::new(client));
    }
    service.run(2_000 * MS, |_| served.get() == 2 * REQUESTS).expect("no spinning");
    let carriers = carriers.borrow().len();
    (served.get(), carriers)
}

#[test]
fn long_replies_come_over_the_connection_that_a_client_has_authenticated() {
    let (native, interpreted) = (subject::native(), subject::interpreted());
    for subject in [native, interpreted] {
        assert_eq!(play(&subject, true), (2 * REQUESTS, 1));
        let (served, carriers) = play(&subject, false);
        assert!(served == 2 * REQUESTS && carriers > 1, "without authentication: {carriers} connections");
    }
}
