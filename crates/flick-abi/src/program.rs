//! A program as the platform sees it: channels, rules, protocol facts and bounds. Code is referred to by number.

/// A function of the program's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FuncId(pub u32);

/// One process of a program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name of the process.
    pub name: String,
    /// Its channels, in the order of the signature.
    pub channels: Vec<Channel>,
    /// Its rules, in program order.
    pub rules: Vec<Rule>,
    /// One protocol per unit that a channel carries.
    pub protocols: Vec<Protocol>,
    /// Merges of sorted streams (`foldt`); such a channel has no rule.
    pub merges: Vec<Merge>,
    /// Rules for events of channels.
    pub handlers: Vec<Handler>,
    /// Rules that run at intervals, once per service.
    pub timers: Vec<Timer>,
    /// Global dictionaries, by number.
    pub dicts: Vec<Dict>,
    /// Counters and gauges, by number.
    pub counters: Vec<Counter>,
    /// Words of state that each session has.
    pub state_words: u32,
    /// A rule without a message that initialises a session's state; `None`: all zero.
    pub init_state: Option<FuncId>,
    /// Resource bounds that the compiler has computed.
    pub bounds: Bounds,
}

/// One channel of a process.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Name in the signature, and on the command line.
    pub name: String,
    /// Whether it is an array.
    pub is_array: bool,
    /// Parsers of the messages received on the channel; `None` when the process only sends on the channel.
    pub view: Option<View>,
    /// Whether the process may send on it.
    pub sends: bool,
    /// Index in `Program::protocols`.
    pub protocol: usize,
    /// The units that it carries, for display.
    pub units: Units,
}

/// Names of the units of a channel; `None`: the name of its protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Units {
    /// The unit that is received.
    pub receives: Option<String>,
    /// The unit that is sent.
    pub sends: Option<String>,
}

/// Parsers of the messages of one channel; they decode only the fields that the program uses.
#[derive(Clone, Debug)]
pub struct View {
    /// Parser for a listening channel; it accepts requests only, where the grammar distinguishes them.
    pub parse_request: FuncId,
    /// Parser for a connecting channel; it accepts replies only, where the grammar distinguishes them.
    pub parse_reply: FuncId,
    /// Parser that never returns a message in parts: for replies to asks, and for whole messages. It is `parse_reply`
    /// for units without parts.
    pub parse_asked: FuncId,
    /// Sets `SLOT_FLAGS` of a reply whose echo fields have been restored in the frame; called like a parser on the same
    /// bytes, and always returns `Done`. `None`: no fact of the grammar concerns replies.
    pub reply_flags: Option<FuncId>,
    /// Longest head in bytes: the part that must be contiguous before a rule runs.
    pub head_bytes_max: u32,
    /// The set of bytes that a request may begin with, as bits, where the grammar restricts them.
    pub first: Option<[u64; 4]>,
}

/// A channel and the action for each of its messages.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Index in `Program::channels`.
    pub source: usize,
    /// Action for each message.
    pub action: RuleAction,
    /// Whether the rule may suspend; only a rule of the listening channel can.
    pub asks: bool,
    /// Look-up that the rule may do by a field of its message. The platform may load the entry into the processor's
    /// cache before the rule runs.
    pub lookup: Option<KeyLookup>,
}

/// A look-up in a dictionary by a field of a message, or by its front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLookup {
    /// Number of the dictionary.
    pub dict: u32,
    /// Slot of the field in the message's frame: a [`crate::BytesRef`].
    pub slot: u16,
    /// Bytes of the field, from its start, that are the key at most.
    pub bytes_max: u32,
}

/// A merge of the sorted streams of an array of channels into one.
#[derive(Clone, Debug)]
pub struct Merge {
    /// Index of an array in `Program::channels`.
    pub source: usize,
    /// Compares messages 0 and 1 (`Engine::order`).
    pub order: FuncId,
    /// A rule on messages 0 and 1, which compare as equal. It sends exactly one message, to channel `source`, which
    /// replaces both. Message 0 is from the stream with the lower number.
    pub combine: FuncId,
    /// Action for each message of the merged stream.
    pub finish: RuleAction,
}

/// An event of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The peer closed the connection, between two messages.
    Closed,
    /// The connection was reset, or ended inside a message.
    Broken,
    /// The connection could not be opened.
    Refused,
    /// A request was not answered in time.
    TimedOut,
    /// The peer sent malformed bytes.
    Malformed,
}

/// A rule that runs at an event of a channel; its `source_element` is the element.
#[derive(Clone, Copy, Debug)]
pub struct Handler {
    /// The event.
    pub event: Event,
    /// Index in `Program::channels`.
    pub channel: usize,
    /// The rule.
    pub rule: FuncId,
}

/// A rule that runs at intervals.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    /// The interval in nanoseconds.
    pub interval_ns: u64,
    /// The rule.
    pub rule: FuncId,
}

/// Trigger of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Start {
    /// A message of a channel: index in `Program::channels`.
    Channel(usize),
    /// An event: index in `Program::handlers`.
    Handler(usize),
    /// A timer: index in `Program::timers`.
    Timer(usize),
}

impl Program {
    /// Returns the name of the unit that is received on a channel, if any.
    pub fn received<'a>(&'a self, channel: &'a Channel) -> Option<&'a str> {
        channel.view.as_ref().map(|_| self.unit(channel, &channel.units.receives))
    }

    /// Returns the name of the unit that may be sent on a channel, if any.
    pub fn sent<'a>(&'a self, channel: &'a Channel) -> Option<&'a str> {
        channel.sends.then(|| self.unit(channel, &channel.units.sends))
    }

    fn unit<'a>(&'a self, channel: &'a Channel, own: &'a Option<String>) -> &'a str {
        own.as_deref().unwrap_or_else(|| {
            self.protocols.get(channel.protocol).map_or("", |protocol| protocol.name.as_str())
        })
    }

    /// Describes both directions of a channel: `receives request, sends response`.
    pub fn directions(&self, channel: &Channel) -> String {
        let received = self.received(channel).map(|unit| format!("receives {unit}"));
        let sent = self.sent(channel).map(|unit| format!("sends {unit}"));
        received.into_iter().chain(sent).collect::<Vec<_>>().join(", ")
    }

    /// Returns the number of starts.
    pub fn starts_count(&self) -> usize {
        self.channels.len() + self.handlers.len() + self.timers.len()
    }

    /// Numbers all starts: channels, then handlers, then timers.
    pub fn start_number(&self, start: Start) -> usize {
        match start {
            Start::Channel(channel) => channel,
            Start::Handler(handler) => self.channels.len() + handler,
            Start::Timer(timer) => self.channels.len() + self.handlers.len() + timer,
        }
    }
}

/// A global dictionary.
#[derive(Clone, Debug)]
pub struct Dict {
    /// Name.
    pub name: String,
    /// Most entries.
    pub entries_max: u64,
    /// Most memory in bytes, where the program bounds it.
    pub bytes_max: Option<u64>,
    /// Longest key, in bytes.
    pub key_bytes_max: u32,
    /// Longest value, in bytes.
    pub value_bytes_max: u32,
    /// Time from the last write of an entry to its expiry, in nanoseconds; `None`: entries do not expire.
    pub expire_ns: Option<u64>,
    /// Eviction policy when the dictionary is full.
    pub evict: Evict,
    /// Snapshot that preserves the dictionary across restarts; `None`: it is not saved.
    pub snapshot: Option<Snapshot>,
    /// Changes when the types of keys or values change; a snapshot of another layout is not read.
    pub layout: u64,
}

/// Eviction policy of a full dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// Evicts the least recently used entry (approximately).
    Lru,
    /// Evicts the oldest entry (approximately).
    Oldest,
    /// Refuses the new entry.
    Nothing,
}

/// File and interval of the snapshots that preserve a dictionary across restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// File name, relative to the state directory.
    pub file: String,
    /// Interval between two writes of the file, in nanoseconds; it is always written at shutdown.
    pub every_ns: u64,
}

/// A counter or gauge.
#[derive(Clone, Debug)]
pub struct Counter {
    /// Name.
    pub name: String,
    /// Whether it is a gauge, which may decrease and be set.
    pub is_gauge: bool,
}

/// The body of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// `a => b`: forwards the message unchanged; no code runs.
    Pass {
        /// Index in `Program::channels` of a single channel.
        to: usize,
    },
    /// Runs generated code.
    Run {
        /// The rule's function.
        rule: FuncId,
    },
}

/// A field at a fixed offset in every message of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireField {
    /// Offset from the first byte of the message, in bytes.
    pub offset: u32,
    /// Width in bytes: 1, 2, 4 or 8.
    pub width_bytes: u8,
    /// Byte order on the wire.
    pub big_endian: bool,
    /// The field's slot in a frame filled by any parser of the unit.
    pub slot: u16,
}

impl WireField {
    /// Overwrites the field in `message`, which starts at a message's first byte. Bits of `value` beyond the
    /// width are dropped. Panics when the message is shorter than its fixed part.
    pub fn write(&self, message: &mut [u8], value: u64) {
        let (start, width) = (self.offset as usize, usize::from(self.width_bytes));
        let target = &mut message[start..start + width];
        if self.big_endian {
            target.copy_from_slice(&value.to_be_bytes()[8 - width..]);
        } else {
            target.copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }
}

/// Rule by which replies are matched with their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyOrder {
    /// The grammar has neither requests nor replies: each session has its own backend connections.
    None,
    /// A connection replies in the order of its requests, and a client gets its replies in the order of its requests.
    InOrder,
}

/// A field of a request, and where its reply repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoField {
    /// In the request.
    pub request: WireField,
    /// In the reply; `None` if the unit of the replies has no such field.
    pub reply: Option<WireField>,
}

/// The facts of a grammar that the platform uses.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// Name of the unit.
    pub name: String,
    /// Rule by which replies are matched with their requests.
    pub order: ReplyOrder,
    /// Whether a backend connection carries one exchange at a time (`%exclusive`).
    pub exclusive: bool,
    /// Number that the platform adds to what is kept of a request whose reply ends the session (`%keep_last`), so that
    /// the reply says so; 0: replies do not say it.
    pub keep_last: u64,
    /// Bits of the kept number that are those of the client's own request, also where a rule sends another
    /// (`%keep_client`): facts of the client, not of the request.
    pub keep_client: u64,
    /// Index in `echo` of the field that the platform numbers in requests and restores in replies (`%correlate`).
    pub correlate: Option<usize>,
    /// Index in `echo` of the field that `SLOT_NON_QUIET` replaces on a shared connection, so that every request gets a
    /// reply (`%loud`); restored in replies.
    pub non_quiet: Option<usize>,
    /// Fields of a request that are kept in the in-flight table, at most `ECHO_FIELDS_MAX`.
    pub echo: Vec<EchoField>,
    /// Builders of the platform's own replies, indexed by [`FailureReason`].
    pub failures: [Option<FuncId>; FailureReason::COUNT],
    /// Slots of the fields of a request that the access log has, in the operator's order, in a frame filled by any
    /// parser of requests; empty if its requests have no named fields.
    pub log_fields: Vec<u16>,
    /// Whether its replies state a status code (`%status`).
    pub has_status: bool,
    /// Largest message that the grammar can describe, in bytes; saturates.
    pub message_bytes_max: u64,
}

impl Protocol {
    /// Whether each session has its own backend connections: the grammar has neither requests nor replies.
    pub fn is_private(&self) -> bool {
        self.order == ReplyOrder::None
    }

    /// The field that the platform numbers in requests.
    pub fn correlated(&self) -> Option<&EchoField> {
        self.correlate.map(|at| &self.echo[at])
    }

    /// The field that the platform makes non-quiet in requests.
    pub fn made_non_quiet(&self) -> Option<&EchoField> {
        self.non_quiet.map(|at| &self.echo[at])
    }
}

/// Reason for which the platform itself replies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum FailureReason {
    /// No connection to the backend, or it ended before the reply; also an element outside its array.
    Unavailable = 0,
    /// The backend did not reply in time.
    Timeout = 1,
    /// A limit of the platform is reached.
    Overload = 2,
    /// The request is malformed. The connection is closed after the reply.
    Malformed = 3,
    /// The request ends the session (`%ends`).
    Farewell = 4,
    /// A field of the request is longer than its bound; handled as `Malformed`, whose reply is used where this one is
    /// missing.
    TooLong = 5,
    /// The request uses something that the grammar does not support; handled as `TooLong`.
    Unsupported = 6,
    /// The name of the requested thing is longer than its bound; handled as `TooLong`, whose reply is used where this
    /// one is missing.
    NameTooLong = 7,
    /// The client sends the request too slowly. The connection is closed after the reply.
    TooSlow = 8,
}

impl FailureReason {
    /// Number of reasons.
    pub const COUNT: usize = 9;
    /// All reasons with the names that grammars use (`%on NAME = ...`).
    pub const NAMES: [(&'static str, FailureReason); Self::COUNT] = [
        ("unavailable", FailureReason::Unavailable),
        ("timeout", FailureReason::Timeout),
        ("overload", FailureReason::Overload),
        ("malformed", FailureReason::Malformed),
        ("farewell", FailureReason::Farewell),
        ("too_long", FailureReason::TooLong),
        ("unsupported", FailureReason::Unsupported),
        ("name_too_long", FailureReason::NameTooLong),
        ("too_slow", FailureReason::TooSlow),
    ];
}

/// Resource bounds of a program, as computed by the compiler.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// Bytes per session of the program's own state (suspended asks, locals).
    pub session_state_bytes: u64,
    /// Bytes of global state.
    pub global_state_bytes: u64,
    /// Largest head of any channel, in bytes.
    pub head_bytes_max: u64,
    /// Steps of the most expensive rule, parsing included.
    pub steps_per_message_max: u64,
    /// Messages that one message may cause the program to send.
    pub sends_per_message_max: u64,
    /// Bytes that the most expensive activation builds.
    pub out_bytes_max: u64,
    /// Bytes of them that an activation has built when it suspends.
    pub kept_bytes_max: u64,
    /// Words that any activation keeps while it is suspended; 0: no rule asks.
    pub spill_words: u32,
    /// Asks of any activation, over all its suspensions, without `ask all` on arrays.
    pub asks_max: u32,
    /// Uses of `ask all` on arrays in any activation; the platform multiplies by the array's length.
    pub array_asks_max: u32,
}
