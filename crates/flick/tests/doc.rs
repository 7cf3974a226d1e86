//! `flick doc` as a person meets it: what is written where, and what is not.

mod common;

use common::{Scratch, run};

const GRAMMAR: &str = "# Pairs.\ntype pair = unit {\n  %byteorder = big;\n  left  : uint8; # the first\n  right : uint16;\n};\n";

/// Writes the page of one grammar and returns status, stdout, stderr and the page, if there is one.
fn check(test: &str, text: &str) -> (i32, String, String, Option<String>) {
    let scratch = Scratch::new(test);
    let path = scratch.write("pair.flick", text);
    let out = scratch.path().join("pages");
    let [path, out] = [&path, &out].map(|path| path.to_str().expect("the path is UTF-8"));
    let (status, stdout, stderr) = run(&["doc", path, "--out", out]);
    let pages = std::fs::read_dir(out).expect("the directory was made").count();
    let page = std::fs::read_to_string(format!("{out}/pair.html")).ok();
    assert_eq!(pages, usize::from(page.is_some()), "nothing else is left in the directory");
    (status, stdout, stderr, page)
}

#[test]
fn doc_writes_a_page() {
    let (status, stdout, stderr, page) = check("doc", GRAMMAR);
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("wrote ") && stdout.trim_end().ends_with("pair.html"), "{stdout}");
    let page = page.expect("the page is there");
    for piece in ["<h1>pair</h1>\n<p>Pairs.</p>", "<td colspan=\"8\"><a href=\"#pair.left\">", "the first"] {
        assert!(page.contains(piece), "`{piece}` is not in\n{page}");
    }
}

#[test]
fn doc_writes_no_page_for_a_grammar_with_errors() {
    let (status, stdout, stderr, page) = check("doc-mistakes", "type pair = unit {\n  left : colour;\n};\n");
    assert_eq!((status, stdout.as_str(), page), (1, "", None));
    assert!(stderr.contains("error[E") && stderr.contains("colour"), "{stderr}");
}

#[test]
fn doc_finds_a_library_by_name() {
    let scratch = Scratch::new("doc-library");
    let out = scratch.path().to_str().expect("the path is UTF-8");
    let (status, _, stderr) = run(&["doc", "memcached_binary", "hadoop", "--out", out]);
    assert_eq!((status, stderr.as_str()), (0, ""));
    for (name, unit) in [("memcached_binary", "cmd"), ("hadoop", "kv")] {
        let page = std::fs::read_to_string(format!("{out}/{name}.html")).expect("the page is there");
        assert!(page.contains(&format!("<section id=\"{unit}\">")), "{name}");
    }
}

#[test]
fn doc_ended_at_the_first_missing_grammar() {
    let scratch = Scratch::new("doc-several");
    let out = scratch.path().to_str().expect("the path is UTF-8");
    let (status, stdout, stderr) = run(&["doc", "missing", "hadoop", "also_missing", "resp", "--out", out]);
    assert_eq!(status, 1);
    for name in ["hadoop", "resp"] {
        assert!(stdout.contains(&format!("{name}.html")), "no page of {name}: {stdout}");
    }
    for name in ["missing", "also_missing"] {
        assert!(stderr.contains(&format!("cannot read {name}:")), "nothing about {name}: {stderr}");
    }
}

#[test]
fn doc_names_a_missing_grammar() {
    let scratch = Scratch::new("doc-nothing");
    let out = scratch.path().to_str().expect("the path is UTF-8");
    let (status, stdout, stderr) = run(&["doc", "no_such_grammar", "--out", out]);
    assert_eq!((status, stdout.as_str()), (1, ""));
    assert!(
        stderr.contains("cannot read no_such_grammar") && stderr.contains("nor is there a library"),
        "{stderr}"
    );
}
