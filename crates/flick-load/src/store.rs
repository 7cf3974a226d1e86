//! An embedded memcached-speaking store: one thread, one epoll loop, the binary protocol.
//!
//! Promises: passes `memccapable -b`; memory is bounded by [`StoreConfig`] and [`crate::limits`]; an idle connection
//! holds no buffer; the replies of one readiness event leave in one write; a client that does not read is not read from.
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

use crate::limits::{ACCEPTS_PER_TURN_MAX, EVENTS_MAX, STORE_READ_BYTES};
use command::{Keeper, Tally};
use connection::{Connection, Turn};
use table::Table;

const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;

/// How large a store may become.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// Address to listen on; port 0 takes a free one.
    pub addr: SocketAddr,
    /// Items kept at most; the oldest go first.
    pub entries_max: usize,
    /// Bytes of items kept at most, with what the store itself needs per item.
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

/// What a store has done since its start; written once per turn of its loop.
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
    /// Items evicted to make room.
    pub evictions: AtomicU64,
}

/// The way to start a store.
#[derive(Debug)]
pub struct Store;

impl Store {
    /// Starts a store of the usual size on `addr`; port 0 takes a free port, told by [`StoreHandle::addr`].
    ///
    /// Errors: whatever `bind` says, or the kernel has no descriptors left.
    pub fn start(addr: SocketAddr) -> io::Result<StoreHandle> {
        Store::start_with(StoreConfig::new(addr))
    }

    /// Starts a store as configured.
    ///
    /// Errors: as for [`Store::start`].
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
        // An eventfd refuses a write only when its count is full, and then the loop is being woken already.
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
    keeper: Keeper,
    recv: Box<[u8]>,
    out: Vec<u8>,
    told: Tally,
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
            keeper: Keeper::new(table, unix_s()),
            recv: vec![0; STORE_READ_BYTES].into_boxed_slice(),
            out: Vec::with_capacity(STORE_READ_BYTES),
            told: Tally::default(),
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
            self.tell();
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let stream = match self.listener.accept() {
                Ok((stream, _peer)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if out_of_descriptors(&error) && self.open > 0 => {
                    self.accepting = epoll::delete(&self.epoll, &self.listener).is_err();
                    return;
                }
                // The peer gave up between its connect and our accept; the next one is unaffected.
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
        // An event for a connection that an earlier event of this turn has closed finds nothing here.
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return };
        let mut turn = connection::TurnContext {
            epoll: &self.epoll,
            keeper: &mut self.keeper,
            recv: &mut self.recv,
            out: &mut self.out,
            now_s,
        };
        if connection.turn(&mut turn, flags) == Turn::Closed {
            self.connections[index] = None;
            self.free.push(index);
            self.open -= 1;
            if !self.accepting {
                let watch = EventData::new_u64(LISTENER);
                self.accepting = epoll::add(&self.epoll, &self.listener, watch, EventFlags::IN).is_ok();
            }
        }
    }

    /// Publishes what this turn has changed.
    fn tell(&mut self) {
        let (counters, tally) = (&self.shared.counters, self.keeper.tally);
        counters.open.store(self.open as u64, Ordering::Relaxed);
        if tally != self.told {
            counters.requests.store(tally.requests, Ordering::Relaxed);
            counters.gets.store(tally.gets, Ordering::Relaxed);
            counters.hits.store(tally.hits, Ordering::Relaxed);
            counters.sets.store(tally.sets, Ordering::Relaxed);
            counters.faults.store(tally.faults, Ordering::Relaxed);
            counters.evictions.store(self.keeper.table.evictions(), Ordering::Relaxed);
            self.told = tally;
        }
    }
}

fn out_of_descriptors(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    matches!(errno, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}

/// Seconds since 1970, the clock in which clients express expiries.
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs())
}
