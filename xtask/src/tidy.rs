//! Checks that no compiler makes and that have caught, or would have caught, a real slip.
//! Promises: reads only; every finding names file, line and what to do; all findings are shown, not only the first.
//! Not here: questions of taste; those are for review.

pub mod files;

mod rust;

mod docs;

mod errors;

mod terms;

mod lines;

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
use terms::table::{self, Table};

/// One check over all texts of the repository.
struct Check {
    run: fn(&[Text]) -> Vec<Finding>,
    /// The key of the table for paths that are not held to it yet.
    list: &'static str,
    /// Those paths.
    pending: fn(&Table) -> &[String],
}

impl Check {
    /// A check that every path is held to.
    const fn everywhere(run: fn(&[Text]) -> Vec<Finding>) -> Self {
        Self { run, list: "", pending: |_| &[] }
    }
}

const CHECKS: &[Check] = &[
    Check::everywhere(rust::no_file_is_too_long),
    Check::everywhere(rust::no_function_is_too_long),
    Check::everywhere(rust::no_mod_rs),
    Check::everywhere(rust::files_say_what_they_are),
    Check::everywhere(rust::unsafe_stays_behind_its_fence),
    Check::everywhere(rust::crates_forbid_unsafe),
    Check::everywhere(rust::no_loose_ends),
    Check::everywhere(rust::tests_are_never_ignored),
    Check::everywhere(docs::no_foreign_paths),
    Check::everywhere(docs::hyperlinks_have_targets),
    Check::everywhere(errors::every_code_has_a_page_and_a_golden_file),
    Check::everywhere(map::the_map_is_true),
    Check::everywhere(rfc::rules_are_cited),
    Check { run: terms::no_banned_words, list: "pending", pending: |table| &table.pending },
    Check { run: lines::no_line_is_too_long, list: "pending_lines", pending: |table| &table.pending_lines },
    Check { run: types::one_name_is_one_type, list: "pending_types", pending: |table| &table.pending_types },
    Check {
        run: components::the_worker_is_in_parts,
        list: "pending_components",
        pending: |table| &table.pending_components,
    },
    Check {
        run: imports::no_import_circles,
        list: "pending_imports",
        pending: |table| &table.pending_imports,
    },
];

/// Runs all checks. `--terms PATH` shows the banned words below a path, `--all PATH` the findings of every check there;
/// both show what is pending too.
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
    let table = Table::load(texts).map_err(|finding| finding.to_string())?;
    let mut held = Vec::new();
    for check in CHECKS {
        let pending = (check.pending)(&table);
        let findings = (check.run)(texts);
        for path in
            pending.iter().filter(|path| !findings.iter().any(|found| table::is_below(&found.path, path)))
        {
            println!(
                "note: `{path}` has nothing left to mend: remove it from `{}` in {}",
                check.list,
                table::PATH
            );
        }
        held.extend(findings.into_iter().filter(|found| !table::is_in(&found.path, pending)));
    }
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
    let all = CHECKS.iter().flat_map(|check| (check.run)(texts));
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
