//! The drill: bugs are planted, and the checks must find them. Bugs that cannot be planted from outside the platform
//! are in the table of `docs/internals/simulation.md`.

use flick_testkit::service::fault_injection::{self, FaultPlan};
use flick_testkit::service::mutant::{Lie, lying};

use super::subject;

/// Seeds within which a planted bug must be found.
const SEEDS_MAX: u64 = 60;

/// The first seed that finds the lie, and what it says.
fn found(lie: Lie) -> Option<(u64, String)> {
    let honest = subject::native();
    (0..SEEDS_MAX).find_map(|seed| {
        let liar = lying(&honest, lie);
        let run = || {
            let plans = [FaultPlan::hostile(), FaultPlan::resets(), FaultPlan::everything()];
            plans.iter().find_map(|plan| fault_injection::run(seed, plan, &liar).err())
        };
        // An assertion of the platform's own is as good a find as a client's complaint.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Ok(found) => found.map(|what| (seed, what)),
            Err(_) => Some((seed, "the platform found a broken promise itself".into())),
        }
    })
}

#[test]
fn every_planted_bug_is_found() {
    for lie in Lie::ALL {
        let (seed, what) = found(lie).unwrap_or_else(|| panic!("{lie:?} was not found in {SEEDS_MAX} seeds"));
        println!("| {lie:?} | {seed} | {what} |");
    }
}

#[test]
fn correct_engine_passes_the_checks() {
    assert_eq!(found(Lie::None), None);
}
