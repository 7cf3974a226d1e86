//! A driver that moves no bytes, and a worker on it: what a request costs the platform without the kernel.
//! Promises: no system call; every client has one request in flight; the backend answers at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use flick_abi::Engine;
use flick_buffers::{Buf, BufClass, Pool, Slice};
use flick_net::{Driver, DriverEvent, Endpoint, Handle, ListenerId, PeerAddr};
use flick_runtime::access_log::AccessLog;
use flick_runtime::edge_counters::EdgeCounters;
use flick_runtime::state::{Origin, State};
use flick_runtime::{
    BackendCounters, Binding, Counters, Limits, PlatformConfig, Setup, Shared, Worker, WorkerConfig,
};

/// Clients, each with one request at a time.
pub const CLIENTS: u32 = 64;
const HEADER: usize = 24;
const KEY: &[u8] = b"a key of 20 bytes...";

/// Hands out requests and answers them, without any system call.
pub struct Wire {
    now_ns: u64,
    backend: Option<Handle>,
    is_connected: bool,
    accepted: bool,
    requests: Option<Buf>,
    replies: Option<Buf>,
    asked: Vec<u8>,
    /// Replies that clients have got.
    pub replied: u32,
}

fn client(index: u32) -> Handle {
    Handle { index, generation: 0 }
}

impl Wire {
    fn request(index: u32) -> [u8; HEADER + 20] {
        let mut bytes = [0; HEADER + 20];
        bytes[0] = 0x80;
        bytes[3] = KEY.len() as u8;
        bytes[11] = KEY.len() as u8;
        bytes[12..16].copy_from_slice(&index.to_be_bytes());
        bytes[HEADER..].copy_from_slice(KEY);
        bytes
    }

    /// Returns the backend's replies to the requests that it was sent since the last call.
    fn answer(&mut self, pool: &Pool) -> Slice {
        let replies = pool.alloc(BufClass::Large).expect("there are buffers");
        for request in self.asked.chunks(HEADER + KEY.len()) {
            let mut reply = [0; HEADER + 8];
            reply[0] = 0x81;
            reply[1] = request[1];
            reply[11] = 8;
            reply[12..16].copy_from_slice(&request[12..16]);
            replies.append(&reply);
        }
        self.asked.clear();
        let all = replies.slice(0..replies.len());
        self.replies = Some(replies);
        all
    }
}

impl Driver for Wire {
    fn listen(&mut self, _at: &Endpoint) -> io::Result<ListenerId> {
        Ok(ListenerId(0))
    }
    fn local_addr(&self, _listener: ListenerId) -> io::Result<Endpoint> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn accept(&mut self, _listener: ListenerId, _on: bool) {}
    fn close_listener(&mut self, _listener: ListenerId) {}
    fn connect(&mut self, _to: &Endpoint) -> io::Result<Handle> {
        let backend = client(CLIENTS);
        self.backend = Some(backend);
        Ok(backend)
    }
    fn receive(&mut self, _conn: Handle, _on: bool) {}
    fn send(&mut self, conn: Handle, data: Slice) {
        if Some(conn) == self.backend {
            self.asked.extend_from_slice(data.bytes());
        } else {
            self.replied += 1;
        }
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
    fn abort(&mut self, _conn: Handle) {
        panic!("nothing goes wrong here");
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
        self.now_ns += 10_000;
        if !self.accepted {
            self.accepted = true;
            let accepted = |index| DriverEvent::Accepted {
                listener: ListenerId(0),
                conn: client(index),
                peer: PeerAddr::Unix,
            };
            events.extend((0..CLIENTS).map(accepted));
        } else if let Some(conn) = self.backend.filter(|_| !self.is_connected) {
            self.is_connected = true;
            events.push(DriverEvent::Connected { conn });
        } else if !self.asked.is_empty() {
            let data = self.answer(pool);
            events.extend(self.backend.map(|conn| DriverEvent::Data { conn, data }));
        } else {
            let requests = pool.alloc(BufClass::Large).expect("there are buffers");
            for index in 0..CLIENTS {
                let start = requests.len();
                let request = Self::request(index);
                requests.append(&request);
                let data = requests.slice(start..start + request.len() as u32);
                events.push(DriverEvent::Data { conn: client(index), data });
            }
            self.requests = Some(requests);
        }
        Ok(())
    }
}

/// A worker with all its clients connected, and an access log if that is wanted.
pub fn worker(
    program: Arc<flick_abi::Program>,
    engine: Arc<dyn Engine>,
    access: Option<&AccessLog>,
) -> Worker<Wire> {
    let any: Endpoint = "127.0.0.1:1".parse().expect("an address");
    let bind = |channel: &str| vec![Binding::new(channel, vec![any.clone()])];
    let limits = Limits {
        max_connections: CLIENTS,
        buffer_memory: 64 << 20,
        max_dedicated_connections: 1,
        ..Limits::default()
    };
    let config = PlatformConfig { limits, ..PlatformConfig::new(bind("client"), bind("backends")) };
    let state = State::new(&program, 1, Origin::Simulated(1)).expect("it has no dictionaries");
    let wire = Wire {
        now_ns: 0,
        backend: None,
        is_connected: false,
        accepted: false,
        requests: None,
        replies: None,
        asked: Vec::with_capacity(1 << 20),
        replied: 0,
    };
    let edge_counters = Arc::new(EdgeCounters::of(&program));
    let worker_config = WorkerConfig {
        service: "wire".to_owned(),
        setup: Arc::new(Setup::new(program, engine, &config).expect("it fits")),
        shared: Arc::new(Shared::default()),
        state: Arc::new(state),
        counters: Arc::new(Counters::default()),
        backend_counters: Arc::new(vec![BackendCounters::default()]),
        edge_counters,
        index: 0,
        workers: 1,
        hub: None,
        access: access.map(|access| access.sink("measured", 0)),
        seed: 1,
        time_slices: false,
    };
    let mut worker = Worker::new(wire, worker_config);
    worker.start();
    for _ in 0..100 {
        worker.run_once(Some(Duration::ZERO)).expect("iterations do not fail");
    }
    worker
}
