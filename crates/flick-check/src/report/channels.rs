//! E05xx: processes, channels and their directions.

use super::list;
use crate::diagnostic::Diagnostic;
use crate::hir::Span;

pub(crate) fn cannot_send(span: Span, name: &str, decl: Span, receives: &str, is_array: bool) -> Diagnostic {
    let (open, close) = if is_array { ("[", "]") } else { ("", "") };
    Diagnostic::error("E0501", span, format!("cannot send to `{name}`: the channel is receive-only"))
        .label("sent here")
        .also(decl, "receive-only: `-` after the slash")
        .help(format!("declare it as `{open}{receives}/{receives}{close} {name}` to send to it"))
}

/// A channel that only receives, as an argument for a parameter that sends.
pub(crate) fn receive_only_argument(
    span: Span,
    wanted: &str,
    found: &str,
    why: Option<(Span, String)>,
) -> Diagnostic {
    let title = format!("mismatched types: expected {wanted}, found {found}, which is receive-only");
    let diagnostic = Diagnostic::error("E0401", span, title).label("receive-only: `-` after the slash");
    let diagnostic = match why {
        Some((span, text)) => diagnostic.also(span, text),
        None => diagnostic,
    };
    diagnostic.help("in the process, write the message that is sent after the slash, for example `cmd/cmd`")
}

pub(crate) fn cannot_receive(span: Span, name: &str, decl: Span, sends: &str) -> Diagnostic {
    Diagnostic::error("E0502", span, format!("cannot receive from `{name}`: the channel is send-only"))
        .label("received here")
        .also(decl, "send-only: `-` before the slash")
        .help(format!("declare it as `{sends}/{sends} {name}` to receive from it"))
}

pub(crate) fn wrong_message(span: Span, name: &str, wanted: &str, found: &str, decl: Span) -> Diagnostic {
    Diagnostic::error(
        "E0503",
        span,
        format!("mismatched types: channel `{name}` expects a message `{wanted}`, found {found}"),
    )
    .label(format!("this is {found}"))
    .also(decl, format!("sends `{wanted}`"))
    .help(format!("send a `{wanted}`, or declare the channel with the type of the message"))
}

pub(crate) fn missing_index(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0504", span, format!("missing index: cannot send to the array of channels `{name}`"))
        .label("missing index")
        .help(format!("index it, for example `{name}[hash(req.key) mod len({name})]`"))
}

pub(crate) fn not_a_target(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0505", span, format!("expected a channel or a function after `=>`, found {found}"))
        .label(format!("this is {found}"))
        .help("write `=> client`, `=> backends[i]` or `=> f(x)`")
}

pub(crate) fn unused_channel(span: Span, name: &str) -> Diagnostic {
    Diagnostic::warning("E0506", span, format!("unused channel: `{name}`"))
        .label("never used")
        .help(format!("receive from it (`| {name} => ...`), send to it (`... => {name}`), or remove it"))
}

pub(crate) fn no_rules(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0507", span, format!("missing rule: the process `{name}` has no rules"))
        .label("no rules")
        .help("add at least one rule, for example `| client => f(backends)`")
}

pub(crate) fn second_process(span: Span, name: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0508", span, format!("the process `{name}` is defined multiple times"))
        .label("redefined here")
        .also(first, "first defined here")
        .help("each process of a program is a separate service; rename one of them")
}

pub(crate) fn too_many_processes(span: Span, most: usize) -> Diagnostic {
    Diagnostic::error("E0508", span, format!("too many processes: the limit of a program is {most}"))
        .label("exceeds the limit")
        .help("move it into another file; one `flick run` takes several files")
}

pub(crate) fn process_in_library(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0508", span, format!("process `{name}` is not allowed in an imported file"))
        .label("a process")
        .help("move the process into the program")
}

/// A channel that no rule reads; `send_only` is its type if it is only sent to.
pub(crate) fn never_read(span: Span, name: &str, send_only: Option<&str>) -> Diagnostic {
    let rule = format!("add a rule `| {name} => ...`");
    let help = match send_only {
        Some(ty) => format!("{rule}, or declare it as `{ty} {name}` if nothing should arrive"),
        None => rule,
    };
    Diagnostic::warning(
        "E0509",
        span,
        format!("messages from `{name}` are never received: no rule reads the channel"),
    )
    .label("messages that arrive here are dropped")
    .help(help)
}

pub(crate) fn not_a_source<'a>(
    span: Span,
    found: &str,
    channels: impl IntoIterator<Item = &'a str>,
) -> Diagnostic {
    Diagnostic::error(
        "E0510",
        span,
        format!("expected a channel of the process at the start of a rule, found {found}"),
    )
    .label(format!("this is {found}"))
    .help(format!("the channels of the process are {}", list(channels)))
}

/// A rule inside a function.
pub(crate) fn rule_in_function(span: Span) -> Diagnostic {
    Diagnostic::error("E0510", span, "a rule is not allowed in a function")
        .label("only allowed directly in a process")
        .help("move the rule into the process; in a function, send with `message => channel`")
}

pub(crate) fn result_dropped(span: Span, name: &str, found: &str) -> Diagnostic {
    Diagnostic::error("E0512", span, format!("unused result: `{name}` returns {found}, which is never used"))
        .label("the chain ends here")
        .help("send it: `=> client`")
}

pub(crate) fn no_destination(span: Span) -> Diagnostic {
    Diagnostic::error("E0512", span, "missing destination: this rule does not send its messages anywhere")
        .label("the chain ends here")
        .help("send them, `| client => backend`, or pass them to a function: `| client => f(backends)`")
}

/// A rule whose functions never send.
pub(crate) fn sends_nothing(span: Span, source: &str) -> Diagnostic {
    Diagnostic::warning(
        "E0518",
        span,
        format!("this rule never sends a message: what `{source}` sends is dropped"),
    )
    .label("no `=> channel` in this rule or in its functions")
    .note("A request for which nothing is sent is answered with `%on unavailable`.")
    .help("end the chain with a channel, `=> client`, or send in a function: `message => channel`")
}

/// `channel <- message` and `message <- channel`.
pub(crate) fn left_arrow(span: Span, message: &str, channel: &str) -> Diagnostic {
    Diagnostic::error("E0126", span, "`<-` is not an operator")
        .label("a message is sent with `=>`")
        .help(format!("write `{message} => {channel}`"))
}

pub(crate) fn after_a_send(span: Span) -> Diagnostic {
    Diagnostic::error("E0505", span, "unexpected `=>` after a send: a send has no result")
        .label("after the end of the chain")
        .help("write two lines, or send to both channels in a function")
}

pub(crate) fn second_rule(span: Span, name: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0513", span, format!("duplicate rule: two rules receive from `{name}`"))
        .label("second rule")
        .also(first, "first rule")
        .note("Each message is handled by one rule.")
        .help("merge both rules into one function")
}

pub(crate) fn no_channels(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0514",
        span,
        format!("the process `{name}` has no channel to receive from, so it never runs"),
    )
    .label("no channel to receive from")
    .help("add a channel that receives, for example `(cmd/cmd client)`")
}

pub(crate) fn not_a_message(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0515",
        span,
        format!("invalid channel type: expected a message of a grammar, found {found}"),
    )
    .label(format!("this is {found}"))
    .help("write a unit of a grammar, for example `cmd` after `use memcached_binary`")
}

/// A channel `-/-` of a process.
pub(crate) fn no_direction(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0515", span, format!("invalid channel type: `{name}` neither receives nor sends"))
        .label("`-` on both sides")
        .help(format!("write the messages of its directions, for example `cmd/cmd {name}`, or remove it"))
}

pub(crate) fn value_parameter(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0516", span, format!("invalid parameter: `{name}` of a process is not a channel"))
        .label("expected a channel")
        .help(format!("write a channel type in front: `cmd/cmd {name}`"))
}

pub(crate) fn join_directions(span: Span) -> Diagnostic {
    Diagnostic::error("E0517", span, "expected single channels of the process on both sides of `<=>`")
        .label("not a single channel of the process")
        .help("write one rule for each direction: `| backends => client` and `| client => f(backends)`")
}
