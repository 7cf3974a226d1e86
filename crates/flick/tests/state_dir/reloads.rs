//! Snapshots beside reloads and upgrades: what a failed one leaves.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;

use super::common::service::Service;
use super::common::{Scratch, run};
use super::{KEPT, check_asked, kept};

/// A program with a dictionary of the same name and file as that of [`KEPT`], whose values have another type.
const RETYPED: &str = r#"use http

global seen: dict<int, bool> max 16 entries, snapshot "seen" every 1h

proc Kept: (request/response client)
  | client => answer() => client

fun answer: (req: request) -> (response)
  let is_odd = update seen[1] from old: not (old else false)
  response{status = 200, reason = "OK", headers = [], body = raw(if is_odd: "odd" else: "even")}
"#;

/// Names and bytes of the files of the state directory.
fn files(scratch: &Scratch) -> BTreeMap<String, Vec<u8>> {
    let list = std::fs::read_dir(scratch.path().join("state")).expect("the directory is there");
    let read = |path: &Path| std::fs::read(path).expect("it can be read");
    list.map(|entry| entry.expect("it can be listed"))
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), read(&entry.path())))
        .collect()
}

/// The log said that nothing had changed, but the file was renamed, and an empty one was written in its place.
#[test]
fn failed_reloads_and_upgrades_replaced_snapshots() {
    let scratch = Scratch::new("kept-failed");
    let first = kept(&scratch, "state", &[]);
    (1..=3).for_each(|times| check_asked(&first, &times.to_string()));
    first.drained();
    let before = files(&scratch);
    assert_eq!(before.keys().collect::<Vec<_>>(), ["seen"]);
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = other.local_addr().expect("it is bound");
    let settings = |listen: &str| {
        let text = format!(
            "workers = 1\nstate_dir = \"state\"\nadmin.listen = \"127.0.0.1:0\"\n[service]\n\
             program = \"kept.flick\"\nlisten = {{ client = {listen} }}\n"
        );
        scratch.write("flick.toml", &text).display().to_string()
    };
    let service = Service::start(&["run", "--config", &settings("\"127.0.0.1:0\"")]);
    let admin = service.admin_address().to_string();
    scratch.write("kept.flick", RETYPED);
    settings(&format!("[\"127.0.0.1:0\", \"{taken}\"]"));
    for what in ["reload", "upgrade"] {
        let (status, _, error) = run(&[what, &admin]);
        assert!(status == 1 && error.contains("Address already in use"), "{what}: {error}");
        assert!(files(&scratch) == before, "after a failed {what}: {:?}", files(&scratch).keys());
    }
    drop(other);
    service.drained();
    assert!(files(&scratch) == before, "at the end: {:?}", files(&scratch).keys());
    scratch.write("kept.flick", KEPT);
    let next = kept(&scratch, "state", &[]);
    check_asked(&next, "4");
    next.drained();
}
