//! Calls of the platform: numbers become constants, everything else is in `symbols::host`.

use cranelift_codegen::ir::{self, InstBuilder, types};
use flick_abi::HostCall;
use flick_ir::data::Value;

use super::function::Translator;
use crate::symbols::SymbolId;
use crate::symbols::host::policy_word;

impl Translator<'_, '_> {
    /// Translates a call of the platform. Returns the word it defines.
    pub(super) fn host(&mut self, call: HostCall, args: &[Value], max_bytes: u32) -> Option<ir::Value> {
        let max = i64::from(max_bytes);
        let number = |number: u32| Some(i64::from(number));
        // What goes before and behind the arguments, and whether the result is a boolean.
        let (symbol, before, behind, is_bool) = match call {
            HostCall::Now => (SymbolId::HostNow, None, None, false),
            HostCall::Random => (SymbolId::HostRandom, None, None, false),
            HostCall::Log => (SymbolId::HostLog, None, None, false),
            HostCall::CounterAdd(counter) => (SymbolId::HostCounterAdd, number(counter), None, false),
            HostCall::GaugeSet(gauge) => (SymbolId::HostGaugeSet, number(gauge), None, false),
            HostCall::CounterGet(counter) => (SymbolId::HostCounterGet, number(counter), None, false),
            HostCall::Alive => (SymbolId::HostAlive, None, None, true),
            HostCall::Load => (SymbolId::HostLoad, None, None, false),
            HostCall::Peer => (SymbolId::HostPeer, None, None, false),
            HostCall::Pick(policy) => (SymbolId::HostPick, Some(policy_word(policy)), None, false),
            HostCall::DictGet(dict) => (SymbolId::DictGet, number(dict), Some(max), false),
            HostCall::DictHas(dict) => (SymbolId::DictHas, number(dict), None, true),
            HostCall::DictPut(dict) => (SymbolId::DictPut, number(dict), None, false),
            HostCall::DictRemove(dict) => (SymbolId::DictRemove, number(dict), None, true),
            HostCall::DictLen(dict) => (SymbolId::DictLen, number(dict), None, false),
            HostCall::DictBegin(dict) => (SymbolId::DictBegin, number(dict), Some(max), false),
            HostCall::DictCommit(dict) => (SymbolId::DictCommit, number(dict), None, true),
            HostCall::DictCommitRemoved(dict) => (SymbolId::DictCommitRemoved, number(dict), None, true),
        };
        let mut words = vec![self.raw_call()];
        words.extend(before.map(|word| self.iconst(word)));
        words.extend(args.iter().map(|arg| self.get(*arg)));
        words.extend(behind.map(|word| self.iconst(word)));
        let word = self.call_symbol(symbol, &words)?;
        Some(if is_bool { self.builder.ins().ireduce(types::I8, word) } else { word })
    }
}
