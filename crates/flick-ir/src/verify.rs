//! Decides whether a module may be run at all.
//! Promises: of a module without errors, both engines may assume everything below without checking it again, and
//! the memory safety of compiled code rests on it:
//! numbers of values, blocks, functions, channels, slots and constants are in range; every value is defined once,
//! before each use, and used as what it is; loops have one head and a bound, and calls no recursion; every load of the
//! message lies behind a `Need` that covers it; what was kept before a suspension is there after it; a rule sends,
//! asks and builds within the limits of an activation.
//! Refuses: to stop at the first error. Errors here are bugs of lowering, so they speak of values and blocks.

mod coverage;
mod flow;
mod program;
mod structure;
mod types;

use flick_abi::limits::{MESSAGES_MAX, OUT_BYTES_MAX, SENDS_MAX};

use crate::cfg::Cfg;
use crate::data::{FuncKind, Module};
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
    program::check(module, &mut errors);
    for (index, function) in module.functions.iter().enumerate() {
        let mut report = Report { place: format!("f{index} `{}`", function.name), errors: &mut errors };
        if structure::check(module, function, &mut report) {
            let cfg = Cfg::new(function);
            if flow::check_loops(function, &cfg, &mut report) {
                structure::check_order(function, &cfg, &mut report);
                types::check(module, function, &mut report);
                coverage::check(function, &cfg, &mut report);
                flow::check_waits(function, &cfg, &mut report);
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

/// Recursion, work and what orders call; needs functions that are right in themselves.
fn work(module: &Module, errors: &mut Vec<VerifyError>) {
    let mut add = |index: usize, message: String| {
        errors.push(VerifyError { place: format!("f{index} `{}`", module.functions[index].name), message });
    };
    let order = match calls::callees_first(module) {
        Ok(order) => order,
        Err(index) => return add(index, "the function calls itself".to_owned()),
    };
    for (index, bounds) in bounds::bounds(module).iter().enumerate() {
        if module.functions[index].kind != FuncKind::Rule {
            continue;
        }
        let asks = bounds.asks.saturating_add(1);
        for (used, max, what) in [
            (bounds.sends, SENDS_MAX, "sends up to {} messages"),
            (asks, MESSAGES_MAX, "has up to {} messages"),
            (bounds.out_bytes, OUT_BYTES_MAX, "builds up to {} bytes"),
        ] {
            if used > max as u64 {
                add(index, format!("{}, more than {max}", what.replace("{}", &used.to_string())));
            }
        }
    }
    let mut acts = vec![false; module.functions.len()];
    for index in order {
        let function = &module.functions[index];
        let callees = calls::callees_of(function);
        let insts = || function.blocks.iter().flat_map(|block| &block.insts);
        acts[index] = callees.iter().any(|callee| acts[*callee]) || insts().any(|inst| types::acts(&inst.op));
        if function.kind == FuncKind::Order && acts[index] {
            add(index, "an Order only reads, and so does what it calls".to_owned());
        }
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
        check_rule(
            "jump b1 b1(): jump b2 b2(): jump b1",
            &["f0 `r`, b2: b1 is the head of a loop without a bound"],
        );
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
