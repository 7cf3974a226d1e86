//! Decides whether a module may be run at all.
//! Promises: of a module without errors, both engines may assume everything below without checking it again, and
//! the memory safety of compiled code rests on it:
//! numbers of values, blocks, functions, channels, slots and constants are in range; every value is defined once,
//! before each use, and used as what it is; blocks form no cycle and calls no recursion; every load of the message
//! lies behind a `Need` that covers it; a rule sends at most `SENDS_MAX` messages.
//! Refuses: to stop at the first error. Errors here are bugs of lowering, so they speak of values and blocks.

mod coverage;
mod structure;
mod types;

use flick_abi::limits::{ECHO_FIELDS_MAX, FRAME_SLOTS_MAX, SENDS_MAX};
use flick_abi::{FuncId, Program, RuleAction, WireField};

use crate::cfg::Cfg;
use crate::data::{FuncKind, Function, Module};
use crate::limits::CHANNELS_MAX;
use crate::{bounds, calls};

/// One thing that is wrong with a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// Where: a function, a block of it; empty for the program itself.
    pub place: String,
    /// What.
    pub message: String,
}

impl std::fmt::Display for VerifyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.place.is_empty() {
            write!(f, "{}", self.message)
        } else {
            write!(f, "{}: {}", self.place, self.message)
        }
    }
}

/// Checks a module. An empty list means that it may be run.
///
/// Cost: a few walks over the code; linear but for facts about lengths, of which a parser has few.
pub fn verify(module: &Module) -> Vec<VerifyError> {
    let mut errors = Vec::new();
    program(module, &mut errors);
    for (index, function) in module.functions.iter().enumerate() {
        let mut report = Report { place: format!("f{index} `{}`", function.name), errors: &mut errors };
        if structure::check(module, function, &mut report) {
            let cfg = Cfg::new(function);
            if cfg.has_cycle {
                report.add("blocks form a loop".to_owned());
            } else {
                structure::check_order(function, &cfg, &mut report);
                types::check(module, function, &mut report);
                coverage::check(function, &cfg, &mut report);
            }
        }
    }
    if errors.is_empty() {
        work(module, &mut errors);
    }
    errors
}

/// Collects errors of one place.
struct Report<'a> {
    place: String,
    errors: &'a mut Vec<VerifyError>,
}

impl Report<'_> {
    fn add(&mut self, message: String) {
        self.errors.push(VerifyError { place: self.place.clone(), message });
    }

    /// Adds an error in block `index`.
    fn add_in(&mut self, index: usize, message: String) {
        self.errors.push(VerifyError { place: format!("{}, b{index}", self.place), message });
    }

    fn require(&mut self, condition: bool, message: impl FnOnce() -> String) {
        if !condition {
            self.add(message());
        }
    }
}

/// Recursion and sends; needs functions that are right in themselves.
fn work(module: &Module, errors: &mut Vec<VerifyError>) {
    let place = |index: usize| format!("f{index} `{}`", module.functions[index].name);
    if let Err(index) = calls::callees_first(module) {
        errors.push(VerifyError { place: place(index), message: "the function calls itself".to_owned() });
        return;
    }
    for (index, bounds) in bounds::bounds(module).iter().enumerate() {
        let is_rule = module.functions[index].kind == FuncKind::Rule;
        if is_rule && bounds.sends > SENDS_MAX as u64 {
            let message = format!("sends up to {} messages, more than {SENDS_MAX}", bounds.sends);
            errors.push(VerifyError { place: place(index), message });
        }
    }
}

/// What the platform will look up.
fn program(module: &Module, errors: &mut Vec<VerifyError>) {
    let program = &module.program;
    let mut report = Report { place: String::new(), errors };
    report.require(program.channels.len() <= CHANNELS_MAX, || "a program has too many channels".to_owned());
    let want = |report: &mut Report<'_>, id: FuncId, kind: FuncKind, what: String| {
        let found = module.functions.get(id.0 as usize).map(|function: &Function| function.kind);
        report.require(found == Some(kind), || format!("{what} is f{}, which is no {kind:?}", id.0));
    };
    for channel in &program.channels {
        if let Some(view) = &channel.view {
            let what = |role: &str| format!("the {role} of channel `{}`", channel.name);
            want(&mut report, view.parse_request, FuncKind::Parser, what("request parser"));
            want(&mut report, view.parse_reply, FuncKind::Parser, what("reply parser"));
            if let Some(flags) = view.reply_flags {
                want(&mut report, flags, FuncKind::Parser, what("reply flags"));
            }
        }
    }
    for (index, rule) in program.rules.iter().enumerate() {
        if let RuleAction::Run { rule: id } = rule.action {
            want(&mut report, id, FuncKind::Rule, format!("the code of rule {index}"));
        }
    }
    for protocol in &program.protocols {
        for builder in protocol.failures.iter().flatten() {
            want(
                &mut report,
                *builder,
                FuncKind::Builder,
                format!("a failure of protocol `{}`", protocol.name),
            );
        }
    }
    indices(program, &mut report);
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
    for protocol in &program.protocols {
        let fields = protocol.echo.iter().chain(&protocol.correlate).chain(&protocol.loud);
        let is_good = |field: &WireField| {
            usize::from(field.slot) < FRAME_SLOTS_MAX && matches!(field.width_bytes, 1 | 2 | 4 | 8)
        };
        for field in fields.filter(|field| !is_good(field)) {
            report.add(format!("protocol `{}` has a field of no slot or width: {field:?}", protocol.name));
        }
        let is_few = protocol.echo.len() <= ECHO_FIELDS_MAX;
        report.require(is_few, || format!("protocol `{}` has too many echo fields", protocol.name));
    }
}

#[cfg(test)]
mod tests {
    use super::verify;
    use crate::text;

    /// Verifies the functions of a text against the messages expected, in order.
    fn check(functions: &str, expected: &[&str]) {
        let program =
            r#"program "p" { channel "c" single protocol 0 channel "d" array protocol 0 } const "abc""#;
        let module = text::parse(&format!("{program} {functions}")).expect("the test's text is of the form");
        let messages: Vec<String> = verify(&module).iter().map(ToString::to_string).collect();
        assert_eq!(messages, expected, "{functions}");
    }

    fn check_parser(body: &str, expected: &[&str]) {
        check(&format!("fn f0 parser \"p\" {{ b0(v0: frame, v1: int): {body} }}"), expected);
    }

    fn check_rule(body: &str, expected: &[&str]) {
        check(&format!("fn f0 rule \"r\" {{ b0(v0: frame, v1: uint): {body} }}"), expected);
    }

    #[test]
    fn loads_want_a_need_of_the_same_base() {
        check_parser("need 4 -> b1 state 0 b1(): v2: int = load.u32be 0 done", &[]);
        let load = "f0 `p`, b1: no `need` covers the load of";
        check_parser(
            "need 4 -> b1 state 0 b1(): v2: int = load.u32be 1 done",
            &[&format!("{load} bytes 1 to 5 of the message")],
        );
        check_parser(
            "v2: int = frame_get 9 need v2 + 4 -> b1 state 0 b1(): v3: int = load.u16be v2 + 2 done",
            &[],
        );
        check_parser(
            "v2: int = frame_get 9 v3: int = frame_get 9 need v2 + 4 -> b1 state 0
             b1(): v4: int = load.u16be v3 + 2 done",
            &[&format!("{load} bytes v3 + 2 to v3 + 4 of the message")],
        );
    }

    #[test]
    fn a_need_on_one_of_two_paths_covers_nothing_behind_their_meeting() {
        let text = |second: u32| {
            format!(
                "v2: bool = const 1 branch v2, b1, b2
                 b1(): need 8 -> b3 state 0
                 b2(): need {second} -> b3 state 1
                 b3(): v3: int = load.u64le 0 done"
            )
        };
        check_parser(&text(8), &[]);
        check_parser(&text(7), &["f0 `p`, b3: no `need` covers the load of bytes 0 to 8 of the message"]);
    }

    #[test]
    fn bytes_of_the_message_want_a_need_of_their_end() {
        let text = |base: &str| {
            format!(
                "v2: int = frame_get 9 v3: int = frame_get 10 need {base} + 0 -> b1 state 0
                 b1(): v4: bytes = message_bytes v2, v3 frame_set 8, v4 done"
            )
        };
        check_parser(&text("v3"), &[]);
        check_parser(&text("v2"), &["f0 `p`, b1: no `need` covers the bytes up to v3 of the message"]);
    }

    #[test]
    fn values_are_used_as_what_they_are() {
        check_rule("v2: bool = add v1, v1 return", &["f0 `r`, b0: v2 is bool, but `add` gives a number"]);
        check_rule(
            "v2: bytes = const_bytes 0, 3 v3: uint = add v1, v2 return",
            &["f0 `r`, b0: `add` takes a number, but v2 is bytes"],
        );
        check_rule("v2: bool = const 2 return", &["f0 `r`, b0: 2 is no bool"]);
        check_rule("v2: chan = const 2 return", &["f0 `r`, b0: 2 is no chan"]);
        check_rule(
            "v2: bytes = const_bytes 1, 3 return",
            &["f0 `r`, b0: the program has no constants from 1 to 4"],
        );
        check_rule("v2: int = frame_get 64 return", &["f0 `r`, b0: a frame has no slot 64"]);
        check_rule("jump b1 b1(v2: int): return", &["f0 `r`, b0: b1 takes 1 values, but gets 0"]);
        check_rule("jump b1(v0) b1(v2: int): return", &["f0 `r`, b0: b1 takes int, but v0 is frame"]);
    }

    #[test]
    fn values_come_before_their_uses() {
        check_rule(
            "v2: bool = const 1 branch v2, b1, b2 b1(): v3: int = const 1 jump b2 b2(): v4: int = add v3, v3 return",
            &[
                "f0 `r`, b2: v3 is not defined on every way here",
                "f0 `r`, b2: v3 is not defined on every way here",
            ],
        );
        check_rule(
            "v2: uint = add v3, v3 v3: uint = const 1 return",
            &[
                "f0 `r`, b0: v3 is not defined on every way here",
                "f0 `r`, b0: v3 is not defined on every way here",
            ],
        );
        check_rule("v2: int = const 1 v2: int = const 2 return", &["f0 `r`: v2 is defined twice"]);
    }

    #[test]
    fn loops_and_recursion_are_refused() {
        check_rule("jump b1 b1(): jump b2 b2(): jump b1", &["f0 `r`: blocks form a loop"]);
        check_rule("jump b0", &["f0 `r`: the entry is no target"]);
        check(
            "fn f0 helper \"a\" { b0(): call f1() return } fn f1 helper \"b\" { b0(): call f0() return }",
            &["f0 `a`: the function calls itself"],
        );
    }

    #[test]
    fn every_kind_has_its_instructions() {
        check_rule("frame_set 8, v1 return", &["f0 `r`, b0: a Rule does not `frame_set`"]);
        check_rule("done", &["f0 `r`, b0: a Rule does not end in a step"]);
        check_parser(
            "v2: chan = const 0 send_original v2 done",
            &["f0 `p`, b0: a Parser does not `send_original`"],
        );
        check_parser("return", &["f0 `p`, b0: a Parser does not return"]);
        check(
            "fn f0 builder \"x\" { b0(v0: frame): v1: chan = const 0 v2: int = chan_len v1 return }",
            &["f0 `x`, b0: a Builder does not `chan_len`"],
        );
        check("fn f0 rule \"r\" { b0(v0: frame): return }", &["f0 `r`: a Rule takes (frame, uint)"]);
    }

    #[test]
    fn sends_are_bounded() {
        let send = "send_original v2 ".repeat(17);
        check_rule(
            &format!("v2: chan = const 0 {send} return"),
            &["f0 `r`: sends up to 17 messages, more than 16"],
        );
    }

    #[test]
    fn the_platform_finds_functions_of_the_right_kind() {
        let text = r#"program "p" { channel "c" single protocol 0 rule 0 run f0 rule 3 pass 0 }
            fn f0 helper "h" { b0(): return }"#;
        let module = text::parse(text).expect("the test's text is of the form");
        let messages: Vec<String> = verify(&module).iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            ["the code of rule 0 is f0, which is no Rule", "rule 1 names a channel that does not exist"]
        );
    }
}
