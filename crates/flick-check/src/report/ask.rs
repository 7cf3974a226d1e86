//! E09xx: `ask` expressions, and handlers of events.

use super::list;
use crate::diagnostic::Diagnostic;
use crate::hir::Span;

pub(crate) fn not_a_channel(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0901", span, format!("expected a channel after `ask`, found {found}"))
        .label(format!("this is {found}"))
        .help("write `ask backends[i] with req`; the function needs a parameter for the channel: `[cmd/cmd] backends`")
}

pub(crate) fn missing_index(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0901",
        span,
        format!("expected a channel after `ask`, found array of channels `{name}`"),
    )
    .label("missing index")
    .help(format!("index it, `ask {name}[i] with ...`, or ask every channel: `ask all {name} with ...`"))
}

pub(crate) fn channel_after_ask_all(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0901",
        span,
        format!("expected an array of channels after `ask all`, found channel `{name}`"),
    )
    .label("a single channel")
    .help(format!("write `ask {name} with ...`, or list several channels: `ask all [a with x, b with y]`"))
}

pub(crate) fn one_direction(span: Span, name: &str, misses: &str, declared: &str, decl: Span) -> Diagnostic {
    Diagnostic::error("E0902", span, format!("cannot ask `{name}`: the channel {misses}"))
        .label("expected a channel with both directions")
        .also(decl, "declared here")
        .note("`ask` sends a request and receives the reply on the same channel.")
        .help(format!(
            "declare it with both directions, `{declared} {name}`, here and where it is passed as an argument"
        ))
}

pub(crate) fn no_replies(span: Span, name: &str, unit: &str, grammar: Span) -> Diagnostic {
    Diagnostic::error(
        "E0903",
        span,
        format!("cannot ask `{name}`: the grammar of `{unit}` does not match replies to requests"),
    )
    .label("replies cannot be matched to requests")
    .also(grammar, "missing `%order` or `%correlate`")
    .help("if replies come in the order of their requests, add `%order = in_order;` to the grammar")
}

pub(crate) fn reply_may_be_missing(span: Span, unit: &str) -> Diagnostic {
    Diagnostic::error("E0420", span, format!("expected a message `{unit}`, found an option, which may be `none`"))
        .label("an option")
        .help("handle the missing reply: `switch reply:` with the cases `some r:` and `none:`, or remove `else none`, so that the request fails as usual")
}

pub(crate) fn different_replies(span: Span, found: &str, wanted: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0904", span, format!("mismatched reply types: expected `{wanted}`, found `{found}`"))
        .label(format!("replies with `{found}`"))
        .also(first, format!("replies with `{wanted}`"))
        .note("The replies are a list, whose elements all have one type.")
        .help("use a separate `ask all` for the other channels, or ask them one by one with `ask`")
}

pub(crate) fn number_of_asks(span: Span, count: usize, asks_max: usize) -> Diagnostic {
    let (title, help) = if count == 0 {
        ("empty `ask all`: no channel is asked".to_owned(), "write `ask all [a with x, b with y]`".to_owned())
    } else {
        (
            format!("too many channels in one `ask all`: {count}, the limit is {asks_max}"),
            "ask some of them first, the others afterwards".to_owned(),
        )
    };
    Diagnostic::error("E0905", span, title).label(format!("{count} requests")).help(help)
}

/// One request for each of up to `count` elements, which is none or too many.
pub(crate) fn number_for_each(span: Span, count: u32, asks_max: usize) -> Diagnostic {
    let title = format!("this `ask all` sends up to {count} requests; expected 1 to {asks_max}");
    Diagnostic::error("E0905", span, title).label(format!("up to {count} requests")).help(format!(
        "slice the list: `ask all [x in xs[..{asks_max}]: backends[index(x)] with request(x)]`"
    ))
}

pub(crate) fn too_many_asks(span: Span, asks: u64, allowed: u64) -> Diagnostic {
    Diagnostic::error(
        "E0905",
        span,
        format!("too many asks: one message may cause {asks} asks, the limit is {allowed}"),
    )
    .label(format!("up to {asks} asks"))
    .note("All replies are kept until the rule has finished.")
    .help("ask fewer channels for one message")
}

pub(crate) fn zero_timeout(span: Span) -> Diagnostic {
    Diagnostic::error("E0906", span, "invalid timeout: expected a duration above zero")
        .label("zero timeout")
        .help("write how long to wait, `timeout 50ms`; to send without waiting, write `req => backend`")
}

pub(crate) fn timeout_unit(span: Span, number: Option<i128>) -> Diagnostic {
    let help = match number {
        Some(number) => format!("write its unit: `timeout {number}ms`"),
        None => "multiply it by a unit: `timeout n * 1ms`".to_owned(),
    };
    Diagnostic::error("E0906", span, "invalid timeout: expected a duration, found an integer")
        .label("missing unit")
        .help(help)
}

/// `place` is the construct around the `ask`: "inside a loop"; `instead` what to write.
pub(crate) fn not_allowed(
    span: Span,
    location: &str,
    instead: &str,
    through: Option<(&str, Span)>,
) -> Diagnostic {
    let diagnostic = Diagnostic::error("E0907", span, format!("`ask` is not allowed {location}"))
        .label("would wait for a reply here")
        .help(instead.to_owned());
    match through {
        Some((name, location)) => diagnostic.also(location, format!("`{name}` asks here")),
        None => diagnostic,
    }
}

pub(crate) fn asks_sender(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0908", span, format!("cannot ask `{name}`: the request came from this channel"))
        .label("the sender of the request")
        .help(format!("reply to it, `message => {name}`, or ask another channel"))
}

pub(crate) fn index_missing(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0911", span, format!("missing index: `{name}` is an array of channels"))
        .label("missing index")
        .help(format!(
            "write `{name}[i]` to name the index of the channel, or `{name}[_]` if it is not needed"
        ))
}

pub(crate) fn index_of_single(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0911", span, format!("unexpected index: `{name}` is a single channel"))
        .label("not an array")
        .help(format!("write `{name}`"))
}

pub(crate) fn second_handler(span: Span, event: &str, name: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0912", span, format!("duplicate handler: `{event}` of `{name}` is handled twice"))
        .label("second handler")
        .also(first, "first handler")
        .help("merge the two handlers into one")
}

pub(crate) fn not_a_channel_of<'a>(
    span: Span,
    name: &str,
    channels: impl IntoIterator<Item = &'a str> + Clone,
) -> Diagnostic {
    let known = list(channels.clone());
    let help = match super::similar(name, channels) {
        Some(close) => format!("did you mean `{close}`?"),
        None => format!("the channels of the process are {known}"),
    };
    Diagnostic::error("E0913", span, format!("cannot find channel `{name}` in this process"))
        .label("not found in this process")
        .help(help)
}

pub(crate) fn only_in_process(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("E0914", span, format!("{what} is not allowed in a function"))
        .label("only allowed directly in a process")
        .help("move it into the process: below the rules, at their indentation")
}
