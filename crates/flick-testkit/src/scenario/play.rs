//! Player of scenarios, which executes their lines.
//! Promises: steps happen in the order they are written; each waits, in the stage's time, for what it expects.

use std::collections::BTreeMap;

use super::diagram::{self, text_of};
use super::messages::{MessageText, shown};
use super::parse::{Action, Scenario, Step, Wanted};
use super::stage::{Command, PeerId, Reachable, Stage};
use crate::service::memcached::Cmd;

/// State of a peer, beside what the stage keeps.
#[derive(Default)]
struct Delivered {
    /// Clients: requests whose replies have not been expected yet. Backends: requests not yet answered.
    open: Vec<Cmd>,
    unsent: Vec<u8>,
}

struct Player<'a> {
    stage: &'a mut dyn Stage,
    clients: BTreeMap<String, PeerId>,
    delivered: BTreeMap<PeerId, Delivered>,
    /// By backend: the connection that its last `expects` was about.
    current: BTreeMap<usize, PeerId>,
    next_opaque: u32,
}

/// Bytes of what arrived instead that are shown.
const SHOWN_BYTES: usize = 400;
/// Longest wait for a counter, for the end of a worker, and for similar events.
const SOON_MS: u64 = 3_000;

/// Plays a scenario to its end.
///
/// Errors: the line that did not come true, what was there instead, and, if the stage keeps a log, a diagram of what
/// went to and fro before.
pub fn play(scenario: &Scenario, stage: &mut dyn Stage) -> Result<(), String> {
    let mut player = Player {
        stage,
        clients: BTreeMap::new(),
        delivered: BTreeMap::new(),
        current: BTreeMap::new(),
        next_opaque: 1000,
    };
    for (line, step) in &scenario.steps {
        if let Err(what) = player.step(step) {
            return Err(format!("line {line}: {what}{}", player.diagram(scenario)));
        }
    }
    Ok(())
}

impl Player<'_> {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Client(name, action) => {
                let peer = match self.clients.get(name) {
                    Some(peer) => *peer,
                    None => {
                        let peer = self.stage.open();
                        self.clients.insert(name.clone(), peer);
                        peer
                    }
                };
                self.client(peer, action)
            }
            Step::Backend(index, action) => self.backend(*index, action),
            Step::Wait(ms) => {
                let until = self.stage.now_ms() + ms;
                self.stage.rest(until);
                Ok(())
            }
            Step::Drain(ms) => {
                self.stage.drain(*ms);
                Ok(())
            }
            Step::Counter(name, value) => {
                let known = self.stage.counters().iter().any(|(known, _)| known == name);
                if !known {
                    return Err(format!("neither the program nor the platform has a counter `{name}`"));
                }
                let is = |player: &Self| {
                    player.stage.counters().iter().find(|(known, _)| known == name).map_or(0, |(_, is)| *is)
                };
                let came_true = self.soon(SOON_MS, |player| (is(player) == *value).then_some(()));
                came_true.ok_or_else(|| format!("counter {name} is {}, not {value}", is(self)))
            }
            Step::Finished => {
                let finished = self.soon(SOON_MS, |player| player.stage.is_finished().then_some(()));
                finished.ok_or_else(|| "the worker does not finish".into())
            }
            Step::Quiet => {
                let quiet = self.soon(SOON_MS, |player| player.stage.expect_quiet().ok());
                quiet.ok_or_else(|| self.stage.expect_quiet().err().unwrap_or_default())
            }
        }
    }

    /// Returns a diagram of the scenario so far, below a line end; empty if the stage keeps no log.
    fn diagram(&mut self, scenario: &Scenario) -> String {
        let log = self.stage.log();
        if log.is_empty() {
            return String::new();
        }
        let mut names = BTreeMap::new();
        for (name, peer) in &self.clients {
            names.insert(*peer, (diagram::Side::Client, name.clone()));
        }
        for index in 0..scenario.backends {
            for peer in self.stage.connections(index) {
                names.insert(peer, (diagram::Side::Backend, scenario.backend_name(index)));
            }
        }
        format!("\n{}", diagram::draw(&log, &names))
    }

    fn input<T>(&mut self, peer: PeerId, look: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let (mut look, mut seen) = (Some(look), None);
        self.stage.with_input(peer, &mut |input| seen = look.take().map(|look| look(input)));
        seen.expect("a stage shows what it has")
    }

    /// Lets the service run until `look` finds something or time is up.
    fn until<T>(&mut self, until_ms: u64, mut look: impl FnMut(&mut Self) -> Option<T>) -> Option<T> {
        loop {
            if let Some(found) = look(self) {
                return Some(found);
            }
            if self.stage.now_ms() >= until_ms {
                return None;
            }
            self.stage.step();
        }
    }

    fn soon<T>(&mut self, within_ms: u64, look: impl FnMut(&mut Self) -> Option<T>) -> Option<T> {
        let until_ms = self.stage.now_ms() + within_ms;
        self.until(until_ms, look)
    }

    fn client(&mut self, peer: PeerId, action: &Action) -> Result<(), String> {
        match action {
            Action::Sends(message) | Action::SendsFirst(_, message) => {
                self.next_opaque += 1;
                let request = message.request(self.next_opaque);
                let mut bytes = request.bytes();
                let delivered = self.delivered.entry(peer).or_default();
                delivered.open.push(request);
                if let Action::SendsFirst(first, _) = action {
                    delivered.unsent = bytes.split_off((*first).min(bytes.len()));
                }
                self.stage.command(peer, Command::Write(bytes));
                Ok(())
            }
            Action::Expects(message, within_ms) => {
                let reply = self.soon(*within_ms, |player| player.input(peer, Cmd::take));
                let Some(reply) = reply else { return Err(self.nothing(peer)) };
                let delivered = self.delivered.entry(peer).or_default();
                // Quiet requests before it may have stayed without a reply.
                let asked = delivered.open.iter().position(|asked| asked.opaque == reply.opaque);
                if !message.is(&reply) {
                    return Err(format!("got {}", shown(&reply)));
                }
                let Some(asked) = asked else {
                    return Err(format!("got {}, which it did not ask for", shown(&reply)));
                };
                let has_more =
                    !reply.key.is_empty() && reply.opcode == crate::service::memcached::opcode::STAT;
                delivered.open.drain(..asked + usize::from(!has_more));
                Ok(())
            }
            other => self.either(peer, other),
        }
    }

    fn backend(&mut self, index: usize, action: &Action) -> Result<(), String> {
        let reach = match action {
            Action::Refuses => Some(Reachable::Refuses),
            Action::Vanishes => Some(Reachable::Vanished),
            Action::Returns => Some(Reachable::Yes),
            _ => None,
        };
        if let Some(reach) = reach {
            self.stage.set_reach(index, reach);
            return Ok(());
        }
        if let Action::Expects(message, within_ms) | Action::ExpectsHead(message, within_ms) = action {
            let whole = matches!(action, Action::Expects(..));
            let found = self.soon(*within_ms, |player| {
                let peers = player.stage.connections(index);
                let open: Vec<PeerId> =
                    peers.into_iter().filter(|peer| !player.stage.is_closed(*peer)).collect();
                open.into_iter().find_map(|peer| {
                    player.input(peer, |input| arrived(input, message, whole)).map(|cmd| (peer, cmd))
                })
            });
            let Some((peer, request)) = found else { return Err(self.backend_lacks(index)) };
            self.current.insert(index, peer);
            let delivered = self.delivered.entry(peer).or_default();
            if delivered.open.last().is_none_or(|last| last.opaque != request.opaque) {
                delivered.open.push(request);
            }
            return Ok(());
        }
        if let Action::ExpectsBytes(wanted, within_ms) = action {
            let found = self.soon(*within_ms, |player| {
                // Bytes count although the connection has been closed behind them.
                let peers = player.stage.connections(index);
                peers.into_iter().find(|peer| player.input(*peer, |input| wanted.take(input)))
            });
            let Some(peer) = found else { return Err(self.backend_lacks(index)) };
            self.current.insert(index, peer);
            return Ok(());
        }
        let peer = match self.current.get(&index) {
            Some(peer) => *peer,
            None => {
                let first = self.soon(SOON_MS, |player| player.stage.connections(index).first().copied());
                first.ok_or("no connection has been made to it")?
            }
        };
        if let Action::Sends(message) | Action::SendsFirst(_, message) = action {
            return self.reply(peer, action, message);
        }
        self.either(peer, action)
    }

    /// A backend answers the oldest request that it has been seen to get.
    fn reply(&mut self, peer: PeerId, action: &Action, message: &MessageText) -> Result<(), String> {
        let delivered = self.delivered.entry(peer).or_default();
        let request = delivered.open.first().ok_or("it has been asked nothing on that connection")?;
        let mut bytes = message.reply(request).bytes();
        let has_more = message.opcode == crate::service::memcached::opcode::STAT && message.key.is_some();
        if !has_more {
            delivered.open.remove(0);
        }
        if let Action::SendsFirst(first, _) = action {
            delivered.unsent = bytes.split_off((*first).min(bytes.len()));
        }
        self.stage.command(peer, Command::Write(bytes));
        Ok(())
    }

    /// Executes an action that clients and backends have in common.
    fn either(&mut self, peer: PeerId, action: &Action) -> Result<(), String> {
        let command = match action {
            Action::SendsRest => {
                Command::Write(std::mem::take(&mut self.delivered.entry(peer).or_default().unsent))
            }
            Action::SendsRaw(bytes) => Command::Write(bytes.clone()),
            Action::Closes => Command::Close,
            Action::Resets => Command::Reset,
            Action::HalfCloses => Command::ShutdownWrite,
            Action::StopsReading => Command::Pause(true),
            Action::ReadsAgain => Command::Pause(false),
            Action::ExpectsBytes(wanted, within_ms) => {
                let came = self
                    .soon(*within_ms, |player| player.input(peer, |input| wanted.take(input)).then_some(()));
                return came.ok_or_else(|| self.nothing(peer));
            }
            Action::ExpectsNothing(ms) => {
                let came =
                    self.soon(*ms, |player| (!player.input(peer, |input| input.is_empty())).then_some(()));
                return if came.is_some() { Err(self.nothing(peer)) } else { Ok(()) };
            }
            Action::ExpectsClosed(within_ms) | Action::ExpectsCut(within_ms) => {
                let closed = self.soon(*within_ms, |player| player.stage.is_closed(peer).then_some(()));
                let inside = matches!(action, Action::ExpectsCut(_));
                let is_right =
                    self.input(peer, |input| Cmd::take(input).is_none() && (inside || input.is_empty()));
                return if closed.is_some() && is_right { Ok(()) } else { Err(self.nothing(peer)) };
            }
            other => return Err(format!("{other:?} is not for this peer")),
        };
        self.stage.command(peer, command);
        Ok(())
    }

    /// Describes what a peer has received instead of what it waits for.
    fn nothing(&mut self, peer: PeerId) -> String {
        let end = if self.stage.is_closed(peer) {
            "; its connection is closed"
        } else {
            "; its connection is open"
        };
        let mut input = self.input(peer, |input| input.clone());
        if Cmd::head(&input).is_none() && !input.is_empty() {
            return format!("there is {}{end}", text_of(&input, SHOWN_BYTES));
        }
        let mut messages = Vec::new();
        while let Some(cmd) = Cmd::take(&mut input) {
            messages.push(shown(&cmd));
        }
        format!("there is [{}] and {} bytes{end}", messages.join(", "), input.len())
    }

    fn backend_lacks(&mut self, index: usize) -> String {
        let peers = self.stage.connections(index);
        let has: Vec<String> = peers.into_iter().map(|peer| self.nothing(peer)).collect();
        format!("it has not arrived: {}", has.join(" | "))
    }
}

impl Wanted {
    /// Takes what is wanted from the front of `input`, if it is there.
    fn take(&self, input: &mut Vec<u8>) -> bool {
        let end = match self {
            Wanted::Exactly(bytes) => input.starts_with(bytes).then_some(bytes.len()),
            Wanted::Count(count) => (input.len() >= *count).then_some(*count),
            Wanted::Between(first, last) => input.strip_prefix(first.as_slice()).and_then(|rest| {
                let at = rest.windows(last.len()).position(|window| window == last)?;
                Some(first.len() + at + last.len())
            }),
        };
        let Some(end) = end else { return false };
        input.drain(..end);
        true
    }
}

/// The message at the front, if it is the one that is meant; it is taken when all of it was wanted.
fn arrived(input: &mut Vec<u8>, message: &MessageText, whole: bool) -> Option<Cmd> {
    let wire = Cmd::wire_bytes(input)?;
    let head = Cmd::head(input).filter(|_| !whole || input.len() >= wire)?;
    if !whole {
        return message.begins(&head).then_some(head);
    }
    message.is(&head).then(|| Cmd::take(input)).flatten()
}
