//! Messages as scenarios write them: `set "key" value "text" opaque 7`, `get miss`, `get ok value 20000 bytes`.

use super::parse::{Word, number, size};
use crate::service::memcached::{Cmd, REPLY, REQUEST, opcode, status, value_of};

const OPCODES: &[(&str, u8)] = &[
    ("get", opcode::GET),
    ("set", opcode::SET),
    ("delete", opcode::DELETE),
    ("quit", opcode::QUIT),
    ("getq", opcode::GETQ),
    ("noop", opcode::NOOP),
    ("stat", opcode::STAT),
    ("setq", opcode::SETQ),
    ("deleteq", opcode::DELETEQ),
    ("quitq", opcode::QUITQ),
];

const STATUSES: &[(&str, u16)] = &[
    ("ok", status::OK),
    ("miss", status::MISS),
    ("too_large", status::TOO_LARGE),
    ("invalid", status::INVALID),
    ("no_memory", status::NO_MEMORY),
    ("busy", status::BUSY),
    ("unavailable", status::UNAVAILABLE),
];

/// A message, or what is expected of one: what is `None` is chosen when it is sent, and not looked at when it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageText {
    /// Opcode.
    pub opcode: u8,
    /// Status of a reply; a request has none.
    pub status: Option<u16>,
    /// Key.
    pub key: Option<Vec<u8>>,
    /// Value.
    pub value: Option<Vec<u8>>,
    /// Opaque.
    pub opaque: Option<u32>,
    /// CAS.
    pub cas: Option<u64>,
}

impl MessageText {
    /// As a client sends it.
    pub fn request(&self, opaque: u32) -> Cmd {
        let (key, value) = (self.key.clone().unwrap_or_default(), self.value.clone().unwrap_or_default());
        let request = Cmd::request(self.opcode, self.opaque.unwrap_or(opaque), &key, &value);
        Cmd { cas: self.cas.unwrap_or(0), ..request }
    }

    /// As a backend sends it, in reply to `request`.
    pub fn reply(&self, request: &Cmd) -> Cmd {
        let reply = Cmd::reply_to(request, self.status.unwrap_or(status::OK));
        Cmd {
            opcode: self.opcode,
            opaque: self.opaque.unwrap_or(request.opaque),
            cas: self.cas.unwrap_or(0),
            key: self.key.clone().unwrap_or_default(),
            value: self.value.clone().unwrap_or_default(),
            ..reply
        }
    }

    /// Whether this is the message that was meant. A reply without a status is one of success.
    pub fn is(&self, cmd: &Cmd) -> bool {
        let same = |wanted: &Option<Vec<u8>>, is: &Vec<u8>| wanted.as_ref().is_none_or(|wanted| wanted == is);
        let status_is_right = match cmd.magic {
            REPLY => self.status.unwrap_or(status::OK) == cmd.status,
            magic => magic == REQUEST,
        };
        status_is_right
            && self.opcode == cmd.opcode
            && same(&self.key, &cmd.key)
            && same(&self.value, &cmd.value)
            && self.opaque.is_none_or(|opaque| opaque == cmd.opaque)
            && self.cas.is_none_or(|cas| cas == cmd.cas)
    }

    /// Whether this may be the message of which only the head is there.
    pub fn begins(&self, cmd: &Cmd) -> bool {
        MessageText { value: None, ..self.clone() }.is(cmd)
    }
}

/// A message in the words of a scenario, for error texts.
pub(super) fn shown(cmd: &Cmd) -> String {
    let name = OPCODES.iter().find(|(_, code)| *code == cmd.opcode).map(|(name, _)| *name);
    let mut text = name.map_or_else(|| format!("opcode {:#04x}", cmd.opcode), str::to_owned);
    if cmd.magic == REPLY {
        let status = STATUSES.iter().find(|(_, code)| *code == cmd.status).map(|(name, _)| *name);
        text += &status.map_or_else(|| format!(" status {:#06x}", cmd.status), |name| format!(" {name}"));
    }
    if !cmd.key.is_empty() {
        text += &format!(" \"{}\"", String::from_utf8_lossy(&cmd.key));
    }
    match cmd.value.len() {
        0 => {}
        1..=60 => text += &format!(" value \"{}\"", String::from_utf8_lossy(&cmd.value)),
        len => text += &format!(" value {len} bytes"),
    }
    text + &format!(" opaque {}", cmd.opaque)
}

pub(super) fn parse(words: &[Word]) -> Result<MessageText, String> {
    let mut words = words.iter().peekable();
    let name = words.next().and_then(Word::plain).ok_or("a message is missing")?;
    let opcode = OPCODES.iter().find(|(known, _)| *known == name).map(|(_, code)| *code);
    let opcode = opcode.ok_or_else(|| {
        format!("`{name}` is no opcode of memcached; bytes of other protocols stand in double quotes")
    })?;
    let mut message = MessageText { opcode, status: None, key: None, value: None, opaque: None, cas: None };
    while let Some(word) = words.next() {
        match word {
            Word::Text(text) => message.key = Some(text.clone()),
            Word::Plain(word) if word == "opaque" => message.opaque = Some(number(words.next())?),
            Word::Plain(word) if word == "cas" => message.cas = Some(number(words.next())?),
            Word::Plain(word) if word == "value" => match words.next() {
                Some(Word::Text(text)) => message.value = Some(text.clone()),
                count => {
                    message.value = Some(bytes_of(size(count)?));
                    words.next_if(|word| word.plain() == Some("bytes")).ok_or("`value N` wants `bytes`")?;
                }
            },
            Word::Plain(word) => {
                let status = STATUSES.iter().find(|(name, _)| name == word).map(|(_, code)| *code);
                message.status = Some(status.ok_or_else(|| format!("`{word}` is no part of a message"))?);
            }
            Word::Comma => return Err("a comma inside a message".into()),
        }
    }
    Ok(message)
}

/// A pattern of `count` bytes.
pub(super) fn bytes_of(count: usize) -> Vec<u8> {
    let mut value = value_of(format!("bytes#{count}").as_bytes());
    value.truncate(count);
    value
}
