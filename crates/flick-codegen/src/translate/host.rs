//! Calls of the platform: numbers become constants, everything else is in `symbols::host`.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, types};
use flick_abi::HostCall;
use flick_ir::data::Value;

use super::function::{Translator, fixed_memory, own_memory};
use crate::raw;
use crate::symbols::SymbolId;
use crate::symbols::host::policy_word;

impl Translator<'_, '_> {
    /// Translates a call of the platform. Returns the word it defines.
    pub(super) fn host(&mut self, call: HostCall, args: &[Value], max_bytes: u32) -> Option<ir::Value> {
        if let HostCall::CounterAdd(counter) = call
            && !self.shared.is_gauge[counter as usize]
        {
            self.counter_add(counter, args[0]);
            return None;
        }
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
            HostCall::DictBytes(dict) => (SymbolId::DictBytes, number(dict), None, false),
            HostCall::DictEvictions(dict) => (SymbolId::DictEvictions, number(dict), None, false),
            HostCall::OpenClients => (SymbolId::HostOpenClients, None, None, false),
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

    /// Adds to a counter: a load and a store, where the call has the counter.
    fn counter_add(&mut self, counter: u32, amount: Value) {
        let (call, amount, number) = (self.raw_call(), self.get(amount), self.iconst(i64::from(counter)));
        let [inline, by_call, next] = [(); 3].map(|()| self.builder.create_block());
        self.builder.set_cold_block(by_call);
        let len = self.builder.ins().load(types::I64, fixed_memory(), call, raw::COUNTERS_LEN);
        let is_here = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, len, number);
        self.builder.ins().brif(is_here, inline, &[], by_call, &[]);
        self.builder.switch_to_block(inline);
        let counters = self.builder.ins().load(types::I64, fixed_memory(), call, raw::COUNTERS);
        let offset = i32::try_from(counter * 8).expect("a program has few counters");
        // Its one writer is this thread; a load and a store of an aligned word are what the readers' atomics ask for.
        let value = self.builder.ins().load(types::I64, own_memory(), counters, offset);
        let value = self.builder.ins().iadd(value, amount);
        self.builder.ins().store(own_memory(), value, counters, offset);
        self.builder.ins().jump(next, &[]);
        self.builder.switch_to_block(by_call);
        self.call_symbol(SymbolId::HostCounterAdd, &[call, number, amount]);
        self.builder.ins().jump(next, &[]);
        self.builder.switch_to_block(next);
    }
}
