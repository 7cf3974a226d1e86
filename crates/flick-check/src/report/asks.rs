//! E09xx: requests whose reply is waited for, and what happens without a message.

use super::list;
use crate::diagnostic::Diagnostic;
use crate::hir::Span;

pub(crate) fn not_a_channel(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0901", span, format!("`ask` sends to a channel, not to {found}"))
        .label(format!("this is {found}"))
        .help("write `ask backends[i] with req`; the function needs a parameter for the channel: `[cmd/cmd] backends`")
}

pub(crate) fn which_element(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0901", span, format!("`{name}` is many channels; which one is asked?"))
        .label("an array of channels")
        .help(format!(
            "pick one, `ask {name}[i] with ...`, or ask every one of them: `ask all {name} with ...`"
        ))
}

pub(crate) fn single_channel(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0901",
        span,
        format!("`ask all` asks an array of channels, but `{name}` is a single one"),
    )
    .label("one channel")
    .help(format!("write `ask {name} with ...`, or list several: `ask all [a with x, b with y]`"))
}

pub(crate) fn one_way(span: Span, name: &str, misses: &str, unit: &str, decl: Span) -> Diagnostic {
    Diagnostic::error("E0902", span, format!("`{name}` {misses}, so it cannot be asked"))
        .label("one direction is missing")
        .also(decl, "declared here")
        .note("An `ask` sends a request and receives its reply on the same channel.")
        .help(format!(
            "declare it with both directions, `{unit}/{unit} {name}`, here and where it is passed on"
        ))
}

pub(crate) fn no_replies(span: Span, name: &str, unit: &str, grammar: Span) -> Diagnostic {
    Diagnostic::error(
        "E0903",
        span,
        format!("`{name}` cannot be asked: the grammar of `{unit}` does not say which reply is whose"),
    )
    .label("whose reply?")
    .also(grammar, "no `%order` and no `%correlate`")
    .help("if replies come in the order of their requests, write `%order = in_order;` into the grammar")
}

pub(crate) fn reply_may_be_missing(span: Span, unit: &str) -> Diagnostic {
    Diagnostic::error("E0420", span, format!("this may be `none`, but a message `{unit}` is sent"))
        .label("an option")
        .help("say what is sent without a reply: `switch reply:` with the cases `some r:` and `none:`, or leave `else none` out, so that the request fails as usual")
}

pub(crate) fn different_replies(span: Span, found: &str, wanted: &str, first: Span) -> Diagnostic {
    Diagnostic::error(
        "E0904",
        span,
        format!("this channel replies with `{found}`, the first one with `{wanted}`"),
    )
    .label(format!("replies with `{found}`"))
    .also(first, format!("replies with `{wanted}`"))
    .note("The replies are a list, whose elements are all of one type.")
    .help("ask the others with an `ask all` of their own, or one by one with `ask`")
}

pub(crate) fn number_of_asks(span: Span, count: usize, asks_max: usize) -> Diagnostic {
    let (title, help) = if count == 0 {
        ("this `ask all` asks nobody".to_owned(), "write `ask all [a with x, b with y]`".to_owned())
    } else {
        (
            format!("this `ask all` asks {count} channels, more than the {asks_max} allowed at once"),
            "ask some of them first, the others afterwards".to_owned(),
        )
    };
    Diagnostic::error("E0905", span, title).label(format!("{count} requests")).help(help)
}

/// One request for each of up to `count` elements, which is none or too many.
pub(crate) fn number_for_each(span: Span, count: u32, asks_max: usize) -> Diagnostic {
    let title =
        format!("this `ask all` asks for up to {count} elements; 1 to {asks_max} are allowed at once");
    Diagnostic::error("E0905", span, title)
        .label(format!("up to {count} requests"))
        .help(format!("cut the list: `ask all [x in xs[..{asks_max}]: backends[place(x)] with part(x)]`"))
}

pub(crate) fn too_many_asks(span: Span, asks: u64, allowed: u64) -> Diagnostic {
    Diagnostic::error(
        "E0905",
        span,
        format!("one message may cause {asks} asks here, more than the {allowed} allowed"),
    )
    .label(format!("up to {asks} asks"))
    .note("The replies of one message are all kept until its work is done.")
    .help("ask fewer channels for one message")
}

pub(crate) fn no_time(span: Span) -> Diagnostic {
    Diagnostic::error("E0906", span, "no reply comes in no time")
        .label("waits for nothing")
        .help("write how long to wait, `timeout 50ms`; to send without waiting, write `req => backend`")
}

pub(crate) fn timeout_unit(span: Span, number: Option<i128>) -> Diagnostic {
    let help = match number {
        Some(number) => format!("write its unit: `timeout {number}ms`"),
        None => "multiply it with its unit: `timeout n * 1ms`".to_owned(),
    };
    Diagnostic::error("E0906", span, "a time-out is a duration, not a number").label("of what?").help(help)
}

/// `place` says where the ask stands: "inside a loop"; `instead` what to write.
pub(crate) fn misplaced(span: Span, place: &str, instead: &str, through: Option<(&str, Span)>) -> Diagnostic {
    let diagnostic = Diagnostic::error("E0907", span, format!("`ask` does not stand {place}"))
        .label("would have to wait here")
        .help(instead.to_owned());
    match through {
        Some((name, place)) => diagnostic.also(place, format!("`{name}` asks here")),
        None => diagnostic,
    }
}

pub(crate) fn asks_itself(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0908", span, format!("`{name}` is where the request came from; it cannot be asked"))
        .label("the asker itself")
        .help(format!("reply to it, `message => {name}`, and ask another channel"))
}

pub(crate) fn index_missing(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0911",
        span,
        format!("`{name}` is many channels; which one it happened to needs a name"),
    )
    .label("an array of channels")
    .help(format!(
        "write `{name}[i]`; `i` is then the number of the channel, or `{name}[_]` if it does not matter"
    ))
}

pub(crate) fn index_of_single(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0911", span, format!("`{name}` is a single channel; it has no index"))
        .label("not an array")
        .help(format!("write `{name}` alone"))
}

pub(crate) fn second_handler(span: Span, event: &str, name: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0912", span, format!("two handlers say what to do when `{name}` is {event}"))
        .label("second handler")
        .also(first, "first handler")
        .help("put what both do into one of them")
}

pub(crate) fn not_a_channel_of<'a>(
    span: Span,
    name: &str,
    channels: impl IntoIterator<Item = &'a str> + Clone,
) -> Diagnostic {
    let known = list(channels.clone());
    let help = match super::similar(name, channels) {
        Some(close) => format!("did you mean `{close}`?"),
        None => format!("the channels are {known}"),
    };
    Diagnostic::error("E0913", span, format!("the process has no channel `{name}`"))
        .label("not a channel")
        .help(help)
}

pub(crate) fn event_place(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("E0914", span, format!("{what} stands directly below the heading of a process"))
        .label("not inside a function")
        .help("move it out: behind the rules, at their depth")
}
