//! Merges, handlers, timers, dictionaries, counters and the state of a session.

use std::fmt::Write as _;

use flick_abi::{Dict, Event, Evict, Handler, Merge, Program, RuleAction, Snapshot, Timer};

use super::super::lexer::quote;
use super::super::parse::{Parsed, Reader};

/// Events by name.
const EVENTS: [(&str, Event); 5] = [
    ("closed", Event::Closed),
    ("broken", Event::Broken),
    ("refused", Event::Refused),
    ("timed_out", Event::TimedOut),
    ("malformed", Event::Malformed),
];

/// The eviction policies of dictionaries, by name.
const EVICTS: [(&str, Evict); 3] =
    [("lru", Evict::Lru), ("oldest", Evict::Oldest), ("nothing", Evict::Nothing)];

/// Writes these parts of a program.
pub(super) fn print(program: &Program, text: &mut String) {
    for Merge { source, order, combine, finish } in &program.merges {
        let finish = match finish {
            RuleAction::Pass { to } => format!("pass {to}"),
            RuleAction::Run { rule } => format!("run f{}", rule.0),
        };
        let _ = writeln!(text, "  merge {source} order f{} combine f{} {finish}", order.0, combine.0);
    }
    for Handler { event, channel, rule } in &program.handlers {
        let name = EVENTS.iter().find(|(_, known)| known == event).map_or("?", |(name, _)| name);
        let _ = writeln!(text, "  handler {name} {channel} f{}", rule.0);
    }
    for Timer { interval_ns, rule } in &program.timers {
        let _ = writeln!(text, "  timer {interval_ns} f{}", rule.0);
    }
    for dict in &program.dicts {
        print_dict(dict, text);
    }
    for counter in &program.counters {
        let kind = if counter.is_gauge { "gauge" } else { "counter" };
        let _ = writeln!(text, "  {kind} {}", quote(counter.name.as_bytes()));
    }
    if program.state_words > 0 || program.init_state.is_some() {
        let init = program.init_state.map(|id| format!(" init f{}", id.0)).unwrap_or_default();
        let _ = writeln!(text, "  state {}{init}", program.state_words);
    }
}

fn print_dict(dict: &Dict, text: &mut String) {
    let evict = EVICTS.iter().find(|(_, known)| *known == dict.evict).map_or("?", |(name, _)| name);
    let (name, entries) = (quote(dict.name.as_bytes()), dict.entries_max);
    let (key, value, layout) = (dict.key_bytes_max, dict.value_bytes_max, dict.layout);
    let bytes = dict.bytes_max.map_or(String::new(), |bytes| format!(" bytes {bytes}"));
    let _ = write!(
        text,
        "  dict {name} max {entries}{bytes} key {key} value {value} evict {evict} layout {layout}"
    );
    if let Some(expire_ns) = dict.expire_ns {
        let _ = write!(text, " expire {expire_ns}");
    }
    if let Some(Snapshot { file, every_ns }) = &dict.snapshot {
        let _ = write!(text, " snapshot {} every {every_ns}", quote(file.as_bytes()));
    }
    text.push('\n');
}

/// A merge after its first word.
pub(super) fn merge(reader: &mut Reader) -> Parsed<Merge> {
    let source = reader.number()?;
    reader.expect_word("order")?;
    let order = reader.func()?;
    reader.expect_word("combine")?;
    let combine = reader.func()?;
    Ok(Merge { source, order, combine, finish: super::action(reader)? })
}

/// A handler after its first word.
pub(super) fn handler(reader: &mut Reader) -> Parsed<Handler> {
    let name = reader.word()?;
    let known = EVENTS.iter().find(|(known, _)| *known == name);
    let (_, event) = known.ok_or_else(|| reader.error(format!("`{name}` is no event")))?;
    Ok(Handler { event: *event, channel: reader.number()?, rule: reader.func()? })
}

/// A timer after its first word.
pub(super) fn timer(reader: &mut Reader) -> Parsed<Timer> {
    Ok(Timer { interval_ns: reader.number()?, rule: reader.func()? })
}

/// A dictionary after its first word.
pub(super) fn dict(reader: &mut Reader) -> Parsed<Dict> {
    let name = reader.name()?;
    reader.expect_word("max")?;
    let entries_max = reader.number()?;
    let bytes_max = if reader.opt_word("bytes") { Some(reader.number()?) } else { None };
    reader.expect_word("key")?;
    let key_bytes_max = reader.number()?;
    reader.expect_word("value")?;
    let value_bytes_max = reader.number()?;
    reader.expect_word("evict")?;
    let word = reader.word()?;
    let known = EVICTS.iter().find(|(known, _)| *known == word);
    let evict = known.ok_or_else(|| reader.error(format!("`{word}` is no way to make room")))?.1;
    reader.expect_word("layout")?;
    let layout = reader.number()?;
    let expire_ns = if reader.opt_word("expire") { Some(reader.number()?) } else { None };
    let mut snapshot = None;
    if reader.opt_word("snapshot") {
        let file = reader.name()?;
        reader.expect_word("every")?;
        snapshot = Some(Snapshot { file, every_ns: reader.number()? });
    }
    Ok(Dict {
        name,
        entries_max,
        bytes_max,
        key_bytes_max,
        value_bytes_max,
        expire_ns,
        evict,
        snapshot,
        layout,
    })
}
