//! Checks that no compiler makes and that have caught, or would have caught, a real slip.
//! Promises: reads only; every finding names file, line and what to do; all findings are shown, not only the first.
//! Not here: questions of taste; those are for review.

pub mod files;

mod rust;

mod docs;

mod errors;

mod terms;

mod lines;

mod summaries;

mod types;

mod components;

mod imports;

mod map;

mod commits;

mod source;

mod lexer;

use crate::rfc;
use crate::run::{self, Outcome};
use files::{Finding, Text};
use terms::table;

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
    docs::no_foreign_paths,
    docs::hyperlinks_have_targets,
    docs::named_tests_exist,
    errors::every_code_has_a_page_and_a_golden_file,
    map::the_map_is_true,
    rfc::rules_are_cited,
    terms::no_banned_words,
    lines::no_line_is_too_long,
    summaries::summaries_name_the_item,
    types::one_name_is_one_type,
    components::the_worker_is_in_parts,
    imports::no_import_circles,
];

/// Runs all checks. `--terms PATH` shows the banned words below a path, `--all PATH` the findings of every check there.
///
/// Errors: there are findings, or the arguments are unknown.
pub fn run_with(args: &[String]) -> Outcome {
    let texts = files::read_all(&run::root())?;
    match args {
        [] => check(&texts),
        [option, path] if option == "--terms" => terms::show(&texts, path.trim_end_matches('/')),
        [option, path] if option == "--all" => show(&texts, path.trim_end_matches('/')),
        _ => Err("usage: cargo xtask tidy [--terms PATH | --all PATH]".to_owned()),
    }
}

/// Runs all checks.
pub fn run() -> Outcome {
    run_with(&[])
}

fn check(texts: &[Text]) -> Outcome {
    let mut held: Vec<_> = CHECKS.iter().flat_map(|check| check(texts)).collect();
    commits::warn_of_subjects();
    print(&mut held);
    match held.len() {
        0 => {
            println!("tidy: {} files, {} checks, nothing to say", texts.len(), CHECKS.len());
            Ok(())
        }
        count => Err(format!("tidy found {count} things to put right")),
    }
}

/// Shows the findings of all checks below a path.
fn show(texts: &[Text], path: &str) -> Outcome {
    let all = CHECKS.iter().flat_map(|check| check(texts));
    let mut found: Vec<_> =
        all.filter(|finding| path == "." || table::is_below(&finding.path, path)).collect();
    print(&mut found);
    if found.is_empty() { Ok(()) } else { Err(format!("{} findings below {path}", found.len())) }
}

fn print(findings: &mut [Finding]) {
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    for finding in findings {
        println!("{finding}");
    }
}
