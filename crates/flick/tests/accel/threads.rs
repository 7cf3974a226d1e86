//! Pipes and connections of processes with several threads: what the kernel promises to threads that use one file at a
//! time holds in rings, and what a ring does not serve returns to the kernel. Each comparison requires that bytes went
//! through rings.

use std::process::Child;

use rustix::process::Signal;

use super::moving::{kill_one_end, rounds, setting_with};
use super::programs::end;
use super::{Setting, free_address, run};
use crate::common::wait;

fn setting(name: &str) -> Setting {
    setting_with(&format!("threads-{name}"), "threads")
}

#[test]
fn records_of_several_threads_arrive_whole() {
    let setting = setting("writers");
    setting.check(&["./threads tcp writers 5000", "./threads tcp writers 5000 spawn"]);
    setting.check(&["./threads unix writers 5000", "./threads unix writers 5000 fork"]);
    setting.check(&["./threads pipe writers 5000", "./threads pipe writers 5000 fork"]);
}

#[test]
fn one_thread_sends_while_another_one_receives() {
    let setting = setting("duplex");
    setting.check(&["./threads tcp duplex 2000000", "./threads tcp duplex 2000000 fork"]);
    setting.check(&["./threads unix duplex 2000000", "./threads unix duplex 2000000 spawn"]);
}

#[test]
fn read_goes_on_after_another_thread_has_closed_or_replaced_the_descriptor() {
    let setting = setting("close");
    for family in ["tcp", "unix"] {
        setting.check(&[&format!("./threads {family} close 0")]);
        setting.check(&[&format!("./threads {family} close 0 dup2")]);
    }
}

#[test]
fn signal_behind_a_dup2_over_a_descriptor_that_is_read_was_lost() {
    let setting = setting("replace");
    setting.check(&["./threads pair replace 0", "./threads pair replace 0"]);
}

#[test]
fn thread_that_is_cancelled_in_a_ring_holds_up_no_other() {
    let setting = setting("cancel");
    setting.check(&["./threads tcp cancel 0"]);
    setting.check(&["./threads unix cancel 0"]);
}

#[test]
fn thread_that_was_cancelled_in_a_read_of_a_closed_descriptor_kept_the_connection_open() {
    let setting = setting("cancel-closed");
    for family in ["tcp", "unix"] {
        setting.check(&[
            &format!("./threads {family} cancel_closed 0"),
            &format!("./threads {family} cancel_closed 0 later"),
        ]);
    }
}

#[test]
fn two_threads_that_receive_take_each_byte_once() {
    let setting = setting("readers");
    setting.check(&["./threads tcp readers 1000000"]);
    setting.check(&["./threads unix readers 1000000"]);
}

#[test]
fn thread_that_waits_wakes_when_another_one_has_read() {
    let setting = setting("waiter");
    setting.check(&["./threads tcp waiter 2000 epoll"]);
    setting.check(&["./threads unix waiter 2000 poll"]);
}

#[test]
fn edge_behind_bytes_that_were_left_in_a_ring_woke_none() {
    let setting = setting("edges");
    setting.check(&["./threads unix edges 2000"]);
    setting.check(&["./threads tcp edges 2000"]);
}

#[test]
fn program_that_a_thread_executes_finds_all_bytes_in_the_kernel() {
    setting("exec").check(&["./threads tcp exec 50", "./threads unix exec 50"]);
}

#[test]
fn killed_processes_with_threads_leave_whole_records() {
    let setting = setting("kills");
    for round in 0..rounds(4) {
        let program = format!("./threads {} writers 900000000000", ["tcp", "unix"][round % 2]);
        // The parent reads.
        let stderr = kill_one_end(&setting, &program, round, round / 2 % 2 == 1);
        let is_wrong = ["torn", "lost", "wrong"].iter().any(|word| stderr.contains(word));
        assert!(!is_wrong, "{stderr}");
    }
}

/// Starts a server with threads whose connections move, runs a client of Python that checks the answers until bytes of
/// the server went through rings, and ends it.
fn check_server(setting: &Setting, server: &[&str], port: &str, script: &str) {
    let address = format!("127.0.0.1:{port}");
    let mut command = setting.accel(&["--verify", "--move", "--", "setsid"]);
    let log = std::fs::File::create(setting.path("server.log")).expect("the directory can be written");
    let mut child = command.args(server).stdout(log).spawn().expect("the server starts");
    let check_alive = |child: &mut Child| {
        let status = child.try_wait().expect("our own child");
        let log = std::fs::read_to_string(setting.path("server.log")).expect("the server's output is text");
        assert!(status.is_none(), "{server:?} ended with {status:?}: {log}");
    };
    wait::until("the server to accept", || {
        check_alive(&mut child);
        std::net::TcpStream::connect(&address).ok()
    });
    setting.scratch.write("client.py", script);
    wait::until("bytes of the server in rings", || {
        let (status, stdout, stderr) = run(setting.moved(&format!("/usr/bin/python3 client.py {port}")));
        check_alive(&mut child);
        assert_eq!((status, stdout.as_str()), (0, "right\n"), "{stderr}");
        setting.of(child.id())["ring_bytes"].as_u64().filter(|bytes| *bytes > 0)
    });
    end(child, Signal::TERM);
}

#[test]
fn redis_with_its_threads_answers_by_rings() {
    let setting = Setting::new("threads-redis");
    let port = free_address().port().to_string();
    let script = "
import socket, sys
sockets = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in range(3)]
for i in range(1500):
    for at, s in enumerate(sockets):
        value = b'%d' % (i * 7919 + at) * (i % 50 + 1)
        s.sendall(b'SET k%d %s\\r\\nGET k%d\\r\\n' % (at, value, at))
        want = b'+OK\\r\\n$%d\\r\\n%s\\r\\n' % (len(value), value)
        got = b''
        while len(got) < len(want): got += s.recv(1000)
        assert got == want, (got, want)
print('right')
";
    check_server(&setting, &["redis-server", "--port", &port, "--save", ""], &port, script);
}

#[test]
fn memcached_with_workers_answers_by_rings() {
    let setting = Setting::new("threads-memcached");
    let port = free_address().port().to_string();
    let script = "
import socket, sys
sockets = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in range(4)]
for i in range(1500):
    for at, s in enumerate(sockets):
        value = b'%d' % (i * 7919 + at) * (i % 50 + 1)
        s.sendall(b'set k%d 0 0 %d\\r\\n%s\\r\\nget k%d\\r\\n' % (at, len(value), value, at))
        want = b'STORED\\r\\nVALUE k%d 0 %d\\r\\n%s\\r\\nEND\\r\\n' % (at, len(value), value)
        got = b''
        while len(got) < len(want): got += s.recv(1000)
        assert got == want, (got, want)
print('right')
";
    let server = ["memcached", "-u", "root", "-l", "127.0.0.1", "-U", "0", "-t", "4", "-p", &port];
    check_server(&setting, &server, &port, script);
}
