//! The access log, from a worker to whoever writes it: a line for each request that is answered, or for one in so many.
//! Promises: a worker copies into room that it had from its start; a log that is not written in time loses lines, which
//! are counted, and holds up nobody. Writer and workers share rings, one for each worker.
//! Refuses: to know what a line looks like, or where it goes; that is the writer's (`flick run`).
//! Start reading at [`Access`]; `access/record.rs` is what goes through a ring, `access/books.rs` what a worker keeps.

mod books;
mod record;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use flick_ring::{Consumer, Producer};

pub(crate) use books::Books;
pub use record::{Outcome, Record};

use crate::limits::{ACCESS_RECORD_BYTES_MAX, ACCESS_RING_BYTES};

/// That a service keeps an access log.
#[derive(Clone, Debug)]
pub struct Access {
    /// Of so many requests one is logged.
    pub sample: NonZeroU32,
    /// Who writes it.
    pub port: Arc<Port>,
}

/// Where workers leave their ends of the rings for the writer.
#[derive(Debug, Default)]
pub struct Port {
    feeds: Mutex<Vec<Feed>>,
    /// Who is called when there is something to write.
    writer: OnceLock<Thread>,
}

/// The writer's end of what one worker logs.
#[derive(Debug)]
pub struct Feed {
    /// What operators call the service.
    pub service: String,
    /// Which worker it is.
    pub worker: usize,
    ring: Consumer,
    is_over: Arc<AtomicBool>,
}

/// A worker's end.
#[derive(Debug)]
pub struct Tap {
    sample: NonZeroU32,
    ring: Producer,
    port: Arc<Port>,
    is_over: Arc<AtomicBool>,
}

impl Access {
    /// The end for a worker of this service; the other one is left at the port.
    pub fn tap(&self, service: &str, worker: usize) -> Tap {
        let (producer, consumer) = flick_ring::ring(ACCESS_RING_BYTES);
        let is_over = Arc::new(AtomicBool::new(false));
        let feed =
            Feed { service: service.to_owned(), worker, ring: consumer, is_over: Arc::clone(&is_over) };
        self.port.feeds.lock().unwrap_or_else(PoisonError::into_inner).push(feed);
        self.port.call();
        Tap { sample: self.sample, ring: producer, port: Arc::clone(&self.port), is_over }
    }
}

impl Port {
    /// This thread writes from here on; the first one that says so.
    pub fn attend(&self) {
        self.writer.get_or_init(std::thread::current);
    }

    /// The ends of workers that have come since it was last asked.
    pub fn arrivals(&self) -> Vec<Feed> {
        std::mem::take(&mut *self.feeds.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls the writer, if there is one.
    pub fn call(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }
}

impl Feed {
    /// Passes what has been logged to `take`, oldest first.
    pub fn drain(&mut self, mut take: impl FnMut(&Record)) {
        let mut bytes = [0; ACCESS_RECORD_BYTES_MAX];
        while let Some(len) = self.ring.pop(&mut bytes) {
            take(&Record::decode(&bytes[..len]));
            // Its room is the worker's at once. Nobody waits for that.
            let _ = self.ring.release();
        }
    }

    /// Asks to be called when something is logged. `false`: something has been already.
    pub fn rest(&mut self) -> bool {
        self.ring.wait()
    }

    /// Its worker has ended; what it logged before is still to be drained.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

impl Tap {
    /// `false`: there is no room.
    fn push(&mut self, record: &[u8]) -> bool {
        self.ring.push(record)
    }

    fn publish(&mut self) {
        if self.ring.publish() {
            self.port.call();
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.port.call();
    }
}
