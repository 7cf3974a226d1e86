//! The access log, from a worker to its writer: a line for each request that is answered, or for a sample of them.
//! Promises: a worker copies into memory allocated at its start; a log that is not written in time loses lines, which
//! are counted, and delays no request. Writer and workers share rings, one for each worker.
//! Refuses: to know what a line looks like, or where it goes; that is the writer's (`flick run`).
//! Start reading at [`AccessLog`]; `record.rs` is what goes through a ring, `recorder.rs` what a worker keeps.

mod entry;
mod fields;
mod record;
mod recorder;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use flick_ring::{Consumer, Producer};

pub use entry::AnsweredBy;
use fields::FieldValues;
pub use record::AccessRecord;
pub(crate) use recorder::AccessRecorder;

use crate::limits::{
    ACCESS_FIELDS_MAX, ACCESS_FIELDS_RING_BYTES, ACCESS_RECORD_BYTES_MAX, ACCESS_RING_BYTES,
};

/// Configuration of a service's access log.
#[derive(Clone, Debug)]
pub struct AccessLog {
    /// One in this many requests is logged.
    pub sample: NonZeroU32,
    /// Names of the fields of requests that are logged (`Protocol::log_fields`).
    pub fields: Vec<String>,
    /// Port through which the writer gets the rings of the workers.
    pub port: Arc<AccessLogPort>,
}

/// Port between workers and writer: holds the reading ends of the workers' rings until the writer takes them.
#[derive(Debug, Default)]
pub struct AccessLogPort {
    feeds: Mutex<Vec<AccessLogFeed>>,
    /// Thread that writes the log; woken when there is something to write.
    writer: OnceLock<Thread>,
}

/// The writer's end of what one worker logs.
#[derive(Debug)]
pub struct AccessLogFeed {
    /// Name of the service, as operators know it.
    pub service: String,
    /// Index of the worker.
    pub worker: usize,
    /// Names of the fields that each of its records has.
    pub fields: Vec<String>,
    ring: Consumer,
    is_ended: Arc<AtomicBool>,
}

/// A worker's end.
#[derive(Debug)]
pub struct AccessLogSink {
    sample: NonZeroU32,
    /// Slots of the fields that each record has.
    fields: Vec<u16>,
    ring: Producer,
    port: Arc<AccessLogPort>,
    is_ended: Arc<AtomicBool>,
}

impl AccessLog {
    /// Memory of a worker for `fields` fields of the requests in flight that will be logged, and for its ring.
    pub(crate) fn bytes_of_fields(fields: usize) -> u64 {
        let ring = if fields == 0 { 0 } else { ACCESS_FIELDS_RING_BYTES - ACCESS_RING_BYTES };
        FieldValues::BYTES_PER_FIELD * fields as u64 + ring as u64
    }

    /// The end for a worker of this service; the other one is left at the port.
    pub fn sink(&self, service: &str, worker: usize) -> AccessLogSink {
        self.sink_of(service, worker, &[])
    }

    /// As [`Self::sink`], where each record has the values of these slots of its request (`Protocol::log_fields`).
    pub fn sink_of(&self, service: &str, worker: usize, fields: &[u16]) -> AccessLogSink {
        assert!(fields.len() <= ACCESS_FIELDS_MAX, "settings bound the fields of the access log");
        let bytes = if fields.is_empty() { ACCESS_RING_BYTES } else { ACCESS_FIELDS_RING_BYTES };
        let (producer, consumer) = flick_ring::ring(bytes);
        let is_ended = Arc::new(AtomicBool::new(false));
        let feed = AccessLogFeed {
            service: service.to_owned(),
            worker,
            fields: self.fields.iter().take(fields.len()).cloned().collect(),
            ring: consumer,
            is_ended: Arc::clone(&is_ended),
        };
        self.port.feeds.lock().unwrap_or_else(PoisonError::into_inner).push(feed);
        self.port.wake();
        AccessLogSink {
            sample: self.sample,
            fields: fields.to_vec(),
            ring: producer,
            port: Arc::clone(&self.port),
            is_ended,
        }
    }
}

impl AccessLogPort {
    /// This thread writes from here on; the first one that says so.
    pub fn set_writer(&self) {
        self.writer.get_or_init(std::thread::current);
    }

    /// The ends of workers that have come since it was last asked.
    pub fn take_feeds(&self) -> Vec<AccessLogFeed> {
        std::mem::take(&mut *self.feeds.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls the writer, if there is one.
    pub fn wake(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }
}

impl AccessLogFeed {
    /// Passes what has been logged to `take`, oldest first.
    pub fn drain(&mut self, mut take: impl FnMut(&AccessRecord)) {
        let mut bytes = [0; ACCESS_RECORD_BYTES_MAX];
        while let Some(len) = self.ring.pop(&mut bytes) {
            take(&AccessRecord::decode(&bytes[..len]));
            // The worker can use the space at once; it does not wait for that.
            let _ = self.ring.release();
        }
    }

    /// Asks to be called when something is logged. `false`: something has been already.
    pub fn wait_for_records(&mut self) -> bool {
        self.ring.prepare_wait()
    }

    /// Its worker has ended; what it logged before is still to be drained.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }
}

impl AccessLogSink {
    /// `false`: there is no room.
    fn push(&mut self, record: &[u8]) -> bool {
        self.ring.push(record)
    }

    fn publish(&mut self) {
        if self.ring.publish() {
            self.port.wake();
        }
    }
}

impl Drop for AccessLogSink {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Release);
        self.port.wake();
    }
}
