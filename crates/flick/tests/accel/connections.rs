//! Connections of TCP and Unix sockets that move to rings: no byte is lost, doubled or out of order, and ends, errors
//! and resets stay those of the kernel, whatever happens to the programs. Each comparison requires that bytes went
//! through rings.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use super::moving::{kill_one_end, pids, rounds, setting_with, signal, start, state_of};
use super::{Setting, run};
use crate::common::wait;

/// Time in which a connection has to move early and to stay in its rings.
const STAYED_MAX: Duration = Duration::from_secs(120);
const FAMILIES: [&str; 3] = ["tcp", "unix", "pair"];

fn setting(name: &str) -> Setting {
    setting_with(&format!("connections-{name}"), "sockets")
}

#[test]
fn answers_and_uploads_pass_each_byte() {
    let setting = setting("bytes");
    for family in FAMILIES {
        setting.check(&[&format!("./sockets {family} echo 5000000")]);
        setting.check(&[&format!("./sockets {family} upload 9000000")]);
    }
}

#[test]
fn stream_continues_after_calls_that_a_ring_does_not_serve() {
    let setting = setting("events");
    for (family, events) in [
        ("tcp", "poll fork"),
        ("tcp", "timeout dup"),
        ("unix", "fork poll"),
        ("unix", "dup timeout"),
        ("pair", "fork fork"),
    ] {
        setting.check(&[&format!("./sockets {family} echo 5000000 {events}")]);
    }
    setting.check(&["./sockets tcp upload 5000000 flags", "./sockets pair upload 5000000 flags"]);
    setting.check(&["./sockets tcp halves 5000000", "./sockets unix halves 5000000"]);
}

#[test]
fn calls_with_an_address_returned_a_connection_to_the_kernel() {
    setting("addressed").check(&["./sockets tcp echo 5000000 addressed addressed"]);
}

/// php looks so at a connection that lasts when a page begins.
#[test]
fn looks_at_what_comes_returned_a_connection_to_the_kernel() {
    let setting = setting("looks");
    for family in FAMILIES {
        setting.check(&[&format!("./sockets {family} echo 3000000 looks looks")]);
        setting.check(&[&format!("./sockets {family} upload 5000000 looks")]);
    }
    let script = r#"
import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    theirs = socket.create_connection(listener.getsockname())
    listener.close()
    while data := theirs.recv(100): theirs.sendall(data)
    os._exit(0)
ours = listener.accept()[0]
for _ in range(20000):
    ours.sendall(b'a question')
    while len(ours.recv(10, socket.MSG_PEEK)) < 10: pass
    assert ours.recv(10) == b'a question'
    try: assert not ours.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError: pass
print('asked')
"#;
    setting.scratch.write("looks.py", script);
    let has_stayed = wait::within(STAYED_MAX, || {
        let (status, stdout, stderr) = run(setting.moved("/usr/bin/python3 looks.py"));
        assert_eq!((status, stdout.as_str()), (0, "asked\n"), "{stderr}");
        // Of 400,000 bytes that each end sends and receives; it leaves within a page if a look is not served.
        let bytes = setting.ring_bytes();
        setting.forget();
        (bytes > 200_000).then_some(())
    });
    assert!(has_stayed.is_some(), "the connection did not stay in its rings");
}

#[test]
fn unread_bytes_of_an_end_that_closes_or_dies_reset_the_connection() {
    let setting = setting("reset");
    for family in FAMILIES {
        setting.check(&[&format!("./sockets {family} reset 1000000")]);
        setting.check(&[&format!("./sockets {family} reset 1000000 die 2>/dev/null")]);
    }
}

#[test]
fn bytes_that_a_dead_sender_has_sent_are_read() {
    let setting = setting("dead");
    for family in FAMILIES {
        setting.check(&[&format!("./sockets {family} upload 9000000 x die")]);
    }
}

#[test]
fn stopped_end_holds_up_its_own_connection_only() {
    let setting = setting("stops");
    let program = "./sockets tcp echo 9000000 x stop";
    let child = start(&setting, program);
    let pid = wait::until("the stop", || {
        pids(&setting, program).into_iter().find(|pid| state_of(*pid) == Some('T'))
    });
    signal(pid, Signal::CONT);
    let output = child.wait_with_output().expect("our own child");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "9000000\nchild 0\n");
}

#[test]
fn killed_ends_at_any_moment_leave_a_prefix() {
    let setting = setting("kills");
    for round in 0..rounds(6) {
        let mode = ["echo", "upload"][round / 3 % 2];
        let program = format!("./sockets {} {mode} 900000000000", FAMILIES[round % 3]);
        let stderr = kill_one_end(&setting, &program, round, round / 3 % 2 == 0);
        assert!(!stderr.contains("wrong byte"), "{stderr}");
    }
}

#[test]
fn python_server_that_forks_for_each_connection_serves_by_rings() {
    let setting = setting("forking");
    let script = r#"
import os, socket, socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(5000): self.request.sendall(data)
server = socketserver.ForkingTCPServer(('127.0.0.1', 0), Echo)
client = os.fork()
if client == 0:
    connection = socket.create_connection(server.server_address)
    server.server_close()
    for i in range(int(sys.argv[1])):
        data = bytes([i % 251]) * (i * 7919 % 5000 + 1)
        connection.sendall(data)
        while data:
            got = connection.recv(len(data))
            assert got == data[:len(got)] and got
            data = data[len(got):]
    os._exit(0)
server.handle_request()
print(os.waitpid(client, 0)[1])
"#;
    setting.scratch.write("forking.py", script);
    setting.check(&["/usr/bin/python3 forking.py 20000"]);
}

#[test]
fn event_loops_of_python_pass_each_byte_by_rings() {
    let setting = setting("asyncio");
    let script = r#"
import asyncio, os, random, select, socket, sys
def serve(listener, child):
    watched, connections = select.epoll(), {}
    watched.register(listener, select.EPOLLIN)
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        for fd, _ in watched.poll(0.05):
            if fd == listener.fileno():
                connection = listener.accept()[0]
                connection.setblocking(False)
                connections[connection.fileno()] = connection
                watched.register(connection, select.EPOLLIN)
                continue
            try: data = connections[fd].recv(100000)
            except BlockingIOError: continue
            # A file that is closed is not taken out of the epoll instance before.
            if not data: connections.pop(fd).close()
            while data:
                try: data = data[connections[fd].send(data):]
                except BlockingIOError: select.select([], [fd], [])
async def ask(port, seed, count):
    reader, writer = await asyncio.open_connection('127.0.0.1', port)
    values = random.Random(seed)
    for _ in range(count):
        size = 300000 if values.random() < 0.005 else values.randrange(1, 300)
        data = values.randbytes(size)
        writer.write(data)
        assert await reader.readexactly(size) == data
    writer.close()
async def ask_all(port):
    # The first connections end before they move; the others have their descriptors.
    for count in [3, int(sys.argv[1])]:
        for task in [asyncio.create_task(ask(port, seed, count)) for seed in range(3)]: await task
listener = socket.create_server(('127.0.0.1', 0))
child = os.fork()
if child == 0:
    port = listener.getsockname()[1]
    listener.close()
    asyncio.run(ask_all(port))
    print('answered', flush=True)
    os._exit(0)
serve(listener, child)
"#;
    setting.scratch.write("loops.py", script);
    setting.check(&["/usr/bin/python3 loops.py 3000"]);
}

#[test]
fn status_names_what_carries_a_connection() {
    let setting = setting("status");
    let program = "./sockets unix echo 900000000000";
    let mut child = {
        let mut command = setting.moved(program);
        command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        command.spawn().expect("it starts")
    };
    wait::until("the ring", || {
        let processes = setting.status();
        let files = processes.iter().filter_map(|process| process["files"].as_array()).flatten();
        let by_ring = files.filter(|file| file["kind"] == "unix" && file["transport"] == "ring");
        (by_ring.count() == 2).then_some(())
    });
    for pid in pids(&setting, program) {
        signal(pid, Signal::KILL);
    }
    child.wait().expect("our own child");
}
