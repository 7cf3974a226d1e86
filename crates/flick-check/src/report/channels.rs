//! E05xx: processes, channels and their directions.

use super::list;
use crate::diagnostic::Diagnostic;
use crate::hir::Span;

pub(crate) fn cannot_send(span: Span, name: &str, decl: Span, receives: &str) -> Diagnostic {
    Diagnostic::error("E0501", span, format!("`{name}` only receives; nothing can be sent to it"))
        .label("sent here")
        .also(decl, "the `-` behind the slash says: sends nothing")
        .help(format!("declare it as `{receives}/{receives} {name}` if the program should send on it"))
}

pub(crate) fn cannot_receive(span: Span, name: &str, decl: Span, sends: &str) -> Diagnostic {
    Diagnostic::error("E0502", span, format!("`{name}` only sends; no message comes from it"))
        .label("read here")
        .also(decl, "the `-` before the slash says: receives nothing")
        .help(format!("declare it as `{sends}/{sends} {name}` if the program should read from it"))
}

pub(crate) fn wrong_message(span: Span, name: &str, wanted: &str, found: &str, decl: Span) -> Diagnostic {
    Diagnostic::error("E0503", span, format!("`{name}` carries `{wanted}`, not {found}"))
        .label(format!("this is {found}"))
        .also(decl, format!("sends `{wanted}`"))
        .help(format!("send a `{wanted}`, or declare the channel with the type of what is sent"))
}

pub(crate) fn which_element(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0504", span, format!("`{name}` is many channels; which one gets the message?"))
        .label("an array of channels")
        .help(format!("pick one, for example `{name}[hash(req.key) mod len({name})]`"))
}

pub(crate) fn not_a_target(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0505",
        span,
        format!("a message goes to a channel or into a function, not to {found}"),
    )
    .label(format!("this is {found}"))
    .help("write `=> client`, `=> backends[i]` or `=> f(x)`")
}

pub(crate) fn unused_channel(span: Span, name: &str) -> Diagnostic {
    Diagnostic::warning("E0506", span, format!("the channel `{name}` is never used"))
        .label("never used")
        .help(format!("read it (`| {name} => ...`), send on it (`... => {name}`), or remove it"))
}

pub(crate) fn no_rules(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0507", span, format!("the process `{name}` has no rules"))
        .label("nothing to do")
        .help("write at least one rule below it, for example `| client => f(backends)`")
}

pub(crate) fn second_process(span: Span, name: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0508", span, format!("two processes are called `{name}`"))
        .label("second process of that name")
        .also(first, "first process")
        .help("each process of a program is a service of its own; give it another name")
}

pub(crate) fn too_many_processes(span: Span, most: usize) -> Diagnostic {
    Diagnostic::error("E0508", span, format!("a program has at most {most} processes"))
        .label("one too many")
        .help("put it into a file of its own; one `flick run` takes several files")
}

pub(crate) fn process_in_library(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0508",
        span,
        format!("a file that others use has no process, but this one has `{name}`"),
    )
    .label("a process")
    .help("move the process into the program")
}

pub(crate) fn never_read(span: Span, name: &str, ty: &str) -> Diagnostic {
    Diagnostic::warning("E0509", span, format!("messages from `{name}` are read by no rule"))
        .label("what arrives here is thrown away")
        .help(format!(
            "add a rule `| {name} => ...`, or declare it as `-/{ty} {name}` if nothing should arrive"
        ))
}

pub(crate) fn not_a_source<'a>(
    span: Span,
    found: &str,
    channels: impl IntoIterator<Item = &'a str>,
) -> Diagnostic {
    Diagnostic::error("E0510", span, format!("a rule starts with a channel of the process, not with {found}"))
        .label(format!("this is {found}"))
        .help(format!("the channels are {}", list(channels)))
}

pub(crate) fn result_dropped(span: Span, name: &str, found: &str) -> Diagnostic {
    Diagnostic::error("E0512", span, format!("`{name}` gives {found}, but nothing is done with it"))
        .label("the chain ends here")
        .help("send it on: `=> client`")
}

pub(crate) fn no_destination(span: Span) -> Diagnostic {
    Diagnostic::error("E0512", span, "this rule says where messages come from, but not where they go")
        .label("the chain ends here")
        .help("send them on: `| client => backend`, or into a function: `| client => f(backends)`")
}

pub(crate) fn behind_a_send(span: Span) -> Diagnostic {
    Diagnostic::error("E0505", span, "a send gives nothing to pass on, so a chain ends with it")
        .label("behind the end of the chain")
        .help("write two lines, or send to both channels in a function")
}

pub(crate) fn second_rule(span: Span, name: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0513", span, format!("two rules read from `{name}`"))
        .label("second rule")
        .also(first, "first rule")
        .note("Each message is handled by one rule.")
        .help("put what both do into one function")
}

pub(crate) fn no_channels(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0514", span, format!("the process `{name}` receives nothing, so it never runs"))
        .label("no channel to receive from")
        .help("give it a channel that messages come from, for example `(cmd/cmd client)`")
}

pub(crate) fn not_a_message(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0515", span, format!("a channel carries messages of a grammar, not {found}"))
        .label(format!("this is {found}"))
        .help("name a unit of a grammar, for example `cmd` after `use memcached_binary`")
}

pub(crate) fn value_parameter(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0516",
        span,
        format!("a process is connected by channels only, but `{name}` is a value"),
    )
    .label("not a channel")
    .help(format!("write its directions in front: `cmd/cmd {name}`"))
}

pub(crate) fn join_directions(span: Span) -> Diagnostic {
    Diagnostic::error("E0517", span, "`<=>` joins two single channels")
        .label("not a single channel of the process")
        .help("write one rule for each direction: `| backends => client` and `| client => f(backends)`")
}
