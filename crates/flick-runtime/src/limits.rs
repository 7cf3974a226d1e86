//! Named limits of the platform and how they relate. What an operator may set is in `config.rs`.

use std::time::Duration;

use flick_buffers::{HUGE_BYTES, LARGE_BYTES, SMALL_BYTES};

/// Largest message that is buffered whole before it is sent on, except where the program looks at more of it; a longer
/// one is streamed. One large buffer, so that a slow sender never holds a shared connection.
pub const WHOLE_BYTES_MAX: u64 = LARGE_BYTES as u64;
/// Share of the buffer memory that is huge buffers, where the program looks at more of a message than a large buffer
/// holds.
pub const HUGE_SHARE: u64 = 2;
/// Huge buffers without which a worker of such a program does not start.
pub const HUGE_MIN: u64 = 4;
/// Interval at which a worker checks whether a huge buffer is free, while a message waits for one.
pub const HUGE_TICK_MS: u64 = 2;
/// Memory that the free buffers of each class keep when memory goes back to the kernel.
pub const IDLE_MEMORY_BYTES: u32 = 1 << 20;
/// Time between two passes that return memory of free buffers: it goes back after two of them without use.
pub const RELEASE_INTERVAL_NS: u64 = 2_000_000_000;
/// Time between two steps of such a pass.
pub const RELEASE_TICK_NS: u64 = 10_000_000;
/// Messages up to this length are copied into the outgoing batch; of longer ones only the front is copied and the
/// rest is passed on by reference.
pub const COPY_BYTES_MAX: u32 = 4096;
/// Messages one activation of a task handles before the task goes to the back of the queue.
pub const TASK_MESSAGES_MAX: u32 = 256;
/// The same where a task runs until it has nothing to do: more than the buffers of a session hold.
pub const COMPLETION_MESSAGES_MAX: u32 = 1 << 24;
/// Messages between two looks at the clock, where the program's messages are cheap.
pub const CLOCK_EVERY_MESSAGES: u32 = 8;
/// Steps of a message above which the clock is read after each message: they may take more than a microsecond.
pub const CLOCK_STEPS: u64 = 2048;
/// Messages that a task handles in one step, where several are complete in one received buffer.
pub const BATCH_MESSAGES_MAX: u32 = 64;
/// Bytes of each pipelined message that are parsed to load the dictionary entry that its rule will read.
pub const PRELOAD_PARSE_BYTES_MAX: usize = 512;
/// Steps that these may take together, by the certificate: no more than the messages between two looks at the clock.
pub const BATCH_STEPS: u64 = CLOCK_STEPS * CLOCK_EVERY_MESSAGES as u64;
/// Steps that a task, or a few of them, may take between two looks at the clock: about half a millisecond.
pub const LOOK_STEPS: u64 = 1 << 20;
/// Tasks are timed in one of this many iterations.
pub const SAMPLE_EVERY_ITERATIONS: u32 = 16;
/// Tasks between two checks of how long an event-loop iteration has taken, where the program's messages are cheap.
pub const CLOCK_EVERY_TASKS: u32 = 8;
/// Time after which an event-loop iteration ends though tasks are queued, so that the output of the first of them is
/// sent.
pub const RUN_NS_MAX: u64 = 4_000_000;
/// Slices of a session with more to do whose replies go out together.
pub const HELD_SLICES: u32 = 4;
/// Replies that are longer together are sent at once: they are worth a send of their own.
pub const HELD_BYTES_MAX: usize = 16 * 1024;
/// Rounds of the run queue in one event-loop iteration.
pub const RUN_ROUNDS_MAX: u32 = 2;
/// The same where each task has one message in a round: the driver is polled once for this many of them.
pub const ROBIN_ROUNDS_MAX: u32 = 16;
/// Replies of an activation for which its view of them lies in the small frame of a call.
pub const FEW_MESSAGES: usize = 8;
/// Partial messages whose parser state is kept; beyond, a message is parsed again from its start.
pub const PARTIAL_FRAMES_MAX: usize = 4096;
/// Outgoing bytes of a client beyond which its requests, and replies streamed to it, wait. With what one poll receives
/// for it beyond that, a client that does not read costs less than 100 KB; one that reads has the kernel's buffers.
pub const SESSION_BACKLOG_BYTES_MAX: usize = 32 * 1024;
/// Bytes that a backend connection receives before its task runs, beyond which it is not received from until then.
pub const UNSEEN_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of replies that wait for an earlier one beyond which a client's requests wait.
pub const SESSION_HELD_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of replies that the requests of one client in flight may come to, as far as its earlier replies tell.
pub const WINDOW_BYTES: u64 = 256 * 1024;
/// Estimate of the first replies of a client: it begins with 8 requests in flight, whose replies it may leave unread
/// though each has a megabyte.
pub const WINDOW_REPLY_BYTES_FIRST: u64 = 32 * 1024;
/// A short reply lowers what the next one is taken to be by one in this many of the difference.
pub const WINDOW_SHARE: u64 = 8;
/// Replies so long are kept from shared connections: their client has one request at a time in flight, on a dedicated
/// connection.
pub const BULK_REPLY_BYTES: u64 = 64 * 1024;
/// Cost of a request on a shared connection beside the bytes of its reply: what takes as long as a short request does.
pub const REQUEST_COST_BYTES: u32 = 1024;
/// Cost of the requests that a client may have in flight without a turn, beside one: 26 that have replies of 100 bytes.
pub const FREE_BYTES: u64 = 32 * 1024;
/// Cost of the requests that a client sends on a shared connection in one turn: 53 that have replies of 100 bytes.
pub const CONN_QUANTUM_BYTES: u64 = 64 * 1024;
/// Cost of the requests in flight on a shared connection beyond which its clients take turns.
pub const CONN_INFLIGHT_BYTES: u64 = 512 * 1024;
/// The same for each microsecond that the fastest reply of the connection took: what the network carries meanwhile.
pub const CONN_BYTES_PER_US: u64 = 512;
/// Most that both come to.
pub const CONN_INFLIGHT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Clients with long replies have at most one in this many of the dedicated connections: requests too long for the
/// shared one need some, too.
pub const BULK_CONNS_SHARE: usize = 2;
/// One in this many entries of the in-flight table, pieces and small buffers is kept for clients with nothing in
/// flight.
pub const FIRST_SHARE: u32 = 4;
/// A client may have in flight at most one in this many of the entries that are free in the in-flight table.
pub const INFLIGHT_SHARE: usize = 8;
/// Part of the in-flight table up to which it takes copies for mirrors: beyond it, the rest is for requests of clients.
pub const MIRROR_SHARE: usize = 2;
/// The same of the free pieces of the table in which replies wait: each takes one at least.
pub const PIECES_SHARE: usize = 64;
/// The same of the bytes of free small buffers, which replies may need that wait for an earlier one.
pub const BUFFERS_SHARE: u64 = 16;
/// Outgoing bytes of a client beyond which replies to it hold up a shared connection, while buffers are not plentiful:
/// more than a client that reads has.
pub const SESSION_SHARED_BYTES_MAX: usize = WINDOW_BYTES as usize + 64 * 1024;
/// The same for replies that would hold up a shared connection, while buffers are plentiful: memory is cheaper than the
/// others' time. Room for several large replies, which a client may be owed at once by several backends.
pub const SESSION_ROOMY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Buffers are plentiful while fewer than one in this many is in use.
pub const PLENTY_SHARE: u32 = 4;
/// Clients that one pass over the deadlines evicts from the connections of one backend, or for their buffers.
pub const EVICTIONS_MAX: u32 = 32;
/// Time for which a client must have been idle before it is evicted for a new one, where descriptors are few.
pub const IDLE_EVICTION_MS: u64 = 1_000;
/// The same for a client that has sent nothing yet.
pub const SILENT_EVICTION_MS: u64 = 200;
/// One in this many of those clients is evicted at once.
pub const IDLE_EVICTIONS_SHARE: usize = 8;
/// Clients that hold most are evicted while fewer than one in this many buffers is free.
pub const RELIEF_SHARE: u32 = 16;
/// Clients of a worker are evicted for their buffers only if these are at least one in this many of all its bytes.
pub const RELIEF_HELD_SHARE: u64 = 8;
/// Time between two looks at the buffers that clients hold.
pub const RELIEF_TICK_NS: u64 = 1_000_000;
/// Bytes in a second below which a request's body is sent too slowly to hold a backend connection that others wait for.
pub const UPLOAD_BYTES_PER_S_MIN: u64 = 16 * 1024;
/// Shortest time between the arrival of a request and the eviction of its slow upload, when other clients wait.
pub const UPLOAD_DELAY_MS: u64 = 200;
/// Halvings of the patience with slow clients: each that is dropped leaves half as much for the next.
pub const IMPATIENCE_SHIFT_MAX: u32 = 5;
/// Times the patience that must pass without a drop before it is whole again.
pub const CALM_SHARE: u64 = 10;
/// Outgoing bytes of a backend connection beyond which sessions that send to it wait.
pub const BACKEND_CONN_BACKLOG_BYTES_MAX: usize = 1024 * 1024;
/// Outgoing bytes of a backend connection beyond which it takes no message. Those of timers, of events and of rules
/// with effects, which have run, are not held back before.
pub const BACKEND_CONN_UNSENT_BYTES_MAX: usize = 8 * BACKEND_CONN_BACKLOG_BYTES_MAX;
/// Low watermark: waiting senders go on when no more outgoing bytes than this are left.
pub const BACKLOG_LOW_BYTES: usize = 8 * 1024;
/// Events taken from the driver in one event-loop iteration.
pub const EVENTS_MAX: usize = 4096;
/// Longest a worker sleeps while something has a deadline.
pub const TICK_MAX_MS: u64 = 500;
/// Time that a dedicated connection must be idle before it is preferred to a new one: a backend that closes after a
/// reply has closed by then.
pub const SPARE_CONN_IDLE_MS: u64 = 5;
/// Longest time that a connection of an exclusive protocol stays idle before it is closed.
pub const DEDICATED_CONN_IDLE_MS: u64 = 30_000;
/// Bytes of a request's body that are taken and dropped so that its client can go on, when an exclusive protocol's
/// request was answered without it; beyond, the connection is closed behind the answer.
pub const DISCARD_BYTES_MAX: u64 = 256 * 1024;
/// Bytes of a reply that are taken and dropped so that its connection can be used again, when a rule has answered in
/// its place; beyond, the connection is closed.
pub const REPLACED_BYTES_MAX: u64 = 256 * 1024;
/// Longest time that a client of a relay may leave what it is sent unread, without an idle timeout.
pub const STALL_TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Longest time that a tunnel may be idle, and by default a relay.
pub const TUNNEL_IDLE_MS: u64 = 600_000;
/// Bytes of a built message that are put together to be read again, when its head goes on in what follows unchanged.
pub const JOINED_BYTES_MAX: usize = 2 * flick_abi::limits::BIG_HEAD_BYTES_MAX;
/// Longest time that a tunnel may be idle after one side has ended.
pub const HALF_TUNNEL_IDLE_MS: u64 = 60_000;
/// Slots per element of a channel whose backend set may change: removed backends keep theirs until their requests have
/// ended.
pub const SLOTS_PER_ELEMENT: u32 = 2;
/// Interval at which a worker checks whether removed backends have drained.
pub const LEAVE_TICK_MS: u64 = 10;
/// Backend connections for each session of a service whose sessions have their own, on average: an array of many
/// backends has fewer for each.
pub const RELAY_CONNS_PER_SESSION: u32 = 2;
/// A service that has no room for this many activations, and wants as many, does not start.
pub const SUSPENDED_RULES_MIN: u32 = 256;
/// Scheduling quantum of a service that shares its thread and has the usual weight.
pub const QUANTUM_NS: u64 = 50_000;
/// The usual weight of a service.
pub const CPU_WEIGHT: u32 = 100;
/// Largest weight.
pub const CPU_WEIGHT_MAX: u32 = 10_000;
/// Longest scheduling quantum, whatever the weight: the other services wait that long.
pub const QUANTUM_NS_MAX: u64 = 1_000_000;
/// Scheduling quantum of a service that is the only one with work on its thread.
pub const LONE_QUANTUM_NS: u64 = 200_000;
/// Time above which such a quantum is long: it takes fewer events the next time.
pub const LONE_LONG_NS: u64 = 2 * LONE_QUANTUM_NS;
/// Time without work for any other service after which a service gets [`LONE_QUANTUM_NS`].
pub const LONE_AFTER_NS: u64 = 10_000_000;
/// Time over which a service's part of the processor is bounded.
pub const CPU_WINDOW_NS: u64 = 10_000_000;
/// Services of one process.
pub const SERVICES_MAX: usize = 256;
/// Longest wait for the first byte of a client at an address of several services, unless one of them has an idle
/// timeout.
pub const SILENT_MS: u64 = 60_000;
/// Events of one poll where services share a thread, so that a flood of one does not delay the others. A service whose
/// iterations are too long gets fewer, down to [`EVENTS_SHARED_MIN`].
pub const EVENTS_SHARED_MAX: usize = 64;
/// The same while nothing comes for the others, who may have work before the iteration is over.
pub const EVENTS_LONE_MAX: usize = 512;
/// Bytes that one poll sends where services share a thread. Over loopback the kernel does the receiver's work at once,
/// too, so that sending them takes half a scheduling quantum.
pub const SENT_BYTES_SHARED_MAX: usize = 64 * 1024;
/// The same while nothing comes for the others.
pub const SENT_BYTES_LONE_MAX: usize = 4 * SENT_BYTES_SHARED_MAX;
/// Fewest events of one poll.
pub const EVENTS_SHARED_MIN: usize = 8;
/// Lines of the log that say something bad of one backend are at least so far apart.
pub const BACKEND_LOG_MS: u64 = 1_000;
/// Window over which the failure percentage of a backend is counted.
pub const EJECT_WINDOW_NS: u64 = 10_000_000_000;
/// Consecutive failed requests after which a backend is ejected, unless the settings say how many.
pub const OUTLIER_FAILURES: u32 = 5;
/// Failed attempts in a row to connect to a backend after which it is down, though it has open connections.
pub const REFUSALS_MAX: u32 = OUTLIER_FAILURES;
/// Window over which the slowest reply of a backend is found.
pub const SLOWEST_WINDOW_NS: u64 = 60_000_000_000;
/// A backend is silent once it has sent nothing for this many times as long as the slowest reply took.
pub const SILENT_TIMES: u64 = 4;
/// Doublings of the time that a backend is out.
pub const EJECT_SHIFT_MAX: u32 = 5;
/// Least part of its share that a backend gets during its slow start, in thousandths.
pub const SLOW_START_MIN_PER_MILLE: u64 = 50;
/// Most that a backend weighs: what an SRV record can say.
pub const WEIGHT_MAX: u32 = 65_535;
/// Bytes that the answer to a check is compared with, and that it is asked with, at most.
pub const CHECK_BYTES_MAX: usize = 256;
/// Times that a request is sent to another backend, at most.
pub const RETRIES_MAX: u8 = 2;
/// Retries are counted against the requests of so long a time.
pub const RETRY_WINDOW_NS: u64 = 1_000_000_000;
/// The reconnect backoff doubles at most this many times.
pub const BACKOFF_SHIFT_MAX: u32 = 6;
/// Longest that a worker may look for something to do before it sleeps.
pub const BUSY_POLL_MAX: Duration = Duration::from_millis(1);
/// Time for which a worker busy-polls rings before it sleeps: longer than two halted cores take to wake, else
/// processes that wait for each other in turn would all be asleep each time.
pub const SHM_BUSY_POLL: Duration = Duration::from_micros(80);
/// Longest batch delay.
pub const BATCH_DELAY_MAX: Duration = Duration::from_millis(10);
/// Longest time slice of a task.
pub const TIME_SLICE_MAX: Duration = Duration::from_millis(100);
/// Longest target queueing delay.
pub const OVERLOAD_QUEUE_DELAY_MAX: Duration = Duration::from_secs(3600);
/// Time over which a worker sums up how busy it was.
pub const LOAD_WINDOW_NS: u64 = 10_000_000;
/// A worker that was busy for more thousandths of its window hands new clients to idle workers.
pub const BUSY_PER_MILLE: u32 = 900;
/// A worker that was busy for fewer thousandths takes them.
pub const IDLE_PER_MILLE: u32 = 500;
/// Load that is added to a worker for a client handed over to it, in thousandths, until its next window.
pub const CLIENT_LOAD_PER_MILLE: u32 = 50;
/// Clients that busier workers may leave for an idle one before it has looked.
pub const SCAVENGED_MAX: usize = 64;
/// Interval at which a part of the dictionaries is swept for expired entries.
pub const SWEEP_TICK_MS: u64 = 100;
/// A timeout that is noticed this much too late is a sign that the worker was stopped.
pub const STOOD_STILL_MS: u64 = 20;
/// Time that a worker which was stopped waits for input that arrived meanwhile, before it acts on its deadlines.
pub const SECOND_LOOK_MS: u64 = 20;
/// Time that a client must be idle before a draining worker closes its connection.
pub const DRAIN_QUIET_MS: u64 = 500;
/// Times that a client is offered to the successor of a service, while its workers accept others.
pub const SUCCESSOR_TRIES_MAX: usize = 16;
/// Longest time that a client may keep its side open after flick has closed its own, or take nothing of its last
/// replies.
pub const LINGER_MS: u64 = 1_000;
/// Most bytes that are sent in all to a client whose connection is closed without a look at what is left unsent: the
/// kernel's send buffer takes that many, also of a client that has read nothing. Hundreds of single messages fill it
/// earlier, as does a tiny window; the driver resets such a client after a while.
pub const CLOSE_UNSENT_BYTES_MAX: u64 = 16 * 1024;
/// Interval between checks of the unsent last replies to a client that has closed its side.
pub const FLUSH_TICK_MS: u64 = 5;
/// Shortest window in which a queue must stand to be no burst; one of the target delay where that is longer.
pub const SHED_WINDOW_NS: u64 = 100_000_000;
/// Fewest iterations of a window that counts as overload.
pub const SHED_ITERATIONS_MIN: u32 = 3;
/// Idle windows after which nothing is shed any more.
pub const SHED_IDLE_ITERATIONS_MAX: u64 = 64;
/// Fewest tasks and waiting connections that count as a queue; a shorter one counts as no delay.
pub const SHED_REQUESTS_MIN: u64 = 16;
/// Most tasks for each new request of a window that counts as overload: with more, most tasks are pieces of long
/// messages, and shedding requests relieves nothing.
pub const SHED_TASKS_PER_REQUEST_MAX: u64 = 8;
/// Denominator of the fraction of requests that is shed.
pub const SHED_SHARES: u32 = 256;
/// Most of them that are shed: some requests are always served.
pub const SHED_SHARE_MAX: u32 = 243;
/// Entries of the in-flight table, beyond `max_inflight_requests`, for requests that get an overload response.
pub const BUSY_ENTRIES: usize = 256;
/// Received pieces of a client that wait to be handled, each in a buffer, before its input is paused at the end of a
/// time slice; fewer when less than [`INPUT_SHARE`] times as many large buffers are free.
pub const INPUT_PIECES_MAX: u32 = 16;
/// One in this many free large buffers may hold pieces of one client that wait.
pub const INPUT_SHARE: u32 = 64;
/// The part of the buffers of which fewer are left when new requests are answered *busy*.
pub const SCARCE_SHARE: u32 = 64;
/// One in this many buffers must be free, or bodies of requests are no longer buffered whole.
pub const WHOLE_SHARE: u32 = 8;
/// The part of a second's new clients that may come at once.
pub const ACCEPT_BURST_SHARE: u32 = 10;
/// Lines of the log that one worker's rules may write in a second; what is more is counted.
pub const LOG_LINES_PER_S_MAX: u32 = 100;
/// Time in which the sweep of expired entries passes a whole dictionary, in nanoseconds.
pub const SWEEP_ROUND_NS: i64 = 10_000_000_000;
/// Buckets of a dictionary that one call of the sweep looks at.
pub const SWEEP_BUCKETS_MAX: usize = 4096;
/// Shortest interval between two snapshots of a dictionary.
pub const SNAPSHOT_EVERY_MIN: Duration = Duration::from_secs(1);
/// Difference between the clock of a service and the wall's, in nanoseconds, from which on snapshots respect it.
pub const CLOCK_STEP_NS_MIN: u64 = 1_000_000_000;
/// Niceness of the thread that writes snapshots: on a busy core it gets a tenth of a worker's time.
pub const SNAPSHOT_NICE: i32 = 10;
/// Streams of one merge.
pub const MERGE_STREAMS_MAX: u32 = 256;
/// Longest element of a merge, in bytes.
pub const MERGE_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Longest record of a ring between two tasks of a merge: small enough that both sides work at once.
pub const MERGE_CHUNK_BYTES_MAX: usize = 8 * 1024;
/// Elements a merge task takes in between two looks at the clock.
pub const MERGE_STEP_ELEMENTS: u32 = 32;
/// Interval between checks of a reducer that has been sent everything.
pub const MERGE_FLUSH_TICK_MS: u64 = 5;
/// Longest time that a reducer may keep its side open after everything is sent, before the job ends without waiting for
/// it.
pub const MERGE_LINGER_MS: u64 = 1_000;
/// Times shorter than this power of two, in nanoseconds, are one bucket of a histogram.
pub const LATENCY_FIRST_BITS: u32 = 10;
/// The last power of two that has buckets; what is longer is in the last of them.
pub const LATENCY_LAST_BITS: u32 = 36;
/// Binary logarithm of the buckets for each power of two.
pub const LATENCY_SHARE_BITS: u32 = 3;
/// Requests answered in an iteration whose times are noted with one look at the clock at its end; more are noted
/// before.
pub const ANSWERED_MAX: usize = 1024;
/// Connections of each kind that a worker looks at for those that it names.
pub const CONNS_LOOKED_MAX: usize = 4096;
/// Clients that a worker names when it is asked which it has.
pub const SESSIONS_LISTED_MAX: usize = 64;
/// Connections to backends that a worker names with them.
pub const BACKEND_CONNS_LISTED_MAX: usize = 64;
/// Ring between a worker and the observer of its connections, in bytes.
pub const TAP_RING_BYTES: usize = 1 << 20;
/// Bytes of a connection that one record of that ring has.
pub const TAP_PIECE_BYTES_MAX: usize = 4096;
/// Longest record of that ring: a piece, or the address of a peer.
pub const TAP_RECORD_BYTES_MAX: usize = TAP_PIECE_BYTES_MAX + 32;
/// Longest wait for the workers' answers when a thread lists the sessions.
pub const SESSION_LIST_MS: u64 = 200;
/// Share of the buffer memory that is for rings in shared memory: one in this many.
pub const RING_MEMORY_SHARE: u64 = 8;
/// Bytes of rings that each worker may have at least, beside the buffer memory if that is small: with less, a process
/// that pairs gets no connection.
pub const RING_MEMORY_MIN_BYTES: u64 = 512 << 10;
/// Bytes of the ring through which a worker's part of the access log goes, a power of two: two thousand lines and more.
pub const ACCESS_RING_BYTES: usize = 512 * 1024;
/// Requests of one worker in flight that will be in the access log.
pub const ACCESS_ENTRIES_MAX: usize = 4096;
/// First bytes of a request that the access log keeps.
pub const ACCESS_REQUEST_BYTES_MAX: usize = 160;
/// First bytes of a reply that the access log keeps.
pub const ACCESS_REPLY_BYTES_MAX: usize = 48;
/// Fields of a request that the access log has.
pub const ACCESS_FIELDS_MAX: usize = 8;
/// First bytes of the value of a field that the access log keeps.
pub const ACCESS_FIELD_BYTES_MAX: usize = 200;
/// Bytes of a ring whose records have fields, a power of two.
pub const ACCESS_FIELDS_RING_BYTES: usize = 4 * ACCESS_RING_BYTES;
/// Longest record of the access log without fields: numbers, two addresses, of which one may be a path, and two
/// beginnings.
pub const ACCESS_PLAIN_RECORD_BYTES_MAX: usize = 512;
/// Longest record of the access log.
pub const ACCESS_RECORD_BYTES_MAX: usize =
    ACCESS_PLAIN_RECORD_BYTES_MAX + ACCESS_FIELDS_MAX * (1 + ACCESS_FIELD_BYTES_MAX);

const _: () = assert!(ACCESS_FIELD_BYTES_MAX < 255, "255 stands for a field that is missing");
const _: () = assert!(ACCESS_REQUEST_BYTES_MAX < 256 && ACCESS_REPLY_BYTES_MAX < 256);
const _: () = assert!(
    5 * 8 + 1 + 19 + 2 + 108 + 2 + ACCESS_REQUEST_BYTES_MAX + ACCESS_REPLY_BYTES_MAX
        <= ACCESS_PLAIN_RECORD_BYTES_MAX
);
const _: () = assert!(IDLE_PER_MILLE < BUSY_PER_MILLE);
const _: () = assert!(LONE_QUANTUM_NS <= QUANTUM_NS_MAX && EVENTS_LONE_MAX <= EVENTS_MAX);
const _: () = assert!(SHED_SHARE_MAX < SHED_SHARES);
const _: () = assert!(CHECK_BYTES_MAX <= SMALL_BYTES as usize);
const _: () = assert!(LATENCY_FIRST_BITS >= LATENCY_SHARE_BITS);
const _: () = assert!(MERGE_CHUNK_BYTES_MAX <= LARGE_BYTES as usize);
const _: () = assert!(flick_abi::limits::HEAD_BYTES_MAX <= MERGE_MESSAGE_BYTES_MAX);
const _: () = assert!(flick_abi::limits::BIG_HEAD_BYTES_MAX <= HUGE_BYTES as usize);
const _: () = assert!(COPY_BYTES_MAX < LARGE_BYTES);
const _: () =
    assert!(HUGE_SHARE + RING_MEMORY_SHARE < HUGE_SHARE * RING_MEMORY_SHARE, "both leave other buffers");
const _: () = assert!(SMALL_BYTES < COPY_BYTES_MAX);
const _: () = assert!(BACKLOG_LOW_BYTES < SESSION_BACKLOG_BYTES_MAX);
const _: () = assert!(SESSION_BACKLOG_BYTES_MAX < SESSION_ROOMY_BYTES_MAX);
const _: () = assert!(SESSION_BACKLOG_BYTES_MAX <= SESSION_SHARED_BYTES_MAX);
const _: () = assert!(WINDOW_REPLY_BYTES_FIRST < BULK_REPLY_BYTES && BULK_REPLY_BYTES <= WINDOW_BYTES);
const _: () = assert!(WINDOW_BYTES <= (u32::MAX - REQUEST_COST_BYTES) as u64 / 2);
const _: () = assert!(
    FREE_BYTES <= CONN_QUANTUM_BYTES
        && CONN_QUANTUM_BYTES <= CONN_INFLIGHT_BYTES
        && CONN_INFLIGHT_BYTES <= CONN_INFLIGHT_BYTES_MAX
);
const _: () = assert!(WHOLE_SHARE < RELIEF_SHARE && RELIEF_SHARE < SCARCE_SHARE);
const _: () = assert!(SESSION_BACKLOG_BYTES_MAX <= BACKEND_CONN_BACKLOG_BYTES_MAX);
const _: () = assert!(flick_abi::limits::HEAD_BYTES_MAX as u64 <= WHOLE_BYTES_MAX);
/// Bytes that a client must send each second of a request that takes longer than `client_request`, on average over each
/// such period.
pub const CLIENT_BYTES_PER_SECOND_MIN: u64 = 240;
