//! A program as the platform sees it: channels, rules, protocol facts and bounds; code only by number.

/// A function of the program's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FuncId(pub u32);

/// One process of a program, ready to be bound to addresses.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name of the process.
    pub name: String,
    /// Its channels, in the order of the signature.
    pub channels: Vec<Channel>,
    /// Its rules, in program order.
    pub rules: Vec<Rule>,
    /// One per unit that travels on a channel.
    pub protocols: Vec<Protocol>,
    /// Merges of sorted streams (`foldt`), each instead of a rule.
    pub merges: Vec<Merge>,
    /// What to run when something happens to a channel.
    pub handlers: Vec<Handler>,
    /// What to run at intervals, once for the whole service.
    pub timers: Vec<Timer>,
    /// Global dictionaries, by number.
    pub dicts: Vec<Dict>,
    /// Counters and gauges, by number.
    pub counters: Vec<Counter>,
    /// Words of state that each session has.
    pub state_words: u32,
    /// A rule without a message that gives a session's state its first values; `None`: all zero.
    pub init_state: Option<FuncId>,
    /// What the compiler found out about its needs.
    pub bounds: Bounds,
}

/// One channel of a process.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Name in the signature, and on the command line.
    pub name: String,
    /// Whether it is an array.
    pub is_array: bool,
    /// How to read it; `None` when the process only sends on it.
    pub view: Option<View>,
    /// Whether the process may send on it.
    pub sends: bool,
    /// Index in `Program::protocols`.
    pub protocol: usize,
    /// What travels on it, for people.
    pub units: Units,
}

/// Names of the units of a channel; `None`: that of its protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Units {
    /// Of what is received.
    pub receives: Option<String>,
    /// Of what is sent.
    pub sends: Option<String>,
}

/// How messages of one channel are read: only what the program uses is decoded.
#[derive(Clone, Debug)]
pub struct View {
    /// Parser for a channel that is listened on (messages must be requests, where the grammar tells).
    pub parse_request: FuncId,
    /// Parser for a channel that is dialled (messages must be replies, where the grammar tells).
    pub parse_reply: FuncId,
    /// Parser that never gives a message in parts: for replies to asks, and for whole messages. `parse_reply` for units
    /// that have no parts.
    pub parse_asked: FuncId,
    /// Sets `SLOT_FLAGS` of a reply whose echo fields have been restored in the frame's slots; called like a parser
    /// on the same bytes, always `Done`. `None`: no fact of the grammar concerns replies.
    pub reply_flags: Option<FuncId>,
    /// Longest head: bytes that must lie in one piece before a rule runs.
    pub head_bytes_max: u32,
    /// Bytes that a request may begin with, bit by bit, where the grammar pins them.
    pub first: Option<[u64; 4]>,
}

/// What happens to each message of a channel.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Index in `Program::channels`.
    pub source: usize,
    /// What runs.
    pub action: RuleAction,
    /// It may suspend itself; only a rule of the listened channel can.
    pub asks: bool,
}

/// A merge of the sorted streams of an array of channels into one.
#[derive(Clone, Debug)]
pub struct Merge {
    /// Index in `Program::channels` of an array.
    pub source: usize,
    /// Orders messages 0 and 1 (`Engine::order`).
    pub order: FuncId,
    /// A rule on messages 0 and 1, which are equal in order: sends exactly one message, to channel `source`, which
    /// stands for what both become. Message 0 is from the stream with the lower number.
    pub combine: FuncId,
    /// What happens with each message of the result.
    pub finish: RuleAction,
}

/// What a handler handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The peer closed in good order.
    Closed,
    /// The connection was reset, or ended in the middle of a message.
    Broken,
    /// It could not be dialled.
    Refused,
    /// A request was not answered in time.
    TimedOut,
    /// The peer sent what is not of the grammar.
    Malformed,
}

/// A rule that runs when something happens to a channel; its `source_element` says to which element.
#[derive(Clone, Copy, Debug)]
pub struct Handler {
    /// What.
    pub event: Event,
    /// Index in `Program::channels`.
    pub channel: usize,
    /// The rule.
    pub rule: FuncId,
}

/// A rule that runs at intervals.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    /// How often, in nanoseconds.
    pub interval_ns: u64,
    /// The rule.
    pub rule: FuncId,
}

/// What starts rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Start {
    /// A message of that channel: index in `Program::channels`.
    Channel(usize),
    /// An event: index in `Program::handlers`.
    Handler(usize),
    /// Index in `Program::timers`.
    Timer(usize),
}

impl Program {
    /// Name of the unit that is received on a channel, if one is.
    pub fn received<'a>(&'a self, channel: &'a Channel) -> Option<&'a str> {
        channel.view.as_ref().map(|_| self.unit(channel, &channel.units.receives))
    }

    /// Name of the unit that may be sent on a channel, if one may.
    pub fn sent<'a>(&'a self, channel: &'a Channel) -> Option<&'a str> {
        channel.sends.then(|| self.unit(channel, &channel.units.sends))
    }

    fn unit<'a>(&'a self, channel: &'a Channel, own: &'a Option<String>) -> &'a str {
        own.as_deref().unwrap_or_else(|| {
            self.protocols.get(channel.protocol).map_or("", |protocol| protocol.name.as_str())
        })
    }

    /// What goes which way on a channel, for people: `receives request, sends response`.
    pub fn ways(&self, channel: &Channel) -> String {
        let received = self.received(channel).map(|unit| format!("receives {unit}"));
        let sent = self.sent(channel).map(|unit| format!("sends {unit}"));
        received.into_iter().chain(sent).collect::<Vec<_>>().join(", ")
    }

    /// How many starts there are.
    pub fn starts_count(&self) -> usize {
        self.channels.len() + self.handlers.len() + self.timers.len()
    }

    /// The number of a start among all of them: channels, then handlers, then timers.
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
    /// Entries at most.
    pub entries_max: u64,
    /// Memory at most, in bytes, where the author bounds it.
    pub bytes_max: Option<u64>,
    /// Longest key, in bytes.
    pub key_bytes_max: u32,
    /// Longest value, in bytes.
    pub value_bytes_max: u32,
    /// How long after its last write an entry is forgotten.
    pub expire_ns: Option<u64>,
    /// What a full dictionary does with a new entry.
    pub evict: Evict,
    /// Where it is kept across restarts.
    pub snapshot: Option<Snapshot>,
    /// Changes when the types of keys or values change; a snapshot of another layout is not read.
    pub layout: u64,
}

/// What a full dictionary does with a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// Forgets what was not used for longest (approximately).
    Lru,
    /// Forgets what was written first (approximately).
    Oldest,
    /// Refuses the new entry.
    Nothing,
}

/// Where a dictionary is kept across restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// File name, relative to the state directory.
    pub file: String,
    /// How often it is written, in nanoseconds; at the end always.
    pub every_ns: u64,
}

/// A counter or gauge.
#[derive(Clone, Debug)]
pub struct Counter {
    /// Name.
    pub name: String,
    /// It may go down and be set.
    pub is_gauge: bool,
}

/// The body of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// `a => b`: the message goes on unchanged, no code runs.
    Pass {
        /// Index in `Program::channels` of a single channel.
        to: usize,
    },
    /// Generated code decides.
    Run {
        /// The rule's function.
        rule: FuncId,
    },
}

/// A field at a fixed place of every message of a unit.
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

/// How replies find their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyOrder {
    /// The grammar says nothing of requests and replies: each session gets connections of its own.
    None,
    /// A connection answers in the order it was asked, and its clients expect their replies in theirs.
    InOrder,
}

/// The facts of a grammar that the platform acts on.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// Name of the unit.
    pub name: String,
    /// How replies find their requests.
    pub order: ReplyOrder,
    /// A backend connection carries one exchange at a time (`%exclusive`).
    pub exclusive: bool,
    /// A field the platform numbers on the way out and restores on the way back; also one of `echo`.
    pub correlate: Option<WireField>,
    /// A field to be replaced by the frame's `SLOT_LOUD` on a shared connection, so that every request is
    /// answered; also one of `echo`, and restored on the way back.
    pub loud: Option<WireField>,
    /// Fields a reply repeats from its request; kept in the ledger, at most `ECHO_FIELDS_MAX`.
    pub echo: Vec<WireField>,
    /// Builders of the replies that the platform gives itself, by [`FailureReason`] as index.
    pub failures: [Option<FuncId>; FailureReason::COUNT],
    /// Largest message that the grammar can describe, in bytes; saturates.
    pub message_bytes_max: u64,
}

impl Protocol {
    /// Whether each session has backend connections of its own: the grammar says nothing of requests and replies.
    pub fn is_private(&self) -> bool {
        self.order == ReplyOrder::None
    }
}

/// Why the platform answers a request itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum FailureReason {
    /// No connection to the backend, or it ended before it answered; also an element outside its array.
    Unavailable = 0,
    /// The backend did not answer in time.
    Timeout = 1,
    /// A limit of the platform is reached.
    Overload = 2,
    /// The request is not of the grammar. The connection is closed after the answer.
    Malformed = 3,
    /// The request ended the session (`%ends`).
    Farewell = 4,
    /// A field of the request is longer than its bound; answered and closed as `Malformed`, whose answer stands in for a
    /// missing one.
    TooLong = 5,
    /// The request asks for what the grammar does not support; as `TooLong`.
    Unsupported = 6,
    /// What names the thing that the request is about is longer than its bound; as `TooLong`, whose answer stands in for
    /// a missing one.
    NameTooLong = 7,
}

impl FailureReason {
    /// Number of reasons.
    pub const COUNT: usize = 8;
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
    ];
}

/// What one program needs at most, as computed by the compiler.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// Bytes per session of the program's own state (suspended asks, locals).
    pub session_state_bytes: u64,
    /// Bytes of global state.
    pub global_state_bytes: u64,
    /// Largest head of any channel, in bytes.
    pub head_bytes_max: u64,
    /// Steps of the costliest rule, parse included.
    pub steps_per_message_max: u64,
    /// Messages that one message may cause to be sent.
    pub sends_per_message_max: u64,
    /// Bytes that the costliest activation builds.
    pub out_bytes_max: u64,
    /// Bytes of them that an activation has built when it waits for replies.
    pub kept_bytes_max: u64,
    /// Words that any activation keeps across suspensions; 0: no rule asks.
    pub spill_words: u32,
    /// Asks of any activation, over all its suspensions, those of `ask all` on arrays left out.
    pub asks_max: u32,
    /// `ask all` on arrays in any activation; the platform multiplies by the array's length.
    pub array_asks_max: u32,
}
