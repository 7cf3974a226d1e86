//! Checks that no compiler makes and that have caught, or would have caught, a real slip.
//! Promises: reads only; every finding names file, line and what to do; all findings are shown, not the first alone.
//! Refuses: taste. What needs judgement is for review.

pub mod files;

mod rust;

mod docs;

mod errors;

use crate::run::{self, Outcome};
use files::{Finding, Text};

/// One check over all texts of the repository.
type Check = fn(&[Text]) -> Vec<Finding>;

const CHECKS: &[Check] = &[
    rust::no_file_is_too_long,
    rust::no_function_is_too_long,
    rust::no_mod_rs,
    rust::files_say_what_they_are,
    rust::unsafe_stays_behind_its_fence,
    rust::crates_forbid_unsafe,
    rust::no_loose_ends,
    rust::tests_are_never_ignored,
    docs::no_foreign_places,
    docs::links_lead_somewhere,
    errors::every_code_has_a_page_and_a_golden_file,
];

/// Runs all checks.
pub fn run() -> Outcome {
    let texts = files::read_all(&run::root())?;
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&texts)).collect();
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files, {} checks, nothing to say", texts.len(), CHECKS.len());
            Ok(())
        }
        count => Err(format!("tidy found {count} things to put right")),
    }
}
