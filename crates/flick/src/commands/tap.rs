//! `flick tap`: shows what passes through the connections of a running process, whatever carries it, and writes it as
//! packets.
//! Promises: the service does not wait for it; what was left out is shown; nothing of a peer reaches the terminal but
//! printable characters.
//! Not here: messages (`tap/messages.rs`), packets (`tap/packets.rs`); the copies are made by the service.

mod messages;
mod packets;

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use flick_admin::state::{TapLine, TapLineKind};
use flick_admin::{Address, client};
use flick_check::counted;

use crate::commands::run::admin::read_token;
use crate::console::sayln;
use crate::failure::{Failure, Outcome};
use messages::{Conversation, Grammar, Item, Side};
use packets::PacketWriter;

/// Bytes in a line of a dump.
const DUMP_LINE_BYTES: usize = 16;

/// Show what passes through connections.
#[derive(Debug, Args)]
pub struct TapCommand {
    /// The connection, as `/api/sessions` names it; without one, all clients of the service
    #[arg(value_name = "CONNECTION")]
    connection: Option<String>,
    /// Address of the admin endpoint, as given to `flick run --admin`: `9900`, `ADDRESS:PORT`, `unix:PATH`
    #[arg(long, value_name = "ADDRESS", default_value = "9900")]
    admin: Address,
    /// The service, where the process has several
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// Grammar of the messages: `http`, `memcached`, `memcached_text`, `resp`, `lines`, `hadoop`, `pcap`, or units of a
    /// file (`FILE.flick:REQUEST/REPLY`, `FILE.flick:UNIT`); without one, bytes are shown
    #[arg(long, value_name = "GRAMMAR")]
    grammar: Option<String>,
    /// Write the bytes to a pcap file, with IPv4 and TCP headers that are made up
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Stop after this number of bytes
    #[arg(long, value_name = "N")]
    max_bytes: Option<u64>,
    /// File with the token of the admin endpoint
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TapCommand {
    /// Shows what passes until the tap ends. Errors: the tap is refused; the grammar is unknown; the file cannot be
    /// written.
    pub fn run(self) -> Outcome {
        if let Some(text) = self.connection.as_deref().filter(|text| text.parse::<Address>().is_ok()) {
            return Err(Failure::usage(format!(
                "`{text}` is not a connection, such as `0.5.2`; the admin endpoint is named with `--admin {text}`"
            )));
        }
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let grammar = self.grammar.as_deref().map(Grammar::named).transpose()?;
        let port = grammar.as_ref().map_or(packets::PORT_UNKNOWN, Grammar::port);
        let mut view = View {
            grammar,
            pcap: self.pcap.clone(),
            port,
            packets: None,
            conns: HashMap::new(),
            bytes: 0,
            has_begun: false,
            ended: None,
        };
        let parameters = [("service", &self.service), ("connection", &self.connection)];
        let parameters =
            parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)));
        let path = format!("/api/tap?{}", parameters.collect::<Vec<_>>().join("&"));
        let mut failure = None;
        let shown = client::tap(&self.admin, &path, token.as_deref(), |line| {
            let shown = match line {
                Some(line) => view.show(&line),
                // Whether there is such a connection is not known yet.
                None if self.connection.is_some() => Ok(()),
                None => view.create_pcap(),
            };
            if let Err(error) = shown {
                let path = self.pcap.as_deref().unwrap_or(Path::new("the packets"));
                failure = Some(Failure::failed(format!("cannot write {}: {error}", path.display())));
            }
            failure.is_none() && self.max_bytes.is_none_or(|most| view.bytes < most)
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        shown.map_err(|error| Failure::failed(format!("cannot tap at {}: {error}", self.admin)))?;
        let over = view.ended.unwrap_or_else(|| "`--max-bytes` is reached".to_owned());
        if self.connection.is_some() && !view.has_begun {
            return Err(Failure::failed(over));
        }
        anstream::eprintln!("{over}; {} shown", counted(view.bytes, "byte"));
        Ok(())
    }
}

/// State of the connections that are shown.
struct View {
    grammar: Option<Grammar>,
    /// The file of the packets, until it is created.
    pcap: Option<PathBuf>,
    /// Port of the service in the packets.
    port: u16,
    packets: Option<PacketWriter<File>>,
    conns: HashMap<String, TappedConn>,
    bytes: u64,
    /// A connection was found.
    has_begun: bool,
    ended: Option<String>,
}

struct TappedConn {
    peer: String,
    conversation: Conversation,
}

impl View {
    /// Creates the file of the packets, if there is to be one: a tap that is refused leaves an older file as it is.
    /// Only its owner may read it, as it has what clients send, passwords included.
    ///
    /// Errors: it cannot be written.
    fn create_pcap(&mut self) -> std::io::Result<()> {
        if let Some(path) = self.pcap.take() {
            let mut options = File::options();
            let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
            self.packets = Some(PacketWriter::new(file, self.port)?);
        }
        Ok(())
    }

    /// Errors: the packets cannot be written.
    fn show(&mut self, line: &TapLine) -> std::io::Result<()> {
        if line.kind != TapLineKind::Over {
            self.create_pcap()?;
        }
        let at = time_text(line.at_us);
        match line.kind {
            TapLineKind::Dropped => {
                sayln!(
                    "{at}  ----  {} left out so far: they came faster than they were read",
                    counted(line.dropped_bytes, "byte")
                );
            }
            TapLineKind::Over => self.ended = Some(printable(line.data.as_bytes())),
            TapLineKind::Begin => {
                let peer = printable(line.data.as_bytes());
                let kind = if line.is_client { "client" } else { "backend" };
                sayln!("{at}  ----  {peer}  {kind}, connection {}", line.id);
                self.packets.iter_mut().try_for_each(|packets| packets.begin(line))?;
                let conversation = Conversation::new(line.is_client);
                self.conns.insert(line.id.clone(), TappedConn { peer, conversation });
                self.has_begun = true;
            }
            TapLineKind::End => {
                let peer = self.conns.remove(&line.id).map_or_else(|| line.id.clone(), |conn| conn.peer);
                sayln!("{at}  ----  {peer}  connection {} has ended", line.id);
                self.packets.iter_mut().try_for_each(|packets| packets.end(line))?;
            }
            TapLineKind::Received | TapLineKind::Sent => self.show_bytes(line, &at)?,
        }
        Ok(())
    }

    fn show_bytes(&mut self, line: &TapLine, at: &str) -> std::io::Result<()> {
        let bytes = unhex(&line.data);
        self.bytes += bytes.len() as u64;
        self.packets.iter_mut().try_for_each(|packets| packets.data(line, &bytes))?;
        let (side, direction) = match line.kind {
            TapLineKind::Received => (Side::Peer, "from"),
            _ => (Side::Service, "to  "),
        };
        let known = self.conns.entry(line.id.clone()).or_insert_with(|| TappedConn {
            peer: line.id.clone(),
            conversation: Conversation::new(line.is_client),
        });
        let peer = &known.peer;
        let Some(grammar) = &self.grammar else {
            sayln!("{at}  {direction}  {peer}  {} at {}", counted(bytes.len(), "byte"), line.offset);
            dump(&bytes);
            return Ok(());
        };
        known.conversation.take(grammar, side, line.offset, &bytes, &mut |item| match item {
            Item::Message { what, bytes, front } => {
                sayln!("{at}  {direction}  {peer}  {what}, {}: {}", counted(bytes, "byte"), summary(front));
            }
            Item::Gap(bytes) => sayln!("{at}  {direction}  {peer}  {} missing", counted(bytes, "byte")),
            Item::Other(bytes) => {
                let size = counted(bytes.len(), "byte");
                sayln!("{at}  {direction}  {peer}  {size}, no message of the grammar");
                dump(bytes);
            }
        });
        Ok(())
    }
}

/// The first line of a message, or its first bytes.
fn summary(front: &[u8]) -> String {
    let line = front.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let is_text = !line.is_empty() && line.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    if is_text {
        return printable(line);
    }
    let hex: Vec<String> = front.iter().take(DUMP_LINE_BYTES * 2).map(|byte| format!("{byte:02x}")).collect();
    format!("{}  {}", hex.join(" "), printable(front))
}

fn printable(bytes: &[u8]) -> String {
    let shown = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
    bytes.iter().map(shown).collect()
}

fn dump(bytes: &[u8]) {
    for (at, line) in bytes.chunks(DUMP_LINE_BYTES).enumerate() {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let width = 3 * DUMP_LINE_BYTES;
        sayln!("    {:04x}  {:width$} {}", at * DUMP_LINE_BYTES, hex.join(" "), printable(line));
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as u8;
    text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Time of the day (UTC).
fn time_text(at_us: u64) -> String {
    let seconds = at_us / 1_000_000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:06}", seconds % 60, at_us % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_peer_but_printable_characters_is_shown() {
        assert_eq!(summary(b"GET /\x1b[2J HTTP/1.1\r\nHost: a"), {
            let hex = "47 45 54 20 2f 1b 5b 32 4a 20 48 54 54 50 2f 31 2e 31 0d 0a 48 6f 73 74 3a 20 61";
            format!("{hex}  GET /.[2J HTTP/1.1..Host: a")
        });
        assert_eq!(summary(b"GET / HTTP/1.1\r\nHost: a"), "GET / HTTP/1.1");
        assert_eq!(printable(b"a\x07\xc3\xa4b"), "a...b");
        assert_eq!(unhex("00ff7a"), [0, 255, b'z']);
        assert_eq!(time_text(86_400_000_000 * 3 + 3_661_000_002), "01:01:01.000002");
    }
}
