//! Makes code smaller before it is run or compiled.
//! Promises: the same answer to every call, to the bit, in no more steps; a module that passed the verifier still
//! does. Tests hold both against the interpreter on random modules.
//! Refuses: what Cranelift does better (common subexpressions, instruction choice). What it cannot know is that a
//! frame's slot still holds what this parser has just put there; that is `slots`.

mod compact;
mod dead;
mod duplicate;
mod fold;
mod known;
mod slots;
pub mod spill;
mod thread;

use crate::data::{Function, Inst, Op, Value};
use crate::limits::{DUPLICATE_GROWTH_MAX, PASS_ROUNDS_MAX};
use crate::operands::{map_end_operands, map_operands};

/// Optimises a function of a module that has passed the verifier.
pub fn optimise(function: &mut Function) {
    let mut budget = function.size() * DUPLICATE_GROWTH_MAX;
    for _ in 0..PASS_ROUNDS_MAX {
        let mut changed = fold::run(function);
        changed |= duplicate::run(function, &mut budget);
        changed |= known::run(function);
        // Each run settles one block.
        for _ in 0..function.blocks.len() {
            if !slots::run(function) {
                break;
            }
            changed = true;
        }
        changed |= thread::run(function);
        changed |= spill::drop_states(function);
        changed |= dead::run(function);
        if !changed {
            break;
        }
    }
    compact::run(function);
}

/// Replacements of values, by value.
struct Aliases(Vec<Value>);

impl Aliases {
    fn new(function: &Function) -> Self {
        Self((0..function.values.len() as u32).map(Value).collect())
    }

    /// Returns the value that replaces `value`.
    fn find(&self, mut value: Value) -> Value {
        // An alias points to what was final when it was made, so chains end.
        while self.0[value.0 as usize] != value {
            value = self.0[value.0 as usize];
        }
        value
    }

    /// From now on `value` is `target`.
    fn set(&mut self, value: Value, target: Value) {
        let target = self.find(target);
        assert!(target != value, "a value is not defined by itself");
        self.0[value.0 as usize] = target;
    }

    /// Puts what values stand for into every operand.
    fn apply(&self, function: &mut Function) {
        for block in &mut function.blocks {
            for inst in &mut block.insts {
                map_operands(&mut inst.op, &mut |value| *value = self.find(*value));
            }
            map_end_operands(&mut block.end, &mut |value| *value = self.find(*value));
        }
    }
}

/// The instruction that defines each value.
fn definitions(function: &Function) -> Vec<Option<Op>> {
    let mut definitions = vec![None; function.values.len()];
    for inst in function.blocks.iter().flat_map(|block| &block.insts) {
        if let Inst { result: Some(value), op, .. } = inst {
            definitions[value.0 as usize] = Some(op.clone());
        }
    }
    definitions
}

#[cfg(test)]
mod tests {
    use flick_abi::FuncId;

    use super::optimise;
    use crate::random::{self, Rng};
    use crate::{Interpreter, bounds, text, verify};

    fn check(body: &str, expected: &str) {
        let text = |body: &str| format!("program \"p\" {{ }} fn f0 parser \"p\" {{ {body} }}");
        let mut module = text::parse(&text(body)).expect("the test's text is of the form");
        module.functions.iter_mut().for_each(optimise);
        let expected = text::parse(&text(expected)).expect("the test's text is of the form");
        assert_eq!(text::print(&module), text::print(&expected));
    }

    #[test]
    fn constants_are_folded_and_unused_values_dropped() {
        check(
            "b0(v0: frame, v1: int):
               v2: int = const 3 v3: int = const 4 v4: int = add v2, v3 v5: bool = eq v4, v2
               branch v5, b1, b2
             b1(): fault 1 cause 1
             b2(): frame_set 8, v4 done",
            "b0(v0: frame, v1: int): v2: int = const 7 frame_set 8, v2 done",
        );
    }

    #[test]
    fn a_slot_just_written_is_not_read_again() {
        check(
            "b0(v0: frame, v1: int): v2: int = frame_get 0 switch v2 { 1: b2, else: b1 }
             b1(): need 2 -> b3 state 0
             b2(): v4: int = frame_get 8 need v4 + 0 -> b4 state 1
             b3(): v3: int = load.u16be 0 frame_set 8, v3 jump b2
             b4(): frame_set 9, v4 done",
            "b0(v0: frame, v1: int): v2: int = frame_get 0 switch v2 { 1: b5, else: b1 }
             b1(): need 2 -> b3 state 0
             b2(v4: int): need v4 + 0 -> b4 state 1
             b3(): v3: int = load.u16be 0 frame_set 8, v3 jump b2(v3)
             b4(): frame_set 9, v4 done
             b5(): v5: int = frame_get 8 jump b2(v5)",
        );
    }

    #[test]
    fn a_way_that_knows_the_answer_does_not_ask() {
        check(
            "b0(v0: frame, v1: int): v2: bool = frame_get 8 v3: bool = frame_get 9 branch v2, b1, b2
             b1(): v4: bool = const 1 jump b3(v4)
             b2(): v5: bool = not v3 jump b3(v5)
             b3(v6: bool): v7: bool = or v6, v3 branch v7, b4, b5
             b4(): fault 1 cause 1
             b5(): done",
            "b0(v0: frame, v1: int): v2: bool = frame_get 8 v3: bool = frame_get 9 branch v2, b2, b1
             b1(): v4: bool = not v3 v5: bool = or v4, v3 branch v5, b2, b3
             b2(): fault 1 cause 1
             b3(): done",
        );
    }

    #[test]
    fn behind_a_switch_its_value_is_known() {
        check(
            "b0(v0: frame, v1: int): v2: int = frame_get 8 switch v2 { 7: b1, 23: b2, else: b3 }
             b1(): v3: int = const 7 v4: bool = eq v2, v3 frame_set 9, v4 done
             b2(): v5: int = const 7 v6: bool = eq v5, v2 frame_set 9, v6 done
             b3(): v7: int = const 23 v8: bool = ne v2, v7 v9: int = const 1 v10: bool = eq v2, v9
               frame_set 9, v8 frame_set 10, v10 done",
            "b0(v0: frame, v1: int): v2: int = frame_get 8 switch v2 { 7: b1, 23: b2, else: b3 }
             b1(): v3: bool = const 1 frame_set 9, v3 done
             b2(): v4: bool = const 0 frame_set 9, v4 done
             b3(): v5: bool = const 1 v6: int = const 1 v7: bool = eq v2, v6
               frame_set 9, v5 frame_set 10, v7 done",
        );
    }

    #[test]
    fn constant_bases_become_offsets() {
        check(
            "b0(v0: frame, v1: int): v2: int = const 24 need v2 + 4 -> b1 state 0
             b1(): v3: int = load.u16be v2 + 2 frame_set 8, v3 done",
            "b0(v0: frame, v1: int): need 28 -> b1 state 0
             b1(): v2: int = load.u16be 26 frame_set 8, v2 done",
        );
    }

    #[test]
    fn random_modules_do_the_same_in_no_more_steps() {
        let (mut kept, mut total) = (0, 0);
        for seed in random::seeds() {
            let module = random::module(seed);
            let mut optimised = module.clone();
            optimised.functions.iter_mut().for_each(optimise);
            let errors = verify(&optimised);
            assert!(errors.is_empty(), "seed {seed}: {errors:?}\n{}", text::print(&module));
            for (before, after) in bounds::bounds(&module).iter().zip(bounds::bounds(&optimised)) {
                // Passes may lose what is known of a length.
                assert!(after.steps <= 2 * before.steps, "seed {seed}: the bound grows");
            }
            let insts = |module: &crate::data::Module| -> usize {
                module.functions.iter().flat_map(|f| &f.blocks).map(|block| block.insts.len()).sum()
            };
            total += insts(&module);
            kept += insts(&optimised);
            compare(seed, &Interpreter::new(module), &Interpreter::new(optimised));
        }
        assert!(kept < total, "the passes do something");
    }

    fn compare(seed: u64, before: &Interpreter, after: &Interpreter) {
        let mut rng = Rng::new(seed);
        let message = random::message(&mut rng);
        let fresh = random::fresh_frame(&mut rng);
        for end in 0..=message.len() {
            let (mut a, mut b) = (fresh.clone(), fresh.clone());
            let (step, steps) = before.parse_counted(FuncId(0), &mut a, &message[..end]);
            let (found, found_steps) = after.parse_counted(FuncId(0), &mut b, &message[..end]);
            assert_eq!((found, b.slots, b.items), (step, a.slots, a.items), "seed {seed}, {end} bytes");
            assert!(found_steps <= steps, "seed {seed}: {found_steps} steps instead of {steps}");
        }
        let rule = |engine: &Interpreter| {
            let mut steps = 0;
            let record = random::record_rule_with(engine.module(), seed, |call| {
                let (outcome, used) = engine.run_counted(random::RULE, call);
                steps += used;
                outcome
            });
            let bound = &engine.certificate()[random::RULE.0 as usize];
            assert!(steps <= bound.steps, "seed {seed}: {steps} steps, certified {}", bound.steps);
            assert!(
                record.out.len() as u64 <= bound.out_bytes,
                "seed {seed}: the output is longer than certified"
            );
            assert!(record.sends.len() as u64 <= bound.sends, "seed {seed}: more is sent than certified");
            assert!(
                record.asks.len() as u64 <= bound.asks_total,
                "seed {seed}: more is asked than certified"
            );
            record
        };
        assert_eq!(rule(before), rule(after), "seed {seed}");
        let order = |engine| random::record_order(engine, before.module(), seed);
        assert_eq!(order(before), order(after), "seed {seed}");
    }
}
