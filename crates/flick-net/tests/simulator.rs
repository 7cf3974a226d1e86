//! The simulator's promises beyond the contract of drivers: the same run for the same seed, faults on request, virtual
//! time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flick_buffers::{Pool, PoolConfig};
use flick_net::sim::{Actor, PeerIo, Reachability, SimConfig};
use flick_net::{ConnFault, Driver, DriverEvent, DriverLimits, Endpoint, SimDriver, SimNet};

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 64,
    shm_conns_max: 0,
    output_slices_max: 1024,
    events_max: 64,
    receive_bytes: 16384,
};

fn pool() -> Pool {
    Pool::new(PoolConfig { small_count: 16, large_count: 64, huge_count: 0 })
}

fn server_address() -> Endpoint {
    "127.0.0.1:0".parse().expect("an endpoint")
}

/// The events of a peer, one letter each: open, data, eof, reset, timer.
type Diary = Rc<RefCell<String>>;

/// Bytes that a peer has received, piece by piece.
type Pieces = Rc<RefCell<Vec<Vec<u8>>>>;

/// Writes when the connection opens and records its events.
struct Talker {
    writes: Vec<u8>,
    received: Pieces,
    diary: Diary,
}

impl Talker {
    fn boxed(writes: &[u8], diary: &Diary) -> (Box<Talker>, Pieces) {
        let received = Rc::default();
        let talker =
            Talker { writes: writes.to_vec(), received: Rc::clone(&received), diary: Rc::clone(diary) };
        (Box::new(talker), received)
    }
}

impl Actor for Talker {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.diary.borrow_mut().push('o');
        io.write(&self.writes);
        io.timer(5_000_000, 1);
    }

    fn on_data(&mut self, _: &mut PeerIo<'_>, data: &[u8]) {
        self.diary.borrow_mut().push('d');
        self.received.borrow_mut().push(data.to_vec());
    }

    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        self.diary.borrow_mut().push('e');
        io.close();
    }

    fn on_reset(&mut self, _: &mut PeerIo<'_>) {
        self.diary.borrow_mut().push('r');
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) {
        assert_eq!(id, 1);
        self.diary.borrow_mut().push('t');
        io.shutdown_write();
    }
}

/// Polls until the network is idle; accepts, receives, echoes and closes.
fn run_echo(net: &SimNet, driver: &mut SimDriver) -> Vec<String> {
    let (pool, mut events, mut log) = (pool(), Vec::new(), Vec::new());
    let end_ns = net.now_ns() + 60_000_000_000;
    while !net.is_idle() {
        assert!(net.now_ns() < end_ns, "a minute of virtual time is enough");
        driver.poll(&pool, None, &mut events).expect("the simulator polls");
        for event in events.drain(..) {
            log.push(match &event {
                DriverEvent::Data { conn, data } => {
                    format!("{} {conn:?} {:?}", driver.now_ns(), data.bytes())
                }
                other => format!("{} {other:?}", driver.now_ns()),
            });
            match event {
                DriverEvent::Accepted { conn, .. } | DriverEvent::Connected { conn } => {
                    driver.receive(conn, true)
                }
                DriverEvent::Data { conn, data } => driver.send(conn, data),
                DriverEvent::Eof { conn } => driver.close(conn),
                _ => {}
            }
        }
    }
    log
}

/// One run of a hostile network with eight peers: what the driver saw and the fingerprint.
fn hostile_run(seed: u64) -> (Vec<String>, u64) {
    let net = SimNet::new(seed, SimConfig { reset_per_mille: 200, ..SimConfig::hostile() });
    let mut driver = net.driver(LIMITS).expect("sensible limits");
    let listener = driver.listen(&server_address()).expect("the address is free");
    let at = driver.local_addr(listener).expect("just opened");
    let diary = Diary::default();
    for number in 0..8u8 {
        let (talker, _) = Talker::boxed(&[number; 300], &diary);
        net.connect(&at, u64::from(number) * 1000, talker);
    }
    let log = run_echo(&net, &mut driver);
    (log, net.trace_hash())
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_gives_another() {
    let runs: Vec<_> = (0..20).map(hostile_run).collect();
    for (seed, run) in runs.iter().enumerate() {
        assert_eq!(&hostile_run(seed as u64), run, "seed {seed}");
    }
    let distinct: std::collections::BTreeSet<u64> = runs.iter().map(|run| run.1).collect();
    assert_eq!(distinct.len(), runs.len());
}

#[test]
fn single_bytes_arrive_one_by_one_and_in_order() {
    let config = SimConfig { split_per_mille: 1000, split_bytes_max: 1, ..SimConfig::default() };
    let net = SimNet::new(3, config);
    let mut driver = net.driver(LIMITS).expect("sensible limits");
    let listener = driver.listen(&server_address()).expect("the address is free");
    let at = driver.local_addr(listener).expect("just opened");
    let (talker, received) = Talker::boxed(b"abc", &Diary::default());
    net.connect(&at, 0, talker);
    run_echo(&net, &mut driver);
    assert_eq!(*received.borrow(), [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
    assert_eq!(net.conns_count(), 0);
}

#[test]
fn every_peer_of_a_resetting_network_gets_a_reset() {
    let config = SimConfig { reset_per_mille: 1000, ..SimConfig::hostile() };
    let net = SimNet::new(4, config);
    let mut driver = net.driver(LIMITS).expect("sensible limits");
    let listener = driver.listen(&server_address()).expect("the address is free");
    let at = driver.local_addr(listener).expect("just opened");
    let diaries: Vec<Diary> = (0..8).map(|_| Diary::default()).collect();
    for diary in &diaries {
        net.connect(&at, 0, Talker::boxed(&[1; 200_000], diary).0);
    }
    run_echo(&net, &mut driver);
    assert!(diaries.iter().all(|diary| diary.borrow().ends_with('r')), "{diaries:?}");
    assert_eq!(net.conns_count(), 0);
}

#[test]
fn a_connect_without_a_listener_is_reset() {
    let net = SimNet::new(5, SimConfig::default());
    let mut driver = net.driver(LIMITS).expect("sensible limits");
    let diary = Diary::default();
    net.connect(&"127.0.0.1:9".parse().expect("an endpoint"), 0, Talker::boxed(b"", &diary).0);
    run_echo(&net, &mut driver);
    assert_eq!(*diary.borrow(), "r");
}

/// Connects to a server in a state and returns the driver's events, without the times.
fn connect_while(reach: Reachability, until: Option<u64>) -> (Vec<String>, String) {
    let net = SimNet::new(6, SimConfig::default());
    let mut driver = net.driver(LIMITS).expect("sensible limits");
    let diary = Diary::default();
    let in_factory = Rc::clone(&diary);
    let at = net.serve(&server_address(), move |_| Some(Talker::boxed(b"hi", &in_factory).0));
    net.set_reachability(&at, reach);
    if let Some(at_ns) = until {
        net.set_reachability_at(at_ns, &at, Reachability::Up);
    }
    driver.connect(&at).expect("the table is empty");
    let log = run_echo(&net, &mut driver);
    let names = log.iter().map(|line| line.split([' ', '(']).nth(1).unwrap_or_default().to_owned());
    let diary = diary.borrow().clone();
    (names.collect(), diary)
}

#[test]
fn a_server_that_is_up_answers() {
    let (log, diary) = connect_while(Reachability::Up, None);
    assert_eq!((log.join(" "), diary.as_str()), ("Connected Handle Eof".into(), "odte"));
}

#[test]
fn a_refusing_server_fails_the_connect() {
    let (log, diary) = connect_while(Reachability::Refuse, None);
    assert_eq!((log.join(" "), diary.as_str()), ("Failed".into(), ""));
}

#[test]
fn a_black_hole_delivers_nothing_until_it_ends() {
    assert_eq!(connect_while(Reachability::BlackHole, None), (vec![], String::new()));
    let (log, diary) = connect_while(Reachability::BlackHole, Some(1_000_000_000));
    assert_eq!((log.join(" "), diary.as_str()), ("Connected Handle Eof".into(), "odte"));
}

#[test]
fn a_killed_server_resets_its_connections() {
    let net = SimNet::new(7, SimConfig::default());
    let mut driver = net.driver(LIMITS).expect("sensible limits");
    let at = net.serve(&server_address(), |_| Some(Talker::boxed(b"", &Diary::default()).0));
    net.kill_at(1_000_000, &at);
    let conn = driver.connect(&at).expect("the table is empty");
    let log = run_echo(&net, &mut driver);
    let last = log.last().expect("something happened");
    assert!(
        last.ends_with(&format!("{:?}", DriverEvent::Failed { conn, fault: ConnFault::Reset })),
        "{last}"
    );
}

#[test]
fn a_peer_that_pauses_fills_window_and_backlog() {
    struct Sleeper;
    impl Actor for Sleeper {
        fn on_open(&mut self, io: &mut PeerIo<'_>) {
            io.pause_reading(true);
            io.timer(1_000_000_000, 0);
        }
        fn on_data(&mut self, io: &mut PeerIo<'_>, _: &[u8]) {
            assert!(io.now_ns() >= 1_000_000_000, "a paused peer reads nothing");
        }
        fn on_timer(&mut self, io: &mut PeerIo<'_>, _: u64) {
            io.pause_reading(false);
        }
    }
    let net = SimNet::new(8, SimConfig { window_bytes: 10_000, ..SimConfig::default() });
    let mut driver = net.driver(LIMITS).expect("sensible limits");
    let at = net.serve(&server_address(), |_| Some(Box::new(Sleeper)));
    let pool = pool();
    let buf = pool.alloc(flick_buffers::BufClass::Large).expect("the pool is fresh");
    buf.append(&[7; 16_000]);
    driver.set_watermarks(16_000, 1000);
    let conn = driver.connect(&at).expect("the table is empty");
    driver.send(conn, buf.slice(0..16_000));
    let mut events = Vec::new();
    driver.poll(&pool, Some(Duration::from_millis(10)), &mut events).expect("the simulator polls");
    driver.poll(&pool, Some(Duration::from_millis(10)), &mut events).expect("the simulator polls");
    assert_eq!(driver.backlog_bytes(conn), 6_000, "{events:?}");
    assert!(net.now_ns() < 1_000_000_000);
    events.clear();
    while events.is_empty() {
        driver.poll(&pool, None, &mut events).expect("the simulator polls");
    }
    assert!(matches!(events[..], [DriverEvent::Drained { .. }]), "{events:?}");
    assert!(net.now_ns() >= 1_000_000_000 && driver.backlog_bytes(conn) == 0);
}

#[test]
fn time_passes_no_further_than_a_poll_may_wait() {
    let net = SimNet::new(9, SimConfig::default());
    let mut driver = net.driver(LIMITS).expect("sensible limits");
    let mut events = Vec::new();
    driver.poll(&pool(), Some(Duration::from_secs(3)), &mut events).expect("the simulator polls");
    assert!((3_000_000_000..3_000_010_000).contains(&driver.now_ns()) && events.is_empty());
    driver.waker().wake();
    driver.poll(&pool(), None, &mut events).expect("the simulator polls");
    assert!(matches!(events[..], [DriverEvent::Woken]));
}

#[test]
fn a_failing_accept_pauses_the_listener() {
    let net = SimNet::new(10, SimConfig::default());
    let mut driver = net.driver(LIMITS).expect("sensible limits");
    let listener = driver.listen(&server_address()).expect("the address is free");
    let at = driver.local_addr(listener).expect("just opened");
    net.fail_next_accept(24);
    net.connect(&at, 0, Talker::boxed(b"x", &Diary::default()).0);
    let log = run_echo(&net, &mut driver);
    assert!(log.len() == 1 && log[0].contains("AcceptFailed"), "{log:?}");
    driver.accept(listener, true);
    let log = run_echo(&net, &mut driver);
    assert!(log.iter().any(|line| line.contains("Accepted")), "{log:?}");
}

#[test]
fn peers_in_the_backlog_of_a_finished_listener_are_delivered() {
    let net = SimNet::new(1, SimConfig::default());
    let mut driver = net.driver(LIMITS).expect("sensible limits");
    let listener = driver.listen(&server_address()).expect("the address is free");
    let at = driver.local_addr(listener).expect("just opened");
    let (early, late) = (Diary::default(), Diary::default());
    driver.accept(listener, false);
    let (talker, received) = Talker::boxed(b"abc", &early);
    net.connect(&at, 0, talker);
    while early.borrow().is_empty() {
        driver.poll(&pool(), Some(Duration::from_millis(1)), &mut Vec::new()).expect("the simulator polls");
    }
    driver.finish_listener(listener);
    assert!(driver.is_draining_listeners());
    net.connect(&at, 0, Talker::boxed(b"abc", &late).0);
    run_echo(&net, &mut driver);
    assert_eq!(received.borrow().concat(), b"abc");
    assert_eq!(*late.borrow(), "r", "the address is closed for those that connect later");
    assert!(!driver.is_draining_listeners());
}
