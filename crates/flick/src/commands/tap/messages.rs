//! Messages of a grammar in the bytes of a connection that is observed.
//! Promises: the parser is that of a service; bytes that are no message are passed on as they are, and the next piece
//! begins afresh; memory of a connection is bounded.
//! Refuses: guessing where messages begin in a stream that is joined later: the next piece is taken for a beginning.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use flick_abi::frame::{SLOT_ASKED, SLOT_CARRIED};
use flick_abi::{Engine, Frame, FuncId, MessageFlags, ParseStep};
use flick_compiler::{EngineKind, Input, compile};

use super::packets::PORT_UNKNOWN;
use crate::failure::Failure;

/// Bytes of a message that may be kept while its head is incomplete.
const HEAD_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a message that are kept to be shown.
const FRONT_BYTES_MAX: usize = 120;
/// Requests of a connection of which the replies are awaited.
const ASKED_MAX: usize = 4096;

/// Grammars: name, library, what clients send, what they receive, port of its servers.
const GRAMMARS: [(&str, &str, &str, &str, u16); 7] = [
    ("http", "http", "request", "response", 80),
    ("memcached", "memcached_binary", "cmd", "cmd", 11211),
    ("memcached_text", "memcached_text", "command", "reply", 11211),
    ("resp", "resp", "command", "reply", 6379),
    ("lines", "lines", "line", "line", 9999),
    ("hadoop", "hadoop", "kv", "kv", 9999),
    ("pcap", "pcap", "record", "record", 9999),
];

/// A program that answers memcached's text protocol: it reads a `get` of many keys in parts, as a store does.
const STORE: &str = "use memcached_text

type command: record
  goes_on : bool

proc P: (command/reply client)
  client => answered() => client

fun answered: (req: command) -> (reply)
  reply{wire = raw(if req.goes_on: \"OK\\r\\n\" else: \"END\\r\\n\")}
";

/// A program that passes messages of these units of a library on.
fn program(library: &str, (request, reply): (&str, &str)) -> String {
    format!(
        "use {library}\n\nproc P: ({request}/{reply} client, {reply}/{request} backend)\n  client <=> backend\n"
    )
}

/// A grammar, ready to parse.
pub struct Grammar {
    engine: Arc<dyn Engine>,
    parse_request: FuncId,
    parse_reply: FuncId,
    port: u16,
}

impl Grammar {
    /// A grammar of the library, or `FILE.flick:REQUEST/REPLY`: units of a file, or one for both.
    ///
    /// Errors: there is no such grammar, or the file has an error.
    pub fn named(name: &str) -> Result<Self, Failure> {
        if let Some((file, units)) = name.rsplit_once(':') {
            return Self::of_file(Path::new(file), units);
        }
        let Some((_, library, request, reply, port)) =
            GRAMMARS.iter().find(|(known, library, ..)| [*known, *library].contains(&name))
        else {
            let names: Vec<&str> = GRAMMARS.iter().map(|(name, ..)| *name).collect();
            return Err(Failure::usage(format!(
                "there is no grammar `{name}`; the grammars are `{}`, and those of a file: \
                 `FILE.flick:REQUEST/REPLY`, or `FILE.flick:UNIT` for both directions",
                names.join("`, `")
            )));
        };
        let text = match *library {
            "memcached_text" => STORE.to_owned(),
            _ => program(library, (request, reply)),
        };
        Self::compiled(name, &Input::text("tap", text), *port)
    }

    fn of_file(path: &Path, units: &str) -> Result<Self, Failure> {
        let is_word = |word: &str| word.chars().all(|c| c.is_alphanumeric() || c == '_') && !word.is_empty();
        let (request, reply) = units.split_once('/').unwrap_or((units, units));
        let stem = path.file_stem().filter(|_| path.extension().is_some_and(|kind| kind == "flick"));
        let library = stem.and_then(|stem| stem.to_str()).filter(|stem| is_word(stem));
        let (Some(library), true) = (library, is_word(request) && is_word(reply)) else {
            return Err(Failure::usage(format!(
                "`{}:{units}` names no units of a file, as `FILE.flick:REQUEST/REPLY` does",
                path.display()
            )));
        };
        if !path.is_file() {
            return Err(Failure::failed(format!("there is no file {}", path.display())));
        }
        let beside = path.with_file_name("tap.flick");
        let text = program(library, (request, reply));
        Self::compiled(&path.display().to_string(), &Input::at(&beside, text), PORT_UNKNOWN)
    }

    fn compiled(name: &str, program: &Input<'_>, port: u16) -> Result<Self, Failure> {
        let compiled = compile(program, EngineKind::Interpreter);
        let compiled =
            compiled.map_err(|failure| Failure::failed(format!("the grammar `{name}`: {failure}")))?;
        let executable = &compiled.executables[0];
        let channels = &executable.module.program.channels;
        let view = |channel: &flick_abi::Channel| channel.view.clone().expect("all channels receive");
        let (first, last) = (view(&channels[0]), view(&channels[channels.len() - 1]));
        Ok(Self {
            engine: Arc::clone(&executable.engine),
            parse_request: first.parse_request,
            parse_reply: last.parse_reply,
            port,
        })
    }

    /// The port at which servers of the protocol listen.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Side of a connection that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The peer.
    Peer,
    /// The service.
    Service,
}

/// Part of what passes.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A message: `request` or `reply`, its bytes, and the first of them.
    Message {
        /// `request` or `reply`.
        what: &'static str,
        /// Bytes of the message.
        bytes: u64,
        /// The first bytes.
        front: &'a [u8],
    },
    /// Bytes are missing.
    Gap(u64),
    /// Bytes that are no message.
    Other(&'a [u8]),
}

/// Both directions of a connection.
pub struct Conversation {
    is_client: bool,
    /// Of requests whose replies are awaited: what the grammar keeps.
    asked: VecDeque<u64>,
    directions: [Direction; 2],
    /// No messages any more: a tunnel.
    is_raw: bool,
}

#[derive(Default)]
struct Direction {
    frame: Box<Frame>,
    /// Bytes of a head that is incomplete.
    bytes: Vec<u8>,
    wanted: u64,
    /// Bytes of the message, or of its present part, that are not looked at.
    skip: u64,
    has_begun: bool,
    message_bytes: u64,
    front: Vec<u8>,
    flags: MessageFlags,
    next_offset: u64,
}

impl Direction {
    fn restart(&mut self) {
        *self = Self { next_offset: self.next_offset, ..Self::default() };
    }

    /// Makes ready for the message that follows.
    fn end_message(&mut self) {
        let carried = self.frame.slots[SLOT_CARRIED];
        self.restart();
        self.frame.slots[SLOT_CARRIED] = carried;
    }

    /// Notes bytes of the present message.
    fn note(&mut self, bytes: usize) {
        let capacity = FRONT_BYTES_MAX.saturating_sub(self.front.len());
        self.front.extend_from_slice(&self.bytes[..bytes.min(capacity)]);
        self.message_bytes += bytes as u64;
        self.bytes.drain(..bytes);
    }
}

impl Conversation {
    /// With a client, or with a backend.
    pub fn new(is_client: bool) -> Self {
        Self { is_client, asked: VecDeque::new(), directions: Default::default(), is_raw: false }
    }

    /// Takes bytes that `side` has sent, and shows the messages that end in them.
    pub fn take(
        &mut self,
        grammar: &Grammar,
        side: Side,
        offset: u64,
        bytes: &[u8],
        show: &mut dyn FnMut(Item<'_>),
    ) {
        let direction = &mut self.directions[side as usize];
        if offset > direction.next_offset {
            show(Item::Gap(offset - direction.next_offset));
            direction.restart();
            // Which requests the next replies answer is not known any more.
            self.asked.clear();
        }
        direction.next_offset = offset + bytes.len() as u64;
        if self.is_raw {
            return show(Item::Other(bytes));
        }
        direction.bytes.extend_from_slice(bytes);
        let is_request = (side == Side::Peer) == self.is_client;
        while self.step(grammar, side, is_request, show) {}
    }

    /// Goes on by one step of the parser; returns whether another one may follow.
    fn step(
        &mut self,
        grammar: &Grammar,
        side: Side,
        is_request: bool,
        show: &mut dyn FnMut(Item<'_>),
    ) -> bool {
        let direction = &mut self.directions[side as usize];
        if direction.skip > 0 {
            let bytes = direction.skip.min(direction.bytes.len() as u64);
            direction.note(bytes as usize);
            direction.skip -= bytes;
            return bytes > 0 && (direction.skip > 0 || self.end_part(side, is_request, show));
        }
        let is_starved = (direction.bytes.len() as u64) < direction.wanted;
        if is_starved || (direction.bytes.is_empty() && !direction.has_begun) {
            return false;
        }
        if !direction.has_begun {
            direction.frame.restart();
            if !is_request {
                direction.frame.slots[SLOT_ASKED] = self.asked.front().copied().unwrap_or_default();
            }
        }
        let parser = if is_request { grammar.parse_request } else { grammar.parse_reply };
        match grammar.engine.parse(parser, &mut direction.frame, &direction.bytes) {
            ParseStep::NeedMore(bytes) if bytes <= HEAD_BYTES_MAX => {
                direction.has_begun = true;
                direction.wanted = bytes;
                false
            }
            ParseStep::NeedMore(_) | ParseStep::Fault { .. } => {
                let bytes = std::mem::take(&mut direction.bytes);
                direction.restart();
                show(Item::Other(&bytes));
                false
            }
            ParseStep::Done => {
                if is_request && direction.message_bytes == 0 && self.asked.len() < ASKED_MAX {
                    // One that the next one continues is answered with that.
                    let has_reply = !direction.frame.flags().has(MessageFlags::ONE_WAY)
                        && direction.frame.slots[SLOT_CARRIED] == 0;
                    self.asked.extend(has_reply.then_some(direction.frame.slots[SLOT_ASKED]));
                }
                direction.has_begun = true;
                direction.wanted = 0;
                direction.flags = direction.frame.flags();
                direction.skip = direction.frame.total_bytes();
                direction.skip > 0 || self.end_part(side, is_request, show)
            }
        }
    }

    /// Ends a part of a message, or the message; returns whether another step may follow.
    fn end_part(&mut self, side: Side, is_request: bool, show: &mut dyn FnMut(Item<'_>)) -> bool {
        let direction = &mut self.directions[side as usize];
        if direction.flags.has(MessageFlags::PARTS) {
            direction.frame.next_part();
            return true;
        }
        let what = if is_request { "request" } else { "reply" };
        show(Item::Message { what, bytes: direction.message_bytes, front: &direction.front });
        if !is_request && !direction.flags.has(MessageFlags::MORE) {
            self.asked.pop_front();
        }
        self.is_raw = !is_request && direction.flags.has(MessageFlags::TUNNEL);
        let rest = std::mem::take(&mut direction.bytes);
        direction.end_message();
        if self.is_raw && !rest.is_empty() {
            show(Item::Other(&rest));
            return false;
        }
        direction.bytes = rest;
        !direction.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the items of both directions; each piece is of one side.
    fn shown(grammar: &str, pieces: &[(Side, &[u8])]) -> Vec<String> {
        let Ok(grammar) = Grammar::named(grammar) else { panic!("the grammar is in the table") };
        let mut conversation = Conversation::new(true);
        let (mut offsets, mut seen) = ([0; 2], Vec::new());
        for (side, bytes) in pieces {
            let offset = &mut offsets[*side as usize];
            conversation.take(&grammar, *side, *offset, bytes, &mut |item| {
                seen.push(match item {
                    Item::Message { what, bytes, front } => {
                        let line = front.split(|byte| *byte == b'\r').next().unwrap_or_default();
                        format!("{what} {bytes} {}", String::from_utf8_lossy(line))
                    }
                    Item::Gap(bytes) => format!("gap {bytes}"),
                    Item::Other(bytes) => format!("other {}", bytes.len()),
                });
            });
            *offset += bytes.len() as u64;
        }
        seen
    }

    const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    const HEAD: &[u8] = b"HEAD /b HTTP/1.1\r\nHost: a\r\n\r\n";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    const LONG: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";

    #[test]
    fn every_split_shows_the_same_messages() {
        let requests = [GET, HEAD, GET].concat();
        let replies = [CHUNKED, LONG, LONG, b"123456789"].concat();
        let expected = [
            "request 28 GET /a HTTP/1.1".to_owned(),
            "request 29 HEAD /b HTTP/1.1".to_owned(),
            "request 28 GET /a HTTP/1.1".to_owned(),
            format!("reply {} HTTP/1.1 200 OK", CHUNKED.len()),
            // The reply to HEAD has no body, whatever its length says.
            format!("reply {} HTTP/1.1 200 OK", LONG.len()),
            format!("reply {} HTTP/1.1 200 OK", LONG.len() + 9),
        ];
        for size in 1..=replies.len() {
            let requests = requests.chunks(size).map(|piece| (Side::Peer, piece));
            let replies = replies.chunks(size).map(|piece| (Side::Service, piece));
            assert_eq!(shown("http", &requests.chain(replies).collect::<Vec<_>>()), expected, "{size}");
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_passed_on_and_the_next_piece_begins_afresh() {
        let seen = shown("http", &[(Side::Peer, b"\x01\x02\r\n"), (Side::Peer, GET)]);
        assert_eq!(seen, ["other 4", "request 28 GET /a HTTP/1.1"]);
    }

    #[test]
    fn line_of_more_keys_than_a_message_holds_was_no_message() {
        let line = format!("get{}\r\n", " key".repeat(201));
        let pieces = [(Side::Peer, line.as_bytes()), (Side::Peer, b"get a\r\n"), (Side::Service, b"END\r\n")];
        let first = format!("request 804 {}", &line[..FRONT_BYTES_MAX]);
        let expected = [first.as_str(), "request 5 key", "request 7 get a", "reply 5 END"];
        assert_eq!(shown("memcached_text", &pieces), expected);
    }

    #[test]
    fn messages_of_other_grammars_are_found() {
        let set = b"set key 1 0 3\r\nabc\r\n";
        let seen = shown("memcached_text", &[(Side::Peer, set), (Side::Service, b"STORED\r\n")]);
        assert_eq!(seen, ["request 20 set key 1 0 3", "reply 8 STORED"]);
        let get = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        let seen = shown("resp", &[(Side::Peer, get), (Side::Service, b"$2\r\nab\r\n")]);
        assert_eq!(seen, ["request 20 *2", "reply 8 $2"]);
        let get = b"\x80\0\0\x03\0\0\0\0\0\0\0\x03\0\0\0\x07\0\0\0\0\0\0\0\0key";
        let seen = shown("memcached", &[(Side::Peer, &get[..20]), (Side::Peer, &get[20..])]);
        assert!(seen.len() == 1 && seen[0].starts_with("request 27 "), "{seen:?}");
    }

    #[test]
    fn a_tunnel_is_shown_as_bytes() {
        let upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        let switched =
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        let pieces = [(Side::Peer, &upgrade[..]), (Side::Service, &switched[..]), (Side::Peer, b"frame")];
        let seen = shown("http", &pieces);
        assert!(seen[0].starts_with("request ") && seen[1].starts_with("reply "), "{seen:?}");
        assert_eq!(seen[2..], ["other 5"]);
    }

    #[test]
    fn messages_of_a_grammar_in_a_file_are_found() {
        let file = format!("{}/../../examples/stomp_gateway/stomp.flick", env!("CARGO_MANIFEST_DIR"));
        let send = b"SEND\ndestination:/a\n\nhello\0";
        let seen = shown(&format!("{file}:frame"), &[(Side::Peer, &send[..9]), (Side::Peer, &send[9..])]);
        assert_eq!(seen, ["request 27 SEND\ndestination:/a\n\nhello\0"]);
        for (wrong, what) in [
            (format!("{file}:frames"), "frames"),
            (format!("{file}:"), "names no units"),
            (format!("{file}:frame client"), "names no units"),
            (file.replace(".flick", ".txt:frame"), "names no units"),
            ("/missing.flick:frame".to_owned(), "there is no file"),
            (file.clone(), "there is no grammar"),
        ] {
            let error = Grammar::named(&wrong).err().map(|failure| failure.text()).unwrap_or_default();
            assert!(error.contains(what), "{wrong}: {error}");
        }
    }

    #[test]
    fn every_grammar_of_the_table_compiles() {
        for (name, ..) in GRAMMARS {
            assert!(Grammar::named(name).is_ok(), "{name}");
        }
        assert!(Grammar::named("html").is_err());
    }

    #[test]
    fn missing_bytes_are_shown_and_end_the_message() {
        let Ok(grammar) = Grammar::named("http") else { panic!("the grammar is in the table") };
        let (mut conversation, mut seen) = (Conversation::new(true), Vec::new());
        let mut show =
            |item: Item<'_>| seen.push(format!("{item:?}").split([' ', '(']).next().unwrap_or("").to_owned());
        conversation.take(&grammar, Side::Peer, 0, &GET[..10], &mut show);
        conversation.take(&grammar, Side::Peer, 500, GET, &mut show);
        assert_eq!(seen, ["Gap", "Message"]);
    }

    /// The reply to HEAD is missing; the one to GET was taken for it, and its body for something else.
    #[test]
    fn reply_behind_missing_bytes_was_taken_for_one_that_is_missing() {
        let Ok(grammar) = Grammar::named("http") else { panic!("the grammar is in the table") };
        let (mut conversation, mut seen) = (Conversation::new(true), Vec::new());
        let mut show = |item: Item<'_>| {
            seen.push(match item {
                Item::Message { what, bytes, .. } => format!("{what} {bytes}"),
                Item::Gap(bytes) => format!("gap {bytes}"),
                Item::Other(bytes) => format!("other {}", bytes.len()),
            });
        };
        conversation.take(&grammar, Side::Peer, 0, &[HEAD, GET].concat(), &mut show);
        let reply = [LONG, b"123456789"].concat();
        conversation.take(&grammar, Side::Service, 500, &reply, &mut show);
        assert_eq!(seen, ["request 29", "request 28", "gap 500", &format!("reply {}", reply.len())]);
    }
}
