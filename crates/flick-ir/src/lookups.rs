//! Finds the look-ups of a dictionary that rules do by a field of their message: the platform can load an entry into
//! the processor's cache when it has the message, before the rule runs.
//! Promises: what is found is advice; a program means the same without it.
//! Refuses: keys that are computed, even if only cut off.

use flick_abi::{FuncId, HostCall, KeyLookup, RuleAction};

use crate::data::{Module, Op, Type, Value};
use crate::limits::LOOKUP_CALLS_MAX;

/// Notes for each rule the first look-up by a field of its message.
pub fn fill(module: &mut Module) {
    if module.program.dicts.is_empty() {
        return;
    }
    let found: Vec<Option<KeyLookup>> =
        module.program.rules.iter().map(|rule| of(module, rule.action)).collect();
    for (rule, lookup) in module.program.rules.iter_mut().zip(found) {
        rule.lookup = lookup;
    }
}

fn of(module: &Module, action: RuleAction) -> Option<KeyLookup> {
    let RuleAction::Run { rule } = action else { return None };
    Search { module, calls_left: LOOKUP_CALLS_MAX }.function(rule, &[])
}

/// A search along the calls of a rule. Functions do not call themselves, so it ends.
struct Search<'a> {
    module: &'a Module,
    calls_left: usize,
}

impl Search<'_> {
    /// Searches a function whose arguments are the fields in these slots.
    fn function(&mut self, id: FuncId, args: &[Option<u16>]) -> Option<KeyLookup> {
        let function = &self.module.functions[id.0 as usize];
        let mut slots = vec![None; function.values.len()];
        for (param, slot) in function.blocks[0].params.iter().zip(args) {
            slots[param.0 as usize] = *slot;
        }
        for inst in function.blocks.iter().flat_map(|block| &block.insts) {
            let slot_of = |value: &Value| slots[value.0 as usize];
            match (&inst.op, inst.result) {
                (Op::FrameGet { slot }, Some(value)) if function.values[value.0 as usize] == Type::Bytes => {
                    slots[value.0 as usize] = Some(*slot);
                }
                (Op::Call { func, args }, _) if self.calls_left > 0 => {
                    self.calls_left -= 1;
                    let args: Vec<Option<u16>> = args.iter().map(slot_of).collect();
                    if let found @ Some(_) = self.function(*func, &args) {
                        return found;
                    }
                }
                (Op::Host { call, args, .. }, _) => {
                    if let (Some(dict), Some(slot)) = (dict_of(*call), args.first().and_then(slot_of)) {
                        return Some(KeyLookup { dict, slot });
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// The dictionary in which a call looks for the key that is its first argument.
fn dict_of(call: HostCall) -> Option<u32> {
    match call {
        HostCall::DictGet(dict)
        | HostCall::DictHas(dict)
        | HostCall::DictPut(dict)
        | HostCall::DictRemove(dict)
        | HostCall::DictBegin(dict) => Some(dict),
        _ => None,
    }
}
