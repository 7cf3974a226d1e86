//! Snapshots of `flick store`: what survives a restart, a kill while one is written, and damaged files.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use super::connect;
use super::store_command::{cas_value, metric, store};
use crate::common::peers::{output, signal};
use crate::common::service::Service;
use crate::common::{Scratch, captured, flick, wait};
use crate::stores::exchange;

/// Items of 100 bytes: more than a pipe holds.
const ITEMS: usize = 5000;

/// A flush covers what a snapshot returns, and CAS values are not given twice.
#[test]
fn store_returns_after_a_restart_with_its_items() {
    let scratch = Scratch::new("store_restart");
    let directory = scratch.path().join("items").display().to_string();
    let extra = ["--memory", "32MiB", "--snapshot", &directory];
    let first = store(&extra);
    let mut client = connect(first.address);
    exchange(
        &mut client,
        b"set old 0 0 1\r\n1\r\nflush_all\r\nset new 5 0 1\r\n2\r\n",
        b"STORED\r\nOK\r\nSTORED\r\n",
    );
    let before = cas_value(&mut client, "new");
    drop(client);
    first.drained();
    let second = store(&extra);
    let mut client = connect(second.address);
    exchange(&mut client, b"get old new\r\n", b"VALUE new 5 1\r\n2\r\nEND\r\n");
    assert_eq!(cas_value(&mut client, "new"), before);
    exchange(&mut client, b"set newer 0 0 1\r\n3\r\n", b"STORED\r\n");
    assert!(cas_value(&mut client, "newer") > before);
    drop(client);
    second.drained();
}

/// They were given again if the run before had written no snapshot.
#[test]
fn cas_values_of_a_killed_store_are_not_given_again() {
    let scratch = Scratch::new("store_killed_early");
    let directory = scratch.path().join("items").display().to_string();
    let extra = ["--memory", "32MiB", "--snapshot", &directory];
    let set = |client: &mut TcpStream| {
        exchange(client, b"set x 0 0 1\r\n1\r\n", b"STORED\r\n");
        cas_value(client, "x")
    };
    let first = store(&extra);
    set(&mut connect(first.address));
    first.drained();
    let mut second = store(&extra);
    let given = set(&mut connect(second.address));
    second.signal("KILL");
    second.gone();
    drop(second);
    let third = store(&extra);
    let mut client = connect(third.address);
    let next = set(&mut client);
    assert!(next > given, "{next} after {given}");
    exchange(&mut client, format!("cas x 0 0 1 {given}\r\n2\r\n").as_bytes(), b"EXISTS\r\n");
    drop(client);
    third.drained();
}

/// Stores the items, or expects them.
fn each_item(client: &mut TcpStream, command: impl Fn(usize) -> String, reply: impl Fn(usize) -> String) {
    let all = |of: &dyn Fn(usize) -> String| (0..ITEMS).map(of).collect::<String>();
    let mut writer = client.try_clone().expect("a socket can be shared");
    let commands = all(&command);
    let sent = std::thread::spawn(move || writer.write_all(commands.as_bytes()).expect("the server reads"));
    exchange(client, b"", all(&reply).as_bytes());
    sent.join().expect("the writer does not panic");
}

fn value(n: usize) -> String {
    format!("{n:0100}")
}

fn stores_items(client: &mut TcpStream) {
    each_item(client, |n| format!("set k{n} 0 0 100\r\n{}\r\n", value(n)), |_| "STORED\r\n".to_owned());
}

fn has_items(client: &mut TcpStream) {
    let found = |n| format!("VALUE k{n} 0 100\r\n{}\r\nEND\r\n", value(n));
    each_item(client, |n| format!("get k{n}\r\n"), found);
}

/// Waits until every file was written twice: the first may have been begun before this.
fn whole_snapshot(directory: &Path) {
    // It is written last.
    let written = || File::open(directory.join("flushes")).and_then(|file| file.metadata()?.modified()).ok();
    let mut seen = written();
    for _ in 0..2 {
        let next = wait::until("a snapshot", || written().filter(|time| Some(*time) != seen));
        seen = Some(next);
    }
}

/// Stores one item again and again until the service is gone. Returns the last CAS value, and how many there were.
fn load(address: SocketAddr, name: &str, count: &AtomicU64) -> u64 {
    let client = connect(address);
    let (mut writer, mut reader) = (&client, BufReader::new(&client));
    let mut last = 0;
    loop {
        let mut line = String::new();
        let asked = writer.write_all(format!("ms {name} 1 c\r\n1\r\n").as_bytes());
        if asked.is_err() || !reader.read_line(&mut line).is_ok_and(|length| length > 0) {
            return last;
        }
        let cas = line.strip_prefix("HD c").and_then(|rest| rest.trim_end().parse().ok());
        last = cas.unwrap_or_else(|| panic!("`{line}`"));
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Niceness of the thread that writes snapshots.
fn niceness(pid: u32) -> i32 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("our own child").flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let keeper = stats.into_iter().find(|stat| stat.contains("(flick-keeper)")).expect("it has the thread");
    let fields = keeper.split_once(") ").expect("the name ends").1;
    fields.split(' ').nth(16).and_then(|nice| nice.parse().ok()).expect("a number")
}

/// A disk that stops in the middle of a snapshot, and a kill then: the workers answer meanwhile, and the last whole
/// snapshot is what comes back.
#[test]
fn killed_store_returns_with_its_last_whole_snapshot() {
    let scratch = Scratch::new("store_killed");
    let directory = scratch.path().join("items");
    let extra =
        ["--memory", "32MiB", "--snapshot", &directory.display().to_string(), "--snapshot-interval", "1s"];
    let mut first = store(&extra);
    let mut client = connect(first.address);
    stores_items(&mut client);
    whole_snapshot(&directory);
    // A pipe in the place of the new file: it takes 64 KiB, and then stops who writes it.
    let new_file = directory.join(format!("items.{}.new", first.pid()));
    wait::until("the file to be free", || {
        let (status, ..) = captured(output(Command::new("mkfifo").arg(&new_file), "coreutils"));
        (status == 0).then_some(())
    });
    let asked = AtomicU64::new(0);
    let address = first.address;
    let (torn, newest) = std::thread::scope(|scope| {
        let clients = ["new1", "new2"].map(|name| scope.spawn(|| load(address, name, &asked)));
        let mut pipe = File::open(&new_file).expect("the store opens it too");
        let mut torn = vec![0; 4096];
        pipe.read_exact(&mut torn).expect("a snapshot begins");
        let before = asked.load(Ordering::Relaxed);
        wait::until("answers", || (asked.load(Ordering::Relaxed) > before + 2000).then_some(()));
        has_items(&mut client);
        assert!(niceness(first.pid()) >= 10, "workers come first");
        first.signal("KILL");
        first.gone();
        pipe.read_to_end(&mut torn).expect("the rest of what was written");
        (torn, clients.map(|client| client.join().expect("no assertion failed")))
    });
    let whole = std::fs::read(directory.join("items")).expect("the last whole one");
    assert!(torn.len() < whole.len(), "it was killed while it wrote");
    std::fs::remove_file(&new_file).expect("the directory is ours");
    std::fs::write(&new_file, torn).expect("the directory is ours");

    let second = store(&extra);
    let mut client = connect(second.address);
    has_items(&mut client);
    exchange(&mut client, b"set newer 0 0 1\r\n3\r\n", b"STORED\r\n");
    assert!(newest.iter().all(|cas| *cas > 0 && cas_value(&mut client, "newer") > *cas), "{newest:?}");
    drop(client);
    second.drained();
}

/// Snapshots of a dictionary that could not be written.
fn snapshot_errors(store: &Service, dictionary: &str) -> u64 {
    let labels = format!("service=\"Text\",dictionary=\"{dictionary}\"");
    metric(store, &format!("flick_dictionary_snapshot_errors_total{{{labels}}}"))
}

/// A kill between the renames of two files left items that knew of a flush of which the number of flushes did not.
#[test]
fn items_survived_a_flush_after_a_kill_in_the_middle_of_a_snapshot() {
    let scratch = Scratch::new("store_killed_flush");
    let directory = scratch.path().join("items");
    let path = directory.display().to_string();
    let extra = ["--memory", "32MiB", "--snapshot", &path, "--snapshot-interval", "1s", "--", "--admin", "0"];
    let mut first = store(&extra);
    let mut client = connect(first.address);
    exchange(&mut client, b"flush_all\r\nset a 0 0 1\r\n1\r\n", b"OK\r\nSTORED\r\n");
    whole_snapshot(&directory);
    // As if the process ended before the last rename: a file does not replace a directory.
    let (flushes, aside) = (directory.join("flushes"), scratch.path().join("flushes"));
    wait::until("the place to be taken", || {
        let moved = std::fs::rename(&flushes, &aside).and_then(|()| std::fs::create_dir(&flushes));
        moved.ok()
    });
    exchange(&mut client, b"flush_all\r\nset b 0 0 1\r\n2\r\n", b"OK\r\nSTORED\r\n");
    let before = snapshot_errors(&first, "flushes");
    wait::until("snapshots", || (snapshot_errors(&first, "flushes") >= before + 2).then_some(()));
    first.signal("KILL");
    first.gone();
    std::fs::remove_dir(&flushes).expect("it is empty");
    std::fs::rename(&aside, &flushes).expect("the directory is ours");

    let second = store(&extra);
    let mut client = connect(second.address);
    exchange(&mut client, b"get a b\r\n", b"VALUE a 0 1\r\n1\r\nEND\r\n");
    exchange(&mut client, b"flush_all\r\nget a b\r\n", b"OK\r\nEND\r\n");
    drop(client);
    second.drained();
}

/// Starts the store, and returns it with the warnings of its start.
fn check_start(extra: &[&str], has: bool, newer_than: u64) -> (String, u64) {
    let store = store(extra);
    let mut client = connect(store.address);
    if has {
        has_items(&mut client);
    } else {
        exchange(&mut client, b"get k0\r\n", b"END\r\n");
    }
    exchange(&mut client, b"set newer 0 0 1\r\n3\r\n", b"STORED\r\n");
    let cas = cas_value(&mut client, "newer");
    assert!(cas > newer_than, "{cas} after {newer_than}");
    stores_items(&mut client);
    drop(client);
    let log = store.drained();
    (log.lines().filter(|line| line.contains("starts empty")).map(|line| format!("{line}\n")).collect(), cas)
}

/// A damaged file is put aside with a message, its items are lost, and no CAS value is given twice. Which items were
/// flushed is not known without the number of flushes, so all of them are.
#[test]
fn store_starts_without_a_damaged_snapshot() {
    let scratch = Scratch::new("store_damaged");
    let directory = scratch.path().join("items");
    let extra = ["--memory", "32MiB", "--snapshot", &directory.display().to_string()];
    let (warnings, mut newest) = check_start(&extra, false, 0);
    assert_eq!(warnings, "");
    let cut: fn(&mut Vec<u8>) = |bytes| bytes.truncate(bytes.len() / 2);
    let flip: fn(&mut Vec<u8>) = |bytes| bytes[40] ^= 1;
    for (file, damage, has) in [
        ("items", cut, false),
        ("items", flip, false),
        ("flushes", flip, false),
        ("serial", flip, true),
        ("serial", Vec::clear, true),
    ] {
        let path = directory.join(file);
        let mut bytes = std::fs::read(&path).expect("it was written at the end");
        damage(&mut bytes);
        std::fs::write(&path, bytes).expect("the directory is ours");
        let warnings;
        (warnings, newest) = check_start(&extra, has, newest);
        assert_eq!(warnings.lines().count(), 1, "{warnings}");
        let expected = ["the snapshot is damaged: ", &format!("{file}.unread-")];
        assert!(expected.iter().all(|part| warnings.contains(part)), "{warnings}");
    }
    std::fs::remove_file(directory.join("serial")).expect("it was written at the end");
    assert_eq!(check_start(&extra, true, newest).0, "");
}

/// Bytes of a snapshot that takes minutes to read, and no memory of the disk: nearly all of it was never written.
const LONG_SNAPSHOT_BYTES: u64 = 1 << 39;

/// Whether a process has a file open.
fn has_open(pid: u32, path: &Path) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|open| open == path)
}

/// It had to read the whole snapshot first.
#[test]
fn sigterm_ends_a_store_that_reads_its_snapshot() {
    let scratch = Scratch::new("store_stopped_early");
    let directory = scratch.path().canonicalize().expect("it exists").join("items");
    let extra = ["--memory", "32MiB", "--snapshot", &directory.display().to_string()];
    let first = store(&extra);
    let mut client = connect(first.address);
    stores_items(&mut client);
    drop(client);
    first.drained();
    let path = directory.join("items");
    let file = File::options().write(true).open(&path).expect("it was written at the end");
    let bytes = file.metadata().expect("it is open").len();
    file.set_len(LONG_SNAPSHOT_BYTES).expect("the file system has files with holes");
    let mut command = flick();
    command.args(["store", "--listen", "127.0.0.1:0"]).args(extra);
    let mut child = command.stderr(Stdio::null()).spawn().expect("the tool starts");
    let ended = wait::within(wait::WAIT_MAX, || has_open(child.id(), &path).then_some(())).and_then(|()| {
        signal(child.id(), "TERM");
        wait::within(wait::WAIT_MAX, || child.try_wait().expect("our own child"))
    });
    // One that has ended already cannot be killed.
    let _ = child.kill();
    child.wait().expect("our own child");
    assert_eq!(ended.map(|status| status.signal()), Some(Some(15)));

    file.set_len(bytes).expect("the directory is ours");
    let second = store(&extra);
    let mut client = connect(second.address);
    has_items(&mut client);
    drop(client);
    second.drained();
}
