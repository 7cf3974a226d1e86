//! Copies of what passes through connections, from the workers to an observer.
//! Promises: memory is allocated by the observer, before a worker sees it; a worker never waits: what does not fit is
//! left out and counted, and the offset of each piece shows the gap; a service has one observer at a time.
//! Not here: how bytes become messages (`flick tap`).

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flick_net::{Handle, PeerAddr, TapSink, Waker};
use flick_ring::{Consumer, Producer};

use crate::limits::{TAP_PIECE_BYTES_MAX, TAP_RECORD_BYTES_MAX, TAP_RING_BYTES};

/// Bytes of a record before its payload.
pub(crate) const HEAD_BYTES: usize = 32;

/// Content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapKind {
    /// A connection is observed from here on; the payload is its peer.
    Begin = 0,
    /// Bytes from the peer.
    Received = 1,
    /// Bytes to the peer.
    Sent = 2,
    /// The connection has ended.
    End = 3,
}

/// A piece of what passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapRecord<'a> {
    /// Worker of the connection.
    pub worker: usize,
    /// The connection.
    pub conn: Handle,
    /// Content of the payload.
    pub kind: TapKind,
    /// The peer is a client, not a backend.
    pub is_client: bool,
    /// Time by the monotonic clock.
    pub at_ns: u64,
    /// Bytes that have passed in this direction since the connection is observed.
    pub offset: u64,
    /// The bytes, or the address of the peer.
    pub payload: &'a [u8],
}

/// State of the copies that observer and worker share.
#[derive(Debug, Default)]
struct TapProgress {
    dropped_bytes: AtomicU64,
    is_ended: AtomicBool,
}

/// A worker's end.
#[derive(Debug)]
pub(crate) struct TapRecorder {
    ring: Producer,
    /// By index of a connection: what is known of one that is observed.
    observed: Vec<Observed>,
    /// The one connection to observe; `None`: all clients.
    only: Option<Handle>,
    now_ns: u64,
    record: Vec<u8>,
    progress: Arc<TapProgress>,
}

/// A connection that is observed.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    /// Its generation; `None`: it is not observed.
    generation: Option<u32>,
    is_client: bool,
    received: u64,
    sent: u64,
}

impl TapRecorder {
    /// Begins to observe a connection, if it is wanted.
    pub(crate) fn begin(&mut self, conn: Handle, is_client: bool, peer: impl Display) {
        let is_wanted = self.only.map_or(is_client, |only| only == conn);
        let Some(observed) = self.observed.get_mut(conn.index as usize).filter(|_| is_wanted) else { return };
        *observed = Observed { generation: Some(conn.generation), is_client, received: 0, sent: 0 };
        self.put_head(TapKind::Begin, conn, 0);
        // Written into memory that has capacity for any address.
        let _ = write!(self.record, "{peer}");
        self.push(0);
    }

    fn observed(&mut self, conn: Handle) -> Option<&mut Observed> {
        let observed = self.observed.get_mut(conn.index as usize)?;
        (observed.generation == Some(conn.generation)).then_some(observed)
    }

    fn put_head(&mut self, kind: TapKind, conn: Handle, offset: u64) {
        let is_client = self.observed[conn.index as usize].is_client;
        self.record.clear();
        self.record.extend_from_slice(&[kind as u8, u8::from(is_client), 0, 0, 0, 0, 0, 0]);
        self.record.extend_from_slice(&conn.index.to_le_bytes());
        self.record.extend_from_slice(&conn.generation.to_le_bytes());
        self.record.extend_from_slice(&self.now_ns.to_le_bytes());
        self.record.extend_from_slice(&offset.to_le_bytes());
    }

    fn push(&mut self, bytes: u64) {
        self.record.truncate(TAP_RECORD_BYTES_MAX);
        if !self.ring.push(&self.record) {
            self.progress.dropped_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Tells the observer that nothing follows, also if the ring is full.
    fn end(&mut self) {
        // The observer looks by itself.
        let _ = self.ring.publish();
        self.progress.is_ended.store(true, Ordering::Release);
    }

    fn put(&mut self, kind: TapKind, conn: Handle, bytes: &[u8]) {
        let Some(observed) = self.observed(conn) else { return };
        let passed = if kind == TapKind::Received { &mut observed.received } else { &mut observed.sent };
        let mut offset = *passed;
        *passed += bytes.len() as u64;
        for piece in bytes.chunks(TAP_PIECE_BYTES_MAX) {
            self.put_head(kind, conn, offset);
            self.record.extend_from_slice(piece);
            self.push(piece.len() as u64);
            offset += piece.len() as u64;
        }
    }
}

impl TapSink for TapRecorder {
    fn accepted(&mut self, conn: Handle, peer: PeerAddr) {
        self.begin(conn, true, peer);
    }

    fn received(&mut self, conn: Handle, bytes: &[u8]) {
        self.put(TapKind::Received, conn, bytes);
    }

    fn sent(&mut self, conn: Handle, bytes: &[u8]) {
        self.put(TapKind::Sent, conn, bytes);
    }

    fn ended(&mut self, conn: Handle) {
        if self.observed(conn).is_some() {
            self.put_head(TapKind::End, conn, 0);
            self.push(0);
            self.observed[conn.index as usize].generation = None;
            if self.only.is_some() {
                self.end();
            }
        }
    }

    fn publish(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        // The observer looks by itself.
        let _ = self.ring.publish();
    }
}

impl Drop for TapRecorder {
    fn drop(&mut self) {
        self.end();
    }
}

/// Change for a worker: begin with a recorder, or end.
pub(crate) type TapChange = Option<Box<TapRecorder>>;

/// Place where an observer leaves a change for a worker.
#[derive(Debug, Default)]
struct TapQuery {
    is_asked: AtomicBool,
    change: Mutex<Option<TapChange>>,
}

/// Places of all workers of a service.
#[derive(Debug, Default)]
pub(crate) struct TapQueries {
    workers: Vec<TapQuery>,
    /// There is an observer.
    is_tapped: AtomicBool,
}

impl TapQueries {
    /// For that number of workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers: (0..workers).map(|_| TapQuery::default()).collect(),
            is_tapped: AtomicBool::default(),
        }
    }

    /// Takes a change for a worker; `None`: there is none.
    pub(crate) fn take(&self, worker: usize) -> Option<TapChange> {
        self.workers.get(worker)?.take()
    }
}

impl TapQuery {
    fn leave(&self, change: TapChange) {
        *self.change.lock().unwrap_or_else(PoisonError::into_inner) = Some(change);
        self.is_asked.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<TapChange> {
        if !self.is_asked.swap(false, Ordering::Acquire) {
            return None;
        }
        self.change.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The observer's end. Dropping it ends the copies.
pub struct Tap {
    queries: Arc<TapQueries>,
    feeds: Vec<TapFeed>,
    record: Vec<u8>,
}

struct TapFeed {
    worker: usize,
    ring: Consumer,
    progress: Arc<TapProgress>,
    waker: Waker,
}

impl Tap {
    /// Asks workers, each with what wakes it, for copies of one connection of a worker or of all clients.
    ///
    /// Errors: the service has an observer already.
    pub(crate) fn start(
        queries: &Arc<TapQueries>,
        wakers: &[Waker],
        handles: usize,
        only: Option<(usize, Handle)>,
    ) -> Result<Tap, &'static str> {
        if queries.is_tapped.swap(true, Ordering::AcqRel) {
            return Err("the service has a tap already");
        }
        let workers = wakers.iter().enumerate();
        let wanted = workers.filter(|(worker, _)| only.is_none_or(|(only, _)| only == *worker));
        let feeds = wanted.filter_map(|(worker, waker)| {
            let query = queries.workers.get(worker)?;
            let (producer, consumer) = flick_ring::ring(TAP_RING_BYTES);
            let progress = Arc::<TapProgress>::default();
            query.leave(Some(Box::new(TapRecorder {
                ring: producer,
                observed: vec![Observed::default(); handles],
                only: only.map(|(_, conn)| conn),
                now_ns: flick_net::monotonic_ns(),
                record: Vec::with_capacity(TAP_RECORD_BYTES_MAX),
                progress: Arc::clone(&progress),
            })));
            waker.wake();
            Some(TapFeed { worker, ring: consumer, progress, waker: waker.clone() })
        });
        let feeds = feeds.collect();
        Ok(Tap { queries: Arc::clone(queries), feeds, record: vec![0; TAP_RECORD_BYTES_MAX] })
    }

    /// Passes what was copied since the last call to `take`, of each connection oldest first: of each worker as much as
    /// a ring holds, for one that copies all the time would keep the caller for ever.
    pub fn drain(&mut self, mut take: impl FnMut(TapRecord<'_>)) {
        for feed in &mut self.feeds {
            let mut bytes = 0;
            while bytes < TAP_RING_BYTES
                && let Some(len) = feed.ring.pop(&mut self.record)
            {
                bytes += len;
                if let Some(record) = decode(feed.worker, &self.record[..len]) {
                    take(record);
                }
                // The worker does not wait for space.
                let _ = feed.ring.release();
            }
        }
    }

    /// Returns the bytes that were left out.
    pub fn dropped_bytes(&self) -> u64 {
        self.feeds.iter().map(|feed| feed.progress.dropped_bytes.load(Ordering::Relaxed)).sum()
    }

    /// Returns whether all workers, or the one connection, have ended; what was copied before may still be there.
    pub fn is_ended(&self) -> bool {
        self.feeds.iter().all(|feed| feed.progress.is_ended.load(Ordering::Acquire))
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        for feed in &self.feeds {
            if let Some(query) = self.queries.workers.get(feed.worker) {
                query.leave(None);
            }
            feed.waker.wake();
        }
        self.queries.is_tapped.store(false, Ordering::Release);
    }
}

fn decode(worker: usize, record: &[u8]) -> Option<TapRecord<'_>> {
    let (head, payload) = record.split_first_chunk::<HEAD_BYTES>()?;
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let kind = match head[0] {
        0 => TapKind::Begin,
        1 => TapKind::Received,
        2 => TapKind::Sent,
        _ => TapKind::End,
    };
    let conn = Handle { index: short(8), generation: short(12) };
    let (at_ns, offset) = (long(16), long(24));
    Some(TapRecord { worker, conn, kind, is_client: head[1] != 0, at_ns, offset, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queries() -> Arc<TapQueries> {
        Arc::new(TapQueries::new(1))
    }

    fn recorder(queries: &TapQueries) -> Box<TapRecorder> {
        queries.take(0).flatten().expect("a tap has started")
    }

    fn drained(tap: &mut Tap) -> Vec<(TapKind, u64, usize)> {
        let mut seen = Vec::new();
        tap.drain(|record| seen.push((record.kind, record.offset, record.payload.len())));
        seen
    }

    fn start(queries: &Arc<TapQueries>, only: Option<(usize, Handle)>) -> Result<Tap, &'static str> {
        let driver = flick_net::EpollDriver::new(flick_net::DriverLimits {
            conns_max: 1,
            shm_conns_max: 0,
            output_slices_max: 1,
            events_max: 64,
            receive_bytes: 1,
        });
        let waker = driver.expect("an epoll").waker();
        Tap::start(queries, &[waker], 8, only)
    }

    const CONN: Handle = Handle { index: 3, generation: 7 };
    const OTHER: Handle = Handle { index: 4, generation: 7 };

    #[test]
    fn pieces_without_space_are_counted_and_leave_a_gap() {
        let queries = queries();
        let mut tap = start(&queries, None).expect("the first tap");
        let mut recorder = recorder(&queries);
        recorder.begin(CONN, true, PeerAddr::Shm);
        recorder.begin(OTHER, false, "a backend");
        let piece = vec![0; TAP_PIECE_BYTES_MAX];
        let pieces = 2 * TAP_RING_BYTES / TAP_PIECE_BYTES_MAX;
        (0..pieces).for_each(|_| recorder.received(CONN, &piece));
        recorder.sent(OTHER, &piece);
        recorder.publish(1);
        let seen = drained(&mut tap);
        let kept = seen.len() as u64 - 1;
        assert_eq!(seen[0], (TapKind::Begin, 0, 3));
        assert!(kept > pieces as u64 / 3 && kept < pieces as u64, "{kept}");
        assert_eq!(tap.dropped_bytes(), (pieces as u64 - kept) * piece.len() as u64);
        recorder.received(CONN, b"abc");
        recorder.ended(CONN);
        recorder.received(CONN, b"late");
        recorder.publish(2);
        let gap = pieces as u64 * piece.len() as u64;
        assert_eq!(drained(&mut tap), [(TapKind::Received, gap, 3), (TapKind::End, 0, 0)]);
        assert!(!tap.is_ended());
        drop(recorder);
        assert!(tap.is_ended());
    }

    /// One call copied all that passed until memory was used up.
    #[test]
    fn busy_connection_kept_its_observer_in_one_call() {
        let queries = queries();
        let mut tap = start(&queries, None).expect("the first tap");
        let mut recorder = recorder(&queries);
        recorder.begin(CONN, true, PeerAddr::Shm);
        let piece = vec![0; TAP_PIECE_BYTES_MAX];
        let in_a_ring = TAP_RING_BYTES / TAP_PIECE_BYTES_MAX;
        let mut passes = |count: &mut usize| {
            *count += 1;
            recorder.received(CONN, &piece);
            recorder.publish(1);
        };
        let (mut passed, mut taken) = (0, 0);
        (0..in_a_ring / 2).for_each(|_| passes(&mut passed));
        tap.drain(|_| {
            taken += 1;
            // The worker goes on meanwhile.
            if passed < 10 * in_a_ring {
                passes(&mut passed);
            }
        });
        assert!(taken > in_a_ring / 2 && taken <= in_a_ring + 1, "{taken} of {passed}");
        assert!(!drained(&mut tap).is_empty(), "the rest is there in the next call");
        assert_eq!(tap.dropped_bytes(), 0);
    }

    #[test]
    fn a_service_has_one_tap_which_ends_when_it_is_dropped() {
        let queries = queries();
        let tap = start(&queries, Some((0, OTHER))).expect("the first tap");
        assert!(start(&queries, None).is_err());
        let mut one = recorder(&queries);
        one.begin(CONN, true, "a client");
        assert!(one.observed(CONN).is_none());
        one.begin(OTHER, false, "a backend");
        assert!(one.observed(OTHER).is_some() && !tap.is_ended());
        // The ring is full, so there is no space for the record of the end.
        one.received(OTHER, &vec![0; 2 * TAP_RING_BYTES]);
        one.ended(OTHER);
        assert!(tap.is_ended());
        drop(tap);
        assert!(matches!(queries.take(0), Some(None)));
        assert!(start(&queries, None).is_ok());
    }
}
