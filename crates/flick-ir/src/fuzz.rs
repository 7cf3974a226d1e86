//! Checks the invariants of any bytes read as the text form of a module; for `cargo xtask fuzz ir` and for tests.

use crate::cfg::successors;
use crate::data::Block;
use crate::{bounds, passes, text, verify};

/// Longest text that is looked at, so that a case takes milliseconds.
const FUZZ_BYTES_MAX: usize = 64 * 1024;

/// Reads bytes as a module and, if they are one, prints, verifies, bounds and optimises it.
///
/// Panics when any of that panics, when the printed text is read as something else, or when passes make a module wrong
/// that was right, or costlier.
pub fn fuzz_ir(data: &[u8]) {
    let data = &data[..data.len().min(FUZZ_BYTES_MAX)];
    let Ok(source) = std::str::from_utf8(data) else { return };
    let Ok(mut module) = text::parse(source) else { return };
    let printed = text::print(&module);
    let again = text::parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
    assert_eq!(text::print(&again), printed, "a module comes back from its text");
    if !verify(&module).is_empty() {
        return;
    }
    let before = bounds::bounds(&module);
    module.functions.iter_mut().for_each(passes::optimise);
    let errors = verify(&module);
    assert!(errors.is_empty(), "passes keep a module right: {errors:?}\n{printed}");
    // A loop that is known to break its bound has lost its exits, and their cost.
    let is_end = |block: &Block| successors(&block.end).is_empty();
    if !module.functions.iter().all(|function| function.blocks.iter().any(is_end)) {
        return;
    }
    for (index, (before, after)) in before.iter().zip(bounds::bounds(&module)).enumerate() {
        assert!(
            // Passes may lose what is known of a length.
            after.steps <= before.steps.saturating_mul(2),
            "passes make nothing costlier: {} steps, then {}\n{}\n{}",
            before.steps,
            after.steps,
            text::print_function(index, &again.functions[index]),
            text::print_function(index, &module.functions[index])
        );
    }
}

#[cfg(test)]
mod tests {
    use super::fuzz_ir;
    use crate::data::{BlockId, Function, Terminator, Value};
    use crate::operands::map_operands;
    use crate::random::{self, Rng};
    use crate::{text, verify};

    /// Puts other values, blocks and bounds into a module that was right.
    fn change(rng: &mut Rng, function: &mut Function) {
        let values = function.values.len().max(1);
        let blocks = function.blocks.len();
        let block = rng.below(blocks);
        let block = &mut function.blocks[block];
        let other = BlockId(rng.below(blocks) as u32);
        let mut count = 0;
        let chosen = rng.below(4);
        let mut replace = |value: &mut Value| {
            if count == chosen {
                *value = Value((u64::from(value.0) + 1 + rng.word() % 3) as u32 % values as u32);
            }
            count += 1;
        };
        match (block.insts.len(), chosen) {
            (0, _) | (_, 0) => match &mut block.end {
                Terminator::Jump(target, _) | Terminator::Suspend { then: target, .. } => *target = other,
                Terminator::Branch { then, otherwise, .. } => std::mem::swap(then, otherwise),
                Terminator::Switch { default, .. } => *default = other,
                end => *end = Terminator::Jump(other, Vec::new()),
            },
            (_, 1) => block.trips_max = if block.trips_max.is_some() { None } else { Some(3) },
            (len, _) => {
                let at = (other.0 as usize) % len;
                map_operands(&mut block.insts[at].op, &mut replace);
                if count == 0 {
                    block.insts.swap(0, at);
                }
            }
        }
    }

    /// Modules that are nearly right are refused, or are right after all.
    #[test]
    fn broken_modules_break_nothing() {
        let (mut tried, mut right) = (0, 0);
        for seed in random::seeds().step_by(2) {
            let mut rng = Rng::new(seed);
            let mut module = random::module(seed);
            for _ in 0..1 + rng.below(3) {
                let index = rng.below(module.functions.len());
                change(&mut rng, &mut module.functions[index]);
            }
            println!("seed {seed}");
            tried += 1;
            right += u64::from(verify(&module).is_empty());
            fuzz_ir(text::print(&module).as_bytes());
        }
        assert!(right * 20 > tried, "only {right} of {tried} are right after all");
    }

    /// Small changes to texts that are right come closest to what is nearly right.
    #[test]
    fn broken_texts_break_nothing() {
        for seed in random::seeds().step_by(7) {
            let mut rng = Rng::new(seed);
            let mut text = text::print(&random::module(seed)).into_bytes();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(text.len());
                match rng.below(4) {
                    0 => text[at] = rng.pick(b"0123456789vbf(){}:,\" \n"),
                    1 => drop(text.drain(at..(at + rng.below(8)).min(text.len()))),
                    2 => {
                        let line =
                            text[at..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |n| at + n);
                        text.drain(at..line);
                    }
                    _ => {
                        let from = rng.below(text.len());
                        let piece = text[from..(from + 30).min(text.len())].to_vec();
                        text.splice(at..at, piece);
                    }
                }
            }
            println!("seed {seed}");
            fuzz_ir(&text);
        }
    }
}
