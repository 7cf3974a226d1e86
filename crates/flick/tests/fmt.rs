//! `flick fmt` as a person, an editor and a build meet it.

mod common;

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Stdio;

use common::{Scratch, captured, flick, root, run};

const UNTIDY: &str = "# Kept.\nuse   memcached_binary # so is this\n\n\n\ntype cmd:record\n    key:string\n";
const TIDY: &str = "# Kept.\nuse memcached_binary # so is this\n\ntype cmd: record\n  key : string\n";

/// Formats one file of `text` with more arguments and returns status, stdout, stderr and what the file holds then.
fn check(test: &str, text: &str, args: &[&str]) -> (i32, String, String, String) {
    let scratch = Scratch::new(test);
    let path = scratch.write("program.flick", text);
    let mut all = vec!["fmt", path.to_str().expect("the path is UTF-8")];
    all.extend_from_slice(args);
    let (status, stdout, stderr) = run(&all);
    let left = std::fs::read_dir(scratch.path()).expect("the directory is there").count();
    assert_eq!(left, 1, "nothing else is left in the directory");
    let after = std::fs::read_to_string(&path).expect("the file is still there");
    (status, stdout, stderr, after)
}

#[test]
fn fmt_formats_and_names_a_file() {
    let (status, stdout, stderr, after) = check("untidy", UNTIDY, &[]);
    assert_eq!((status, after.as_str(), stderr.as_str()), (0, TIDY, ""));
    assert!(stdout.starts_with("formatted ") && stdout.contains("program.flick"), "{stdout}");
}

#[test]
fn fmt_does_not_name_an_unchanged_file() {
    assert_eq!(check("tidy", TIDY, &[]), (0, String::new(), String::new(), TIDY.to_owned()));
    assert_eq!(check("tidy-check", TIDY, &["--check"]), (0, String::new(), String::new(), TIDY.to_owned()));
}

#[test]
fn fmt_check_prints_changes_and_writes_nothing() {
    let (status, stdout, stderr, after) = check("check", UNTIDY, &["--check"]);
    assert_eq!((status, after.as_str(), stderr.as_str()), (1, UNTIDY, ""));
    for line in [
        "program.flick:2:\n",
        "- use   memcached_binary # so is this\n",
        "+ use memcached_binary # so is this\n",
    ] {
        assert!(stdout.contains(line), "`{line}` is not in\n{stdout}");
    }
    assert!(!stdout.contains("Kept"), "a line that stays was printed\n{stdout}");
}

#[test]
fn fmt_skips_a_program_with_errors() {
    let scratch = Scratch::new("mistakes");
    let wrong = scratch.write("wrong.flick", "use   a\nproc P (\n");
    let right = scratch.write("right.flick", UNTIDY);
    let [wrong_text, right_text] =
        [&wrong, &right].map(|path| path.to_str().expect("the path is UTF-8").to_owned());
    let (status, stdout, stderr) = run(&["fmt", &wrong_text, "nowhere.flick", &right_text]);
    assert_eq!(status, 1);
    assert!(stderr.contains("error[E01") && stderr.contains("wrong.flick:2:"), "{stderr}");
    assert!(stderr.contains("cannot read nowhere.flick"), "{stderr}");
    assert!(stdout.contains("right.flick") && !stdout.contains("wrong.flick"), "{stdout}");
    assert_eq!(std::fs::read_to_string(wrong).expect("it is there"), "use   a\nproc P (\n");
    assert_eq!(std::fs::read_to_string(right).expect("it is there"), TIDY);
}

#[test]
fn fmt_ignores_undeclared_names() {
    let (status, _, _, after) = check("names", "fun f : ( x:nowhere )->( ) :\n    g( x )\n", &[]);
    assert_eq!((status, after.as_str()), (0, "fun f: (x: nowhere) -> ():\n  g(x)\n"));
}

#[test]
fn fmt_reads_stdin_and_writes_stdout() {
    let mut child = flick()
        .args(["fmt", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool starts");
    let mut stdin = child.stdin.take().expect("it was asked for");
    stdin.write_all(UNTIDY.as_bytes()).expect("the tool reads");
    drop(stdin);
    let output = child.wait_with_output().expect("the tool ends");
    assert_eq!(captured(output), (0, TIDY.to_owned(), String::new()));
}

#[test]
fn fmt_keeps_symlinks_and_permissions() {
    let scratch = Scratch::new("links");
    let path = scratch.write("real.flick", UNTIDY);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).expect("it is ours");
    let symlinked = scratch.path().join("link.flick");
    symlink(&path, &symlinked).expect("the directory can be written");
    let (status, _, stderr) = run(&["fmt", symlinked.to_str().expect("the path is UTF-8")]);
    assert_eq!(status, 0, "{stderr}");
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), TIDY);
    assert!(symlinked.symlink_metadata().expect("it is there").is_symlink());
    let mode = path.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn fmt_gave_the_file_of_another_user_to_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new("owner");
    let path = scratch.write("theirs.flick", UNTIDY);
    std::os::unix::fs::chown(&path, Some(65534), Some(65533)).expect("root may");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o660)).expect("root may");
    let (status, _, stderr) = run(&["fmt", path.to_str().expect("the path is UTF-8")]);
    assert_eq!(status, 0, "{stderr}");
    let found = path.metadata().expect("it is there");
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (65534, 65533, 0o660));
}

#[test]
fn fmt_rejects_invalid_utf8() {
    let scratch = Scratch::new("bytes");
    let path = scratch.path().join("bytes.flick");
    std::fs::write(&path, b"use a\xff\n").expect("the directory can be written");
    let (status, _, stderr) = run(&["fmt", path.to_str().expect("the path is UTF-8")]);
    assert_eq!(status, 1);
    assert!(stderr.contains("cannot read") && stderr.contains("UTF-8"), "{stderr}");
}

#[test]
fn shipped_example_was_not_formatted() {
    let scratch = Scratch::new("shipped");
    let mut programs: Vec<PathBuf> =
        ["examples", "stdlib"].iter().flat_map(|dir| files(dir, "flick")).collect();
    let pages = files("docs/guide", "md").into_iter().chain([root().join("README.md")]);
    for page in pages {
        let name = page.file_stem().expect("a page has a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&page).expect("a page is text");
        for (number, block) in text.split("```flick\n").skip(1).enumerate() {
            let block = block.split("```").next().expect("a text has a first part");
            if flick_syntax::parse(block).errors().is_empty() {
                programs.push(scratch.write(&format!("{name}-{number}.flick"), block));
            }
        }
    }
    assert!(programs.len() > 40, "{} programs were found", programs.len());
    let checked = flick().args(["fmt", "--check"]).args(&programs).output().expect("the tool starts");
    assert_eq!(captured(checked), (0, String::new(), String::new()));
}

/// All files below a directory whose names end in this way.
fn files(dir: &str, ending: &str) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![root().join(dir)]);
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).expect("a readable directory") {
            let path = entry.expect("a readable directory").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn fmt_without_files_prints_its_usage() {
    let (status, _, stderr) = run(&["fmt"]);
    assert_eq!(status, 2);
    assert!(stderr.contains("Usage"), "{stderr}");
}
