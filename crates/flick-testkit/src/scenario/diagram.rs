//! Sequence diagrams, in text, of the bytes and events of a scenario.
//! Promises: one line for each thing that happened, in the order of time, with who did it; bytes that cannot be shown
//! are escaped, long ones are cut and counted.

use std::collections::BTreeMap;

use super::messages::shown;
use super::stage::PeerId;
use crate::service::memcached::Cmd;

/// Something a peer did or saw.
#[derive(Clone, Debug)]
pub struct Happening {
    /// Time of the event, on the simulated clock.
    pub at_ns: u64,
    /// Peer that did or saw it.
    pub peer: PeerId,
    /// The event.
    pub what: What,
}

/// Action of a peer, or event that it saw.
#[derive(Clone, Debug)]
pub enum What {
    /// It wrote bytes.
    Sent(Vec<u8>),
    /// Bytes arrived.
    Got(Vec<u8>),
    /// It did something to its connection.
    Did(&'static str),
    /// Something was done to its connection.
    Saw(&'static str),
}

/// On which side of the service a peer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Client,
    Backend,
}

/// Columns of text on an arrow.
const ARROW_COLUMNS: usize = 52;
/// Lines of a diagram; of a longer one the end is shown.
const LINES_MAX: usize = 200;

/// Draws what happened. The service stands in the middle, clients to the left of it, backends to the right.
pub(super) fn draw(log: &[Happening], names: &BTreeMap<PeerId, (Side, String)>) -> String {
    let log = joined(log);
    let width = names.values().map(|(_, name)| name.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for Happening { at_ns, peer, what } in &log {
        let Some((side, name)) = names.get(peer) else { continue };
        let label = match what {
            What::Sent(bytes) | What::Got(bytes) => label_of(bytes),
            What::Did(what) | What::Saw(what) => format!("({what})"),
        };
        let outward = matches!(what, What::Got(_) | What::Saw(_));
        let arrow = match (side, outward) {
            (Side::Client, false) | (Side::Backend, true) => format!("{label:-<ARROW_COLUMNS$}>"),
            _ => format!("<{label:->ARROW_COLUMNS$}"),
        };
        let ms = *at_ns as f64 / 1e6;
        lines.push(match side {
            Side::Client => format!("{ms:>10.3} ms  {name:>width$} {arrow} flick"),
            Side::Backend => {
                format!("{ms:>10.3} ms  {:>width$} {:ARROW_COLUMNS$}  flick {arrow} {name}", "", "")
            }
        });
    }
    let hidden = lines.len().saturating_sub(LINES_MAX);
    let mut text =
        if hidden > 0 { format!("({hidden} earlier lines are left out)\n") } else { String::new() };
    for line in &lines[hidden..] {
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Pieces of one message that arrived one right after another count as one.
fn joined(log: &[Happening]) -> Vec<Happening> {
    let mut rows: Vec<Happening> = Vec::new();
    for happening in log {
        match (rows.last_mut(), &happening.what) {
            (Some(Happening { peer, what: What::Got(before), .. }), What::Got(more))
                if *peer == happening.peer =>
            {
                before.extend(more);
            }
            _ => rows.push(happening.clone()),
        }
    }
    rows
}

/// Returns the label of an arrow: the messages, or the escaped bytes.
fn label_of(bytes: &[u8]) -> String {
    let mut rest = bytes.to_vec();
    let mut messages = Vec::new();
    while let Some(cmd) = Cmd::take(&mut rest) {
        messages.push(shown(&cmd));
    }
    let label = if rest.is_empty() { messages.join(", ") } else { format!("\"{}\"", bytes.escape_ascii()) };
    if label.len() <= ARROW_COLUMNS {
        return label;
    }
    let rest = format!(" ... ({} bytes)", bytes.len());
    label.chars().take(ARROW_COLUMNS - rest.len()).collect::<String>() + &rest
}

/// Bytes as they would be written in a scenario, up to a maximum.
pub(super) fn text_of(bytes: &[u8], bytes_max: usize) -> String {
    let shown = &bytes[..bytes.len().min(bytes_max)];
    let more = bytes.len() - shown.len();
    let rest = if more > 0 { format!(" and {more} bytes more") } else { String::new() };
    format!("\"{}\"{rest}", shown.escape_ascii())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Happening, Side, What, draw};
    use crate::scenario::stage::PeerId;

    #[test]
    fn clients_stand_left_and_backends_right_of_the_service() {
        let names = BTreeMap::from([
            (PeerId(0), (Side::Client, "a".to_owned())),
            (PeerId(1), (Side::Backend, "copies 0".to_owned())),
        ]);
        let happening = |at_ns, peer, what| Happening { at_ns, peer: PeerId(peer), what };
        let log = [
            happening(1_000, 0, What::Sent(b"get k\r\n".to_vec())),
            happening(2_000, 1, What::Got(b"get ".to_vec())),
            happening(3_000, 1, What::Got(b"k\r\n".to_vec())),
            happening(4_000, 0, What::Saw("is closed")),
        ];
        let drawn = draw(&log, &names);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), 3, "pieces are one row: {drawn}");
        assert!(lines[0].starts_with("     0.001 ms         a \"get k\\r\\n\"---"), "{drawn}");
        assert!(lines[0].ends_with("-> flick"), "{drawn}");
        assert!(
            lines[1].contains("flick \"get k\\r\\n\"---") && lines[1].ends_with("-> copies 0"),
            "{drawn}"
        );
        assert!(lines[2].contains("a <---") && lines[2].ends_with("(is closed) flick"), "{drawn}");
    }
}
