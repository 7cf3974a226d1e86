//! The properties of a grammar (`%name = ...`) with their meaning.

use flick_syntax::ast::{UnitDecl, UnitProperty};

use crate::comments::Comments;
use crate::html::{code, code_in_lines, code_of, escape, sentence};

/// Names of properties and what they say.
const MEANINGS: &[(&str, &str)] = &[
    ("byteorder", "The order of the bytes of its integers."),
    ("order", "How replies follow requests on a connection."),
    ("correlate", "The field that a reply repeats of its request."),
    ("echo", "Fields that a reply repeats of its request."),
    (
        "loud",
        "What is written into this field on a connection that clients share, so that every request has a reply.",
    ),
    ("request", "What a client may send."),
    ("reply", "What a backend may send."),
    ("ends", "A request after which the session ends."),
    ("mute", "A request that has no reply."),
    ("stateful", "A request that changes the state of the connection which carries it."),
    ("silent", "A reply that the client did not ask for: it is not passed on."),
    ("more", "A reply that another one follows."),
    ("replies", "The message that answers it."),
    ("exclusive", "One exchange at a time on a connection to a backend."),
    ("keep", "The number of a request that the parser of its reply gets."),
    ("keep_last", "What is added to that number where the session ends with the reply."),
    ("keep_client", "The bits of that number that a rule which changes the request does not change."),
    ("carry", "The number of a request that the parser of the same client's next request gets."),
    ("last", "A message after which its connection is not used again."),
    ("retry", "A request that may be sent again when no byte of a reply came."),
    ("whole", "A request that goes on once all of it is there, if it is short."),
    ("tunnel", "A reply behind which both directions are raw bytes until close."),
    ("closes", "A reply with which the session ends."),
    ("status", "The status code of a reply, by whose first digit replies are counted."),
    ("failed", "A reply that says that the backend has failed."),
];

/// Descriptions of the platform's own replies, by reason.
const REASONS: &[(&str, &str)] = &[
    ("unavailable", "The answer when no backend can be reached."),
    ("timeout", "The answer when a backend takes too long."),
    ("overload", "The answer when there is too much to do."),
    ("malformed", "The answer to what is not of this grammar."),
    ("too_long", "The answer to what is longer than a bound."),
    ("name_too_long", "The answer to a name that is longer than its bound."),
    ("unsupported", "The answer to what the grammar knows and does not serve."),
    ("too_slow", "The answer to a request that its client sends too slowly."),
    ("farewell", "The last message of a service that ends."),
];

/// Lists the facts of a unit; nothing where it has none.
pub(crate) fn facts(unit: &UnitDecl, comments: &Comments) -> String {
    let rows: String = unit.properties().map(|property| row(&property, comments)).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("<h4>Facts</h4>\n<table class=\"facts\"><tbody>\n{rows}</tbody></table>\n")
}

fn row(property: &UnitProperty, comments: &Comments) -> String {
    let name = property.name();
    let name = name.as_ref().map_or("", |name| name.text());
    let qualifier = property.qualifier();
    let (subject, meaning) = match &qualifier {
        Some(reason) => (format!("%{name} {}", reason.text()), meaning_of(REASONS, reason.text())),
        None => (format!("%{name}"), meaning_of(MEANINGS, name)),
    };
    let target = property.target().map_or(String::new(), |target| format!(" {}", code_of(&target)));
    let value = property.value().map_or(String::new(), |value| code_in_lines(&value));
    let said = sentence(&comments.about(property.range()));
    let said = if said.is_empty() { String::new() } else { format!(" {said}") };
    format!(
        "<tr><th scope=\"row\">{}{target}</th><td>{}{said}</td><td>{value}</td></tr>\n",
        code(&subject),
        escape(meaning)
    )
}

fn meaning_of(table: &[(&str, &'static str)], name: &str) -> &'static str {
    table.iter().find(|(known, _)| *known == name).map_or("", |(_, meaning)| *meaning)
}
