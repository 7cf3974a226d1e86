//! Generated programs are valid, so the checker rejects them for exceeded bounds only.
//! `FLICK_TEST_CASES` sets the number of programs, `FLICK_SEED` the seed.

use flick_check::{Severity, check, render};
use flick_testkit::generate::{Size, program};

/// Codes of exceeded bounds: too much work, too much memory, too many sends.
const BOUNDS: [&str; 0] = [];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("the variable is a number"))
}

#[test]
fn generated_programs_are_rejected_for_bounds_only() {
    let (first, cases) = (number("FLICK_SEED", 0), number("FLICK_TEST_CASES", 300));
    let mut rejected = 0;
    for seed in first..first + cases {
        let text = program(seed, Size::PAGE);
        let (_, diagnostics, sources) = check("generated.flick", &text, &|_: &str| None);
        let errors: Vec<_> = diagnostics.iter().filter(|d| d.severity == Severity::Error).collect();
        rejected += u64::from(!errors.is_empty());
        if let Some(other) = errors.iter().find(|d| !BOUNDS.contains(&d.code)) {
            panic!("seed {seed}:\n{}\n{text}", render(other, &sources, false));
        }
    }
    assert!(rejected * 10 <= cases, "{rejected} of {cases} programs exceed a bound");
}

#[test]
fn program_with_many_functions_is_accepted() {
    let accepted = |seed: u64| {
        let text = program(seed, Size { functions: 300, ..Size::MANY });
        check("generated.flick", &text, &|_: &str| None).0.is_some()
    };
    assert!((0..5).any(accepted), "none of five large programs is accepted");
}
