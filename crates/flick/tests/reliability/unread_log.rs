//! A log without a reader: standard error is a full pipe, and clients and the admin endpoint are served as before. A
//! log that a program floods: lines beyond the limit are dropped and counted.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use flick_runtime::limits::LOG_LINES_PER_S_MAX;

use crate::common::service::{Service, address_in, seen};
use crate::common::{Scratch, flick, http, wait};

const PROGRAM: &str = "\
use http

proc Noisy: (request/response client)
  | client => answer() => client

fun answer: (req: request) -> (response)
  log(req.path)
  response{status = 200, reason = \"OK\", body = \"ok\"}
";

/// The first address in the lines of a log that say `word`.
fn address_behind(lines: &mut impl BufRead, word: &str) -> SocketAddr {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(lines.read_line(&mut line).expect("the log is text"), 0, "the service has ended");
        if let Some(address) = address_in(&line, word) {
            return address;
        }
    }
}

/// Lines of the log that were dropped for this reason.
fn lines_dropped(admin: SocketAddr, reason: &str) -> u64 {
    let (status, text) = seen(admin, "/metrics");
    assert_eq!(status, 200);
    let series = format!("flick_log_lines_dropped_total{{reason=\"{reason}\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok());
    value.unwrap_or_else(|| panic!("no {series}in\n{text}"))
}

#[test]
fn an_unread_log_blocks_neither_clients_nor_the_admin_endpoint() {
    let scratch = Scratch::new("unread_log");
    let program = scratch.write("noisy.flick", PROGRAM);
    let mut command = flick();
    command.arg("run").arg(program).args([
        "--listen",
        "client=127.0.0.1:0",
        "--workers",
        "1",
        "--admin",
        "0",
    ]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("flick starts");
    let mut log = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
    let admin = address_behind(&mut log, "admin endpoint");
    let client = address_behind(&mut log, "listening");

    let mut stream = TcpStream::connect(client).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout can be set");
    let target = format!("/{}", "x".repeat(7_000));
    // The platform admits a hundred lines a second of a worker's program: a pipe and the queue are full after two.
    let dropped = wait::until("lines to be dropped", || {
        let (status, _) = http::exchange(&mut stream, &target).expect("the worker does not wait for its log");
        assert_eq!(status, 200);
        Some(lines_dropped(admin, "queue_full")).filter(|count| *count > 0)
    });
    println!("{dropped} lines dropped");
    child.kill().expect("our own child");
    child.wait().expect("our own child");
}

#[test]
fn lines_of_a_program_beyond_the_limit_were_dropped_uncounted() {
    const REQUESTS: u64 = 2_000;
    let scratch = Scratch::new("flooded_log");
    let program = scratch.write("noisy.flick", PROGRAM);
    let program = program.to_str().expect("the path is UTF-8");
    let service =
        Service::start(&["run", program, "--listen", "client=127.0.0.1:0", "--workers", "1", "--admin", "0"]);
    let admin = service.admin();
    let mut stream = TcpStream::connect(service.address).expect("it listens");
    for number in 0..REQUESTS {
        let (status, _) = http::exchange(&mut stream, &format!("/line-{number}")).expect("a response");
        assert_eq!(status, 200);
    }
    let dropped = lines_dropped(admin, "rate_limit");
    assert_eq!(lines_dropped(admin, "queue_full"), 0);
    drop(stream);
    let log = service.drained();
    let written = log.lines().filter(|line| line.contains("/line-")).count() as u64;
    println!("{written} lines written, {dropped} dropped");
    assert!(dropped > 0 && written >= u64::from(LOG_LINES_PER_S_MAX), "{written} written, {dropped} dropped");
    assert_eq!(written + dropped, REQUESTS, "each line is written or counted");
}
