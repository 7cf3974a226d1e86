//! Checks the items that the platform looks up: functions of the right kind, channels, protocols, dictionaries, words
//! of state.

use flick_abi::limits::{
    COUNTERS_MAX, DICT_KEY_BYTES_MAX, DICT_VALUE_BYTES_MAX, DICTS_MAX, ECHO_FIELDS_MAX, FRAME_SLOTS_MAX,
    STATE_WORDS_MAX,
};
use flick_abi::{FuncId, Program, RuleAction, WireField};

use super::{Report, VerifyError};
use crate::data::{FuncKind, Function, Module};
use crate::limits::CHANNELS_MAX;

/// Checks the program of a module.
pub(super) fn check(module: &Module, errors: &mut Vec<VerifyError>) {
    let mut report = Report { position: String::new(), errors };
    let program = &module.program;
    report.require(program.channels.len() <= CHANNELS_MAX, || "a program has too many channels".to_owned());
    views(module, &mut report);
    rules(module, &mut report);
    merges(module, &mut report);
    indices(program, &mut report);
    state(program, &mut report);
}

fn kind(module: &Module, report: &mut Report<'_>, id: FuncId, kind: FuncKind, what: &str) {
    let found = module.functions.get(id.0 as usize).map(|function: &Function| function.kind);
    report.require(found == Some(kind), || format!("{what} is f{}, which is no {kind:?}", id.0));
}

fn views(module: &Module, report: &mut Report<'_>) {
    for channel in &module.program.channels {
        if let Some(view) = &channel.view {
            let what = |role: &str| format!("the {role} of channel `{}`", channel.name);
            kind(module, report, view.parse_request, FuncKind::Parser, &what("request parser"));
            kind(module, report, view.parse_reply, FuncKind::Parser, &what("reply parser"));
            kind(module, report, view.parse_asked, FuncKind::Parser, &what("parser of replies to asks"));
            if let Some(flags) = view.reply_flags {
                kind(module, report, flags, FuncKind::Parser, &what("reply flags"));
            }
        }
    }
    for protocol in &module.program.protocols {
        for builder in protocol.failures.iter().flatten() {
            kind(
                module,
                report,
                *builder,
                FuncKind::Builder,
                &format!("a failure of protocol `{}`", protocol.name),
            );
        }
    }
}

/// Code that runs by itself; only rules that say so and timers may give way.
fn rules(module: &Module, report: &mut Report<'_>) {
    let program = &module.program;
    let rule = |report: &mut Report<'_>, id: FuncId, may_wait: bool, what: &str| {
        kind(module, report, id, FuncKind::Rule, what);
        let waits = module.functions.get(id.0 as usize).is_some_and(Function::suspends);
        report.require(may_wait || !waits, || format!("{what} is f{}, which must not suspend", id.0));
    };
    for (index, found) in program.rules.iter().enumerate() {
        if let RuleAction::Run { rule: id } = found.action {
            rule(report, id, found.asks, &format!("the code of rule {index}"));
        }
    }
    for (index, merge) in program.merges.iter().enumerate() {
        kind(module, report, merge.order, FuncKind::Order, &format!("the order of merge {index}"));
        rule(report, merge.combine, false, &format!("what merge {index} combines with"));
        if let RuleAction::Run { rule: id } = merge.finish {
            rule(report, id, false, &format!("the code of merge {index}"));
        }
    }
    for (index, handler) in program.handlers.iter().enumerate() {
        rule(report, handler.rule, false, &format!("the code of handler {index}"));
    }
    for (index, timer) in program.timers.iter().enumerate() {
        rule(report, timer.rule, true, &format!("the code of timer {index}"));
        report.require(timer.interval_ns > 0, || format!("timer {index} has no interval"));
    }
    if let Some(init) = program.init_state {
        rule(report, init, false, "what starts the state");
    }
}

fn merges(module: &Module, report: &mut Report<'_>) {
    let channels = &module.program.channels;
    for (index, merge) in module.program.merges.iter().enumerate() {
        let is_array = channels.get(merge.source).is_some_and(|channel| channel.is_array);
        report.require(is_array, || format!("merge {index} is of no array of channels"));
        let target = if let RuleAction::Pass { to } = merge.finish { to } else { 0 };
        report.require(target < channels.len(), || {
            format!("merge {index} names a channel that does not exist")
        });
    }
}

/// Numbers of channels, protocols and slots.
fn indices(program: &Program, report: &mut Report<'_>) {
    let channels = program.channels.len();
    for channel in &program.channels {
        let is_known = channel.protocol < program.protocols.len() || program.protocols.is_empty();
        report
            .require(is_known, || format!("channel `{}` has no protocol {}", channel.name, channel.protocol));
    }
    for (index, rule) in program.rules.iter().enumerate() {
        let target = if let RuleAction::Pass { to } = rule.action { to } else { 0 };
        let is_known = rule.source < channels && target < channels;
        report.require(is_known, || format!("rule {index} names a channel that does not exist"));
    }
    for (index, handler) in program.handlers.iter().enumerate() {
        let is_known = handler.channel < channels;
        report.require(is_known, || format!("handler {index} names a channel that does not exist"));
    }
    for protocol in &program.protocols {
        let fields = protocol.echo.iter().flat_map(|field| [Some(&field.request), field.reply.as_ref()]);
        let is_good = |field: &WireField| {
            usize::from(field.slot) < FRAME_SLOTS_MAX && matches!(field.width_bytes, 1 | 2 | 4 | 8)
        };
        for field in fields.flatten().filter(|field| !is_good(field)) {
            report.add(format!("protocol `{}` has a field of no slot or width: {field:?}", protocol.name));
        }
        let changed = protocol.correlate.iter().chain(&protocol.non_quiet);
        let is_kept = changed.clone().all(|at| *at < protocol.echo.len());
        report.require(is_kept, || {
            format!("protocol `{}` changes a field that it does not keep", protocol.name)
        });
        let is_few = protocol.echo.len() <= ECHO_FIELDS_MAX;
        report.require(is_few, || format!("protocol `{}` has too many echo fields", protocol.name));
    }
}

/// Sizes of what is kept.
fn state(program: &Program, report: &mut Report<'_>) {
    let counts = [
        (program.state_words as usize, STATE_WORDS_MAX, "words of state"),
        (program.dicts.len(), DICTS_MAX, "dictionaries"),
        (program.counters.len(), COUNTERS_MAX, "counters"),
    ];
    for (count, max, what) in counts {
        report.require(count <= max, || format!("a program has at most {max} {what}, not {count}"));
    }
    for dict in &program.dicts {
        let fits = dict.key_bytes_max as usize <= DICT_KEY_BYTES_MAX
            && dict.value_bytes_max as usize <= DICT_VALUE_BYTES_MAX;
        report.require(fits, || format!("dictionary `{}` has too long keys or values", dict.name));
        report.require(dict.entries_max > 0, || format!("dictionary `{}` has no room", dict.name));
    }
}
