//! An embedded memcached-speaking store: one thread, one epoll loop, the binary protocol.
//!
//! Promises: passes `memccapable -b`; memory is bounded by [`StoreConfig`] and [`crate::limits`]; an idle connection
//! holds no buffer; the replies of one readiness event are sent in one write; the store stops reading from a client
//! that does not read.
//! Refuses: the text protocol, UDP, authentication.
//! Source: the protocol as in [`crate::binary`]; behaviour compared with memcached 1.6.

mod command;
mod connection;
mod table;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use crate::limits::{ACCEPTS_PER_LOOP_MAX, EVENTS_MAX, STORE_READ_BYTES};
use command::{RequestCounts, RequestHandler};
use connection::{Connection, Served};
use table::Table;

const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;

/// The bounds of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// Address to listen on; port 0 takes a free one.
    pub addr: SocketAddr,
    /// Most items; a write beyond evicts the oldest.
    pub entries_max: usize,
    /// Most bytes of items, including the store's own cost per item.
    pub bytes_max: usize,
    /// Open connections; one more is accepted and closed at once.
    pub connections_max: usize,
}

impl StoreConfig {
    /// Returns the usual bounds: 1,048,576 items, 256 MiB, 16,384 connections.
    pub fn new(addr: SocketAddr) -> StoreConfig {
        StoreConfig { addr, entries_max: 1 << 20, bytes_max: 256 << 20, connections_max: 16 << 10 }
    }
}

/// Counters of a store since its start; written once per iteration of its loop.
#[derive(Debug, Default)]
pub struct StoreCounters {
    /// Requests answered, or rightly left without reply.
    pub requests: AtomicU64,
    /// Reads.
    pub gets: AtomicU64,
    /// Reads that found their item.
    pub hits: AtomicU64,
    /// Writes of values.
    pub sets: AtomicU64,
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Connections closed at once because there were too many.
    pub refused: AtomicU64,
    /// Connections open now.
    pub open: AtomicU64,
    /// Requests that broke the protocol.
    pub faults: AtomicU64,
    /// Items evicted for others.
    pub evictions: AtomicU64,
}

/// Starts stores.
#[derive(Debug)]
pub struct EmbeddedStore;

impl EmbeddedStore {
    /// Starts a store of the usual size on `addr`; port 0 takes a free port, which [`StoreHandle::addr`] returns.
    ///
    /// Errors: those of bind(2), or no descriptor is left.
    pub fn start(addr: SocketAddr) -> io::Result<StoreHandle> {
        EmbeddedStore::start_with(StoreConfig::new(addr))
    }

    /// Starts a store as configured.
    ///
    /// Errors: as for [`EmbeddedStore::start`].
    pub fn start_with(config: StoreConfig) -> io::Result<StoreHandle> {
        let listener = TcpListener::bind(config.addr)?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            waker: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            counters: StoreCounters::default(),
        });
        let server = Server::new(config, listener, Arc::clone(&shared))?;
        let thread =
            std::thread::Builder::new().name(format!("store-{}", addr.port())).spawn(move || server.run())?;
        Ok(StoreHandle { addr, shared, thread: Some(thread) })
    }
}

/// A running store; dropping it stops the store.
#[derive(Debug)]
pub struct StoreHandle {
    addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl StoreHandle {
    /// Returns the address the store listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the live counters.
    pub fn counters(&self) -> &StoreCounters {
        &self.shared.counters
    }

    /// Closes every connection and waits for the thread to end.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // An eventfd refuses a write only when its count is full; then the loop is being woken already.
        let _ = rustix::io::write(&self.shared.waker, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the store's loop does not panic");
        }
    }
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    waker: OwnedFd,
    counters: StoreCounters,
}

/// The loop's own state, owned by its thread.
struct Server {
    config: StoreConfig,
    shared: Arc<Shared>,
    epoll: OwnedFd,
    listener: TcpListener,
    /// False while out of descriptors: the listener is then not watched, until a connection closes.
    accepting: bool,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    open: usize,
    handler: RequestHandler,
    recv: Box<[u8]>,
    out: Vec<u8>,
    published: RequestCounts,
}

impl Server {
    fn new(config: StoreConfig, listener: TcpListener, shared: Arc<Shared>) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &shared.waker, EventData::new_u64(WAKER), EventFlags::IN)?;
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), config.addr);
        let table = Table::new(config.entries_max, config.bytes_max, seed);
        Ok(Server {
            config,
            shared,
            epoll,
            listener,
            accepting: true,
            connections: Vec::new(),
            free: Vec::new(),
            open: 0,
            handler: RequestHandler::new(table, unix_s()),
            recv: vec![0; STORE_READ_BYTES].into_boxed_slice(),
            out: Vec::with_capacity(STORE_READ_BYTES),
            published: RequestCounts::default(),
        })
    }

    fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        while !self.shared.stop.load(Ordering::Acquire) {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => panic!("epoll_wait on a live descriptor: {errno}"),
            }
            let now_s = unix_s();
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    WAKER => {}
                    index => self.serve(index as usize, event.flags, now_s),
                }
            }
            self.publish();
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_LOOP_MAX {
            let stream = match self.listener.accept() {
                Ok((stream, _peer)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if out_of_descriptors(&error) && self.open > 0 => {
                    self.accepting = epoll::delete(&self.epoll, &self.listener).is_err();
                    return;
                }
                // The peer closed between its connect and our accept; the next one is unaffected.
                Err(_) => continue,
            };
            if self.open == self.config.connections_max {
                self.shared.counters.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let index = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            // A socket that cannot be set up is dropped, and so closed: its peer sees a failed connect.
            let Ok(connection) = Connection::open(&self.epoll, stream, index as u64) else {
                self.free.push(index);
                continue;
            };
            self.connections[index] = Some(connection);
            self.open += 1;
            self.shared.counters.accepted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn serve(&mut self, index: usize, flags: EventFlags, now_s: u64) {
        // An earlier event of this iteration may have closed the connection.
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return };
        let mut ctx = connection::ServeContext {
            epoll: &self.epoll,
            handler: &mut self.handler,
            recv: &mut self.recv,
            out: &mut self.out,
            now_s,
        };
        if connection.serve(&mut ctx, flags) == Served::Closed {
            self.connections[index] = None;
            self.free.push(index);
            self.open -= 1;
            if !self.accepting {
                let watch = EventData::new_u64(LISTENER);
                self.accepting = epoll::add(&self.epoll, &self.listener, watch, EventFlags::IN).is_ok();
            }
        }
    }

    /// Publishes the counters that this iteration has changed.
    fn publish(&mut self) {
        let (counters, counts) = (&self.shared.counters, self.handler.counts);
        counters.open.store(self.open as u64, Ordering::Relaxed);
        if counts != self.published {
            counters.requests.store(counts.requests, Ordering::Relaxed);
            counters.gets.store(counts.gets, Ordering::Relaxed);
            counters.hits.store(counts.hits, Ordering::Relaxed);
            counters.sets.store(counts.sets, Ordering::Relaxed);
            counters.faults.store(counts.faults, Ordering::Relaxed);
            counters.evictions.store(self.handler.table.evictions(), Ordering::Relaxed);
            self.published = counts;
        }
    }
}

fn out_of_descriptors(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    matches!(errno, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}

/// Returns the seconds since 1970, the clock of clients' expiries.
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs())
}
