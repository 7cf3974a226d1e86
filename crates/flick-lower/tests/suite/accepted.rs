//! Tests that every accepted program of the repository, documents included, is lowered, verified and compiled.
//! Promises: a program is refused before it runs, with a diagnostic, or never.

use std::fs;
use std::path::{Path, PathBuf};

use flick_check::limits::UNIT_FIELDS_MAX;
use flick_compiler::{EngineKind, Input, compile, stdlib};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files with this ending under a directory of the repository, by name.
fn files(dir: &str, ending: &str) -> Vec<PathBuf> {
    let mut open = vec![root().join(dir)];
    let mut found = Vec::new();
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
            let path = entry.expect("a readable directory").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The texts between a ```flick line and the next ``` line.
fn blocks(page: &str) -> Vec<String> {
    let parts = page.split("```flick\n").skip(1);
    parts.map(|part| part.split("```").next().unwrap_or("").to_owned()).collect()
}

/// Compiles all processes of a text, if the checker accepts it; whether it did.
fn check(input: &Input<'_>) -> bool {
    let accepted = flick_compiler::check(input).unwrap_or_else(|failure| panic!("{}: {failure}", input.name));
    if accepted.program.is_none_or(|program| program.process.is_none()) {
        return false;
    }
    if let Err(failure) = compile(input, EngineKind::Native) {
        panic!("{}: {failure}", input.name);
    }
    true
}

#[test]
fn what_the_checker_accepts_is_compiled() {
    let mut accepted = 0;
    for path in ["examples", "tests/golden/ok", "tests/services"].iter().flat_map(|dir| files(dir, "flick")) {
        let input = Input::file(&path).unwrap_or_else(|failure| panic!("{failure}"));
        accepted += u32::from(check(&input));
    }
    for path in ["docs/language", "docs/errors", "docs/guide"].iter().flat_map(|dir| files(dir, "md")) {
        let page = fs::read_to_string(&path).expect("a page is text");
        for text in blocks(&page) {
            accepted += u32::from(check(&Input::text(&path.display().to_string(), text)));
        }
    }
    assert!(accepted > 100, "{accepted} programs were accepted");
}

/// A unit of `fields` texts, all of which the program reads and changes.
fn crowd(fields: usize) -> String {
    let each = |one: &dyn Fn(usize) -> String| (0..fields).map(one).collect::<String>();
    let unit = each(&|i| format!("  f{i} : string<20> &until = \"\\n\";\n"));
    let record = each(&|i| format!("  f{i} : string<20>\n"));
    let sum = (0..fields).map(|i| format!("len(req.f{i})")).collect::<Vec<_>>().join(" + ");
    format!(
        "type line = unit {{\n{unit}  %order = in_order;\n}};\ntype line: record\n{record}\n\
         proc P: (line/line client, [line/line] backends)\n  | backends => client\n  | client => go(backends)\n\
         fun go: ([-/line] backends, req: line) -> ()\n  (req with f0 = \"x\") => backends[({sum}) mod len(backends)]\n"
    )
}

#[test]
fn as_many_fields_as_a_frame_holds_are_compiled_and_more_are_counted() {
    // Each text that is read takes a place, the one that is changed two more.
    let most = UNIT_FIELDS_MAX - 2;
    assert!(check(&Input::text("the most fields", crowd(most))));
    let checked = flick_compiler::check(&Input::text("one field more", crowd(most + 1)));
    let program = checked.ok().and_then(|checked| checked.program);
    let program = program.expect("the checker does not count what is read");
    let found = flick_lower::crowded(&program);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].slots, UNIT_FIELDS_MAX + 1);
    assert_eq!(found[0].by_field[0].1, 3, "the changed field takes three");
}

#[test]
fn two_libraries_together_were_errors_inside_one_of_them() {
    let names: Vec<&str> = stdlib::FILES.iter().map(|(name, _)| *name).collect();
    let check = |uses: &[String]| {
        let text = uses.concat();
        let checked =
            flick_compiler::check(&Input::text("test.flick", &text)).and_then(|checked| checked.accept());
        checked.map(|_| ()).map_err(|failure| failure.to_string())
    };
    let all: Vec<String> = names
        .iter()
        .map(|name| match *name {
            "pcap_big" | "resp" => format!("use {name} as other_{name}\n"),
            name => format!("use {name}\n"),
        })
        .collect();
    assert_eq!(check(&all), Ok(()), "all together");
    for (at, one) in names.iter().enumerate() {
        for other in &names[at + 1..] {
            let plain = [format!("use {one}\n"), format!("use {other}\n")];
            let refusal = check(&plain).err();
            // Alternatives, of which a program uses one under a name.
            let are_alternatives =
                matches!((*one, *other), ("pcap", "pcap_big") | ("memcached_text", "resp"));
            assert_eq!(refusal.is_some(), are_alternatives, "{one} and {other}: {refusal:?}");
            if let Some(refusal) = refusal {
                assert!(refusal.contains(&format!("`use {other} as ")), "{refusal}");
                let codes = refusal.lines().filter(|line| line.starts_with("error["));
                assert!(codes.clone().all(|line| line.starts_with("error[E0201]")), "{refusal}");
            }
        }
    }
}
