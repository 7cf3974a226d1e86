//! Finds the look-ups of a dictionary that rules do by a field of their message: the platform can load an entry into
//! the processor's cache when it has the message, before the rule runs.
//! Promises: what is found is advice; a program means the same without it. A key that is the front of a field counts.
//! Refuses: other keys that are computed.

use std::collections::HashSet;

use flick_abi::{FuncId, HostCall, KeyLookup, RuleAction};

use crate::data::{Binary, BlockId, Module, Op, Terminator, Type, Value};
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
    Search { module, calls_left: LOOKUP_CALLS_MAX, searched: HashSet::new() }.function(rule, &[])
}

/// A search along the calls of a rule. Functions do not call themselves, so it ends.
struct Search<'a> {
    module: &'a Module,
    calls_left: usize,
    /// Calls that have been searched, in vain so far.
    searched: HashSet<(FuncId, Vec<Option<Front>>)>,
}

/// The front of a field: its slot, and the bytes of it at most.
type Front = (u16, u32);

impl Search<'_> {
    /// Searches a function whose arguments are these fronts of fields.
    fn function(&mut self, id: FuncId, args: &[Option<Front>]) -> Option<KeyLookup> {
        let function = &self.module.functions[id.0 as usize];
        let mut fronts = vec![None; function.values.len()];
        let mut numbers = vec![None; function.values.len()];
        for (param, front) in function.blocks[0].params.iter().zip(args) {
            fronts[param.0 as usize] = *front;
        }
        for block in &function.blocks {
            for inst in &block.insts {
                let front_of = |value: &Value| fronts[value.0 as usize];
                match (&inst.op, inst.result) {
                    (Op::FrameGet { slot }, Some(value))
                        if function.values[value.0 as usize] == Type::Bytes =>
                    {
                        fronts[value.0 as usize] = Some((*slot, u32::MAX));
                    }
                    (Op::Const(number), Some(value)) => numbers[value.0 as usize] = Some(*number),
                    // The end of a slice is often this and the length.
                    (Op::Binary(Binary::MinS, a, b), Some(value)) => {
                        numbers[value.0 as usize] = numbers[a.0 as usize].or(numbers[b.0 as usize]);
                    }
                    // A field that may be missing, for example.
                    (Op::Select { a, b, .. }, Some(value)) => {
                        fronts[value.0 as usize] = front_of(a).or(front_of(b));
                    }
                    (Op::Slice { bytes, start, end }, Some(value))
                        if numbers[start.0 as usize] == Some(0) =>
                    {
                        let end = numbers[end.0 as usize].and_then(|end| u32::try_from(end).ok());
                        let front = front_of(bytes).zip(end);
                        fronts[value.0 as usize] = front.map(|((slot, max), end)| (slot, max.min(end)));
                    }
                    (Op::Call { func, args }, _) if self.calls_left > 0 => {
                        let args: Vec<Option<Front>> = args.iter().map(front_of).collect();
                        if self.searched.insert((*func, args.clone())) {
                            self.calls_left -= 1;
                            if let found @ Some(_) = self.function(*func, &args) {
                                return found;
                            }
                        }
                    }
                    (Op::Host { call, args, .. }, _) => {
                        if let (Some(dict), Some((slot, bytes_max))) =
                            (dict_of(*call), args.first().and_then(front_of))
                        {
                            return Some(KeyLookup { dict, slot, bytes_max });
                        }
                    }
                    _ => {}
                }
            }
            // Where paths meet, the key of one of them is as good as none of the others'.
            for (target, args) in jumps(&block.end) {
                for (param, arg) in function.blocks[target.0 as usize].params.iter().zip(args) {
                    let front = fronts[arg.0 as usize];
                    let known = &mut fronts[param.0 as usize];
                    *known = known.or(front);
                }
            }
        }
        None
    }
}

/// The blocks to which a block passes values, with those.
fn jumps(end: &Terminator) -> Vec<(BlockId, &[Value])> {
    match end {
        Terminator::Jump(target, args) => vec![(*target, args)],
        Terminator::Branch { then, otherwise, .. } => {
            vec![(then.0, &then.1), (otherwise.0, &otherwise.1)]
        }
        _ => Vec::new(),
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
