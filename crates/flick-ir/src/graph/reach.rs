//! The effects that code may have: the channels that it sends to or asks, and the state that it reads or changes.
//! Promises: every possible effect is found.

use std::collections::BTreeSet;

use flick_abi::RuleAction;

use super::Kept;
use crate::calls;
use crate::data::{Function, Module, Op, Type, Value};
use crate::semantics;
use crate::text::host_number;

/// The possible effects of some rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    /// Channels that messages are sent to.
    pub(super) sends: BTreeSet<usize>,
    /// Channels that are asked.
    pub(super) asks: BTreeSet<usize>,
    /// The state that is read or changed.
    pub(super) keeps: BTreeSet<Kept>,
}

/// Collects the possible effects of actions.
pub(super) fn of(module: &Module, actions: &[RuleAction]) -> Reach {
    let mut reach = Reach::default();
    for action in actions {
        match action {
            RuleAction::Pass { to } => _ = reach.sends.insert(*to),
            RuleAction::Run { rule } => run(module, rule.0 as usize, &mut reach),
        }
    }
    reach
}

fn run(module: &Module, rule: usize, reach: &mut Reach) {
    let mut is_seen = vec![false; module.functions.len()];
    let mut open = vec![rule];
    let mut named = BTreeSet::new();
    let (mut sends_anywhere, mut asks_anywhere) = (false, false);
    while let Some(index) = open.pop() {
        if std::mem::replace(&mut is_seen[index], true) {
            continue;
        }
        let function = &module.functions[index];
        open.extend(calls::callees_of(function));
        for inst in function.blocks.iter().flat_map(|block| &block.insts) {
            match (&inst.op, inst.result) {
                (
                    Op::SendOriginal { chan } | Op::SendRebuilt { chan, .. } | Op::SendMessage { chan, .. },
                    _,
                ) => match channel(function, *chan) {
                    Some(channel) => _ = reach.sends.insert(channel),
                    None => sends_anywhere = true,
                },
                (
                    Op::AskOriginal { chan, .. } | Op::AskRebuilt { chan, .. } | Op::AskMessage { chan, .. },
                    _,
                ) => match channel(function, *chan) {
                    Some(channel) => _ = reach.asks.insert(channel),
                    None => asks_anywhere = true,
                },
                (Op::Const(word), Some(value)) if function.values[value.0 as usize] == Type::Chan => {
                    named.insert(semantics::chan_index(*word as u64) as usize);
                }
                (op, _) => reach.keeps.extend(keeps(op)),
            }
        }
    }
    if sends_anywhere {
        reach.sends.extend(&named);
    }
    if asks_anywhere {
        reach.asks.extend(&named);
    }
}

/// The channel that a value is for certain.
fn channel(function: &Function, value: Value) -> Option<usize> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    match &insts.clone().find(|inst| inst.result == Some(value))?.op {
        Op::Const(word) => Some(semantics::chan_index(*word as u64) as usize),
        Op::ChanElem { chan, .. } => channel(function, *chan),
        _ => None,
    }
}

fn keeps(op: &Op) -> Option<Kept> {
    use flick_abi::HostCall;
    match op {
        Op::StateLoad { .. } | Op::StateStore { .. } => Some(Kept::Session),
        Op::StateLoadBytes { .. } | Op::StateStoreBytes { .. } => Some(Kept::Session),
        Op::Host { call, .. } => {
            let number = host_number(*call)?;
            Some(match call {
                HostCall::CounterAdd(_) | HostCall::GaugeSet(_) | HostCall::CounterGet(_) => {
                    Kept::Counter(number)
                }
                _ => Kept::Dict(number),
            })
        }
        _ => None,
    }
}
