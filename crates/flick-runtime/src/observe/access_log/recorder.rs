//! Recorder of the access log: chooses requests when they are opened and writes their records when they are answered.
//! Promises: of the requests that are opened every `sample`th is chosen, beginning with the first; nothing is allocated
//! after `new`; with `ACCESS_ENTRIES_MAX` in flight, and where the ring is full, a request is left out and counted.

use flick_abi::Frame;
use flick_net::{Endpoint, PeerAddr};

use super::AccessLogSink;
use super::entry::{AccessEntry, Prefix};
use super::fields::FieldValues;
use super::record::encode;
use crate::limits::{ACCESS_ENTRIES_MAX, ACCESS_RECORD_BYTES_MAX, ACCESS_REQUEST_BYTES_MAX};
use crate::observe::counters::Counters;
use crate::slab::{Key, Slab};

/// A worker's recorder.
#[derive(Debug)]
pub(crate) struct AccessRecorder {
    sink: AccessLogSink,
    /// Requests until one is chosen.
    countdown: u32,
    /// A message has been read for which no request has been opened.
    is_fresh: bool,
    /// First bytes of the message that may be chosen.
    front: Prefix<ACCESS_REQUEST_BYTES_MAX>,
    front_bytes: u64,
    entries: Slab<AccessEntry>,
    /// Entry of a request of which some replies are sent and more may follow, each with a place of its own in the
    /// in-flight table.
    continued: Option<Key>,
    /// By index of an entry.
    fields: FieldValues,
    /// Answered in this iteration.
    ended: Vec<Key>,
}

impl AccessRecorder {
    /// A recorder that writes to `sink`.
    pub(crate) fn new(sink: AccessLogSink) -> Self {
        Self {
            fields: FieldValues::new(sink.fields.clone()),
            sink,
            countdown: 1,
            is_fresh: false,
            front: Prefix::NOTHING,
            front_bytes: 0,
            entries: Slab::new(ACCESS_ENTRIES_MAX),
            continued: None,
            ended: Vec::with_capacity(ACCESS_ENTRIES_MAX),
        }
    }

    /// Notes a message of `bytes` bytes, with or without its body: the request that is opened next was read from it.
    /// `frame`: its fields, if it has been parsed.
    pub(crate) fn look(&mut self, front: &[u8], bytes: u32, frame: Option<&Frame>) {
        self.end_continued();
        self.is_fresh = true;
        if self.countdown == 1 {
            self.fields.set(FieldValues::NEXT, frame.map(|frame| (frame, front)));
            self.front.set(front);
            self.front_bytes = u64::from(bytes);
        }
    }

    /// Forgets the message of [`Self::look`]: a request that is opened now was not read from it.
    pub(crate) fn look_away(&mut self) {
        self.end_continued();
        self.is_fresh = false;
    }

    /// A reply of this entry's request is sent, and more follow.
    pub(crate) fn continue_later(&mut self, key: Key) {
        self.continued = Some(key);
    }

    /// Takes the entry of the request that the next reply belongs to, if it is not the first one.
    pub(crate) fn take_continued(&mut self) -> Option<Key> {
        self.continued.take()
    }

    fn end_continued(&mut self) {
        self.ended.extend(self.continued.take());
    }

    /// Whether the request that is being opened is chosen.
    pub(crate) fn chooses(&mut self) -> bool {
        if !std::mem::take(&mut self.is_fresh) {
            return false;
        }
        self.countdown -= 1;
        let is_chosen = self.countdown == 0;
        if is_chosen {
            self.countdown = self.sink.sample.get();
        }
        is_chosen
    }

    /// Begins the entry of the request that was chosen; `None`: the table is full, which the caller counts.
    pub(crate) fn open(&mut self, client: PeerAddr, taken_ns: u64) -> Option<Key> {
        let entry = AccessEntry::new(client, taken_ns, self.front.get(), self.front_bytes);
        let key = self.entries.insert(entry)?;
        self.fields.take_next(key.index as usize);
        Some(key)
    }

    /// Whether records have fields.
    pub(crate) fn has_fields(&self) -> bool {
        !self.fields.is_empty()
    }

    /// The request is sent changed: its fields are those of this message.
    pub(crate) fn note_sent_fields(&mut self, key: Key, frame: &Frame, bytes: &[u8]) {
        self.fields.set(key.index as usize, Some((frame, bytes)));
    }

    /// The entry of a request in flight.
    pub(crate) fn entry(&mut self, key: Key) -> Option<&mut AccessEntry> {
        self.entries.get_mut(key)
    }

    /// Its request has ended; it is written at the end of the iteration.
    pub(crate) fn end(&mut self, key: Key) {
        self.ended.push(key);
    }

    /// Whether there is something to write.
    pub(crate) fn is_due(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Hands what has ended over to the writer.
    pub(crate) fn write<'a>(&mut self, counters: &Counters, now_ns: u64, at: impl Fn(u32) -> &'a Endpoint) {
        let mut bytes = [0; ACCESS_RECORD_BYTES_MAX];
        for key in self.ended.drain(..) {
            let entry = self.entries.remove(key).expect("an entry ends once");
            let fields = self.fields.of(key.index as usize);
            let len = encode(&entry, now_ns, entry.backend.map(&at), fields, &mut bytes);
            let is_written = self.sink.push(&bytes[..len]);
            if is_written { &counters.access_log_lines } else { &counters.access_log_dropped }.add(1);
        }
        self.sink.publish();
    }
}
