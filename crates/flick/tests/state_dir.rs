//! The state directory: snapshots that cannot be written, and its lock, which one process at a time holds.

mod common;
#[path = "state_dir/reloads.rs"]
mod reloads;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Stdio;

use common::client::connect;
use common::http::exchange;
use common::process::OwnedPid;
use common::service::{Service, seen};
use common::{Scratch, run, wait};

/// Counts requests in a dictionary with a snapshot.
const KEPT: &str = r#"use http

global seen: dict<int, int> max 16 entries, snapshot "seen" every 1h

proc Kept: (request/response client)
  | client => answer() => client

fun answer: (req: request) -> (response)
  let n = update seen[1] from old: (old else 0) + 1
  response{status = 200, reason = "OK", headers = [], body = raw(str(n))}
"#;

/// Arguments of `flick run` with a state directory below that of the test.
fn args(scratch: &Scratch, state: &str, extra: &[&str]) -> Vec<String> {
    let program = scratch.write("kept.flick", KEPT).display().to_string();
    let state = scratch.path().join(state).display().to_string();
    let args = ["run", &program, "--listen", "client=127.0.0.1:0", "--state-dir", &state, "--workers", "1"];
    args.iter().chain(extra).map(ToString::to_string).collect()
}

fn kept(scratch: &Scratch, state: &str, extra: &[&str]) -> Service {
    let args = args(scratch, state, extra);
    Service::start(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Expects that another process does not start with a state directory that `holder` uses.
fn check_refused(scratch: &Scratch, state: &str, holder: u32) {
    let mut command = common::flick();
    let child = command.args(args(scratch, state, &[])).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the tool starts");
    let status = wait::within(wait::WAIT_MAX, || child.try_wait().expect("our own child"));
    // Killing a process that has exited fails.
    let _ = child.kill();
    let mut stderr = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut stderr).expect("text");
    assert_eq!(status.and_then(|status| status.code()), Some(1), "{stderr}");
    let expected = format!("error: process {holder} uses the state directory ");
    assert!(stderr.contains(&expected) && stderr.contains(state), "{stderr}");
}

/// The file that a service writes its snapshot to, before it is renamed.
fn new_file(scratch: &Scratch, service: &Service) -> PathBuf {
    scratch.path().join(format!("state/seen.{}.new", service.pid()))
}

fn check_asked(service: &Service, times: &str) {
    let reply = exchange(&mut connect(service.address), "/").expect("it answers");
    assert_eq!(reply, (200, times.as_bytes().to_vec()));
}

/// Only the last directory of the path is created, and `flick run --check` says what a start would.
#[test]
fn mistyped_state_directory_became_a_tree_of_directories() {
    let scratch = Scratch::new("kept-mistyped");
    let (parent, state) = (scratch.path().join("vra/lib"), "vra/lib/flick");
    let directory = scratch.path().join(state).display().to_string();
    let start = args(&scratch, state, &[]);
    let check = args(&scratch, state, &["--check"]);
    let store = ["store", "--listen", "127.0.0.1:0", "--snapshot", &directory].map(str::to_owned);
    let expected = format!(
        "error: cannot create the state directory {directory}: {} does not exist; create it, or correct the path",
        parent.display()
    );
    for args in [&start[..], &check, &store] {
        let (status, _, stderr) = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(status == 1 && stderr.contains(&expected), "{args:?}: {stderr}");
    }
    assert!(!scratch.path().join("vra").exists());
    std::fs::create_dir_all(&parent).expect("the directory is ours");
    kept(&scratch, state, &[]).drained();
    assert!(parent.join("flick").is_dir());
}

#[test]
fn unwritable_snapshot_exits_with_1() {
    let scratch = Scratch::new("kept-unwritten");
    let service = kept(&scratch, "state", &[]);
    check_asked(&service, "1");
    // A directory has the name of the new file, so that not even root can write it.
    std::fs::create_dir(new_file(&scratch, &service)).expect("the directory is ours");
    service.signal("TERM");
    let (status, log) = service.ended();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("error: a dictionary could not be saved"), "{log}");
    assert!(log.contains("cannot write a snapshot") && log.contains("state/seen"), "{log}");
}

#[test]
fn upgrade_fails_if_a_snapshot_cannot_be_written() {
    let scratch = Scratch::new("kept-lost");
    let admin = format!("unix:{}", scratch.path().join("admin").display());
    let service = kept(&scratch, "state", &["--admin", &admin]);
    check_asked(&service, "1");
    let in_the_way = new_file(&scratch, &service);
    std::fs::create_dir(&in_the_way).expect("the directory is ours");
    let (status, _, error) = run(&["upgrade", &admin]);
    assert!(status == 1 && error.contains("cannot write 1 snapshots for the new process"), "{error}");
    check_asked(&service, "2");
    std::fs::remove_dir(&in_the_way).expect("it is empty");
    service.drained();
}

/// There was a line in the log only. The number goes on over a reload, as the dictionary does.
#[test]
fn snapshots_that_failed_were_not_counted() {
    let scratch = Scratch::new("kept-counted");
    let service = kept(&scratch, "state", &["--admin", "0"]);
    let admin = service.admin_address();
    let in_the_way = new_file(&scratch, &service);
    let check = |errors: usize| {
        let (_, metrics) = seen(admin, "/metrics");
        let sample = metrics.lines().find(|line| line.starts_with("flick_dictionary_snapshot_errors_total"));
        let expected = format!("{{service=\"Kept\",dictionary=\"seen\"}} {errors}");
        assert!(sample.is_some_and(|line| line.ends_with(&expected)), "{errors} errors, {sample:?}");
    };
    check(0);
    std::fs::create_dir(&in_the_way).expect("the directory is ours");
    for errors in 1..=2 {
        let (status, ..) = run(&["upgrade", &admin.to_string()]);
        assert_eq!(status, 1);
        check(errors);
        let (status, _, error) = run(&["reload", &admin.to_string()]);
        assert_eq!(status, 0, "{error}");
        check(errors);
    }
    std::fs::remove_dir(&in_the_way).expect("it is empty");
    service.drained();
}

#[test]
fn state_directory_is_locked() {
    let scratch = Scratch::new("kept-held");
    let admin = format!("unix:{}", scratch.path().join("admin").display());
    let mut first = kept(&scratch, "state", &["--admin", &admin]);
    check_asked(&first, "1");
    check_refused(&scratch, "state", first.pid());
    // By another name it is the same one.
    std::os::unix::fs::symlink("state", scratch.path().join("link")).expect("the directory is ours");
    check_refused(&scratch, "link", first.pid());
    // The new process holds the lock from its start, and alone once the old one has exited.
    let (status, stdout, error) = run(&["upgrade", &admin]);
    assert_eq!(status, 0, "{error}");
    let second = stdout.trim().strip_prefix("process ").and_then(|pid| pid.parse().ok());
    let second = OwnedPid(second.expect("it says which"));
    let address = first.address;
    assert_eq!(first.gone().code(), Some(0));
    check_refused(&scratch, "state", second.0);
    let reply = exchange(&mut connect(address), "/").expect("it answers");
    assert_eq!(reply, (200, b"2".to_vec()), "the snapshot was read");
    common::peers::signal(second.0, "KILL");
    wait::until("it to end", || (!second.is_there()).then_some(()));
    // The lock of a killed process is released.
    kept(&scratch, "state", &[]).drained();
}

#[test]
fn old_process_of_an_upgrade_releases_the_state_directory() {
    let scratch = Scratch::new("kept-left");
    let admin = format!("unix:{}", scratch.path().join("admin").display());
    let mut first = kept(&scratch, "state", &["--admin", &admin]);
    // It stays with the first process: it has not sent the whole body of the answered request.
    let mut stays = connect(first.address);
    stays.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n").expect("it is connected");
    stays.read_exact(&mut [0]).expect("it is answered");
    let (status, stdout, error) = run(&["upgrade", &admin]);
    assert_eq!(status, 0, "{error}");
    let second = stdout.trim().strip_prefix("process ").and_then(|pid| pid.parse().ok());
    let second = OwnedPid(second.expect("it says which"));
    check_refused(&scratch, "state", second.0);
    common::peers::signal(second.0, "TERM");
    let state = std::fs::File::open(scratch.path().join("state")).expect("it is there");
    wait::until("the directory to be free", || state.try_lock().ok());
    drop(state);
    kept(&scratch, "state", &[]).drained();
    drop(stays);
    assert_eq!(first.gone().code(), Some(0));
}

#[test]
fn reload_locks_the_new_state_directory_and_unlocks_the_old_one() {
    let scratch = Scratch::new("kept-moved");
    scratch.write("kept.flick", KEPT);
    let table = "[service]\nprogram = \"kept.flick\"\nlisten = { client = \"127.0.0.1:0\" }\n";
    let settings = |state: &str| {
        let text = format!("workers = 1\nstate_dir = \"{state}\"\nadmin.listen = \"127.0.0.1:0\"\n{table}");
        scratch.write("flick.toml", &text).display().to_string()
    };
    let first = Service::start(&["run", "--config", &settings("state")]);
    let other = kept(&scratch, "state/taken", &[]);
    let reload = || run(&["reload", &first.admin_address().to_string()]);
    settings("state/taken");
    let (status, _, error) = reload();
    let expected = format!("process {} keeps its dictionaries", other.pid());
    // In the sandbox it may not be able to read which process that is.
    assert!(
        status == 1
            && (error.contains(&expected) || error.contains("another process uses the state directory")),
        "{error}"
    );
    other.drained();
    let (status, _, error) = reload();
    assert_eq!(status, 0, "{error}");
    check_refused(&scratch, "state/taken", first.pid());
    let next = kept(&scratch, "state", &[]);
    next.drained();
    first.drained();
}

#[test]
fn upgrade_emptied_a_dictionary_without_a_word() {
    let scratch = Scratch::new("kept-not");
    let admin = format!("unix:{}", scratch.path().join("admin").display());
    let store =
        Service::start(&["store", "--listen", "127.0.0.1:0", "--workers", "1", "--", "--admin", &admin]);
    let (status, stdout, error) = run(&["upgrade", &admin]);
    assert_eq!(status, 0, "{error}");
    let second = stdout.trim().strip_prefix("process ").and_then(|pid| pid.parse().ok());
    let second = OwnedPid(second.expect("it says which"));
    common::peers::signal(second.0, "TERM");
    let (_, log) = store.ended();
    assert!(log.contains("dictionaries without a snapshot start empty after an upgrade"), "{log}");
    assert!(log.contains("items"), "{log}");
}
