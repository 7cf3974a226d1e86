//! Limits on the worker's struct and on those of its components, whose fields must be private.
//! Promises: a struct with a line of documentation that begins with `Component of the worker.` is a component.

use super::files::{Finding, Text};
use super::source::{Source, Struct};

/// The crate that holds them.
const ROOT: &str = "crates/flick-runtime/src";
/// Beginning of the line of documentation that marks a component.
const MARK: &str = "/// Component of the worker.";
/// Most fields of a component.
const COMPONENT_FIELDS_MAX: usize = 15;
/// Most fields of the worker.
const WORKER_FIELDS_MAX: usize = 12;

/// Fails for a worker or component with too many fields, for visible fields, and if there is no component.
pub fn the_worker_is_in_parts(texts: &[Text]) -> Vec<Finding> {
    let sources = Source::below(texts, ROOT);
    let Some(first) = sources.first() else { return Vec::new() };
    let (mut findings, mut workers, mut components) = (Vec::new(), 0, 0);
    for source in &sources {
        for found in source.structs() {
            let line = source.line(found.at);
            if found.name == "Worker" {
                workers += 1;
                findings.extend(too_large(source, &found, "the worker", WORKER_FIELDS_MAX));
            }
            if !is_component(source.text, line) {
                continue;
            }
            components += 1;
            findings.extend(too_large(source, &found, "a component", COMPONENT_FIELDS_MAX));
            if !found.visible.is_empty() {
                let what = format!("fields of a component are private: {}", found.visible.join(", "));
                findings.push(source.text.finding(line, what));
            }
        }
    }
    if workers != 1 {
        findings.push(first.text.finding(1, format!("{workers} structs named `Worker` below {ROOT}, not 1")));
    }
    if components == 0 {
        let what = format!("no struct below {ROOT} has `{MARK}` in its documentation");
        findings.push(first.text.finding(1, what));
    }
    findings
}

fn too_large(source: &Source<'_>, found: &Struct, what: &str, max: usize) -> Option<Finding> {
    let count = found.fields.len();
    let what = format!("`{}`, {what}, has {count} fields, at most {max}", found.name);
    (count > max).then(|| source.text.finding(source.line(found.at), what))
}

/// Whether the documentation above `line` marks a component.
fn is_component(text: &Text, line: usize) -> bool {
    let lines: Vec<&str> = text.text.lines().take(line - 1).collect();
    let above = lines.iter().rev().take_while(|line| {
        let line = line.trim_start();
        line.starts_with("///") || line.starts_with("#[")
    });
    above.into_iter().any(|line| line.trim().starts_with(MARK))
}

#[cfg(test)]
mod tests {
    use super::the_worker_is_in_parts;
    use crate::tidy::files::Text;

    fn check(code: &str, expected: &[usize]) {
        let text = Text { path: "crates/flick-runtime/src/worker.rs".to_owned(), text: code.to_owned() };
        let lines: Vec<_> = the_worker_is_in_parts(&[text]).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expected, "{code}");
    }

    fn fields(count: usize) -> String {
        (0..count).map(|index| format!("    a{index}: u8,\n")).collect()
    }

    #[test]
    fn sizes_and_visibility_are_checked() {
        let worker = |count| format!("struct Worker<D> {{\n{}}}\n", fields(count));
        let component = |inside: &str| {
            format!("/// Component of the worker. A.\n#[derive(Debug)]\nstruct A {{\n{inside}}}\n")
        };
        check(&(component(&fields(15)) + &worker(12)), &[]);
        check(&(component(&fields(16)) + &worker(12)), &[3]);
        check(&(component("    pub a: u8,\n") + &worker(12)), &[3]);
        check(&(component("") + &worker(13)), &[5]);
        check(&component(""), &[1]);
        check(&worker(1), &[1]);
    }
}
