//! E08xx: state: dictionaries, counters, and values of a session.

use super::counted;
use crate::diagnostic::Diagnostic;
use crate::hir::Span;

/// The types of stored values.
const STORED: &str = "Stored values are copied: integers, booleans, times, durations, addresses, enums, strings and bytes, and records, tuples, options and variants of them.";

pub(crate) fn global_type(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0801",
        span,
        format!("invalid type of global `{name}`: expected a dictionary, a counter or a gauge"),
    )
    .label("not a dictionary, counter or gauge")
    .note("Sessions run in parallel and share globals; only these three types can be updated concurrently without lost updates.")
    .help(format!(
        "write `global {name}: counter`, or store values under a key: `global {name}: dict<string<64>, int> max 1000 entries`"
    ))
}

pub(crate) fn dict_arguments(span: Span, count: usize) -> Diagnostic {
    let found = counted(count, "type argument");
    Diagnostic::error(
        "E0801",
        span,
        format!("`dict` takes 2 type arguments, a key and a value type; found {found}"),
    )
    .label("expected 2 type arguments")
    .help("write `dict<string<64>, int>`")
}

pub(crate) fn no_bound(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0802",
        span,
        format!("missing bound: dictionary `{name}` has no maximum number of entries"),
    )
    .label("missing bound")
    .note("The memory of a dictionary is reserved when the service starts, so that it cannot run out later.")
    .help(
        "write the maximum number of entries: `max 10000 entries`; `evict` says what happens when it is full",
    )
}

pub(crate) fn bad_entries(span: Span, why: &str, entries_max: u64) -> Diagnostic {
    Diagnostic::error("E0802", span, format!("invalid dictionary bound: {why}"))
        .label("expected a number of entries")
        .help(format!("write a number from 1 to {entries_max}, like `max 10000 entries`"))
}

pub(crate) fn bad_bytes(span: Span) -> Diagnostic {
    Diagnostic::error("E0802", span, "invalid dictionary bound: expected a literal number of bytes above 0")
        .label("expected a number of bytes")
        .help("write the maximum memory, like `max 10000 entries, 64MiB bytes`")
}

pub(crate) fn key_type(span: Span, found: &str, is_whole: bool) -> Diagnostic {
    let title = if is_whole {
        format!("invalid key type: {found} cannot be the key of a dictionary")
    } else {
        format!("invalid key type: the key of a dictionary cannot contain {found}")
    };
    Diagnostic::error("E0803", span, title)
        .label("invalid key type")
        .note("A key is a string, bytes, an integer, an address, a time, a boolean, an enum, or a record or tuple of them.")
        .help("use the part that identifies an entry, for example a field of the message: `dict<string<250>, int>`")
}

pub(crate) fn value_type(span: Span, found: &str, is_whole: bool, is_message: bool) -> Diagnostic {
    let title = if is_whole {
        format!("invalid value type: {found} cannot be stored in a dictionary")
    } else {
        format!("invalid value type: a value of a dictionary cannot contain {found}")
    };
    let help = if is_message {
        "store the fields you need, in a record of your own or as a string: a message is freed when its rule has finished"
    } else {
        "store the values one by one, each under its own key, or join them into one string"
    };
    Diagnostic::error("E0804", span, title).label("cannot be stored").note(STORED).help(help)
}

pub(crate) fn stored_option(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0804",
        span,
        format!("invalid value type: {found} cannot be stored in a dictionary, whose lookups return options already"),
    )
    .label("an option")
    .help("store the plain value; for `none`, do not insert the entry or `remove` it")
}

pub(crate) fn too_large(span: Span, what: &str, bytes: u64, allowed: u64) -> Diagnostic {
    Diagnostic::error(
        "E0805",
        span,
        format!("{what} of this dictionary may be {bytes} bytes, the limit is {allowed}"),
    )
    .label(format!("up to {bytes} bytes"))
    .help("declare a smaller bound for its strings, for example `string<250>`")
}

pub(crate) fn bad_interval(span: Span, what: &str, wanted: &str, example: &str) -> Diagnostic {
    Diagnostic::error("E0806", span, format!("invalid duration for {what}: expected {wanted}"))
        .label("invalid duration")
        .help(format!("write `{example}`; the units are `ns`, `us`, `ms`, `s`, `min` and `h`"))
}

pub(crate) fn snapshot_name(span: Span, name: &str) -> Diagnostic {
    let title = if name.is_empty() {
        "invalid snapshot name: the name is empty".to_owned()
    } else {
        format!("invalid snapshot name: `{}`", name.escape_debug())
    };
    Diagnostic::error("E0807", span, title)
        .label("expected a plain file name")
        .note("The operator configures the directory of snapshots; the program only names the file.")
        .help("use letters, digits, `.`, `_` and `-`, and no leading dot: `snapshot \"hits\"`")
}

pub(crate) fn snapshot_twice(span: Span, name: &str, other: &str, first: Span) -> Diagnostic {
    Diagnostic::error(
        "E0807",
        span,
        format!("duplicate snapshot name: two dictionaries are written to `{name}`"),
    )
    .label("used again here")
    .also(first, format!("`{other}` is written there"))
    .help("give each dictionary its own snapshot name")
}

pub(crate) fn property_of_a_counter(span: Span, what: &str, property: &str) -> Diagnostic {
    Diagnostic::error("E0808", span, format!("`{property}` is not allowed on a {what}"))
        .label("only allowed on a dictionary")
        .note("A counter or gauge is a single integer: it needs no bound and does not expire.")
        .help("remove it")
}

pub(crate) fn too_many_globals(span: Span, what: &str, allowed: usize) -> Diagnostic {
    Diagnostic::error("E0809", span, format!("too many {what}: the limit of a program is {allowed}"))
        .label("exceeds the limit")
        .help("merge some of them: a dictionary can hold several kinds of entries under a key of two parts, `dict<(int, string<64>), int>`")
}

pub(crate) fn local_needs_type(span: Span, name: &str, example: &str) -> Diagnostic {
    Diagnostic::error("E0810", span, format!("type annotations needed for `local {name}`"))
        .label("cannot infer the type or bound from the initial value")
        .help(format!("write its type: `local {name}: {example}`"))
}

pub(crate) fn local_type(span: Span, name: &str, found: &str, is_message: bool) -> Diagnostic {
    let help = if is_message {
        "store the fields you need: a message is freed when its rule has finished"
    } else {
        "store single values, each as a `local` of its own"
    };
    Diagnostic::error(
        "E0811",
        span,
        format!("invalid type of `local {name}`: {found} cannot be stored in a session"),
    )
    .label("cannot be stored")
    .note(STORED)
    .help(help)
}

pub(crate) fn state_too_large(span: Span, bytes: u64, allowed: u64) -> Diagnostic {
    Diagnostic::error(
        "E0812",
        span,
        format!("too much session state: {bytes} bytes for each session, the limit is {allowed}"),
    )
    .label("exceeds the limit")
    .help("declare smaller bounds for strings, or store large values in a `global` dictionary")
}

pub(crate) fn not_constant(span: Span, name: &str, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0813",
        span,
        format!("expected a constant initial value for `local {name}`, found {found}"),
    )
    .label("not known when a session begins")
    .help("write a constant such as `0` or `\"\"`, or a built-in such as `now()`; set it later with `:=`")
}

pub(crate) fn not_assignable(span: Span, name: &str, is: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0814", span, format!("cannot assign to `{name}`: it is {is}"))
        .label(format!("this is {is}"))
        .help(help.to_owned())
}

pub(crate) fn invalid_assignee(span: Span) -> Diagnostic {
    Diagnostic::error("E0814", span, "invalid left-hand side of assignment")
        .label("expected a `local` or an entry of a dictionary")
        .help("write `name := value` for a `local`, `d[key] := value` for a dictionary")
}

pub(crate) fn set_counter(span: Span, name: &str, is_gauge: bool) -> Diagnostic {
    let help = if is_gauge {
        format!("write `set({name}, value)`")
    } else {
        format!("write `count({name})` to add one, or `count({name}, n)`")
    };
    let is = if is_gauge { "a gauge" } else { "a counter" };
    not_assignable(span, name, is, &help)
}

pub(crate) fn whole_dict(span: Span, name: &str) -> Diagnostic {
    not_assignable(span, name, "a dictionary", &format!("assign to an entry: `{name}[key] := value`"))
}

pub(crate) fn not_an_entry(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0815",
        span,
        format!("expected an entry of a dictionary after `update`, found {found}"),
    )
    .label("not an entry of a dictionary")
    .help("write `update d[key] from old: (old else 0) + 1`; a `local` is changed with `:=`")
}

/// `what` is what the body does: "sends a message".
pub(crate) fn side_effect_in_update(span: Span, what: &str, through: Option<(&str, Span)>) -> Diagnostic {
    let diagnostic = Diagnostic::error("E0816", span, format!("side effect in an `update`: its body {what}"))
        .label("not allowed in an `update`")
        .note("The body runs again if another worker changed the entry in the meantime, so it may only compute.")
        .help("name the new value, `let n = update d[k] from v: ...`, and act on it afterwards");
    match through {
        Some((name, location)) => diagnostic.also(location, format!("`{name}` does it here")),
        None => diagnostic,
    }
}

/// `whose` is the code that has no session: "an `every` block".
pub(crate) fn no_session(span: Span, name: &str, whose: &str, through: Option<(&str, Span)>) -> Diagnostic {
    let diagnostic = Diagnostic::error(
        "E0817",
        span,
        format!("cannot use `local {name}` here: {whose} runs outside a session"),
    )
    .label("no session here")
    .help("store it in a `global` dictionary, counter or gauge, which all sessions share");
    match through {
        Some((function, location)) => diagnostic.also(location, format!("`{function}` uses it here")),
        None => diagnostic,
    }
}

pub(crate) fn dict_as_value(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0428", span, format!("expected a value, found dictionary `{name}`"))
        .label("a whole dictionary")
        .help(format!(
            "look up an entry, `{name}[key]`, which returns an option; the number of entries is `len({name})`"
        ))
}

pub(crate) fn counter_as_value(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0428", span, format!("expected a value, found counter or gauge `{name}`"))
        .label("a counter or gauge")
        .help(format!("read it with `value({name})`"))
}

pub(crate) fn never_used(span: Span, what: &str, name: &str) -> Diagnostic {
    let verb = if what == "local" { "read" } else { "used" };
    Diagnostic::warning("E0818", span, format!("unused {what}: `{name}` is never {verb}"))
        .label(format!("never {verb}"))
        .help("remove it, or prefix its name with an underscore to keep it")
}
