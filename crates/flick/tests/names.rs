//! gdb and perf see compiled functions by their names: both run against a service that is at work.

mod common;

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::peers::Memcached;
use common::service::Service;
use common::{Scratch, client, wait};
use flick_load::binary::Opcode;

/// A client that asks again and again, until it is dropped.
struct Traffic {
    must_end: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Traffic {
    fn start(service: &Service) -> Self {
        let (address, must_end) = (service.address, Arc::<AtomicBool>::default());
        let ends = Arc::clone(&must_end);
        let thread = std::thread::spawn(move || {
            let mut stream = client::connect(address);
            let requests: Vec<u8> =
                (0..200).flat_map(|opaque| client::request(Opcode::Get, opaque, b"k", b"")).collect();
            while !ends.load(Ordering::Relaxed) {
                std::io::Write::write_all(&mut stream, &requests).expect("the service reads");
                (0..200).for_each(|_| drop(client::reply(&mut stream)));
            }
        });
        Self { must_end, thread: Some(thread) }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.must_end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A client that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Returns the output of gdb, attached to the service.
fn gdb(service: &Service, commands: &[&str]) -> String {
    let pid = service.pid().to_string();
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-p", &pid]);
    for line in commands {
        command.args(["-ex", line]);
    }
    said(command.output().expect("gdb is installed: cargo xtask packages"))
}

fn said(output: Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn gdb_sets_a_breakpoint_by_function_name() {
    let memcached = Memcached::start();
    let service = Service::proxy(&[memcached.address], &["--workers", "1"]);
    let traffic = Traffic::start(&service);
    let name = "'flick::Memcached::parse_request.client'";
    let text = gdb(&service, &[&format!("break {name}"), "continue", "info symbol $pc", "backtrace 3"]);
    assert!(text.contains("flick::Memcached::parse_request.client"), "{text}");
    let stopped = text.lines().any(|line| line.contains("hit Breakpoint 1"));
    assert!(stopped, "{text}");
    drop(traffic);
    service.drained();
}

#[test]
fn perf_map_drops_functions_of_an_old_program() {
    let scratch = Scratch::new("names-reload");
    let memcached = Memcached::start();
    let text = std::fs::read_to_string(common::root().join(common::PROXY)).expect("the example is there");
    let program = scratch.write("proxy.flick", &text);
    let (path, connect) = (program.display().to_string(), format!("backends={}", memcached.address));
    let listen = "client=127.0.0.1:0";
    let service = Service::start(&[
        "run",
        &path,
        "--listen",
        listen,
        "--connect",
        &connect,
        "--workers",
        "1",
        "--perf-map",
    ]);
    let map = std::path::PathBuf::from(format!("/tmp/perf-{}.map", service.pid()));
    let names = || std::fs::read_to_string(&map).unwrap_or_default();
    let count = |of: &str| names().lines().filter(|line| line.contains(of)).count();
    wait::until("the names", || (count("flick::Memcached::") > 3).then_some(()));
    std::fs::write(&program, text.replace("proc Memcached", "proc Renamed")).expect("it can be written");
    service.signal("HUP");
    wait::until("the new names alone", || {
        (count("flick::Renamed::") > 3 && count("flick::Memcached::") == 0).then_some(())
    });
    let text = gdb(&service, &["info functions flick::"]);
    assert!(text.contains("flick::Renamed::parse_request.client"), "{text}");
    assert!(!text.contains("flick::Memcached::"), "{text}");
    service.drained();
    std::fs::remove_file(map).expect("it is ours");
}

#[test]
fn perf_reports_function_names() {
    let scratch = Scratch::new("names-perf");
    let memcached = Memcached::start();
    let service = Service::proxy(&[memcached.address], &["--workers", "1", "--perf-map"]);
    let traffic = Traffic::start(&service);
    let (pid, data) = (service.pid().to_string(), scratch.path().join("perf.data"));
    let data = data.display().to_string();
    let perf = |args: &[&str]| said(Command::new("perf").args(args).output().expect("perf is installed"));
    let found = wait::until("a sample in compiled code", || {
        let record =
            ["record", "-q", "-e", "cpu-clock", "-F", "5000", "-p", &pid, "-o", &data, "--", "sleep", "1"];
        let recorded = perf(&record);
        let report = perf(&["report", "--stdio", "-q", "-i", &data, "--sort", "symbol"]);
        assert!(!report.is_empty(), "{recorded}");
        report.lines().find(|line| line.contains("flick::Memcached::")).map(str::to_owned)
    });
    assert!(found.contains('%'), "{found}");
    drop(traffic);
    service.drained();
    std::fs::remove_file(format!("/tmp/perf-{pid}.map")).expect("it is ours");
}
