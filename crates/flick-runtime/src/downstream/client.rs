//! A client connection: the bytes it carries, and where it is in its life.
//! Promises: states are variants of enums, so that an impossible combination cannot be written; no allocation.
//! Refuses: requests and replies, which are the stream's ([`Stream`]); the driver, which the worker calls.

use flick_buffers::{Buf, Slice};
use flick_net::Handle;

use crate::downstream::inbox::Inbox;
use crate::downstream::stream::Stream;
use crate::pieces::Pieces;

/// State of the client's side of a connection that takes no further requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientSide {
    /// The client may still send; what it sends is dropped.
    Open,
    /// The client has closed its side between two messages.
    Closed,
    /// The client has closed its side inside a message.
    Truncated,
}

/// End of a draining connection: a close in good order or a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Once the last reply is written, our side closes and the connection lingers.
    Graceful,
    /// A reply is truncated: the connection is reset once the received part of it is sent.
    Reset,
}

/// Phase of the life of a client connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Requests are read and answered.
    Open,
    /// The client has closed its side; requests that it sent before are answered.
    HalfClosed,
    /// No further request is taken; the connection ends after its last reply.
    Draining { client: ClientSide, ending: Ending },
    /// Our side is closed: input is dropped, and output that is left is sent.
    Lingering {
        client: ClientSide,
        /// Fewest bytes of output that were left so far.
        unsent_bytes: usize,
        /// Time at which the connection is dropped, unless the client takes more of the output before.
        give_up_ns: u64,
    },
}

/// Whether the driver receives from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// The driver receives.
    Receiving,
    /// The driver does not receive.
    Paused,
    /// The driver does not receive, as the connection migrates to the worker's successor after its last reply.
    Migrating,
}

/// State of a lingering connection, which decides the worker's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    /// All output is sent, and the client has closed its side or its time is up.
    Finished,
    /// The client has not read its output in time.
    Stuck,
    /// Output is left, and the client has closed its side.
    Flushes,
    /// The client has not closed its side.
    AwaitsClient,
}

/// One client connection, with the one stream that HTTP/1 and memcached have on it.
#[derive(Debug)]
pub struct ClientConn {
    handle: Handle,
    phase: Phase,
    input: Input,
    inbox: Inbox,
    /// Batch buffer of short replies.
    fill: Option<Buf>,
    /// Replies were written to it in this iteration.
    is_filled: bool,
    is_queued: bool,
    /// Time slices that its task has used up in a row, with more to do.
    slices: u32,
    accepted_ns: u64,
    active_ns: u64,
    bytes_in: u64,
    /// `bytes_in` when the current period of its request began.
    paced_bytes: u64,
    bytes_out: u64,
    stream: Stream,
}

impl ClientConn {
    /// A connection that has just been accepted; the driver does not receive from it yet.
    pub fn new(handle: Handle, stream: Stream, now_ns: u64) -> Self {
        Self {
            handle,
            phase: Phase::Open,
            input: Input::Paused,
            inbox: Inbox::new(),
            fill: None,
            is_filled: false,
            is_queued: false,
            slices: 0,
            accepted_ns: now_ns,
            active_ns: now_ns,
            bytes_in: 0,
            paced_bytes: 0,
            bytes_out: 0,
            stream,
        }
    }

    /// The connection of the driver.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Its stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Its stream.
    pub fn stream_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Bytes from the client.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Bytes from the client.
    pub fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// The batch buffer of short replies.
    pub fn fill_mut(&mut self) -> &mut Option<Buf> {
        &mut self.fill
    }

    /// Replies are written to it in this iteration; `false` if that is known.
    #[inline]
    pub fn begin_fill(&mut self) -> bool {
        !std::mem::replace(&mut self.is_filled, true)
    }

    /// The iteration ends: its batch buffer is released, unless replies in it wait for earlier ones. The next short
    /// reply would take a buffer of its own otherwise, for as long as it waits.
    pub fn end_fill(&mut self) {
        self.is_filled = false;
        if self.stream.held_bytes() == 0 {
            self.fill = None;
        }
    }

    /// Whether further requests may be taken from it.
    pub fn takes_requests(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::HalfClosed)
    }

    /// Whether it takes no further request, and our side is not closed yet.
    pub fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. })
    }

    /// Whether our side is closed.
    pub fn is_lingering(&self) -> bool {
        matches!(self.phase, Phase::Lingering { .. })
    }

    /// Whether the client has closed its side.
    pub fn has_ended(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::HalfClosed => true,
            Phase::Draining { client, .. } | Phase::Lingering { client, .. } => client != ClientSide::Open,
        }
    }

    /// Whether our side is closed and the client has not closed its side inside a message.
    pub fn ends_in_good_order(&self) -> bool {
        matches!(self.phase, Phase::Lingering { client, .. } if client != ClientSide::Truncated)
    }

    /// Keeps bytes that have arrived; `false` when the table of pieces is full.
    pub fn receive(&mut self, pieces: &mut Pieces, data: Slice, now_ns: u64) -> bool {
        self.bytes_in += u64::from(data.len());
        let is_kept = self.inbox.push(pieces, data);
        if is_kept {
            self.active_ns = now_ns;
        }
        is_kept
    }

    /// The client has closed its side.
    pub fn end_input(&mut self) {
        match &mut self.phase {
            Phase::Open => self.phase = Phase::HalfClosed,
            Phase::HalfClosed => {}
            Phase::Draining { client, .. } | Phase::Lingering { client, .. } => {
                if *client == ClientSide::Open {
                    *client = ClientSide::Closed;
                }
            }
        }
    }

    /// Takes no further request; `false` if it took none before.
    pub fn drain(&mut self) -> bool {
        let client = match self.phase {
            Phase::Open => ClientSide::Open,
            Phase::HalfClosed => ClientSide::Closed,
            Phase::Draining { .. } | Phase::Lingering { .. } => return false,
        };
        self.phase = Phase::Draining { client, ending: Ending::Graceful };
        true
    }

    /// Takes no further request, as the client has closed its side; `truncated`: inside a message.
    pub fn drain_ended(&mut self, truncated: bool) {
        self.drain();
        if let Phase::Draining { client, .. } = &mut self.phase {
            *client = if truncated { ClientSide::Truncated } else { ClientSide::Closed };
        }
    }

    /// Is to be reset, instead of closed, once its output is sent.
    pub fn reset_when_sent(&mut self) {
        self.drain();
        if let Phase::Draining { ending, .. } = &mut self.phase {
            *ending = Ending::Reset;
        }
    }

    /// Whether our side can be closed now: the last reply is written, and was whole.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Draining { ending: Ending::Graceful, .. })
            && self.stream.requests().is_empty()
    }

    /// Our side is closed.
    pub fn linger(&mut self) {
        let client = match self.phase {
            Phase::Open => ClientSide::Open,
            Phase::HalfClosed => ClientSide::Closed,
            Phase::Draining { client, .. } | Phase::Lingering { client, .. } => client,
        };
        self.phase = Phase::Lingering { client, unsent_bytes: usize::MAX, give_up_ns: 0 };
        self.stay();
    }

    /// Returns the state of a lingering connection with `left_bytes` of output left. Each time the client takes some of
    /// them, its timeout begins again.
    pub fn linger_on(&mut self, left_bytes: usize, now_ns: u64, timeout_ns: u64) -> Linger {
        let Phase::Lingering { client, unsent_bytes, give_up_ns } = &mut self.phase else {
            return Linger::AwaitsClient;
        };
        if left_bytes < *unsent_bytes {
            *unsent_bytes = left_bytes;
            *give_up_ns = now_ns + timeout_ns;
        }
        let (has_ended, gives_up) = (*client != ClientSide::Open, now_ns >= *give_up_ns);
        match left_bytes {
            0 if has_ended || gives_up => Linger::Finished,
            _ if gives_up => Linger::Stuck,
            _ if has_ended => Linger::Flushes,
            _ => Linger::AwaitsClient,
        }
    }

    /// Sets whether it receives; says whether that is a change, which the driver must be asked for. A connection that
    /// migrates does not begin to receive.
    pub fn set_receiving(&mut self, on: bool) -> bool {
        let wanted = match self.input {
            Input::Migrating => return false,
            Input::Receiving | Input::Paused if on => Input::Receiving,
            Input::Receiving | Input::Paused => Input::Paused,
        };
        std::mem::replace(&mut self.input, wanted) != wanted
    }

    /// Migrates after its last reply; says whether the driver must be asked to stop receiving.
    pub fn migrate(&mut self) -> bool {
        std::mem::replace(&mut self.input, Input::Migrating) == Input::Receiving
    }

    /// Does not migrate after all; `false` if it was not to migrate.
    pub fn stay(&mut self) -> bool {
        let was_migrating = self.input == Input::Migrating;
        if was_migrating {
            self.input = Input::Paused;
        }
        was_migrating
    }

    /// Its task enters the run queue; `false` if it is there already.
    pub fn queue(&mut self) -> bool {
        !std::mem::replace(&mut self.is_queued, true)
    }

    /// Whether its task is in the run queue.
    pub fn is_queued(&self) -> bool {
        self.is_queued
    }

    /// Its task has left the run queue and runs; see [`Stream::resume`].
    pub fn begin_run(&mut self) -> Option<u32> {
        self.is_queued = false;
        self.stream.resume()
    }

    /// Its task has used up a time slice; how many in a row.
    pub fn end_slice(&mut self) -> u32 {
        self.slices += 1;
        self.slices
    }

    /// Its task has nothing more to do; whether it had used up a time slice before.
    pub fn end_slices(&mut self) -> bool {
        std::mem::take(&mut self.slices) > 0
    }

    /// Counts bytes that go to the client.
    pub fn note_sent(&mut self, bytes: u64) {
        self.bytes_out += bytes;
    }

    /// Bytes move on it now.
    pub fn note_active(&mut self, now_ns: u64) {
        self.active_ns = now_ns;
    }

    /// Time since bytes moved on it.
    pub fn idle_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.active_ns)
    }

    /// Time since it was accepted.
    pub fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.accepted_ns)
    }

    /// Takes the number of bytes that the client has sent since this was called last.
    pub fn take_paced_bytes(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.paced_bytes, self.bytes_in);
        self.bytes_in - before
    }

    /// Bytes that the client has sent.
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in
    }

    /// Bytes that were sent to the client.
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out
    }
}

#[cfg(test)]
mod tests {
    use flick_net::Handle;

    use super::{ClientConn, Linger};
    use crate::downstream::stream::{Stream, Wait};
    use crate::rules::locals::Locals;

    fn client() -> ClientConn {
        let state = Locals::new(1, 1).take();
        ClientConn::new(Handle { index: 0, generation: 0 }, Stream::new(state, false), 0)
    }

    #[test]
    fn a_client_that_has_ended_lingers_until_its_output_is_sent() {
        let mut client = client();
        client.end_input();
        assert!(client.takes_requests() && client.has_ended() && !client.is_finished());
        client.drain_ended(false);
        assert!(client.is_finished());
        client.linger();
        assert_eq!(client.linger_on(10, 0, 100), Linger::Flushes);
        assert_eq!(client.linger_on(5, 50, 100), Linger::Flushes, "what it takes gives it time");
        assert_eq!(client.linger_on(5, 150, 100), Linger::Stuck);
        assert_eq!(client.linger_on(0, 150, 100), Linger::Finished);
        assert!(client.ends_in_good_order());
    }

    #[test]
    fn a_client_that_truncates_a_message_does_not_end_in_good_order() {
        let mut client = client();
        client.end_input();
        client.drain_ended(true);
        client.linger();
        assert!(client.is_lingering() && client.has_ended() && !client.ends_in_good_order());
    }

    #[test]
    fn a_client_that_is_to_be_reset_is_never_closed() {
        let mut client = client();
        assert!(client.drain());
        client.reset_when_sent();
        client.end_input();
        assert!(client.is_draining() && client.has_ended() && !client.is_finished());
        assert!(!client.drain(), "it took no requests before");
    }

    #[test]
    fn a_migrating_client_receives_again_only_if_it_stays() {
        let mut client = client();
        assert!(client.set_receiving(true));
        assert!(!client.set_receiving(true), "the driver receives already");
        assert!(client.migrate());
        assert!(!client.set_receiving(true));
        assert!(client.stay() && !client.stay());
        assert!(client.set_receiving(true));
    }

    #[test]
    fn a_client_that_runs_is_not_pending_at_its_backend() {
        let mut client = client();
        client.stream_mut().wait_for(Wait::Capacity { backend: Some(3) });
        assert!(client.queue() && !client.queue());
        assert_eq!(client.begin_run(), Some(3));
        assert_eq!(client.begin_run(), None);
        assert!(!client.stream().is_waiting());
    }
}
