//! What must hold of any bytes read as the text form of a module; for `cargo xtask fuzz ir` and for tests.

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
    passes::optimise(&mut module);
    let errors = verify(&module);
    assert!(errors.is_empty(), "passes keep a module right: {errors:?}\n{printed}");
    for (before, after) in before.iter().zip(bounds::bounds(&module)) {
        assert!(after.steps <= before.steps, "passes make nothing costlier:\n{printed}");
    }
}

#[cfg(test)]
mod tests {
    use super::fuzz_ir;
    use crate::random::{self, Rng};
    use crate::text;

    /// Small changes to texts that are right come closest to what is nearly right.
    #[test]
    fn broken_texts_break_nothing() {
        for seed in 0..150 {
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
