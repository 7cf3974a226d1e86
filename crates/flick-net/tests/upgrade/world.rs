//! Two drivers, one connection between them at a time, and what each side has sent and received of it.

use std::time::Duration;

use flick_buffers::{BufClass, Pool, PoolConfig};
use flick_net::{
    AnyDriver, Detached, Driver, DriverEvent, DriverLimits, Endpoint, Handle, IoKind, ShmStats, TransportKind,
};

pub const LIMITS: DriverLimits = DriverLimits {
    conns_max: 16,
    shm_conns_max: 16,
    output_slices_max: 4096,
    events_max: 16,
    receive_bytes: 16384,
};
/// Polls after which a world that makes no progress has failed.
const POLLS_MAX: u32 = 200_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

impl Side {
    pub fn other(self) -> Side {
        if self == Side::Client { Side::Server } else { Side::Client }
    }
}

/// One driver and its end of the connection.
struct End {
    driver: AnyDriver,
    conn: Option<Handle>,
    sent: u64,
    received: u64,
    is_receiving: bool,
    has_end: bool,
}

pub struct World {
    ends: [End; 2],
    pool: Pool,
    at: Endpoint,
    random: u64,
    events: Vec<DriverEvent>,
    failures: Vec<(Side, DriverEvent)>,
}

pub fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

pub fn pattern(side: Side, at: u64) -> u8 {
    (at % 251) as u8 ^ if side == Side::Client { 0 } else { 0x55 }
}

impl End {
    fn open(kind: IoKind) -> Option<End> {
        let mut driver =
            AnyDriver::open(kind, LIMITS).inspect_err(|error| eprintln!("not tested: {error}")).ok()?;
        driver.enable_upgrades();
        Some(End { driver, conn: None, sent: 0, received: 0, is_receiving: true, has_end: false })
    }
}

impl World {
    pub fn new(client: IoKind, server: IoKind, at: &Endpoint) -> Option<World> {
        let mut ends = [End::open(client)?, End::open(server)?];
        let listener = ends[1].driver.listen(at).expect("a free address");
        let at = ends[1].driver.local_addr(listener).expect("just opened");
        let otherwise = at.port().map_or(u64::from(std::process::id()), u64::from);
        let seed = variable("FLICK_NET_UPGRADE_SEED", otherwise);
        println!("{client:?} to {server:?} at {at}, seed {seed}");
        let pool = Pool::new(PoolConfig { small_count: 8, large_count: 128, huge_count: 0 });
        Some(World { ends, pool, at, random: seed | 1 << 40, events: Vec::new(), failures: Vec::new() })
    }

    pub fn rounds(&self) -> u64 {
        variable("FLICK_NET_UPGRADE_ROUNDS", 20)
    }

    pub fn random(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 8) % limit
    }

    fn end_of(&mut self, side: Side) -> &mut End {
        &mut self.ends[side as usize]
    }

    pub fn driver(&mut self, side: Side) -> &mut AnyDriver {
        &mut self.end_of(side).driver
    }

    pub fn conn(&self, side: Side) -> Handle {
        self.ends[side as usize].conn.expect("it is connected")
    }

    pub fn stats(&self) -> [ShmStats; 2] {
        [0, 1].map(|at: usize| self.ends[at].driver.shm_stats().expect("upgrades are on"))
    }

    pub fn transports(&self) -> [TransportKind; 2] {
        self.ends.each_ref().map(|end| end.driver.transport(end.conn.expect("it is connected")))
    }

    pub fn is_upgraded(&self) -> bool {
        self.stats().iter().all(|stats| stats.upgraded == 1)
    }

    pub fn ring_bytes_received(&self) -> u64 {
        self.stats().iter().map(|stats| stats.received_bytes).sum()
    }

    /// Returns the bytes that a side has not received.
    pub fn owed(&self, side: Side) -> u64 {
        self.ends[side.other() as usize].sent - self.ends[side as usize].received
    }

    /// Connects more, which are not used.
    pub fn connect_others(&mut self, count: usize) {
        let at = self.at.clone();
        for _ in 0..count {
            self.end_of(Side::Server).conn = None;
            self.driver(Side::Client).connect(&at).expect("a slot is free");
            self.run_until(|world| world.ends[1].conn.is_some());
        }
    }

    pub fn connect(&mut self) {
        for end in &mut self.ends {
            (end.conn, end.sent, end.received) = (None, 0, 0);
            (end.is_receiving, end.has_end) = (true, false);
        }
        let at = self.at.clone();
        let conn = self.driver(Side::Client).connect(&at).expect("a slot is free");
        self.driver(Side::Client).receive(conn, true);
        self.end_of(Side::Client).conn = Some(conn);
        self.run_until(|world| world.ends[1].conn.is_some());
    }

    pub fn poll(&mut self) {
        self.poll_only(Side::Client);
        self.poll_only(Side::Server);
    }

    pub fn poll_only(&mut self, side: Side) {
        let World { ends, pool, events, failures, .. } = self;
        let end = &mut ends[side as usize];
        end.driver.poll(pool, Some(Duration::ZERO), events).expect("the driver polls");
        assert!(events.len() <= LIMITS.events_max);
        for event in events.drain(..) {
            match event {
                DriverEvent::Accepted { conn, .. } => {
                    end.driver.receive(conn, true);
                    end.conn = Some(conn);
                }
                DriverEvent::Data { conn, data } => {
                    assert_eq!(Some(conn), end.conn);
                    assert!(end.is_receiving, "receiving is off");
                    for byte in data.bytes() {
                        assert_eq!(
                            *byte,
                            pattern(side.other(), end.received),
                            "at {} of {side:?}",
                            end.received
                        );
                        end.received += 1;
                    }
                }
                DriverEvent::Eof { conn } => {
                    assert_eq!(Some(conn), end.conn);
                    end.has_end = true;
                }
                DriverEvent::Failed { .. } => failures.push((side, event)),
                DriverEvent::Connected { .. } | DriverEvent::Drained { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    pub fn run_until(&mut self, is_done: impl Fn(&World) -> bool) {
        for _ in 0..POLLS_MAX {
            if is_done(self) {
                return;
            }
            self.poll();
        }
        panic!("no progress: {:?}", self.stats());
    }

    pub fn run_for_event(&mut self, side: Side, is_it: impl Fn(&DriverEvent) -> bool) -> DriverEvent {
        for _ in 0..POLLS_MAX {
            if let Some(at) = self.failures.iter().position(|(of, event)| *of == side && is_it(event)) {
                return self.failures.remove(at).1;
            }
            self.poll_only(side);
        }
        panic!("no event: {:?}", self.stats());
    }

    pub fn send(&mut self, side: Side, bytes: u32) {
        let World { ends, pool, .. } = self;
        let end = &mut ends[side as usize];
        let mut left = bytes;
        while left > 0 {
            let Some(buf) = pool.alloc(BufClass::Large) else { return };
            let asked = left.min(buf.spare());
            buf.append_with(asked, |spare| {
                spare
                    .iter_mut()
                    .enumerate()
                    .for_each(|(at, byte)| *byte = pattern(side, end.sent + at as u64));
                asked
            });
            let sent = buf.len();
            end.driver.send(end.conn.expect("it is connected"), buf.slice(0..sent));
            end.sent += u64::from(sent);
            left -= sent;
        }
    }

    pub fn set_receiving(&mut self, side: Side, on: bool) {
        let conn = self.conn(side);
        let end = self.end_of(side);
        end.is_receiving = on;
        end.driver.receive(conn, on);
    }

    /// One request and its reply.
    pub fn exchange(&mut self, bytes: u32) {
        for side in [Side::Client, Side::Server] {
            self.send(side, bytes);
            self.run_until(|world| world.owed(side.other()) == 0);
        }
    }

    /// One random step of one side.
    pub fn random_traffic(&mut self) {
        let side = if self.random(2) == 0 { Side::Client } else { Side::Server };
        match self.random(8) {
            0..4 if self.owed(side.other()) < 200_000 => {
                let limit = [10, 300, 5000, 60_000][self.random(4) as usize];
                let bytes = 1 + self.random(limit) as u32;
                self.send(side, bytes);
            }
            4 => {
                let on = self.random(4) > 0;
                self.set_receiving(side, on);
            }
            5 => self.poll_only(side),
            _ => self.poll(),
        }
    }

    /// Moves one end of the connection to the same driver again, through its socket.
    pub fn move_conn(&mut self, side: Side) {
        let conn = self.conn(side);
        for _ in 0..POLLS_MAX {
            self.set_receiving(side, false);
            match self.driver(side).detach(conn) {
                Detached::Socket(socket) => {
                    let adopted = self.driver(side).adopt(socket).expect("a slot is free");
                    self.end_of(side).conn = Some(adopted);
                    self.set_receiving(side, true);
                    return;
                }
                Detached::HasInput => {
                    self.set_receiving(side, true);
                    self.poll();
                }
                Detached::Busy => {
                    self.set_receiving(side.other(), true);
                    self.poll();
                }
                Detached::Refused => panic!("it is open"),
            }
        }
        panic!("no socket: {:?}", self.stats());
    }

    /// Ends both sides, in random order, and checks that everything has arrived before the ends.
    pub fn end(&mut self) {
        for side in [Side::Client, Side::Server] {
            self.set_receiving(side, true);
        }
        let first = if self.random(2) == 0 { Side::Client } else { Side::Server };
        let conn = self.conn(first);
        self.driver(first).shutdown(conn);
        if self.random(2) == 0 {
            let bytes = 1 + self.random(100_000) as u32;
            self.send(first.other(), bytes);
        }
        self.run_until(|world| world.ends[first.other() as usize].has_end);
        assert_eq!(self.owed(first.other()), 0, "the end follows all bytes");
        let other = self.conn(first.other());
        self.driver(first.other()).close(other);
        self.run_until(|world| world.ends[first as usize].has_end);
        assert_eq!(self.owed(first), 0, "the end follows all bytes");
        self.driver(first).close(conn);
        self.expect_nothing_left();
    }

    pub fn close(&mut self, side: Side) {
        let conn = self.conn(side);
        self.driver(side).close(conn);
    }

    /// Ends the side whose other side has closed.
    pub fn end_closed(&mut self, side: Side) {
        self.run_until(|world| world.ends[side as usize].has_end);
        self.close(side);
        self.expect_nothing_left();
    }

    fn expect_nothing_left(&mut self) {
        let is_over = |stats: &ShmStats| stats.upgraded == 0 && stats.conns == 0;
        self.run_until(|world| world.stats().iter().all(is_over));
        assert!(self.failures.is_empty(), "{:?}", self.failures);
    }
}
