//! Requests that a program answers itself, and that arrive together: they are handled in runs, and the client and the
//! counters must see what they see of requests that arrive one by one. With both engines.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flick_net::sim::{Actor, PeerIo, SimRng};
use flick_testkit::service::memcached::{Cmd, opcode};
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject, seeds};

use super::subject;

/// A client that writes pieces, one after the other, and keeps what it receives.
struct Client {
    pieces: Vec<Vec<u8>>,
    written: usize,
    received: Rc<RefCell<Vec<u8>>>,
    is_over: Rc<Cell<bool>>,
}

impl Client {
    fn write(&mut self, io: &mut PeerIo<'_>) {
        match self.pieces.get(self.written) {
            Some(piece) => io.write(piece),
            None => io.shutdown_write(),
        }
        self.written += 1;
        if self.written <= self.pieces.len() {
            io.timer(MS / 10, 0);
        }
    }
}

impl Actor for Client {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.write(io);
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, _id: u64) {
        self.write(io);
    }

    fn on_data(&mut self, _io: &mut PeerIo<'_>, data: &[u8]) {
        self.received.borrow_mut().extend(data);
    }

    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        self.is_over.set(true);
        io.close();
    }

    fn on_reset(&mut self, _io: &mut PeerIo<'_>) {
        self.is_over.set(true);
    }
}

/// Returns what the client receives, and the counters that tell of messages.
fn play(subject: &Subject, pieces: Vec<Vec<u8>>) -> (Vec<u8>, Vec<(&'static str, u64)>) {
    let mut config = SimServiceConfig::new(1, 0);
    config.limits.buffer_memory = 64 << 20;
    let mut service = SimService::new(&config, subject, |_, _| None);
    let received = Rc::<RefCell<Vec<u8>>>::default();
    let is_over = Rc::<Cell<bool>>::default();
    let client = Client { pieces, written: 0, received: Rc::clone(&received), is_over: Rc::clone(&is_over) };
    service.net.connect(&service.listen, 0, Box::new(client));
    service
        .run(10_000 * MS, |service| is_over.get() && service.totals().connections_open == 0)
        .expect("no spinning");
    service.expect_quiet().expect("nothing is left");
    let totals = service.totals();
    let counts = vec![
        ("requests", totals.requests),
        ("replies", totals.replies),
        ("replies_suppressed", totals.replies_suppressed),
        ("protocol_errors_client", totals.protocol_errors_client),
        ("errors_malformed", totals.errors_malformed),
        ("errors_unavailable", totals.errors_unavailable),
        ("requests_shed", totals.requests_shed),
    ];
    (received.take(), counts)
}

/// The same bytes in pieces of one request, all at once, and cut anywhere.
fn check(program: &str, requests_of: impl Fn(&mut SimRng) -> Vec<Vec<u8>>) {
    let (native, interpreted) = subject::example(program);
    for seed in seeds(12) {
        let rng = &mut SimRng::new(seed);
        let requests = requests_of(rng);
        let whole = requests.concat();
        let mut cut = Vec::new();
        let mut rest = whole.as_slice();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at((rng.between(1, 6_000) as usize).min(rest.len()));
            cut.push(piece.to_vec());
            rest = behind;
        }
        let apart = play(&native, requests);
        assert!(apart.1[0].1 > 100, "seed {seed}: {:?}", apart.1);
        for subject in [&native, &interpreted] {
            for pieces in [vec![whole.clone()], cut.clone()] {
                let together = play(subject, pieces);
                assert_eq!(together.1, apart.1, "seed {seed}");
                assert!(together.0 == apart.0, "seed {seed}: replies differ");
            }
        }
    }
}

fn text_request(rng: &mut SimRng) -> Vec<u8> {
    let (key, bytes) = (rng.between(0, 20), [3, 30, 300, 3_000, 20_000][rng.between(0, 4) as usize]);
    let value = "v".repeat(bytes);
    match rng.between(0, 11) {
        0 | 1 => format!("set k{key} 7 0 {bytes}\r\n{value}\r\n"),
        2 => format!("set k{key} 7 0 {bytes} noreply\r\n{value}\r\n"),
        3 | 4 => format!("get k{key}\r\n"),
        5 => format!("gets k{key} k1 k2 k3 absent\r\n"),
        6 => format!("mg k{key} v s O{bytes}\r\n"),
        7 => format!("mg k{key} v q\r\nmn\r\n"),
        8 => format!("delete k{key}{}\r\n", if rng.chance(500) { " noreply" } else { "" }),
        9 => "nonsense\r\n".to_owned(),
        10 => format!("ms k{key} {bytes} c\r\n{value}\r\n"),
        _ => "stats\r\n".to_owned(),
    }
    .into_bytes()
}

#[test]
fn text_requests_that_arrive_together_are_answered_as_single_ones() {
    check("key_value_server/key_value_server.flick", |rng| {
        let mut requests: Vec<_> = (0..300).map(|_| text_request(rng)).collect();
        // The counters of `stats` must not depend on the second at which the server began.
        requests.retain(|request| request != b"stats\r\n");
        let last: &[u8] =
            [b"quit\r\nget k1\r\n".as_slice(), b"set k1 0 0 3\r\nabcdef\r\n", b"\0\r\n", b"get k1"]
                [rng.between(0, 3) as usize];
        requests.push(last.to_vec());
        requests
    });
}

#[test]
fn binary_requests_that_arrive_together_are_answered_as_single_ones() {
    check("key_value_server/binary_server.flick", |rng| {
        let mut requests: Vec<_> = (0..300)
            .map(|at| {
                let key = format!("k{}", rng.between(0, 20));
                let value = "v".repeat([3, 30, 300, 3_000, 20_000][rng.between(0, 4) as usize]);
                let opcodes = [
                    opcode::GET,
                    opcode::GETQ,
                    opcode::SET,
                    opcode::SETQ,
                    opcode::DELETE,
                    opcode::DELETEQ,
                    opcode::NOOP,
                    opcode::STAT,
                ];
                let opcode = opcodes[rng.between(0, opcodes.len() as u64 - 1) as usize];
                let (key, value): (&[u8], &[u8]) = match opcode {
                    opcode::SET | opcode::SETQ => (key.as_bytes(), value.as_bytes()),
                    opcode::NOOP => (b"", b""),
                    opcode::STAT => (b"settings", b""),
                    _ => (key.as_bytes(), b""),
                };
                Cmd::request(opcode, at, key, value).bytes()
            })
            .collect();
        match rng.between(0, 2) {
            0 => requests.push(Cmd::request(opcode::QUIT, 1_000, b"", b"").bytes()),
            1 => requests.push(Cmd::request(opcode::QUITQ, 1_000, b"", b"").bytes()),
            _ => requests.push(b"\x55 is no request".to_vec()),
        }
        requests
    });
}

/// Some clients send far more than is handled at once. Their input took all buffers, and everyone was answered *busy*.
#[test]
fn input_of_pipelining_clients_took_all_buffers() {
    let (native, _) = subject::example("key_value_server/key_value_server.flick");
    let mut config = SimServiceConfig::new(1, 0);
    config.limits.buffer_memory = 16 << 20;
    config.sim.window_bytes = 8 << 20;
    let mut service = SimService::new(&config, &native, |_, _| None);
    let (clients, requests) = (16, 400_000);
    let over: Vec<_> = (0..clients)
        .map(|_| {
            let is_over = Rc::<Cell<bool>>::default();
            let pieces = vec![b"get absent\r\n".repeat(requests), b"quit\r\n".to_vec()];
            let client = Client { pieces, written: 0, received: Rc::default(), is_over: Rc::clone(&is_over) };
            service.net.connect(&service.listen, 0, Box::new(client));
            is_over
        })
        .collect();
    let is_done = |_: &SimService| over.iter().all(|is_over| is_over.get());
    service.run(60_000 * MS, is_done).expect("no spinning");
    let totals = service.totals();
    assert_eq!((totals.requests_shed, totals.errors_overload), (0, 0), "{totals:?}");
    assert_eq!(totals.replies, clients * requests as u64, "{totals:?}");
}
