//! The language of scenarios, line by line.
//!
//! ```text
//! # A comment. First the service, then what happens, in this order.
//! service cache.flick               # where the folder has several programs
//! process Text                      # where the program has several; without it, the first
//! backends 2                        # of the first backend channel; `backends NAME 2` of another
//! streams 2                         # of a process that merges; without it, as many as there are clients
//! seeds 200                         # played so often, on networks that cut, delay and mix as the seed says
//! limit max_inflight_per_client 4
//! timeout response 50 ms
//! simulator only                    # not on real sockets; `TCP only`: not through shared memory
//!
//! client a  sends get "k" opaque 7, sends noop
//! backend 0 expects get "k", sends get ok value "v", resets
//! client a  expects get ok value "v" opaque 7 within 20 ms
//! client a  expects nothing for 10 ms
//! wait 5 ms
//! drain within 100 ms
//! expect counter truncated == 1
//! expect finished
//! expect quiet
//! ```
//!
//! A line that begins with a blank continues the one before. Where a message is wanted, a text in quotes is a message
//! too: its bytes. Several texts next to each other are one.
//!
//! ```text
//! client a  sends "GET / HTTP/1.1\r\n"
//!                 "host: a\r\n\r\n"
//! backend copies 1 expects "GET / " ... "\r\n\r\n", sends "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
//! client a  expects "HTTP/1.1 200 OK\r\n" ... "\r\n\r\n", expects "ok", sends 20000 bytes, expects 20000 bytes
//! ```

use std::collections::BTreeSet;
use std::fmt;

use super::messages::{self, MessageText};

/// Action or expectation of a peer.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Writes a message.
    Sends(MessageText),
    /// Writes the first bytes of a message and keeps the rest.
    SendsFirst(usize, MessageText),
    /// Writes what was kept.
    SendsRest,
    /// Writes bytes.
    SendsRaw(Vec<u8>),
    /// Waits for a message, at most so long.
    Expects(MessageText, u64),
    /// Waits for bytes, at most so long.
    ExpectsBytes(Wanted, u64),
    /// Waits for the head of a message, at most so long; leaves it there.
    ExpectsHead(MessageText, u64),
    /// Nothing arrives for so long.
    ExpectsNothing(u64),
    /// The service ends the connection within so long.
    ExpectsClosed(u64),
    /// As `ExpectsClosed`, but part of a message may have come before.
    ExpectsCut(u64),
    /// Ends its connection.
    Closes,
    /// Ends it with a reset.
    Resets,
    /// Writes no more.
    HalfCloses,
    /// Leaves what arrives in the kernel.
    StopsReading,
    /// Takes it out again.
    ReadsAgain,
    /// New connections are refused.
    Refuses,
    /// Neither connections nor bytes come through.
    Vanishes,
    /// It can be reached again.
    Returns,
}

/// Bytes that are waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// These.
    Exactly(Vec<u8>),
    /// Any N bytes.
    Count(usize),
    /// First these, then any, up to and with those.
    Between(Vec<u8>, Vec<u8>),
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A client, by name; its first action opens its connection.
    Client(String, Action),
    /// A backend, by number from 0.
    Backend(usize, Action),
    /// Time passes, in milliseconds.
    Wait(u64),
    /// Draining begins; it may take this many milliseconds.
    Drain(u64),
    /// A counter has a value now or soon.
    Counter(String, i64),
    /// The worker says that it is finished.
    Finished,
    /// Nothing is left behind.
    Quiet,
}

/// Networks on which a scenario can be played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stages {
    /// The simulator, TCP and shared memory.
    #[default]
    All,
    /// Not shared memory: clients need addresses.
    TcpOnly,
    /// It needs what only the simulator can do.
    SimulatorOnly,
}

/// A parsed scenario.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// Number of backends, of all channels.
    pub backends: usize,
    /// Number of backends by backend channel, in the order of the channels. Empty: all are of the first
    /// channel.
    pub groups: Vec<(String, usize)>,
    /// Number of merged streams, if the scenario specifies it.
    pub streams: Option<usize>,
    /// Number of seeds with which the scenario is played.
    pub seeds: u64,
    /// The program it is about, a file beside it, where the folder has several.
    pub service: Option<String>,
    /// The process it is about, where the program has several.
    pub process: Option<String>,
    /// Limits by name.
    pub limits: Vec<(String, u64)>,
    /// Timeouts by name, in milliseconds.
    pub timeouts: Vec<(String, u64)>,
    /// Networks that can play it.
    pub stages: Stages,
    /// Steps of the scenario, each with its line.
    pub steps: Vec<(usize, Step)>,
}

impl Scenario {
    /// Returns the number of streams that a merging process receives: the scenario's number, or the number of clients.
    pub fn streams(&self) -> usize {
        let client = |(_, step): &'_ (usize, Step)| match step {
            Step::Client(name, _) => Some(name.clone()),
            _ => None,
        };
        self.streams.unwrap_or_else(|| self.steps.iter().filter_map(client).collect::<BTreeSet<_>>().len())
    }

    /// Returns the name of the backend with this index.
    pub fn backend_name(&self, index: usize) -> String {
        let mut first = 0;
        for (name, count) in &self.groups {
            if index < first + count {
                return format!("{name} {}", index - first);
            }
            first += count;
        }
        format!("backend {index}")
    }
}

/// Error in the text of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// Description of the error.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// Default wait of an `expects`.
const EXPECT_MS: u64 = 3_000;
/// Longest time of a step: a month.
const TIME_MS_MAX: u64 = 31 * 24 * 3600 * 1000;
/// Most bytes of a step.
const BYTES_MAX: u64 = 64 << 20;

/// Reads a scenario.
pub fn parse(text: &str) -> Result<Scenario, ParseError> {
    let mut scenario = Scenario { backends: 1, seeds: 1, ..Scenario::default() };
    let mut lines: Vec<(usize, Vec<Word>)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words = words(line).map_err(|what| ParseError { line: index + 1, what })?;
        match lines.last_mut() {
            Some((_, before)) if line.starts_with([' ', '\t']) => before.extend(words),
            _ => lines.push((index + 1, words)),
        }
    }
    for (line, words) in lines.iter().filter(|(_, words)| !words.is_empty()) {
        parse_line(&mut scenario, *line, words).map_err(|what| ParseError { line: *line, what })?;
    }
    Ok(scenario)
}

/// A word, or a text in quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Plain(String),
    Text(Vec<u8>),
    Comma,
}

impl Word {
    pub(super) fn plain(&self) -> Option<&str> {
        if let Word::Plain(word) = self { Some(word) } else { None }
    }
}

fn words(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(first) = chars.next() {
        match first {
            '#' => break,
            ',' => words.push(Word::Comma),
            '"' => words.push(Word::Text(quoted(&mut chars)?)),
            space if space.is_whitespace() => {}
            other => {
                let mut word = String::from(other);
                while let Some(next) = chars.next_if(|next| !next.is_whitespace() && *next != ',') {
                    word.push(next);
                }
                words.push(Word::Plain(word));
            }
        }
    }
    Ok(words)
}

fn quoted(chars: &mut impl Iterator<Item = char>) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    while let Some(next) = chars.next() {
        match next {
            '"' => return Ok(text),
            '\\' => text.push(match chars.next() {
                Some('r') => b'\r',
                Some('n') => b'\n',
                Some('x') => {
                    let digits: String = chars.by_ref().take(2).collect();
                    u8::from_str_radix(&digits, 16).map_err(|_| format!("`\\x{digits}` is no byte"))?
                }
                Some(same @ ('"' | '\\')) => same as u8,
                other => {
                    let escapes = "`\\r`, `\\n`, `\\xFF`, `\\\"` and `\\\\`";
                    return Err(format!("`\\{}` is no escape; there are {escapes}", other.unwrap_or(' ')));
                }
            }),
            other => text.extend(other.to_string().bytes()),
        }
    }
    Err("the text has no end".into())
}

pub(super) fn number<N: std::str::FromStr>(word: Option<&Word>) -> Result<N, String> {
    let text = word.and_then(Word::plain).ok_or("a number is missing")?;
    text.parse().map_err(|_| format!("`{text}` is no number here"))
}

/// A time in milliseconds.
fn millis(word: Option<&Word>) -> Result<u64, String> {
    number(word).and_then(|ms| at_most(ms, TIME_MS_MAX, "milliseconds"))
}

/// A number of bytes.
pub(super) fn size(word: Option<&Word>) -> Result<usize, String> {
    number(word).and_then(|bytes| at_most(bytes, BYTES_MAX, "bytes")).map(|bytes| bytes as usize)
}

fn at_most(value: u64, max: u64, unit: &str) -> Result<u64, String> {
    if value <= max { Ok(value) } else { Err(format!("{value} {unit} are too many: at most {max}")) }
}

fn parse_line(scenario: &mut Scenario, line: usize, words: &[Word]) -> Result<(), String> {
    let plain: Vec<&str> = words.iter().map(|word| word.plain().unwrap_or("\"\"")).collect();
    let mut add = |step| scenario.steps.push((line, step));
    match plain.as_slice() {
        ["backends", _] => scenario.backends = number(words.get(1))?,
        ["backends", name, _] => {
            let count = number(words.get(2))?;
            scenario.groups.push((name.to_string(), count));
            scenario.backends = scenario.groups.iter().map(|(_, count)| count).sum();
        }
        ["service", file] => scenario.service = Some(file.to_string()),
        ["process", name] => scenario.process = Some(name.to_string()),
        ["streams", _] => scenario.streams = Some(number(words.get(1))?),
        ["seeds", _] => scenario.seeds = number(words.get(1))?,
        ["limit", name, _] => scenario.limits.push((name.to_string(), number(words.get(2))?)),
        ["timeout", name, _, "ms"] => scenario.timeouts.push((name.to_string(), millis(words.get(2))?)),
        ["simulator", "only"] => scenario.stages = Stages::SimulatorOnly,
        ["TCP", "only"] => scenario.stages = Stages::TcpOnly,
        ["wait", _, "ms"] => add(Step::Wait(millis(words.get(1))?)),
        ["drain", "within", _, "ms"] => add(Step::Drain(millis(words.get(2))?)),
        ["expect", "counter", name, "==", _] => add(Step::Counter(name.to_string(), number(words.get(4))?)),
        ["expect", "finished"] => add(Step::Finished),
        ["expect", "quiet"] => add(Step::Quiet),
        ["client", name, ..] => {
            for action in actions(&words[2..])? {
                add(Step::Client(name.to_string(), action));
            }
        }
        ["backend", name, ..] => {
            let (index, used) = match number::<usize>(words.get(1)) {
                Ok(index) => (index, 2),
                Err(_) => in_group(&scenario.groups, name, words.get(2))?,
            };
            if index >= scenario.backends {
                let (count, wanted) = (scenario.backends, index + 1);
                return Err(format!(
                    "there is no backend {index}, only {count} from 0 on: write `backends {wanted}`"
                ));
            }
            for action in actions(&words[used..])? {
                add(Step::Backend(index, action));
            }
        }
        _ => {
            return Err(
                "a line begins with `client`, `backend`, `expect`, `wait`, `drain`, or sets up the service"
                    .into(),
            );
        }
    }
    Ok(())
}

/// The number of a backend of a named channel, and how many words said so.
fn in_group(
    groups: &[(String, usize)],
    name: &str,
    element: Option<&Word>,
) -> Result<(usize, usize), String> {
    let at = groups.iter().position(|(known, _)| known == name);
    let at = at.ok_or_else(|| format!("`{name}` has no backends; write `backends {name} 1` first"))?;
    let first: usize = groups[..at].iter().map(|(_, count)| count).sum();
    let (element, used) = number::<usize>(element).map_or((0, 2), |element| (element, 3));
    if element >= groups[at].1 {
        return Err(format!("`{name}` has only {} backends", groups[at].1));
    }
    Ok((first + element, used))
}

fn actions(words: &[Word]) -> Result<Vec<Action>, String> {
    words.split(|word| *word == Word::Comma).map(action).collect()
}

/// First words of actions.
const VERBS: &[&str] = &[
    "sends",
    "expects",
    "closes",
    "resets",
    "half-closes",
    "stops",
    "reads",
    "refuses",
    "vanishes",
    "returns",
];

/// The actions, as the error for an unknown one lists them.
const ACTIONS: &str = "the actions are `sends`, `expects`, `closes`, `resets`, `half-closes`, `stops reading`, \
                       `reads again`, and of backends `refuses`, `vanishes`, `returns`";

fn action(words: &[Word]) -> Result<Action, String> {
    let plain: Vec<&str> = words.iter().map(|word| word.plain().unwrap_or("\"...\"")).collect();
    if let Some(next) = plain.iter().skip(1).find(|word| VERBS.contains(word)) {
        return Err(format!("a comma is missing in front of `{next}`"));
    }
    Ok(match plain.as_slice() {
        ["sends", "first", _, "bytes", "of", ..] => {
            Action::SendsFirst(size(words.get(2))?, messages::parse(&words[5..])?)
        }
        ["sends", "rest"] => Action::SendsRest,
        ["sends", "raw", _] => match &words[2] {
            Word::Text(bytes) => Action::SendsRaw(bytes.clone()),
            _ => return Err("`sends raw` takes a text in quotes".into()),
        },
        ["sends", _, "bytes"] => Action::SendsRaw(messages::bytes_of(size(words.get(1))?)),
        ["sends", ..] => match texts(&words[1..]) {
            Some(bytes) => Action::SendsRaw(bytes),
            None => Action::Sends(messages::parse(&words[1..])?),
        },
        ["expects", "nothing", "for", _, "ms"] => Action::ExpectsNothing(millis(words.get(3))?),
        ["expects", "closed", ..] => Action::ExpectsClosed(within_alone(words)?),
        ["expects", "cut", ..] => Action::ExpectsCut(within_alone(words)?),
        ["expects", "head", "of", ..] => {
            let mut rest = &words[3..];
            let within = within(&mut rest)?;
            Action::ExpectsHead(messages::parse(rest)?, within)
        }
        ["expects", ..] => {
            let mut rest = &words[1..];
            let within = within(&mut rest)?;
            match wanted(rest)? {
                Some(wanted) => Action::ExpectsBytes(wanted, within),
                None => Action::Expects(messages::parse(rest)?, within),
            }
        }
        ["closes"] => Action::Closes,
        ["resets"] => Action::Resets,
        ["half-closes"] => Action::HalfCloses,
        ["stops", "reading"] => Action::StopsReading,
        ["reads", "again"] => Action::ReadsAgain,
        ["refuses"] => Action::Refuses,
        ["vanishes"] => Action::Vanishes,
        ["returns"] => Action::Returns,
        other => return Err(format!("`{}` is not an action; {ACTIONS}", other.join(" "))),
    })
}

/// Texts next to each other, if there is nothing else.
fn texts(words: &[Word]) -> Option<Vec<u8>> {
    let text = |word: &Word| if let Word::Text(bytes) = word { Some(bytes.clone()) } else { None };
    let parts: Option<Vec<Vec<u8>>> = words.iter().map(text).collect();
    parts.filter(|parts| !parts.is_empty()).map(|parts| parts.concat())
}

/// Parses the bytes that an `expects` waits for; `None` if it waits for something else.
fn wanted(words: &[Word]) -> Result<Option<Wanted>, String> {
    if let [count, Word::Plain(bytes)] = words
        && bytes == "bytes"
    {
        return Ok(Some(Wanted::Count(size(Some(count))?)));
    }
    if let Some(bytes) = texts(words) {
        return Ok(Some(Wanted::Exactly(bytes)));
    }
    let Some(at) = words.iter().position(|word| word.plain() == Some("...")) else { return Ok(None) };
    match (texts(&words[..at]), texts(&words[at + 1..])) {
        (Some(first), Some(last)) if !last.is_empty() => Ok(Some(Wanted::Between(first, last))),
        _ => Err("`...` stands between two texts in quotes".into()),
    }
}

/// Takes a final `within N ms` off.
fn within(words: &mut &[Word]) -> Result<u64, String> {
    let Some(at) = words.len().checked_sub(3) else { return Ok(EXPECT_MS) };
    if words[at].plain() != Some("within") || words[at + 2].plain() != Some("ms") {
        return Ok(EXPECT_MS);
    }
    let within = millis(words.get(at + 1))?;
    *words = &words[..at];
    Ok(within)
}

/// Parses `expects closed` or `expects cut`, behind which only `within N ms` may stand.
fn within_alone(words: &[Word]) -> Result<u64, String> {
    let mut rest = &words[2..];
    let within = within(&mut rest)?;
    if rest.is_empty() {
        return Ok(within);
    }
    let shown = |words: &[Word]| {
        words.iter().map(|word| word.plain().unwrap_or("\"...\"")).collect::<Vec<_>>().join(" ")
    };
    let (rest, expectation) = (shown(rest), shown(&words[..2]));
    Err(format!("`{rest}` behind `{expectation}`; only `within N ms` may stand there"))
}

#[cfg(test)]
mod tests {
    use super::{ACTIONS, Action, Step, parse};

    #[test]
    fn a_line_may_hold_several_actions() {
        let scenario =
            parse("client a sends get \"k, l\", half-closes # then nothing\n").expect("it is right");
        let steps: Vec<_> = scenario.steps.iter().map(|(line, step)| (*line, step)).collect();
        assert_eq!(steps.len(), 2);
        assert!(matches!(steps[1], (1, Step::Client(name, Action::HalfCloses)) if name == "a"));
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        let said = |text: &str| parse(text).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(
            said("backends 2\nclient a send \"x\""),
            Err(format!("line 2: `send \"...\"` is not an action; {ACTIONS}"))
        );
        assert_eq!(said("backends many"), Err("line 1: `many` is no number here".into()));
        assert_eq!(
            said("client a sends \"x\" expects \"y\""),
            Err("line 1: a comma is missing in front of `expects`".into())
        );
        assert_eq!(said("client a sends get \"k"), Err("line 1: the text has no end".into()));
    }

    #[test]
    fn times_and_sizes_that_no_run_can_have_were_tried() {
        let said = |text: &str| parse(text).map(|_| ()).map_err(|error| error.to_string());
        for line in
            ["wait # ms", "drain within # ms", "timeout idle # ms", "client a expects nothing for # ms"]
        {
            for ms in ["2678400001", "18446744073709551615"] {
                let error = format!("line 1: {ms} milliseconds are too many: at most 2678400000");
                assert_eq!(said(&line.replace('#', ms)), Err(error), "{line}");
            }
            assert_eq!(said(&line.replace('#', "86400000")), Ok(()), "{line}");
        }
        for line in [
            "sends # bytes",
            "expects # bytes",
            "sends first # bytes of get \"k\"",
            "sends set \"k\" value # bytes",
        ] {
            let error = "line 1: 9999999999 bytes are too many: at most 67108864".to_owned();
            assert_eq!(said(&format!("client a {}", line.replace('#', "9999999999"))), Err(error), "{line}");
        }
    }

    #[test]
    fn words_behind_expects_closed_were_ignored() {
        let said = |text: &str| parse(text).map(|_| ()).map_err(|error| error.to_string());
        for what in ["closed", "cut"] {
            assert_eq!(
                said(&format!("client a expects {what}\nclient a expects {what} within 5 ms")),
                Ok(())
            );
            for rest in ["within 1 s", "soon", "now within 5 ms"] {
                let shown = rest.trim_end_matches(" within 5 ms");
                let expected =
                    format!("line 1: `{shown}` behind `expects {what}`; only `within N ms` may stand there");
                assert_eq!(said(&format!("client a expects {what} {rest}")), Err(expected));
            }
        }
    }
}
