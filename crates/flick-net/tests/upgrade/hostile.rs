//! Processes of the same user that claim connections they do not have, or break the agreement.
//! Those of connections of another user need a second user: only root can test them.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use flick_buffers::{BufClass, Pool, PoolConfig};
use flick_net::limits::{
    CLAIM_QUESTION_NS_MAX, SILENT_CLAIMS_SHARE, UPGRADE_EXCHANGES_MIN, UPGRADE_LOOK_NS, UPGRADE_NAMES_MAX,
    UPGRADE_NAMES_PER_LOOK_MAX, UPGRADE_RETRY_NS,
};
use flick_net::{AnyDriver, Driver, DriverEvent, DriverLimits, Endpoint, IoKind, PlainReason, TransportKind};
use flick_shm::conn::{RingConn, RingRead};
use flick_shm::pair::Pair;
use flick_shm::pairing::{PairListener, PairPolicy, PeerProcess, connect_pair};
use flick_shm::segment::SegmentConfig;
use rustix::net::sockopt::set_socket_linger;

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 8,
    shm_conns_max: 8,
    output_slices_max: 64,
    events_max: 16,
    receive_bytes: 4096,
};
/// User that the tests of this file do not run as.
const OTHER_UID: u32 = 65534;
/// Polls in which a driver does all that it can.
const POLLS: u32 = 300;
/// Longest time between a reset and its report; a driver looks at quiet connections after twice that time.
const NOTICED_MAX: Duration = Duration::from_millis(250);

/// A driver that echoes, a connection to it, and a claim.
struct Hostile {
    driver: AnyDriver,
    pool: Pool,
    events: Vec<DriverEvent>,
    stream: TcpStream,
    _peer: PeerProcess,
    pair: Pair,
    claim: Option<RingConn>,
}

impl Hostile {
    fn new() -> Hostile {
        Hostile::with(AnyDriver::open(IoKind::Epoll, LIMITS).expect("every kernel has epoll"))
    }

    fn with(driver: AnyDriver) -> Hostile {
        Hostile::of_client(driver, |at| TcpStream::connect(at).expect("the driver listens"))
    }

    /// The claim is this process's, the connection that of `connect`.
    fn of_client(mut driver: AnyDriver, connect: impl Fn(SocketAddr) -> TcpStream) -> Hostile {
        driver.enable_upgrades();
        let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
        let at = driver.local_addr(listener).expect("just opened");
        let stream = connect(at.to_string().parse().expect("TCP"));
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket");
        let name = format!("flick-upgrade.{}.0", at.port().expect("TCP"));
        let pool = Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 });
        let mut events = Vec::new();
        let config = SegmentConfig { slots: 128, arena_bytes: 1 << 20, huge_pages: false };
        let pairing = move || connect_pair(&name, &config, PairPolicy::SameUser);
        let (peer, pair) = run_beside(&mut driver, &pool, &mut events, pairing).expect("the driver listens");
        let mut pair = pair.expect("a pair");
        let claim = Some(pair.open(4096).expect("a slot"));
        let mut hostile = Hostile { driver, pool, events, stream, _peer: peer, pair, claim };
        hostile.expect_echo(b"before");
        hostile
    }

    fn claim(&mut self) -> &mut RingConn {
        self.claim.as_mut().expect("it is open")
    }

    fn run(&mut self) {
        run(&mut self.driver, &self.pool, &mut self.events, POLLS);
    }

    fn question(&self) -> Vec<u8> {
        let pack = |address: SocketAddr| {
            let IpAddr::V4(ip) = address.ip() else { panic!("loopback has version 4 here") };
            [&ip.to_ipv6_mapped().octets()[..], &address.port().to_le_bytes()].concat()
        };
        let local = self.stream.local_addr().expect("a socket");
        let remote = self.stream.peer_addr().expect("a socket");
        [b"flickup1".to_vec(), pack(local), pack(remote)].concat()
    }

    fn say(&mut self, bytes: &[u8]) {
        assert_eq!(self.claim().send(bytes), Ok(bytes.len()));
        self.run();
    }

    fn expect_echo(&mut self, text: &[u8]) {
        self.stream.write_all(text).expect("it is connected");
        let mut reply = vec![0; text.len()];
        let mut count = 0;
        while count < text.len() {
            run(&mut self.driver, &self.pool, &mut self.events, 1);
            count += self.stream.read(&mut reply[count..]).unwrap_or(0);
        }
        assert_eq!(reply, text);
    }

    /// The claim was refused, and the connection stays on TCP.
    fn expect_refused(mut self) {
        self.run();
        assert_eq!(self.claim().receive(&mut [0; 64]), Ok(RingRead::Reset));
        self.expect_echo(b"after");
        assert_eq!(self.driver.shm_stats().expect("upgrades are on").upgrades, 0);
    }

    /// The claim's connection is reset, and another one is served.
    fn expect_reset(mut self) {
        self.run();
        let mut rest = Vec::new();
        let ended = self.stream.read_to_end(&mut rest);
        assert!(ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
        let stats = self.driver.shm_stats().expect("upgrades are on");
        assert_eq!((stats.upgraded, stats.conns), (0, 0));
        self.stream = TcpStream::connect(self.stream.peer_addr().unwrap_or_else(|_| self.address()))
            .expect("the driver listens");
        self.stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket");
        self.expect_echo(b"another");
    }

    fn address(&self) -> SocketAddr {
        self.driver
            .local_addr(flick_net::ListenerId(0))
            .expect("it listens")
            .to_string()
            .parse()
            .expect("TCP")
    }
}

fn run(driver: &mut AnyDriver, pool: &Pool, events: &mut Vec<DriverEvent>, polls: u32) {
    for _ in 0..polls {
        driver.poll(pool, Some(Duration::ZERO), events).expect("the driver polls");
        for event in events.drain(..) {
            match event {
                DriverEvent::Accepted { conn, .. } => driver.receive(conn, true),
                DriverEvent::Data { conn, data } => driver.send(conn, data),
                DriverEvent::Eof { .. } | DriverEvent::Failed { .. } => {}
                DriverEvent::Connected { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }
}

/// Polls a driver while a thread does something that needs it.
fn run_beside<R: Send + 'static>(
    driver: &mut AnyDriver,
    pool: &Pool,
    events: &mut Vec<DriverEvent>,
    what: impl FnOnce() -> R + Send + 'static,
) -> R {
    let thread = std::thread::spawn(what);
    while !thread.is_finished() {
        run(driver, pool, events, 1);
    }
    thread.join().expect("no panic")
}

/// Does something as another user, on a thread of its own; `None` if this process cannot.
fn as_another_user<R: Send>(what: impl FnOnce() -> R + Send) -> Option<R> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: only root has a second user");
        return None;
    }
    let run = || {
        let other = Some(rustix::process::Uid::from_raw(OTHER_UID));
        rustix::thread::set_thread_res_uid(other, other, other).expect("root may");
        what()
    };
    std::thread::scope(|scope| scope.spawn(run).join()).ok()
}

#[test]
fn claim_of_a_connection_of_another_user_took_it() {
    for kind in super::KINDS {
        let Ok(driver) = AnyDriver::open(kind, LIMITS) else { continue };
        let connect = |at: SocketAddr| TcpStream::connect(at).expect("the driver listens");
        if as_another_user(|| ()).is_none() {
            return;
        }
        let mut hostile =
            Hostile::of_client(driver, |at| as_another_user(|| connect(at)).expect("it was root just now"));
        let question = hostile.question();
        hostile.say(&question);
        assert_eq!(hostile.driver.shm_stats().expect("upgrades are on").plain_other_user, 1);
        hostile.expect_refused();
    }
}

/// A driver connects to another user's server, and another process of its own user listens for claims there.
/// `accept` accepts the connection at `at`, in the name of which claims have `key`.
fn check_answer_for_another_user<S: Read + Write + Send + 'static>(
    at: &str,
    key: u64,
    accept: impl Fn() -> S,
) {
    let name = format!("flick-upgrade.{key}.0");
    let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("no process has the name");
    let mut driver = AnyDriver::open(IoKind::Epoll, LIMITS).expect("every kernel has epoll");
    driver.enable_upgrades();
    let conn = driver.connect(&at.parse().expect("an endpoint")).expect("a slot is free");
    driver.receive(conn, true);
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 });
    let (mut events, mut stream) = (Vec::new(), accept());
    // The driver sends back what the server sends.
    let exchanges = move || {
        for _ in 0..4 {
            stream.write_all(b"request").expect("it is connected");
            stream.read_exact(&mut [0; 7]).expect("it is connected");
        }
        stream
    };
    let mut stream = run_beside(&mut driver, &pool, &mut events, exchanges);
    let accept = move || listener.accept().expect("the driver asks");
    let (_peer, pair) = run_beside(&mut driver, &pool, &mut events, accept);
    let mut pair = pair.expect("a pair");
    run(&mut driver, &pool, &mut events, POLLS);
    let mut slot = None;
    pair.take_ready(|asking| slot = Some(asking));
    let mut claim =
        pair.accept(slot.expect("the driver opens a claim"), 4096).expect("honest").expect("memory");
    run(&mut driver, &pool, &mut events, POLLS);
    assert_eq!(claim.receive(&mut [0; 64]), Ok(RingRead::Reset), "it asks nothing");
    let stats = driver.shm_stats().expect("upgrades are on");
    assert_eq!((stats.plain_other_user, stats.upgrades), (1, 0));
    assert_eq!(driver.transport(conn), TransportKind::Kernel(PlainReason::OtherUser));
    let after = move || {
        stream.write_all(b"after").expect("it is connected");
        stream.read_exact(&mut [0; 5])
    };
    run_beside(&mut driver, &pool, &mut events, after).expect("the connection stays");
}

#[test]
fn service_of_another_user_counted_as_one_that_is_no_flick_process() {
    let server = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let at = server.local_addr().expect("just opened");
    let name = format!("flick-upgrade.{}.0", at.port());
    let bind = || PairListener::bind(&name, PairPolicy::SameUser).expect("no process has the name");
    let Some(_listener) = as_another_user(bind) else { return };
    let mut driver = AnyDriver::open(IoKind::Epoll, LIMITS).expect("every kernel has epoll");
    driver.enable_upgrades();
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 });
    let mut events = Vec::new();
    // The second connection finds the names in memory.
    for number in 1..=2 {
        let conn = driver.connect(&at.to_string().parse().expect("an endpoint")).expect("a slot is free");
        driver.receive(conn, true);
        let mut stream = server.accept().expect("the driver connects").0;
        let exchanges = move || {
            for _ in 0..=UPGRADE_EXCHANGES_MIN {
                stream.write_all(b"x").expect("it is connected");
                stream.read_exact(&mut [0; 1]).expect("it is connected");
            }
            stream
        };
        let _stream = run_beside(&mut driver, &pool, &mut events, exchanges);
        // Shorter than the time to a second attempt.
        let end = Instant::now() + Duration::from_nanos(UPGRADE_RETRY_NS / 2);
        while driver.transport(conn) != TransportKind::Kernel(PlainReason::OtherUser) {
            assert!(Instant::now() < end, "{:?}", driver.transport(conn));
            run(&mut driver, &pool, &mut events, 1);
        }
        let stats = driver.shm_stats().expect("upgrades are on");
        assert_eq!((stats.plain_other_user, stats.plain_no_peer), (number, 0));
    }
}

/// A worker has the last of the names, so that all others are tried before it.
#[test]
fn names_of_workers_were_all_tried_in_one_poll() {
    let server = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let at = server.local_addr().expect("just opened");
    let name = format!("flick-upgrade.{}.{}", at.port(), UPGRADE_NAMES_MAX - 1);
    let _listener = PairListener::bind(&name, PairPolicy::SameUser).expect("no process has the name");
    let mut driver = AnyDriver::open(IoKind::Epoll, LIMITS).expect("every kernel has epoll");
    driver.enable_upgrades();
    let conn = driver.connect(&at.to_string().parse().expect("an endpoint")).expect("a slot is free");
    driver.receive(conn, true);
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 });
    let (mut events, mut stream) = (Vec::new(), server.accept().expect("the driver connects").0);
    for _ in 0..UPGRADE_EXCHANGES_MIN {
        stream.write_all(b"x").expect("it is connected");
        run_beside(&mut driver, &pool, &mut events, {
            let mut stream = stream.try_clone().expect("a descriptor");
            move || stream.read_exact(&mut [0; 1]).expect("it is connected")
        });
    }
    stream.write_all(b"x").expect("it is connected");
    // Each of these polls is long enough for a look, and has one at most.
    let mut polls = 0;
    while driver.shm_stats().expect("upgrades are on").conns == 0 {
        let wait = Some(Duration::from_nanos(2 * UPGRADE_LOOK_NS));
        driver.poll(&pool, wait, &mut events).expect("the driver polls");
        events.clear();
        polls += 1;
    }
    assert!(polls >= u32::from(UPGRADE_NAMES_MAX) / UPGRADE_NAMES_PER_LOOK_MAX, "{polls} polls");
}

#[test]
fn process_that_answers_for_another_users_server_took_its_connection() {
    let server = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let at = server.local_addr().expect("just opened");
    let accept = || server.accept().expect("the driver connects").0;
    if as_another_user(|| ()).is_some() {
        let accept = || as_another_user(accept).expect("it was root just now");
        check_answer_for_another_user(&at.to_string(), u64::from(at.port()), accept);
    }
}

#[test]
fn process_that_answers_for_another_users_unix_socket_took_its_connection() {
    let path = std::env::temp_dir().join(format!("flick-upgrade-user-{}", std::process::id()));
    let server = UnixListener::bind(&path).expect("a free path");
    // FNV-1a, as in the names of workers.
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let key = 1 << 63 | path.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, add);
    // The process that listened last counts.
    if as_another_user(|| rustix::net::listen(&server, 8).expect("it is bound")).is_some() {
        let accept = || server.accept().expect("the driver connects").0;
        check_answer_for_another_user(&format!("unix:{}", path.display()), key, accept);
    }
    std::fs::remove_file(path).expect("it is bound");
}

#[test]
fn claim_with_another_question_took_a_connection() {
    let mut hostile = Hostile::new();
    hostile.say(&[0xff; 44]);
    hostile.expect_refused();
    let mut hostile = Hostile::new();
    let question = hostile.question();
    hostile.say(&question[..20]);
    hostile.expect_refused();
}

#[test]
fn claim_of_a_connection_with_another_address_took_it() {
    // The port of the other side is right, its address or the listener's is not.
    for at in [8 + 15, 8 + 18 + 15, 8 + 18 + 16] {
        let mut hostile = Hostile::new();
        let mut question = hostile.question();
        question[at] ^= 1;
        hostile.say(&question);
        hostile.expect_refused();
    }
}

/// Runs with each driver that this kernel has.
fn for_drivers(run: impl Fn(Hostile)) {
    for kind in super::KINDS {
        match AnyDriver::open(kind, LIMITS) {
            Ok(driver) => run(Hostile::with(driver)),
            Err(error) => eprintln!("not tested: {error}"),
        }
    }
}

#[test]
fn offset_that_was_passed_already_was_waited_for() {
    for_drivers(|mut hostile| {
        let question = hostile.question();
        hostile.say(&question);
        hostile.say(&[&2_u64.to_le_bytes()[..], &[1]].concat());
        hostile.expect_reset();
    });
}

#[test]
fn claim_without_an_offset_left_its_connection_behind() {
    for is_reset in [false, true] {
        for_drivers(|mut hostile| {
            let question = hostile.question();
            hostile.say(&question);
            let claim = hostile.claim.take().expect("it is open");
            if is_reset {
                hostile.pair.reset(claim)
            } else {
                hostile.pair.close(claim)
            }
            hostile.expect_reset();
        });
    }
}

#[test]
fn bytes_of_the_kernel_behind_the_offset_were_delivered() {
    for_drivers(|mut hostile| {
        let question = hostile.question();
        hostile.say(&question);
        hostile.stream.write_all(b"behind").expect("it is connected");
        hostile.say(&[&8_u64.to_le_bytes()[..], &[1]].concat());
        hostile.expect_reset();
    });
}

#[test]
fn reset_of_the_socket_was_noticed_after_a_whole_wait() {
    for kind in super::KINDS {
        let driver = match AnyDriver::open(kind, LIMITS) {
            Ok(driver) => driver,
            Err(error) => return eprintln!("not tested: {error}"),
        };
        let mut hostile = Hostile::with(driver);
        let question = hostile.question();
        hostile.say(&question);
        let silent = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let elsewhere = silent.local_addr().expect("just opened").to_string();
        let other = hostile.driver.connect(&elsewhere.parse().expect("an endpoint"));
        let other = other.expect("a slot is free");
        let spare = TcpStream::connect(hostile.address()).expect("the driver listens");
        run(&mut hostile.driver, &hostile.pool, &mut hostile.events, POLLS);
        // The process stays, so only its socket shows that the connection is over.
        set_socket_linger(&hostile.stream, Some(Duration::ZERO)).expect("a socket");
        hostile.stream = spare;
        // A result that is no event comes together with the reset.
        let buf = hostile.pool.alloc(BufClass::Small).expect("a buffer is free");
        let count = buf.append(b"x");
        hostile.driver.send(other, buf.slice(0..count));
        let begun = Instant::now();
        let mut is_over = false;
        while !is_over {
            let wait = Some(4 * NOTICED_MAX);
            hostile.driver.poll(&hostile.pool, wait, &mut hostile.events).expect("the driver polls");
            is_over = hostile.events.drain(..).any(|event| matches!(event, DriverEvent::Failed { .. }));
        }
        assert!(begun.elapsed() < NOTICED_MAX, "{kind:?}: noticed after {:?}", begun.elapsed());
    }
}

/// Claims of a process that asks nothing left others no connection of the driver.
#[test]
fn claims_that_ask_nothing_took_all_connections() {
    let mut hostile = Hostile::new();
    let _own = hostile.claim.take();
    let silent: Vec<_> = (0..32).map(|_| hostile.pair.open(4096).expect("a slot")).collect();
    hostile.run();
    let accepted_max = LIMITS.shm_conns_max / SILENT_CLAIMS_SHARE;
    let conns = hostile.driver.shm_stats().expect("upgrades are on").conns;
    assert!((1..=u64::from(accepted_max)).contains(&conns), "{conns} claims were accepted");
    let name = format!("flick-silent-{}", std::process::id());
    hostile.driver.listen(&Endpoint::Shm(name.clone())).expect("the name is free");
    let config = SegmentConfig { slots: 128, arena_bytes: 1 << 20, huge_pages: false };
    let pairing = move || connect_pair(&name, &config, PairPolicy::SameUser);
    let Hostile { driver, pool, events, .. } = &mut hostile;
    let (_peer, pair) = run_beside(driver, pool, events, pairing).expect("the driver listens");
    let mut pair = pair.expect("a pair");
    let mut client = pair.open(4096).expect("a slot");
    assert_eq!(client.send(b"text"), Ok(4));
    run(driver, pool, events, POLLS);
    let mut reply = [0; 4];
    assert_eq!(client.receive(&mut reply), Ok(RingRead::Bytes(4)));
    // Each has a second, one after the other: the first is that of `hostile`.
    let (begun, time_max) = (Instant::now(), Duration::from_nanos(CLAIM_QUESTION_NS_MAX) * 3);
    while !silent.iter().any(RingConn::is_peer_gone) {
        run(driver, pool, events, 1);
        assert!(begun.elapsed() < time_max, "a claim was kept that asks nothing");
    }
}
