//! Dictionaries that are kept: what is told when they cannot be written, and that two processes do not keep them in one
//! place.

mod common;

use std::io::{Read, Write};
use std::process::Stdio;

use common::client::connect;
use common::http::exchange;
use common::process::OwnedPid;
use common::service::Service;
use common::{Scratch, run, wait};

/// Counts how often it was asked, and keeps that.
const KEPT: &str = r#"use http

global seen: dict<int, int> max 16 entries, snapshot "seen" every 1h

proc Kept: (request/response client)
  | client => answer() => client

fun answer: (req: request) -> (response)
  let n = update seen[1] from old: (old else 0) + 1
  response{status = 200, reason = "OK", headers = [], body = raw(str(n))}
"#;

/// The arguments that run it with this state directory, below that of the test.
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

/// Starts another one there, and expects that it does not while this process uses it.
fn check_refused(scratch: &Scratch, state: &str, holder: u32) {
    let mut command = common::flick();
    let child = command.args(args(scratch, state, &[])).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the tool starts");
    let status = wait::within(wait::WAIT_MAX, || child.try_wait().expect("our own child"));
    // One that has ended already cannot be killed.
    let _ = child.kill();
    let mut told = String::new();
    child.stderr.take().expect("it was asked for").read_to_string(&mut told).expect("text");
    assert_eq!(status.and_then(|status| status.code()), Some(1), "{told}");
    let expected = format!("error: process {holder} uses the state directory ");
    assert!(told.contains(&expected) && told.contains(state), "{told}");
}

fn check_asked(service: &Service, times: &str) {
    let told = exchange(&mut connect(service.address), "/").expect("it answers");
    assert_eq!(told, (200, times.as_bytes().to_vec()));
}

#[test]
fn a_service_that_could_not_write_its_last_snapshot_ended_with_0() {
    let scratch = Scratch::new("kept-unwritten");
    let service = kept(&scratch, "state", &[]);
    check_asked(&service, "1");
    // Where the new file goes stands a directory: nobody can write that, not even root.
    std::fs::create_dir(scratch.path().join("state/seen.new")).expect("the directory is ours");
    service.signal("TERM");
    let (status, log) = service.ended();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("error: a dictionary could not be saved"), "{log}");
    assert!(log.contains("cannot write a snapshot") && log.contains("state/seen"), "{log}");
}

#[test]
fn an_upgrade_that_could_not_write_a_dictionary_lost_it() {
    let scratch = Scratch::new("kept-lost");
    let admin = format!("unix:{}", scratch.path().join("admin").display());
    let service = kept(&scratch, "state", &["--admin", &admin]);
    check_asked(&service, "1");
    let in_the_way = scratch.path().join("state/seen.new");
    std::fs::create_dir(&in_the_way).expect("the directory is ours");
    let (status, _, error) = run(&["upgrade", &admin]);
    assert!(status == 1 && error.contains("cannot write 1 snapshots for the new process"), "{error}");
    check_asked(&service, "2");
    std::fs::remove_dir(&in_the_way).expect("it is empty");
    service.drained();
}

#[test]
fn a_second_process_with_one_state_directory_overwrote_the_snapshots_of_the_first() {
    let scratch = Scratch::new("kept-held");
    let admin = format!("unix:{}", scratch.path().join("admin").display());
    let mut first = kept(&scratch, "state", &["--admin", &admin]);
    check_asked(&first, "1");
    check_refused(&scratch, "state", first.pid());
    // By another name it is the same one.
    std::os::unix::fs::symlink("state", scratch.path().join("link")).expect("the directory is ours");
    check_refused(&scratch, "link", first.pid());
    // The process that takes its place holds it from the first moment on, and alone when the old one has gone.
    let (status, told, error) = run(&["upgrade", &admin]);
    assert_eq!(status, 0, "{error}");
    let second = told.trim().strip_prefix("process ").and_then(|pid| pid.parse().ok());
    let second = OwnedPid(second.expect("it says which"));
    let address = first.address;
    assert_eq!(first.gone().code(), Some(0));
    check_refused(&scratch, "state", second.0);
    let told = exchange(&mut connect(address), "/").expect("it answers");
    assert_eq!(told, (200, b"2".to_vec()), "the snapshot was read");
    common::peers::signal(second.0, "KILL");
    wait::until("it to end", || (!second.is_there()).then_some(()));
    // Nobody holds what nobody is there to hold.
    kept(&scratch, "state", &[]).drained();
}

#[test]
fn a_process_that_had_been_replaced_held_the_state_directory_for_its_last_client() {
    let scratch = Scratch::new("kept-left");
    let admin = format!("unix:{}", scratch.path().join("admin").display());
    let mut first = kept(&scratch, "state", &["--admin", &admin]);
    // It stays with the first, as it still owes the body of what is answered already.
    let mut stays = connect(first.address);
    stays.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n").expect("it is connected");
    stays.read_exact(&mut [0]).expect("it is answered");
    let (status, told, error) = run(&["upgrade", &admin]);
    assert_eq!(status, 0, "{error}");
    let second = told.trim().strip_prefix("process ").and_then(|pid| pid.parse().ok());
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
fn a_reload_holds_the_new_state_directory_and_lets_go_of_the_old_one() {
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
    // It is confined, so it may not look who that is.
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
