//! E08xx: what is kept: dictionaries, counters, values of a session.

use crate::diagnostic::Diagnostic;
use crate::hir::Span;

/// What is said of every type that is kept.
const KEPT: &str = "What is kept is copied: numbers, truth values, times, durations, addresses, enumerations, text and bytes, and records, tuples, options and variants of them.";

pub(crate) fn global_type(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0801", span, format!("`{name}` is shared by all sessions, so it is a dictionary, a counter or a gauge"))
        .label("none of the three")
        .note("Sessions run side by side; these three can be changed by several at once without losing anything.")
        .help(format!(
            "write `global {name}: counter`, or keep values under a key: `global {name}: dict<string<64>, int> max 1000 entries`"
        ))
}

pub(crate) fn dict_arguments(span: Span, count: usize) -> Diagnostic {
    Diagnostic::error(
        "E0801",
        span,
        format!("a dictionary has a type of keys and a type of values, but this names {count}"),
    )
    .label("keys and values")
    .help("write `dict<string<64>, int>`")
}

pub(crate) fn no_bound(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0802", span, format!("the dictionary `{name}` has no bound"))
        .label("how many entries at most?")
        .note("All memory of a dictionary is set aside when the service starts, so that it can never run out later.")
        .help("write how many entries it holds: `max 10000 entries`; `evict` says what happens when it is full")
}

pub(crate) fn bad_entries(span: Span, why: &str, entries_max: u64) -> Diagnostic {
    Diagnostic::error("E0802", span, format!("this is no bound of a dictionary: {why}"))
        .label("not a number of entries")
        .help(format!("write a number from 1 to {entries_max}, like `max 10000 entries`"))
}

pub(crate) fn bad_bytes(span: Span) -> Diagnostic {
    Diagnostic::error("E0802", span, "this is no bound of a dictionary: bytes are a literal number above 0")
        .label("not a number of bytes")
        .help("write how much memory it takes at most, like `max 10000 entries, 64MiB bytes`")
}

pub(crate) fn key_type(span: Span, found: &str, is_whole: bool) -> Diagnostic {
    let title = if is_whole {
        format!("{found} cannot be the key of a dictionary")
    } else {
        format!("a key of a dictionary cannot have {found} in it")
    };
    Diagnostic::error("E0803", span, title)
        .label("not a key")
        .note("A key is text, bytes, a number, an address, a time, a truth value, an enumeration, or a record or tuple of them.")
        .help("name the part that tells entries apart, for example a field of the message: `dict<string<250>, int>`")
}

pub(crate) fn value_type(span: Span, found: &str, is_whole: bool, is_message: bool) -> Diagnostic {
    let title = if is_whole {
        format!("{found} cannot be kept in a dictionary")
    } else {
        format!("a value of a dictionary cannot have {found} in it")
    };
    let help = if is_message {
        "a message is gone when its turn is over: keep the fields you need, in a record of your own or as text"
    } else {
        "keep the values one by one, under keys of their own, or join them into one text"
    };
    Diagnostic::error("E0804", span, title).label("not kept").note(KEPT).help(help)
}

pub(crate) fn option_kept(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0804",
        span,
        format!("{found} cannot be the value of a dictionary: an entry is an option by itself"),
    )
    .label("an option")
    .help("keep the plain value, and leave the entry out, or `remove` it, where there is none")
}

pub(crate) fn too_large(span: Span, what: &str, bytes: u64, allowed: u64) -> Diagnostic {
    Diagnostic::error(
        "E0805",
        span,
        format!("{what} may be {bytes} bytes here, more than the {allowed} there is room for"),
    )
    .label(format!("up to {bytes} bytes"))
    .help("write a smaller bound for its text, for example `string<250>`")
}

pub(crate) fn bad_interval(span: Span, what: &str, wanted: &str, example: &str) -> Diagnostic {
    Diagnostic::error("E0806", span, format!("{what} needs {wanted}"))
        .label("no such duration")
        .help(format!("write `{example}`; the units are `ns`, `us`, `ms`, `s`, `min` and `h`"))
}

pub(crate) fn snapshot_name(span: Span, name: &str) -> Diagnostic {
    let title = if name.is_empty() {
        "a snapshot has a name".to_owned()
    } else {
        format!("`{}` cannot be the name of a snapshot", name.escape_debug())
    };
    Diagnostic::error("E0807", span, title)
        .label("not a plain file name")
        .note("The operator says in which directory snapshots lie; the program only names the file.")
        .help("write letters, digits, `.`, `_` and `-`, not beginning with a dot: `snapshot \"hits\"`")
}

pub(crate) fn snapshot_twice(span: Span, name: &str, other: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0807", span, format!("two dictionaries would be written to `{name}`"))
        .label("again here")
        .also(first, format!("`{other}` is written there"))
        .help("give each its own name")
}

pub(crate) fn property_of_a_counter(span: Span, what: &str, property: &str) -> Diagnostic {
    Diagnostic::error("E0808", span, format!("a {what} has no `{property}`"))
        .label("only dictionaries have this")
        .note("A counter is a single number: it needs no bound, and is not forgotten.")
        .help("remove it")
}

pub(crate) fn too_many_globals(span: Span, what: &str, allowed: usize) -> Diagnostic {
    Diagnostic::error("E0809", span, format!("a program has at most {allowed} {what}"))
        .label("one too many")
        .help("join some of them: a dictionary may hold several kinds of entries under a key with two parts, `dict<(int, string<64>), int>`")
}

pub(crate) fn local_needs_type(span: Span, name: &str, example: &str) -> Diagnostic {
    Diagnostic::error("E0810", span, format!("the type of `{name}` is not clear from its first value"))
        .label("how large may it become?")
        .help(format!("write its type: `local {name}: {example}`"))
}

pub(crate) fn local_type(span: Span, name: &str, found: &str, is_message: bool) -> Diagnostic {
    let help = if is_message {
        "a message is gone when its turn is over: keep the fields you need"
    } else {
        "keep single values, each as a `local` of its own"
    };
    Diagnostic::error("E0811", span, format!("`{name}` cannot keep {found}"))
        .label("not kept with a session")
        .note(KEPT)
        .help(help)
}

pub(crate) fn state_too_large(span: Span, bytes: u64, allowed: u64) -> Diagnostic {
    Diagnostic::error(
        "E0812",
        span,
        format!("each session would keep {bytes} bytes, more than the {allowed} allowed"),
    )
    .label("this one is too much")
    .help("write smaller bounds for its text, or keep large values in a `global` dictionary")
}

pub(crate) fn not_constant(span: Span, name: &str, found: &str) -> Diagnostic {
    Diagnostic::error("E0813", span, format!("the first value of `{name}` cannot use {found}"))
        .label("not known when a session begins")
        .help("write a constant such as `0` or `\"\"`, or a built-in such as `now()`; set it later with `:=`")
}

pub(crate) fn not_assignable(span: Span, name: &str, is: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0814", span, format!("`{name}` is {is}; it cannot be changed"))
        .label(format!("this is {is}"))
        .help(help.to_owned())
}

pub(crate) fn assigned_place(span: Span) -> Diagnostic {
    Diagnostic::error("E0814", span, "only a `local` and an entry of a dictionary can be changed")
        .label("neither of the two")
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
    not_assignable(span, name, "a whole dictionary", &format!("change an entry: `{name}[key] := value`"))
}

pub(crate) fn not_an_entry(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0815", span, format!("`update` changes an entry of a dictionary, not {found}"))
        .label("not an entry")
        .help("write `update d[key] from old: (old else 0) + 1`; a `local` is changed with `:=`")
}

/// `what` is what the body does: "sends a message".
pub(crate) fn update_does(span: Span, what: &str, through: Option<(&str, Span)>) -> Diagnostic {
    let diagnostic = Diagnostic::error("E0816", span, format!("the body of an `update` {what}"))
        .label("not inside an `update`")
        .note("The body may run again when another worker changed the same entry meanwhile, so it only computes.")
        .help("let the `update` give the new value a name, `let n = update d[k] from v: ...`, and act on that afterwards");
    match through {
        Some((name, place)) => diagnostic.also(place, format!("`{name}` does it here")),
        None => diagnostic,
    }
}

/// `whose` is what has no session: "what runs at intervals".
pub(crate) fn no_session(span: Span, name: &str, whose: &str, through: Option<(&str, Span)>) -> Diagnostic {
    let diagnostic =
        Diagnostic::error("E0817", span, format!("`{name}` belongs to a session, but {whose} has none"))
            .label("whose?")
            .help("keep it in a `global` dictionary, counter or gauge, which all sessions share");
    match through {
        Some((function, place)) => diagnostic.also(place, format!("`{function}` uses it here")),
        None => diagnostic,
    }
}

pub(crate) fn dict_as_value(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0428", span, format!("the dictionary `{name}` is no value; only its entries are"))
        .label("a whole dictionary")
        .help(format!("look an entry up: `{name}[key]`, an option; how many there are says `len({name})`"))
}

pub(crate) fn counter_as_value(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0428", span, format!("`{name}` is what counts, not a number"))
        .label("a counter or gauge")
        .help(format!("read it with `value({name})`"))
}

pub(crate) fn never_used(span: Span, what: &str, name: &str) -> Diagnostic {
    let verb = if what == "local" { "read" } else { "used" };
    Diagnostic::warning("E0818", span, format!("the {what} `{name}` is never {verb}"))
        .label(format!("never {verb}"))
        .help("remove it, or begin its name with an underscore to keep it")
}
