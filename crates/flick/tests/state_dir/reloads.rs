//! Snapshots beside reloads and upgrades: what a failed one leaves, and what one that changes a dictionary reads.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::common::service::Service;
use super::common::{Scratch, run, wait};
use super::{KEPT, check_asked, kept, new_file};

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

/// Waits until the thread that writes snapshots opens a file, as that of a pipe without a reader.
fn wait_for_keeper_to_open(service: &Service) {
    let opens = libc::SYS_openat.to_string();
    let is_opening = || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", service.pid())).expect("it runs");
        let read = |path: &Path, name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
        threads.flatten().any(|thread| {
            let path = thread.path();
            read(&path, "comm").trim() == "flick-keeper"
                && read(&path, "syscall").split_whitespace().next() == Some(&opens)
        })
    };
    wait::until("the keeper to open its file", || is_opening().then_some(()));
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

/// The control thread waited for the one that writes: no signal was handled.
#[test]
fn reload_waited_for_a_snapshot_that_the_disk_did_not_take() {
    let scratch = Scratch::new("kept-stuck");
    let service = kept(&scratch, "state", &["--admin", "0"]);
    let admin = service.admin_address().to_string();
    scratch.write("kept.flick", &KEPT.replace("every 1h", "every 1s"));
    let (status, _, error) = run(&["reload", &admin]);
    assert_eq!(status, 0, "{error}");
    check_asked(&service, "1");
    let pipe = new_file(&scratch, &service);
    // A snapshot that is being written under this name is renamed, or its file removed, at its end.
    wait::until("a pipe in the place of the new file", || {
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).ok()?;
        std::fs::metadata(&pipe).ok().filter(|file| file.file_type().is_fifo())
    });
    wait_for_keeper_to_open(&service);
    let reload = std::thread::spawn(move || run(&["reload", &admin]));
    let answered = wait::within(wait::WAIT_MAX, || reload.is_finished().then_some(()));
    if answered.is_some() {
        service.signal("TERM");
        wait::until("the drain to begin", || service.log().contains("draining").then_some(()));
    }
    // A reader lets the keeper go on: it cannot sync a pipe, and removes it.
    std::fs::File::open(&pipe).and_then(|mut pipe| pipe.read_to_end(&mut Vec::new())).expect("it is a pipe");
    let (status, _, error) = reload.join().expect("no assertion failed");
    assert!(answered.is_some() && status == 0, "the reload did not answer: {error}");
    let (status, log) = service.ended();
    assert_eq!(status.code(), Some(0), "{log}");
    let next = kept(&scratch, "state", &[]);
    check_asked(&next, "2");
    next.drained();
}

/// The file of the last interval was read, an hour old perhaps, and the log said that the dictionary starts empty.
#[test]
fn reload_of_a_larger_dictionary_brought_back_old_entries() {
    let scratch = Scratch::new("kept-larger");
    let first = kept(&scratch, "state", &[]);
    (1..=2).for_each(|times| check_asked(&first, &times.to_string()));
    first.drained();
    let service = kept(&scratch, "state", &["--admin", "0"]);
    let admin = service.admin_address().to_string();
    (3..=7).for_each(|times| check_asked(&service, &times.to_string()));
    scratch.write("kept.flick", &KEPT.replace("max 16", "max 32"));
    let in_the_way = new_file(&scratch, &service);
    std::fs::create_dir(&in_the_way).expect("the directory is ours");
    let (status, _, error) = run(&["reload", &admin]);
    assert!(status == 1 && error.contains("cannot write 1 snapshots for the new generation"), "{error}");
    check_asked(&service, "8");
    std::fs::remove_dir(&in_the_way).expect("it is empty");
    let (status, _, error) = run(&["reload", &admin]);
    assert_eq!(status, 0, "{error}");
    check_asked(&service, "9");
    let log = service.log();
    assert!(log.contains("declaration changed") && !log.contains("starting empty"), "{log}");
    service.drained();
}
