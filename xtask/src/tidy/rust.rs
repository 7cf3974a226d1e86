//! Checks of Rust files: sizes, headers, the fence around `unsafe`, loose ends.

use super::files::{Finding, Text};

/// Longest file.
const FILE_LINES_MAX: usize = 800;
/// Longest function: a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// Crates that may hold `unsafe`, and the names of the modules it must be in.
const UNSAFE_CRATES: &[&str] = &[
    "crates/flick/",
    "crates/flick-alloc-counter/",
    "crates/flick-buffers/",
    "crates/flick-codegen/",
    "crates/flick-net/",
    "crates/flick-preload/",
    "crates/flick-shm/",
];
const UNSAFE_MODULES: &[&str] = &["sys", "raw", "load", "symbols"];

/// Fails for a file that is too long for one idea.
pub fn no_file_is_too_long(texts: &[Text]) -> Vec<Finding> {
    let counted = rust(texts).map(|text| (text, text.lines().count()));
    let long = counted.filter(|(_, count)| *count > FILE_LINES_MAX);
    long.map(|(text, count)| {
        text.finding(count, format!("{count} lines, at most {FILE_LINES_MAX}: split it"))
    })
    .collect()
}

/// Fails for a function that does not fit a screen. Relies on rustfmt: a function ends at the brace of its indent.
pub fn no_function_is_too_long(texts: &[Text]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for text in rust(texts).filter(|text| !text.is_test()) {
        let mut open: Option<(usize, String)> = None;
        for (number, line) in text.lines() {
            if let Some((start, end)) = &open {
                if line == end {
                    let length = number - start + 1;
                    if length > FUNCTION_LINES_MAX {
                        let what = format!("a function of {length} lines, at most {FUNCTION_LINES_MAX}");
                        findings.push(text.finding(*start, what));
                    }
                    open = None;
                }
                continue;
            }
            let indent = line.len() - line.trim_start().len();
            if starts_function(line.trim_start()) && !line.trim_end().ends_with(['}', ';']) {
                open = Some((number, format!("{}}}", &line[..indent])));
            }
        }
    }
    findings
}

fn starts_function(line: &str) -> bool {
    let words = line.split_whitespace();
    let mut words = words.skip_while(|word| {
        word.starts_with("pub")
            || matches!(*word, "const" | "unsafe" | "extern" | "async")
            || word.starts_with('"')
    });
    words.next() == Some("fn")
}

/// Fails for `mod.rs`: in an editor, ten open files of the same name look alike. Helpers of tests may have the name,
/// because Cargo takes every other file beside the tests for a test.
pub fn no_mod_rs(texts: &[Text]) -> Vec<Finding> {
    let named = rust(texts).filter(|text| text.path.ends_with("/mod.rs") && !text.is_test());
    named.map(|text| text.finding(1, "name it after its directory, beside the directory")).collect()
}

/// Fails for a file that does not open with `//!`.
pub fn files_say_what_they_are(texts: &[Text]) -> Vec<Finding> {
    let silent = rust(texts).filter(|text| !text.text.trim_start().starts_with("//!"));
    silent
        .map(|text| text.finding(1, "open with `//!`: what it is, what it promises, what it refuses"))
        .collect()
}

/// Fails for `unsafe` outside the modules that may hold it.
pub fn unsafe_stays_behind_its_fence(texts: &[Text]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for text in rust(texts).filter(|text| !is_fenced(&text.path) && !text.is_test()) {
        for (number, line) in text.lines().filter(|(_, line)| has_unsafe(line)) {
            let what = format!(
                "`unsafe` belongs into a module named {}: {}",
                UNSAFE_MODULES.join(", "),
                line.trim()
            );
            findings.push(text.finding(number, what));
        }
    }
    findings
}

fn is_fenced(path: &str) -> bool {
    let mut parts = path.trim_end_matches(".rs").split('/');
    UNSAFE_CRATES.iter().any(|name| path.starts_with(name))
        && parts.any(|part| UNSAFE_MODULES.contains(&part))
}

/// Whether the line has an unsafe block or impl outside of comments and literals. An `unsafe fn` is only a contract;
/// the compiler requires a block inside it.
fn has_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    ["unsafe {", "unsafe impl", "unsafe extern"]
        .iter()
        .any(|form| code.find(form).is_some_and(|at| code[..at].matches('"').count().is_multiple_of(2)))
}

/// Fails for a crate outside the fence whose root does not forbid `unsafe`, and for one inside that has none.
pub fn crates_forbid_unsafe(texts: &[Text]) -> Vec<Finding> {
    let roots = rust(texts).filter(|text| {
        let is_root = text.path.ends_with("/src/lib.rs") || text.path.ends_with("/src/main.rs");
        is_root && !UNSAFE_CRATES.iter().any(|name| text.path.starts_with(name))
    });
    let open = roots.filter(|text| !text.text.lines().any(|line| line == "#![forbid(unsafe_code)]"));
    let mut findings: Vec<_> = open.map(|text| text.finding(1, "add `#![forbid(unsafe_code)]`")).collect();
    for name in UNSAFE_CRATES {
        let mut own = rust(texts).filter(|text| text.path.starts_with(name) && !text.is_test()).peekable();
        let Some(first) = own.peek().copied() else { continue };
        if !own.any(|text| text.lines().any(|(_, line)| has_unsafe(line))) {
            findings.push(first.finding(1, format!("{name} has no `unsafe`: take it from `UNSAFE_CRATES`")));
        }
    }
    findings
}

/// Fails for reminders without a number, banners and code that was commented out.
pub fn no_loose_ends(texts: &[Text]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for text in rust(texts) {
        for (number, line) in text.lines() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let comment = comment.trim_start_matches(['/', '!']);
            for word in ["TODO", "FIXME", "XXX"] {
                if comment.contains(word) && !comment.contains(&format!("{word}(#")) {
                    findings.push(
                        text.finding(number, format!("`{word}` needs the number of an issue: `TODO(#123)`")),
                    );
                }
            }
            let is_plain = !line.trim_start().starts_with("///") && !line.trim_start().starts_with("//!");
            if is_plain && is_banner(comment) {
                findings.push(text.finding(number, "a banner; a file with parts is two files"));
            }
            if is_plain && is_code(comment.trim()) {
                findings.push(text.finding(number, "code that was commented out; version control keeps it"));
            }
        }
    }
    findings
}

fn is_banner(comment: &str) -> bool {
    ["----", "====", "####", "****"].iter().any(|rule| comment.trim_start().starts_with(rule))
}

fn is_code(comment: &str) -> bool {
    let starts =
        ["let ", "pub ", "use ", "mod ", "fn ", "return ", "self.", "assert", "println!", "if ", "for "];
    let ends = [';', '{'];
    comment.ends_with(ends) && starts.iter().any(|start| comment.starts_with(start))
}

/// Fails for tests that do not run and for tests that any panic passes.
pub fn tests_are_never_ignored(texts: &[Text]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for text in rust(texts) {
        for (number, line) in text.lines() {
            if line.trim_start().starts_with("#[ignore") {
                findings
                    .push(text.finding(number, "a test that is ignored proves nothing: run it or remove it"));
            }
            if line.trim_start().starts_with("#[should_panic") {
                findings
                    .push(text.finding(number, "any panic passes this test: catch the one that is meant"));
            }
        }
    }
    findings
}

fn rust(texts: &[Text]) -> impl Iterator<Item = &Text> {
    texts.iter().filter(|text| text.is_rust())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, run: fn(&[Text]) -> Vec<Finding>, expected: &[usize]) {
        let text = Text { path: path.to_owned(), text: text.to_owned() };
        let lines: Vec<_> = run(std::slice::from_ref(&text)).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expected, "{}", text.text);
    }

    #[test]
    fn long_functions_are_found_where_they_start() {
        let body = "    step();\n".repeat(FUNCTION_LINES_MAX - 1);
        check("crates/a/src/b.rs", &format!("\npub fn f() {{\n{body}}}\n"), no_function_is_too_long, &[2]);
        let body = "    step();\n".repeat(FUNCTION_LINES_MAX - 2);
        check(
            "crates/a/src/b.rs",
            &format!("\npub const fn f() {{\n{body}}}\n"),
            no_function_is_too_long,
            &[],
        );
    }

    #[test]
    fn unsafe_is_allowed_only_behind_the_fence() {
        let text = "let a = unsafe { read(p) };\n";
        check("crates/flick-net/src/epoll.rs", text, unsafe_stays_behind_its_fence, &[1]);
        check("crates/flick-net/src/uring/sys.rs", text, unsafe_stays_behind_its_fence, &[]);
        check("crates/flick-ir/src/raw.rs", text, unsafe_stays_behind_its_fence, &[1]);
        check(
            "crates/flick-ir/src/a.rs",
            "// unsafe { here it is a word }\n",
            unsafe_stays_behind_its_fence,
            &[],
        );
    }

    #[test]
    fn crates_without_unsafe_forbid_it() {
        check("crates/flick-ir/src/lib.rs", "//! A.\n", crates_forbid_unsafe, &[1]);
        check("crates/flick-ir/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\n", crates_forbid_unsafe, &[]);
        check("crates/flick-net/src/lib.rs", "//! A.\n", crates_forbid_unsafe, &[1]);
        check("crates/flick-net/src/sys.rs", "let a = unsafe { read(p) };\n", crates_forbid_unsafe, &[]);
    }

    #[test]
    fn loose_ends_are_distinguished_from_prose() {
        let text = "// for example: a queue;\n//pub mod load;\n// TODO later\n// TODO(#7): soon\n// -------- part two\n";
        check("crates/a/src/b.rs", text, no_loose_ends, &[1, 2, 3, 5]);
        check(
            "crates/a/src/b.rs",
            "// The queue is full; the next iteration continues.\n",
            no_loose_ends,
            &[],
        );
    }
}
