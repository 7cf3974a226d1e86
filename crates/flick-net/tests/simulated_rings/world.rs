//! Two drivers with real rings on a simulated network, and what each end of each connection has sent and received.

use std::time::Duration;

use flick_buffers::{BufClass, Pool, PoolConfig};
use flick_net::sim::SimConfig;
use flick_net::{
    AnyDriver, Detached, Driver, DriverEvent, DriverLimits, Endpoint, Handle, PeerAddr, ShmStats, SimNet,
};

use crate::random::Random;

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 16,
    shm_conns_max: 16,
    output_slices_max: 4096,
    events_max: 16,
    receive_bytes: 16384,
};
/// Polls after which a world that makes no progress has failed.
const POLLS_MAX: u32 = 100_000;
/// Most bytes on their way through one direction of a connection.
const OWED_BYTES_MAX: u64 = 200_000;
/// Port of the first connection; see the simulator's addresses.
const FIRST_PORT: u16 = 1024;

/// Number of the driver under test, and of the peers' driver.
pub const SERVICE: usize = 0;
pub const PEER: usize = 1;

/// One end of a connection.
#[derive(Default)]
pub struct End {
    pub conn: Option<Handle>,
    pub sent: u64,
    pub received: u64,
    pub is_receiving: bool,
    pub is_moving: bool,
    pub has_ended: bool,
    /// Its bytes mean nothing any more, because the test overwrote its words.
    pub is_spoilt: bool,
}

pub struct World {
    pub net: SimNet,
    pub drivers: [Option<AnyDriver>; 2],
    /// By connection, then by driver.
    pub streams: Vec<[End; 2]>,
    pub random: Random,
    /// Until when each driver does not run.
    stopped_until_ns: [u64; 2],
    at: Endpoint,
    client: usize,
    pool: Pool,
    events: Vec<DriverEvent>,
    earlier: ShmStats,
    pub moves: u64,
    /// The only connection that moves; `None`: all do.
    pub mover: Option<usize>,
}

fn pattern(stream: usize, from: usize, at: u64) -> u8 {
    (at % 251) as u8 ^ (stream as u8 * 16 + from as u8 * 8)
}

fn network(random: &mut Random) -> SimConfig {
    SimConfig {
        split_per_mille: random.below(800) as u32,
        split_bytes_max: [1, 7, 100, 3000][random.below(4) as usize],
        delay_ns: (1_000, [1_000, 50_000, 2_000_000][random.below(3) as usize]),
        wake_delay_ns: (1_000, [1_000, 50_000, 2_000_000][random.below(3) as usize]),
        window_bytes: [600, 4096, 64 << 10][random.below(3) as usize],
        reorder: random.below(2) == 0,
        ..SimConfig::default()
    }
}

impl World {
    /// Opens both drivers and some connections between them, begun by either.
    pub fn new(seed: u64) -> World {
        println!("seed {seed}");
        let mut random = Random(seed);
        let net = SimNet::new(seed, network(&mut random));
        let service = AnyDriver::simulated(net.driver(LIMITS).expect("limits")).expect("an epoll");
        let peer = AnyDriver::simulated(net.peer_driver(LIMITS).expect("limits")).expect("an epoll");
        let mut drivers = [service, peer];
        drivers.iter_mut().for_each(AnyDriver::enable_upgrades);
        let client = random.below(2) as usize;
        let listening = &mut drivers[1 - client];
        let listener = listening.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("a listener");
        let at = listening.local_addr(listener).expect("just opened");
        let streams = 1 + random.below(4) as usize;
        let mut world = World {
            net,
            drivers: drivers.map(Some),
            streams: Vec::new(),
            random,
            stopped_until_ns: [0; 2],
            at,
            client,
            pool: Pool::new(PoolConfig { small_count: 8, large_count: 256, huge_count: 0 }),
            events: Vec::new(),
            earlier: ShmStats::default(),
            moves: 0,
            mover: None,
        };
        (0..streams).for_each(|_| world.connect());
        world
    }

    fn connect(&mut self) {
        let driver = self.drivers[self.client].as_mut().expect("it lives");
        let conn = driver.connect(&self.at).expect("a slot is free");
        driver.receive(conn, true);
        let mut stream = [End::default(), End::default()];
        stream[self.client] = End { conn: Some(conn), is_receiving: true, ..End::default() };
        self.streams.push(stream);
        self.run_until("accepted", |world| world.streams.iter().flatten().all(|end| end.conn.is_some()));
    }

    pub fn stats(&self, side: usize) -> ShmStats {
        self.drivers[side].as_ref().and_then(AnyDriver::shm_stats).unwrap_or(self.earlier)
    }

    pub fn is_upgraded(&self) -> bool {
        let streams = self.streams.len() as u64;
        self.stats(SERVICE).upgraded == streams && self.stats(PEER).upgraded == streams
    }

    /// Returns the bytes of a connection that a side has not received.
    pub fn owed(&self, stream: usize, side: usize) -> u64 {
        self.streams[stream][1 - side].sent.saturating_sub(self.streams[stream][side].received)
    }

    /// Polls a driver, unless it is stopped.
    pub fn poll(&mut self, side: usize, timeout_ns: u64) {
        let World { drivers, streams, pool, events, client, .. } = self;
        let Some(driver) = &mut drivers[side] else { return };
        if self.net.now_ns() < self.stopped_until_ns[side] {
            return;
        }
        driver.poll(pool, Some(Duration::from_nanos(timeout_ns)), events).expect("the driver polls");
        assert!(events.len() <= LIMITS.events_max);
        for event in events.drain(..) {
            if let DriverEvent::Accepted { conn, peer: PeerAddr::Tcp(peer), .. } = event {
                assert_ne!(side, *client, "only the other side listens");
                driver.receive(conn, true);
                let end = &mut streams[usize::from(peer.port() - FIRST_PORT)][side];
                *end = End { conn: Some(conn), is_receiving: true, ..End::default() };
                continue;
            }
            let (DriverEvent::Data { conn, .. }
            | DriverEvent::Eof { conn }
            | DriverEvent::Failed { conn, .. }
            | DriverEvent::Connected { conn }
            | DriverEvent::Drained { conn }) = &event
            else {
                panic!("unexpected {event:?}");
            };
            let stream = streams.iter().position(|stream| stream[side].conn == Some(*conn));
            let stream = stream.unwrap_or_else(|| panic!("{event:?} of no connection"));
            let end = &mut streams[stream][side];
            match event {
                DriverEvent::Data { data, .. } => {
                    assert!(end.is_receiving && !end.has_ended, "receiving is off");
                    for byte in data.bytes() {
                        let expected = pattern(stream, 1 - side, end.received);
                        assert!(end.is_spoilt || *byte == expected, "byte {} of {stream}", end.received);
                        end.received += 1;
                    }
                }
                DriverEvent::Eof { .. } => end.has_ended = true,
                DriverEvent::Failed { fault, .. } => {
                    println!(
                        "connection {stream} of driver {side} failed: {fault:?} at {}",
                        self.net.now_ns()
                    );
                    (end.has_ended, end.conn) = (true, None);
                }
                _ => {}
            }
        }
        for ends in streams.iter() {
            let is_spoilt = ends.iter().any(|end| end.is_spoilt);
            assert!(is_spoilt || ends[side].received <= ends[1 - side].sent, "doubled bytes");
        }
    }

    pub fn run_until(&mut self, what: &str, is_done: impl Fn(&World) -> bool) {
        for round in 0..POLLS_MAX {
            if is_done(self) {
                return;
            }
            // Rarely for long: a connection asks again only after a second.
            let timeout_ns = if round % 64 == 63 { 50_000_000 } else { 100_000 };
            self.poll(round as usize % 2, timeout_ns);
        }
        let state = |stream: usize| {
            let ends =
                [SERVICE, PEER].map(|side| (self.owed(stream, side), self.streams[stream][side].has_ended));
            format!("{ends:?}")
        };
        let owed: Vec<_> = (0..self.streams.len()).map(state).collect();
        panic!("not {what}: {owed:?} {:?} {:?}", self.stats(SERVICE), self.stats(PEER));
    }

    pub fn send(&mut self, stream: usize, side: usize, bytes: u32) {
        let Self { drivers, streams, pool, .. } = self;
        let end = &mut streams[stream][side];
        let (Some(driver), Some(conn)) = (&mut drivers[side], end.conn) else { return };
        let mut left = bytes;
        while left > 0 {
            let Some(buf) = pool.alloc(BufClass::Large) else { return };
            let asked = left.min(buf.spare());
            buf.append_with(asked, |spare| {
                let fill = |(at, byte): (usize, &mut u8)| *byte = pattern(stream, side, end.sent + at as u64);
                spare.iter_mut().enumerate().for_each(fill);
                asked
            });
            let sent = buf.len();
            driver.send(conn, buf.slice(0..sent));
            end.sent += u64::from(sent);
            left -= sent;
        }
    }

    pub fn set_receiving(&mut self, stream: usize, side: usize, on: bool) {
        let end = &mut self.streams[stream][side];
        let (Some(driver), Some(conn)) = (&mut self.drivers[side], end.conn) else { return };
        end.is_receiving = on;
        driver.receive(conn, on);
    }

    pub fn finish_sending(&mut self, stream: usize, side: usize) {
        let (Some(driver), Some(conn)) = (&mut self.drivers[side], self.streams[stream][side].conn) else {
            return;
        };
        driver.shutdown(conn);
    }

    /// Tries to move one end to its driver again, through its socket.
    fn try_move(&mut self, stream: usize, side: usize) {
        let (Some(driver), Some(conn)) = (&mut self.drivers[side], self.streams[stream][side].conn) else {
            return;
        };
        if !driver.can_detach(conn) {
            self.streams[stream][side].is_moving = false;
            return self.set_receiving(stream, side, true);
        }
        self.set_receiving(stream, side, false);
        let driver = self.drivers[side].as_mut().expect("as above");
        match driver.detach(conn) {
            Detached::Socket(socket) => {
                self.streams[stream][side].conn = Some(driver.adopt(socket).expect("a slot is free"));
                self.streams[stream][side].is_moving = false;
                self.moves += 1;
                self.set_receiving(stream, side, true);
            }
            Detached::HasInput => self.set_receiving(stream, side, true),
            Detached::Busy => {}
            Detached::Refused => {
                self.streams[stream][side].is_moving = false;
                self.set_receiving(stream, side, true);
            }
        }
    }

    /// One random step of the world.
    pub fn step(&mut self) {
        let stream = self.random.below(self.streams.len() as u64) as usize;
        let side = self.random.below(2) as usize;
        match self.random.below(32) {
            0..8 if self.owed(stream, 1 - side) < OWED_BYTES_MAX => {
                let limit = [10, 300, 5000, 60_000][self.random.below(4) as usize];
                let bytes = 1 + self.random.below(limit) as u32;
                self.send(stream, side, bytes);
            }
            8 => {
                let on = self.random.below(4) > 0;
                self.set_receiving(stream, side, on);
            }
            9 if self.random.below(8) == 0 && self.mover.is_none_or(|mover| mover == stream) => {
                self.streams[stream][side].is_moving = true;
            }
            10 if self.random.below(8) == 0 && self.stopped_until_ns[1 - side] <= self.net.now_ns() => {
                self.stopped_until_ns[side] = self.net.now_ns() + self.random.below(5_000_000);
            }
            11 if self.random.below(16) == 0 => {
                for round in 0..40 {
                    self.poll(round % 2, 60_000_000);
                }
            }
            _ => {
                let timeout_ns = [0, 0, 10_000, 200_000, 3_000_000][self.random.below(5) as usize];
                self.poll(side, timeout_ns);
            }
        }
        self.try_moves();
    }

    fn try_moves(&mut self) {
        for stream in 0..self.streams.len() {
            for side in [SERVICE, PEER] {
                if self.streams[stream][side].is_moving && self.random.below(4) == 0 {
                    self.try_move(stream, side);
                }
            }
        }
    }

    /// Makes both sides run and receive.
    pub fn resume(&mut self) {
        self.stopped_until_ns = [0; 2];
        for stream in 0..self.streams.len() {
            for side in [SERVICE, PEER] {
                self.streams[stream][side].is_moving = false;
                self.set_receiving(stream, side, true);
            }
        }
    }

    /// Lets everything arrive that was sent.
    pub fn settle(&mut self) {
        self.resume();
        self.run_until("delivered", |world| {
            let is_delivered = |stream: usize| {
                let ends = &world.streams[stream];
                ends.iter().any(|end| end.is_spoilt) || world.owed(stream, 0) + world.owed(stream, 1) == 0
            };
            (0..world.streams.len()).all(is_delivered)
        });
    }

    /// Makes all connections use rings.
    pub fn upgrade(&mut self) {
        for round in 0..1000 {
            if self.is_upgraded() {
                return;
            }
            for stream in 0..self.streams.len() {
                self.send(stream, (round + self.client) % 2, 10);
            }
            self.settle();
        }
        panic!("not upgraded: {:?} {:?}", self.stats(SERVICE), self.stats(PEER));
    }

    /// Ends all connections, from a random side each.
    pub fn end(&mut self) {
        for stream in 0..self.streams.len() {
            let first = self.random.below(2) as usize;
            for side in [first, 1 - first] {
                let Some(conn) = self.streams[stream][side].conn else { continue };
                let driver = self.drivers[side].as_mut().expect("it lives");
                if self.streams[stream][side].is_spoilt {
                    driver.abort(conn);
                    (self.streams[stream][side].conn, self.streams[stream][side].has_ended) = (None, true);
                    continue;
                }
                driver.shutdown(conn);
                self.run_until("ended", |world| world.streams[stream][1 - side].has_ended);
                assert_eq!(self.owed(stream, 1 - side), 0, "the end follows all bytes");
            }
        }
        for side in [SERVICE, PEER] {
            for stream in 0..self.streams.len() {
                if let (Some(driver), Some(conn)) =
                    (&mut self.drivers[side], self.streams[stream][side].conn.take())
                {
                    driver.close(conn);
                }
            }
        }
        let is_over = |stats: ShmStats| stats.upgraded == 0 && stats.conns == 0;
        self.run_until("over", |world| is_over(world.stats(SERVICE)) && is_over(world.stats(PEER)));
    }

    /// Closes what the driver under test still has.
    pub fn close_service(&mut self) {
        let driver = self.drivers[SERVICE].as_mut().expect("it lives");
        self.streams
            .iter_mut()
            .filter_map(|ends| ends[SERVICE].conn.take())
            .for_each(|conn| driver.close(conn));
    }

    /// Ends the peers' process at once. Returns the connections of which the driver under test receives all.
    pub fn kill_peer(&mut self) -> Vec<usize> {
        self.stopped_until_ns = [0; 2];
        let driver = self.drivers[PEER].take().expect("it lives");
        let is_out = |ends: &[End; 2]| {
            let backlog = ends[PEER].conn.map_or(1, |conn| driver.backlog_bytes(conn));
            backlog == 0 && ends[SERVICE].is_receiving
        };
        let complete = (0..self.streams.len()).filter(|stream| is_out(&self.streams[*stream])).collect();
        self.earlier = driver.shm_stats().unwrap_or_default();
        drop(driver);
        complete
    }
}
