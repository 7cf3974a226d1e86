//! Tests of a worker on a scripted driver: connections whose numbers are reused within one batch of events.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use flick_buffers::{BufClass, Pool, Slice};
use flick_net::{ConnFault, Detached, Driver, DriverEvent, Endpoint, Handle, ListenerId, PeerAddr};

use crate::config::{Binding, Limits, PlatformConfig};
use crate::observe::counters::{BackendCounters, Counters};
use crate::observe::edge_counters::EdgeCounters;
use crate::setup::Setup;
use crate::shared::Shared;
use crate::shared::handoff::{HandedConn, Successor};
use crate::state::{Origin, State};
use crate::tunables::TunableChanges;
use crate::worker::{Worker, WorkerConfig};

/// The first connection is to the backend; when it has failed its number is the next one's.
const BACKEND: Handle = Handle { index: 0, generation: 0 };
const CLIENT: Handle = Handle { index: 0, generation: 1 };

/// The status of a reply in its backend's place.
const UNAVAILABLE: u8 = 0x86;

/// Step of the script within one poll.
enum Happens {
    DriverEvent(DriverEvent),
    Bytes(Handle, Vec<u8>),
    /// The machine stands still before this poll ends.
    Pause(Duration),
}

/// Plays a script, and keeps what was sent.
#[derive(Default)]
struct Script {
    polls: VecDeque<Vec<Happens>>,
    now_ns: u64,
    sent: Vec<(Handle, Vec<u8>)>,
    aborted: Vec<Handle>,
    accepts_max: u32,
    waiting: Vec<Handle>,
    is_lost: bool,
}

impl Driver for Script {
    fn listen(&mut self, _at: &Endpoint) -> io::Result<ListenerId> {
        Ok(ListenerId(0))
    }
    fn local_addr(&self, _listener: ListenerId) -> io::Result<Endpoint> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn accept(&mut self, _listener: ListenerId, _on: bool) {}
    fn limit_accepts(&mut self, most: u32) {
        self.accepts_max = most;
    }
    fn wait_for_session(&mut self, conn: Handle) {
        self.waiting.push(conn);
    }
    fn close_listener(&mut self, _listener: ListenerId) {}
    fn connect(&mut self, _to: &Endpoint) -> io::Result<Handle> {
        if self.is_lost { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(BACKEND) }
    }
    fn adopt(&mut self, _socket: OwnedFd) -> io::Result<Handle> {
        Ok(CLIENT)
    }
    fn detach(&mut self, _conn: Handle) -> Detached {
        let (socket, _) = UnixStream::pair().expect("a pair of sockets");
        Detached::Socket(socket.into())
    }
    fn receive(&mut self, _conn: Handle, _on: bool) {}
    fn send(&mut self, conn: Handle, data: Slice) {
        self.sent.push((conn, data.bytes().to_vec()));
    }
    fn backlog_bytes(&self, _conn: Handle) -> usize {
        0
    }
    fn pinned_bytes(&self, _conn: Handle) -> u64 {
        0
    }
    fn is_flushing(&self) -> bool {
        false
    }
    fn set_watermarks(&mut self, _high_bytes: usize, _low_bytes: usize) {}
    fn shutdown(&mut self, _conn: Handle) {}
    fn close(&mut self, _conn: Handle) {}
    fn abort(&mut self, conn: Handle) {
        self.aborted.push(conn);
    }
    fn now_ns(&self) -> u64 {
        self.now_ns
    }
    fn poll(
        &mut self,
        pool: &Pool,
        _timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> io::Result<()> {
        self.now_ns += 1_000_000;
        for happens in self.polls.pop_front().unwrap_or_default() {
            match happens {
                Happens::DriverEvent(event) => {
                    self.is_lost |= matches!(event, DriverEvent::Failed { .. });
                    events.push(event);
                }
                Happens::Bytes(conn, bytes) => {
                    let buf = pool.alloc(BufClass::Small).expect("there are buffers");
                    buf.append(&bytes);
                    events.push(DriverEvent::Data { conn, data: buf.slice(0..buf.len()) });
                }
                Happens::Pause(length) => self.now_ns += length.as_nanos() as u64,
            }
        }
        Ok(())
    }
}

fn worker(script: Script, shared: &Arc<Shared>) -> Worker<Script> {
    worker_with(script, shared, Arc::default())
}

fn worker_with(script: Script, shared: &Arc<Shared>, counters: Arc<Counters>) -> Worker<Script> {
    let program = common::program();
    let any: Endpoint = "127.0.0.1:1".parse().expect("an address");
    let bind = |channel: &str| vec![Binding::new(channel, vec![any.clone()])];
    let config = PlatformConfig {
        limits: Limits {
            max_connections: 4,
            buffer_memory: 16 << 20,
            max_dedicated_connections: 1,
            ..Limits::default()
        },
        ..PlatformConfig::new(bind("client"), bind("backends"))
    };
    let state = State::new(&program, 1, Origin::Simulated(1)).expect("it has no dictionaries");
    let edge_counters = Arc::new(EdgeCounters::of(&program));
    let config = WorkerConfig {
        service: "Hand".to_owned(),
        edge_counters,
        setup: Arc::new(Setup::new(program, Arc::new(common::Hand), &config).expect("it fits")),
        shared: Arc::clone(shared),
        state: Arc::new(state),
        counters,
        backend_counters: Arc::new(vec![BackendCounters::default()]),
        index: 0,
        workers: 1,
        hub: None,
        access: None,
        seed: 1,
        time_slices: false,
    };
    let mut worker = Worker::new(script, config);
    worker.start();
    worker
}

/// A get of one key with this opaque.
fn get(opaque: u8) -> Vec<u8> {
    let mut bytes = vec![0; 25];
    (bytes[0], bytes[3], bytes[11], bytes[15], bytes[24]) = (0x80, 1, 1, opaque, b'k');
    bytes
}

fn iteration(worker: &mut Worker<Script>) {
    assert!(worker.run_once(Some(Duration::ZERO)).expect("no poll fails"), "the worker goes on");
}

/// Replies that a client got, as opaque and status of each reply without a body.
fn replies_to(worker: &mut Worker<Script>, client: Handle) -> Vec<(u8, u8)> {
    let sent = worker.driver().sent.iter().filter(|(conn, _)| *conn == client);
    let bytes: Vec<u8> = sent.flat_map(|(_, bytes)| bytes.clone()).collect();
    bytes.chunks(24).map(|reply| (reply[15], reply[7])).collect()
}

#[test]
fn a_client_adopted_while_a_backend_fails_is_served() {
    let failed = DriverEvent::Failed { conn: BACKEND, fault: ConnFault::Reset };
    let mut script = Script::default();
    script.polls.push_back(vec![Happens::DriverEvent(DriverEvent::Connected { conn: BACKEND })]);
    script.polls.push_back(vec![Happens::DriverEvent(DriverEvent::Woken), Happens::DriverEvent(failed)]);
    for opaque in 1..=8 {
        script.polls.push_back(vec![Happens::Bytes(CLIENT, get(opaque))]);
    }
    let shared = Arc::new(Shared::new(1, None));
    let mut worker = worker(script, &shared);
    iteration(&mut worker);
    hand_client_over(&shared);
    (0..20).for_each(|_| iteration(&mut worker));
    let expected: Vec<_> = (1..=8).map(|opaque| (opaque, UNAVAILABLE)).collect();
    assert_eq!(replies_to(&mut worker, CLIENT), expected, "each is answered that the backend is unavailable");
}

fn client(shared: &Shared) -> HandedConn {
    let (socket, _) = UnixStream::pair().expect("a pair of sockets");
    let counted = Some(shared.session_count().clone());
    HandedConn { socket: socket.into(), peer: PeerAddr::Unix, counted }
}

/// A client with a session comes to the worker.
fn hand_client_over(shared: &Shared) {
    shared.session_count().add();
    let intake = shared.intake(0).expect("the worker's");
    assert!(intake.leave(client(shared)).is_ok(), "the worker lives");
}

/// A successor that has ended.
#[derive(Debug)]
struct Ended;

impl Successor for Ended {
    fn take(&self, _worker: usize, client: HandedConn) -> Result<(), HandedConn> {
        Err(client)
    }
}

#[test]
fn client_that_no_successor_took_was_closed() {
    let failed = DriverEvent::Failed { conn: BACKEND, fault: ConnFault::Reset };
    let mut script = Script::default();
    script.polls.push_back(vec![Happens::DriverEvent(DriverEvent::Connected { conn: BACKEND })]);
    script.polls.push_back(vec![Happens::DriverEvent(DriverEvent::Woken), Happens::DriverEvent(failed)]);
    // The worker tries to hand the client over, and takes it back.
    script.polls.push_back(vec![]);
    script.polls.push_back(vec![Happens::DriverEvent(DriverEvent::Woken)]);
    script.polls.push_back(vec![Happens::Bytes(CLIENT, get(1))]);
    let shared = Arc::new(Shared::new(1, None));
    let mut worker = worker(script, &shared);
    iteration(&mut worker);
    hand_client_over(&shared);
    iteration(&mut worker);
    shared.replace(Duration::from_secs(1), Arc::new(Ended));
    iteration(&mut worker);
    shared.drain(Duration::from_secs(1));
    (0..10).for_each(|_| iteration(&mut worker));
    assert_eq!(replies_to(&mut worker, CLIENT), [(1, UNAVAILABLE)], "the worker answers as it drains");
    assert_eq!(shared.session_count().sessions(), 1, "its session counts once");
}

/// A worker with one client, whose request is never answered.
fn with_client(shared: &Arc<Shared>, counters: &Arc<Counters>) -> Worker<Script> {
    let mut script = Script::default();
    script.polls.extend([up(), vec![Happens::Bytes(FIRST_CLIENT, get(1))]]);
    let mut worker = worker_with(script, shared, Arc::clone(counters));
    (0..3).for_each(|_| iteration(&mut worker));
    assert_eq!((shared.session_count().sessions(), counters.connections_open.get()), (1, 1));
    worker
}

/// The service that replaces this one has the same session slots: after a few reloads it accepted no client.
#[test]
fn clients_that_were_cut_off_kept_their_session_slots() {
    let shared = Arc::new(Shared::new(1, None));
    let counters = Arc::<Counters>::default();
    let mut worker = with_client(&shared, &counters);
    shared.drain(Duration::from_millis(10));
    let mut ends = (0..2_000).map(|_| worker.run_once(Some(Duration::ZERO)).expect("no poll fails"));
    assert!(ends.any(|goes_on| !goes_on), "the deadline ends it");
    assert_eq!(counters.connections_open.get(), 1, "its client waits for a reply still");
    drop(worker);
    assert_eq!((shared.session_count().sessions(), counters.connections_open.get()), (0, 0));
}

#[test]
fn worker_that_panicked_kept_the_session_slots_of_its_clients() {
    let shared = Arc::new(Shared::new(1, None));
    let worker = with_client(&shared, &Arc::default());
    hand_client_over(&shared);
    assert_eq!(shared.session_count().sessions(), 2, "one is in its queue");
    // As an unwound stack does.
    drop(worker);
    assert_eq!(shared.session_count().sessions(), 0);
    let intake = shared.intake(0).expect("the worker's");
    assert!(intake.leave(client(&shared)).is_err(), "no worker takes clients from its queue");
}

#[test]
fn session_list_waited_for_a_worker_that_had_ended() {
    let shared = Arc::new(Shared::new(1, None));
    let worker = with_client(&shared, &Arc::default());
    let until = std::time::Instant::now() + Duration::from_secs(60);
    let ask = || shared.question(0).expect("the worker's").ask(until);
    let before = ask();
    drop(worker);
    for answer in [before, ask()] {
        assert_eq!(answer.try_recv().err(), Some(TryRecvError::Disconnected), "there will be no answer");
    }
}

#[test]
fn a_reply_that_arrived_while_the_machine_was_paused_is_not_late() {
    for polls_between in 0..3 {
        check_pause(polls_between);
    }
}

/// The client of these tests: the backend connection has the first number.
const FIRST_CLIENT: Handle = Handle { index: 1, generation: 0 };

/// The backend is connected, and the client accepted.
fn up() -> Vec<Happens> {
    let accepted =
        DriverEvent::Accepted { listener: ListenerId(0), conn: FIRST_CLIENT, peer: PeerAddr::Unix };
    vec![Happens::DriverEvent(DriverEvent::Connected { conn: BACKEND }), Happens::DriverEvent(accepted)]
}

/// Script of `first`, a long pause, `due` in the poll that is `polls_between` after it, then `rest` and another long
/// pause.
fn pausing(first: Happens, polls_between: usize, due: Happens, rest: Vec<Happens>) -> Script {
    let pause = || vec![Happens::Pause(Duration::from_secs(60))];
    let mut behind = vec![pause()];
    behind.resize_with(polls_between + 1, Vec::new);
    behind[polls_between].push(due);
    let mut script = Script::default();
    script.polls.extend([up(), vec![first], vec![]]);
    script.polls.extend(behind);
    script.polls.extend(rest.into_iter().map(|happens| vec![happens]));
    script.polls.extend([pause(), pause()]);
    script
}

/// The backend's reply to its first request: there requests have numbers of their own, from 0.
fn first_reply() -> Happens {
    let mut reply = get(0)[..24].to_vec();
    (reply[0], reply[3], reply[11]) = (0x81, 0, 0);
    Happens::Bytes(BACKEND, reply)
}

fn play(script: Script) -> Worker<Script> {
    let mut worker = worker(script, &Arc::new(Shared::new(1, None)));
    (0..12).for_each(|_| iteration(&mut worker));
    worker
}

/// Checks a reply that arrives `polls_between` polls after the machine was paused, and one that never arrives.
fn check_pause(polls_between: usize) {
    let asks = |opaque| Happens::Bytes(FIRST_CLIENT, get(opaque));
    let mut worker = play(pausing(asks(7), polls_between, first_reply(), vec![asks(8)]));
    assert_eq!(
        replies_to(&mut worker, FIRST_CLIENT),
        [(7, 0), (8, UNAVAILABLE)],
        "the first had its reply, the second had none"
    );
}

#[test]
fn a_request_that_arrived_while_the_machine_was_paused_is_not_late() {
    for polls_between in 0..3 {
        check_pause_of_client(polls_between);
    }
}

/// Checks a request whose second half arrives `polls_between` polls after the machine was paused, and one whose second
/// half never arrives.
fn check_pause_of_client(polls_between: usize) {
    let half =
        |opaque, part: std::ops::Range<usize>| Happens::Bytes(FIRST_CLIENT, get(opaque)[part].to_vec());
    let rest = vec![first_reply(), half(8, 0..12)];
    let mut worker = play(pausing(half(7, 0..12), polls_between, half(7, 12..25), rest));
    assert_eq!(replies_to(&mut worker, FIRST_CLIENT), [(7, 0)], "the first had its reply");
    assert_eq!(worker.driver().aborted, [FIRST_CLIENT], "the second had no more time");
}

#[test]
fn a_tunable_takes_effect_in_the_next_iteration() {
    let mut worker = worker(Script::default(), &Arc::new(Shared::new(1, None)));
    worker.clock.allow_waiting();
    iteration(&mut worker);
    assert_eq!(worker.clock.busy_poll_max_ns(), 0, "the default is to sleep at once");
    let changes = TunableChanges { busy_poll: Some(Duration::from_micros(3)), ..Default::default() };
    worker.ctx.setup().tunables.set(&changes).expect("3 us are in range");
    assert_eq!(worker.clock.busy_poll_max_ns(), 0, "an iteration has one value");
    iteration(&mut worker);
    assert_eq!(worker.clock.busy_poll_max_ns(), 3_000);
}

/// Clients that the driver accepts and the worker has no session for are served in the order of their arrival, so that
/// a process with many has all sessions that end.
#[test]
fn driver_accepted_connections_that_got_no_session() {
    let accepted = |index| {
        let conn = Handle { index, generation: 0 };
        Happens::DriverEvent(DriverEvent::Accepted { listener: ListenerId(0), conn, peer: PeerAddr::Shm })
    };
    let mut script = Script::default();
    script.polls.push_back(vec![accepted(1), accepted(2), accepted(3)]);
    script.polls.push_back(vec![accepted(4)]);
    // Another worker may have the last session.
    script.polls.push_back(vec![accepted(5)]);
    let mut worker = worker(script, &Arc::new(Shared::new(1, None)));
    let accepts_max = [4, 1, 1].map(|_| {
        iteration(&mut worker);
        worker.driver().accepts_max
    });
    assert_eq!(
        accepts_max,
        [4, 1, 1],
        "as many as there are sessions, and one that shows that there is none"
    );
    assert_eq!(worker.driver().waiting, [Handle { index: 5, generation: 0 }]);
}
