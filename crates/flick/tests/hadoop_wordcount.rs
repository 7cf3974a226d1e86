//! Listing 3 as a service: eight mappers send the sorted words of a real text over TCP, and what the reducer gets is
//! what `sort | uniq -c` says of that text; on both kernel interfaces, with one and two workers, on both engines.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use common::hadoop::{pair, take_pair};
use flick_abi::{Engine, Program};
use flick_compiler::{EngineKind, Input, compile};
use flick_net::{Endpoint, IoKind};
use flick_runtime::{Binding, Limits, Platform, PlatformConfig};

/// Listing 3, from the root.
const WORD_COUNT: &str = "examples/hadoop_wordcount/hadoop_wordcount.flick";
/// The text, from the root.
const TEXTS: [&str; 3] = ["LICENSE-APACHE", "ARCHITECTURE.md", "CONTRIBUTING.md"];
const MAPPERS: usize = 8;

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(common::root().join(path)).ok()
}

fn compiled(kind: EngineKind) -> (Arc<Program>, Arc<dyn Engine>) {
    let input = Input::file(&common::root().join(WORD_COUNT));
    let compiled = input.and_then(|input| compile(&input, kind));
    let executable = compiled.unwrap_or_else(|failure| panic!("Listing 3: {failure}")).into_first();
    (executable.program(), executable.engine)
}

/// The result as `uniq -c` would print it.
fn printed(mut result: &[u8]) -> String {
    let mut lines = String::new();
    while !result.is_empty() {
        let (key, value) = take_pair(&mut result).expect("a result ends behind a pair");
        lines += &format!("{:>7} {}\n", String::from_utf8_lossy(value), String::from_utf8_lossy(key));
    }
    lines
}

/// Returns the output of `sort | uniq -c` for these words.
fn sort_uniq(words: &[&str]) -> String {
    let mut tools = Command::new("sh")
        .args(["-c", "sort | uniq -c"])
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let text: String = words.iter().map(|word| format!("{word}\n")).collect();
    let mut stdin = tools.stdin.take().expect("piped");
    let writer = thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = tools.wait_with_output().expect("the tools end");
    writer.join().expect("no panic").expect("the tools read");
    String::from_utf8(output.stdout).expect("text in, text out")
}

/// Sends one mapper's words, sorted, in pieces; returns when the service has closed the connection, whether well.
fn mapper(at: SocketAddr, mut words: Vec<Vec<u8>>) -> JoinHandle<bool> {
    thread::spawn(move || {
        words.sort();
        let stream: Vec<u8> = words.iter().flat_map(|word| pair(word, b"1")).collect();
        let mut conn = TcpStream::connect(at).expect("the service listens");
        let piece_bytes = 1 + stream.len() / 7;
        let sent = stream.chunks(piece_bytes).try_for_each(|piece| conn.write_all(piece));
        let sent = sent.and_then(|()| conn.shutdown(Shutdown::Write));
        sent.is_ok() && matches!(conn.read(&mut [0]), Ok(0))
    })
}

/// The service before a reducer, with where mappers come to.
fn start(kind: EngineKind, io: IoKind, workers: usize, reducer: &TcpListener) -> (Platform, SocketAddr) {
    let any = Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let to = Endpoint::Tcp(reducer.local_addr().expect("an address"));
    let config = PlatformConfig {
        workers,
        io,
        limits: Limits { buffer_memory: 64 << 20, ..Limits::default() },
        ..PlatformConfig::new(
            vec![Binding::new("mappers", vec![any; MAPPERS])],
            vec![Binding::new("reducer", vec![to])],
        )
    };
    let (program, engine) = compiled(kind);
    let platform = Platform::start(program, engine, config).expect("the service starts");
    let (_, Endpoint::Tcp(at)) = platform.addresses()[0].clone() else { panic!("it listens on TCP") };
    (platform, at)
}

fn check(kind: EngineKind, io: IoKind, workers: usize) {
    let what = format!("{kind:?}, {io:?}, {workers} workers");
    let text: String = TEXTS.iter().map(|path| read(path).expect("a text of the repository")).collect();
    let words: Vec<&str> = text.split_whitespace().collect();
    let reducer = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (platform, at) = start(kind, io, workers, &reducer);
    let of_mapper = |number: usize| {
        let own = words.iter().skip(number).step_by(MAPPERS);
        mapper(at, own.map(|word| word.as_bytes().to_vec()).collect())
    };
    let mappers: Vec<_> = (0..MAPPERS).map(of_mapper).collect();
    let mut result = Vec::new();
    let (mut conn, _) = reducer.accept().expect("the service connects");
    conn.read_to_end(&mut result).expect("a good end");
    assert_eq!(printed(&result), sort_uniq(&words), "{what}");
    // Closed only now: a mapper learns that the job is complete.
    drop(conn);
    for mapper in mappers {
        assert!(mapper.join().expect("a mapper ends"), "{what}: a mapper sees success");
    }
    platform.stop();
    platform.wait();
}

#[test]
fn wordcount_equals_sort_and_uniq() {
    for io in [IoKind::Epoll, IoKind::Uring] {
        for workers in [1, 2] {
            check(EngineKind::Native, io, workers);
        }
    }
    check(EngineKind::Interpreter, IoKind::Auto, 2);
}

/// A job whose last mapper sends `bytes` fails: every mapper sees it, and no reducer sees a good end.
fn check_failure(what: &str, bytes: &[u8]) {
    let reducer = TcpListener::bind("127.0.0.1:0").expect("a free port");
    reducer.set_nonblocking(true).expect("a socket of ours");
    let (platform, at) = start(EngineKind::Native, IoKind::Auto, 2, &reducer);
    let words = || (0..2000).map(|number| format!("{number:05}").into_bytes()).collect();
    let mappers: Vec<_> = (1..MAPPERS).map(|_| mapper(at, words())).collect();
    common::wait::until("all others", || {
        (platform.snapshot().totals.connections_accepted == MAPPERS as u64 - 1).then_some(())
    });
    let mut odd = TcpStream::connect(at).expect("the service listens");
    // It may find the fault, and hang up, before all is sent or the end is said.
    let _ = odd.write_all(bytes).and_then(|()| odd.shutdown(Shutdown::Write));
    common::wait::until("the job to fail", || (platform.snapshot().totals.merges_failed == 1).then_some(()));
    for mapper in mappers {
        assert!(!mapper.join().expect("a mapper ends"), "{what}: a mapper sees a failure");
    }
    // The service may have connected before it found the fault.
    if let Ok((mut conn, _)) = reducer.accept() {
        conn.set_nonblocking(false).expect("a socket of ours");
        assert!(
            conn.read_to_end(&mut Vec::new()).is_err(),
            "{what}: a part of a result looks like all of it"
        );
    }
    platform.stop();
    platform.wait();
}

#[test]
fn incomplete_result_ends_with_a_reset() {
    let good = pair(b"00001", b"1");
    check_failure("a pair is cut off", &[&good[..], &good[..3]].concat());
    check_failure("a length is negative", &[&good[..], &[0xff, 1, b'x']].concat());
    check_failure("a length is huge", &[&[0x88, 0x7f, 0, 0, 0, 0, 0, 0, 0, 1][..]; 2].concat());
    check_failure("a key is longer than its bound", &pair(&[b'k'; 1025], b"1"));
    check_failure("keys are not in order", &[pair(b"00002", b"1"), good].concat());
}

#[test]
fn counts_wrap_and_invalid_numbers_count_zero() {
    let reducer = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (platform, at) = start(EngineKind::Native, IoKind::Auto, 2, &reducer);
    let values: [&[u8]; MAPPERS] = [b"9223372036854775807", b"1", b"", b"x", b"", b"", b"", b"0"];
    let mappers = values.map(|value| {
        thread::spawn(move || {
            let mut conn = TcpStream::connect(at).expect("the service listens");
            conn.write_all(&pair(b"sum", value))
                .and_then(|()| conn.shutdown(Shutdown::Write))
                .expect("sends");
            conn.read(&mut [0])
        })
    });
    let mut result = Vec::new();
    reducer.accept().expect("the service connects").0.read_to_end(&mut result).expect("a good end");
    assert_eq!(printed(&result), "-9223372036854775808 sum\n");
    for mapper in mappers {
        mapper.join().expect("a mapper ends").expect("a good end");
    }
    platform.stop();
    platform.wait();
}
