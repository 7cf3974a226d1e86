//! Golden files: input and expected output together, so that a diff tells the story.
//! Promises: files are visited in the order of their names; a mismatch names the file and the first line that differs;
//! `UPDATE=1` rewrites the expectations and nothing else.
//! Refuses: a file without its directive, an empty directory, and passing after a rewrite of something unseen.
//!
//! A golden file is a flick source whose last lines start with `#>` and are the expectation:
//!
//! ```text
//! # test: check
//! proc P: (cmd/cmd client)
//! #> error[E0203]: ...
//! ```
//!
//! The expectation being a comment of the language, spans in it are those of the file as it stands.
//! Source: the idea of Wasmtime's file tests.

use std::fs;
use std::path::{Path, PathBuf};

/// Start of a line of expectation.
const EXPECT: &str = "#>";
/// Start of the line that says what kind of test a file is.
const DIRECTIVE: &str = "# test:";
/// Most files in one directory of golden files.
const FILES_MAX: usize = 1000;

/// A golden file, taken apart.
#[derive(Clone, Debug)]
pub struct Golden {
    /// File name without directory.
    pub name: String,
    /// Text after `# test:`.
    pub directive: String,
    /// Everything above the expectation.
    pub input: String,
    /// The expectation, without its markers.
    pub expected: String,
}

impl Golden {
    /// Takes `text` apart. Panics, naming the file, when it has no directive in its first line.
    pub fn parse(name: &str, text: &str) -> Self {
        let first = text.lines().next().unwrap_or_default();
        let directive = first
            .strip_prefix(DIRECTIVE)
            .unwrap_or_else(|| panic!("{name}: first line is not `{DIRECTIVE} ...`"));
        let is_expectation = |line: &str| line.starts_with(EXPECT);
        let input: String = text.split_inclusive('\n').take_while(|line| !is_expectation(line)).collect();
        let mut expected = String::new();
        for line in text.lines().skip_while(|line| !is_expectation(line)) {
            let line =
                line.strip_prefix(EXPECT).unwrap_or_else(|| panic!("{name}: input below the expectation"));
            expected.push_str(line.strip_prefix(' ').unwrap_or(line));
            expected.push('\n');
        }
        Self { name: name.to_owned(), directive: directive.trim().to_owned(), input, expected }
    }

    /// The file with another expectation.
    fn with_expected(&self, actual: &str) -> String {
        let mut text = self.input.clone();
        for line in actual.lines() {
            text.push_str(EXPECT);
            if !line.is_empty() {
                text.push(' ');
                text.push_str(line);
            }
            text.push('\n');
        }
        text
    }
}

/// All files with extension `flick` directly in `dir`, by name.
///
/// Errors: panics when the directory cannot be read or holds none, since a test that tests nothing must not pass.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<PathBuf> = entries
        .take(FILES_MAX)
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "flick"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}: no golden files", dir.display());
    paths
}

/// Runs `run` on every golden file of `dir` whose directive starts with `directive` and compares.
/// All mismatches are reported at once. With `UPDATE=1` in the environment the files are rewritten instead.
pub fn check_dir(dir: &Path, directive: &str, mut run: impl FnMut(&Golden) -> String) {
    let update = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
    let mut failures = Vec::new();
    for path in files(dir) {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let golden = Golden::parse(&name, &text);
        if !golden.directive.starts_with(directive) {
            continue;
        }
        let actual = trim_lines(&run(&golden));
        if actual == golden.expected {
            continue;
        }
        if update {
            let text = golden.with_expected(&actual);
            fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        } else {
            failures.push(describe_mismatch(&golden, &actual));
        }
    }
    assert!(failures.is_empty(), "{}\nrun with UPDATE=1 to accept, then read the diff", failures.join("\n"));
}

/// Drops spaces at line ends and empty lines at the end, which a diff does not show.
fn trim_lines(text: &str) -> String {
    let mut out = String::new();
    for line in text.trim_end().lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn describe_mismatch(golden: &Golden, actual: &str) -> String {
    let mut expected_lines = golden.expected.lines();
    for (index, line) in actual.lines().enumerate() {
        let expected = expected_lines.next();
        if expected != Some(line) {
            let expected = expected.unwrap_or("(nothing)");
            return format!(
                "{}: line {} differs\n  expected: {expected}\n  actual:   {line}\n",
                golden.name,
                index + 1
            );
        }
    }
    format!("{}: expected further: {}\n", golden.name, expected_lines.next().unwrap_or("(nothing)"))
}

#[cfg(test)]
mod tests {
    use super::{Golden, trim_lines};

    #[test]
    fn rewriting_a_file_changes_only_its_expectation() {
        let text = "# test: check\nproc P\n#> old\n#>\n#> more\n";
        let golden = Golden::parse("a.flick", text);
        assert_eq!(golden.directive, "check");
        assert_eq!(golden.input, "# test: check\nproc P\n");
        assert_eq!(golden.expected, "old\n\nmore\n");
        assert_eq!(golden.with_expected(&golden.expected), text);
        assert_eq!(golden.with_expected("new\n"), "# test: check\nproc P\n#> new\n");
    }

    #[test]
    fn spaces_at_line_ends_do_not_matter() {
        assert_eq!(trim_lines("a  \n\nb\n\n\n"), "a\n\nb\n");
    }
}
