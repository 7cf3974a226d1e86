//! Rules that exceed a limit of an activation, as facts for a diagnostic. The compiler asks here about a module that
//! the verifier refuses, which speaks of functions and blocks.

use flick_abi::limits::{BUILT_BYTES_MAX, MESSAGES_MAX, SENDS_MAX, SPILL_WORDS_MAX};

use super::{FunctionBounds, bounds};
use crate::data::{FuncKind, Module, SourceOrigin};

/// Limit of an activation that a rule may exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Messages that are sent.
    Sends,
    /// Messages that are there at once: the first, and replies.
    Messages,
    /// Bytes that are built.
    Output,
    /// Words that are kept while it waits.
    Kept,
}

/// One limit that a rule may exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Index of the function.
    pub function: usize,
    /// Limit that the rule may exceed.
    pub limit: Limit,
    /// Excess with its numbers, for an error message: `builds up to 300000 bytes, more than 262144`.
    pub message: String,
    /// The location that causes most of it, if that is known.
    pub origin: Option<SourceOrigin>,
}

/// Limits that rules of a module may exceed. Panics on recursion.
pub fn excesses(module: &Module) -> Vec<Excess> {
    let bounds = bounds(module);
    let rules = module.functions.iter().enumerate().filter(|(_, function)| function.kind == FuncKind::Rule);
    rules.flat_map(|(index, _)| excesses_of(index, &bounds[index])).collect()
}

fn excesses_of(function: usize, bounds: &FunctionBounds) -> Vec<Excess> {
    let first = |hottest: &[(SourceOrigin, u64)]| hottest.first().map(|(origin, _)| *origin);
    let messages = bounds.asks.saturating_add(1);
    let limits = [
        (Limit::Sends, "sends up to", bounds.sends, SENDS_MAX, "messages", first(&bounds.hottest_sends)),
        (Limit::Messages, "has up to", messages, MESSAGES_MAX, "messages", None),
        (
            Limit::Output,
            "builds up to",
            bounds.out_bytes,
            BUILT_BYTES_MAX,
            "bytes",
            first(&bounds.hottest_out),
        ),
        (Limit::Output, "keeps up to", bounds.kept_bytes, BUILT_BYTES_MAX, "bytes while it waits", None),
        (
            Limit::Kept,
            "keeps up to",
            u64::from(bounds.spill_words),
            SPILL_WORDS_MAX,
            "words while it waits",
            None,
        ),
    ];
    let over = limits.into_iter().filter(|(_, _, used, max, ..)| *used > *max as u64);
    over.map(|(limit, does, used, max, what, origin)| Excess {
        function,
        limit,
        message: format!("{does} {used} {what}, more than {max}"),
        origin,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::excesses;
    use crate::data::SourceOrigin;
    use crate::text;

    #[test]
    fn the_line_that_builds_most_is_named() {
        let text = r#"program "p" { channel "c" single protocol 0 } fn f0 rule "r" {
            b0(v0: frame, v1: uint): v2: int = const 0 jump b1(v2)
            b1(v3: int) loop 99: v4: bool = lt_s v3, v2 branch v4, b2, b3
            b2(): v5: bytes = words_new v3 max 12000 @0:7 v6: bytes = format_int.s10 v3 @0:9 jump b1(v3)
            b3(): v7: bytes = words_new v3 max 500 @0:20 return
        }"#;
        let module = text::parse(text).expect("the test's text is of the form");
        let found = excesses(&module);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].message, "builds up to 9509980 bytes, more than 8388608");
        assert_eq!(found[0].origin, Some(SourceOrigin { file: 0, offset: 7 }));
    }
}
