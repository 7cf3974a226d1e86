//! Counts of real servers and clients, compared with the kernel's at each close.

use std::process::{Child, Command, Stdio};

use super::{Setting, free_address, run};
use crate::common::wait;

/// Starts a server and waits until it accepts connections.
fn serve(setting: &Setting, command: &[&str], address: std::net::SocketAddr) -> Child {
    let mut server = setting.verified(command);
    let mut child = server.stdout(Stdio::null()).spawn().expect("the server starts");
    wait::until("the server to accept", || {
        assert!(child.try_wait().expect("our own child").is_none(), "{command:?} ended");
        std::net::TcpStream::connect(address).ok()
    });
    child
}

/// Sends a signal and waits until the process has ended.
pub fn end(mut child: Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, signal).expect("our own child");
    child.wait().expect("our own child");
}

fn client(setting: &Setting, command: &[&str]) -> String {
    let (status, stdout, stderr) = run(setting.verified(command));
    assert_eq!(status, 0, "{command:?}: {stdout}{stderr}");
    stdout
}

/// Checks the sums: no difference, and as many equal connections as were made.
fn check(setting: &Setting, equal_min: u64) {
    let (mut equal, mut different) = (0, Vec::new());
    for process in setting.status() {
        assert_eq!(process["method"], "patched-text", "{process}");
        equal += process["closed"]["equal"].as_u64().expect("a number");
        if process["closed"]["different"] != 0 {
            different.push(process);
        }
    }
    assert!(different.is_empty(), "{different:#?}");
    assert!(equal >= equal_min, "only {equal} connections were equal");
}

#[test]
fn redis_counts_what_the_kernel_counts() {
    let setting = Setting::new("redis");
    let address = free_address();
    let port = address.port().to_string();
    let server = ["redis-server", "--port", &port, "--save", "", "--io-threads", "2"];
    let server = serve(&setting, &server, address);
    client(&setting, &["redis-benchmark", "-p", &port, "-n", "2000", "-c", "10", "-q", "-t", "get,set"]);
    client(&setting, &["redis-cli", "-p", &port, "shutdown", "nosave"]);
    end(server, rustix::process::Signal::TERM);
    check(&setting, 2 * 20);
}

#[test]
fn memcached_counts_what_the_kernel_counts() {
    let setting = Setting::new("memcached");
    let address = free_address();
    let port = address.port().to_string();
    let server = ["memcached", "-u", "root", "-l", "127.0.0.1", "-U", "0", "-t", "4", "-p", &port];
    let server = serve(&setting, &server, address);
    let script = "
import socket, sys
sockets = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in range(8)]
for _ in range(10):
    for s in sockets:
        s.sendall(b'set k 0 0 5000\\r\\n' + b'x' * 5000 + b'\\r\\n')
        assert s.recv(8, socket.MSG_PEEK | socket.MSG_WAITALL) == s.recv(8, socket.MSG_WAITALL) == b'STORED\\r\\n'
        s.sendall(b'get k\\r\\n')
        assert len(s.recv(5023, socket.MSG_WAITALL)) == 5023
for s in sockets:
    s.close()
";
    client(&setting, &["/usr/bin/python3", "-c", script, &port]);
    end(server, rustix::process::Signal::TERM);
    check(&setting, 16);
}

#[test]
fn nginx_with_workers_and_reload_counts_what_the_kernel_counts() {
    let setting = Setting::new("nginx");
    let (proxy, backend) = (free_address(), free_address());
    let root = setting.scratch.path().to_str().expect("a path in UTF-8").to_owned();
    std::fs::create_dir(setting.path("www")).expect("writable");
    setting.scratch.write("www/large", &"x".repeat(300_000));
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {root}/{name}; "))
        .collect();
    let text = format!(
        "{user} worker_processes 2; daemon off; pid {root}/pid; error_log {root}/error;
events {{ worker_connections 128; }}
http {{ access_log off; {temporary} sendfile on;
upstream b {{ server {backend}; keepalive 4; }}
server {{ listen {proxy};
location / {{ proxy_pass http://b; proxy_http_version 1.1; proxy_set_header Connection ''; }} }}
server {{ listen {backend}; root {root}/www; }} }}"
    );
    let file = setting.scratch.write("nginx.conf", &text);
    let file = file.to_str().expect("a path in UTF-8");
    let server = serve(&setting, &["nginx", "-e", "stderr", "-p", &root, "-c", file], proxy);
    let url = format!("http://{proxy}/large");
    let wrk = client(&setting, &["wrk", "-c", "8", "-t", "2", "-d", "1", &url]);
    assert!(!wrk.contains("Non-2xx"), "{wrk}");
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("our own child");
    for _ in 0..3 {
        assert_eq!(client(&setting, &["curl", "-s", &url]).len(), 300_000);
    }
    end(server, rustix::process::Signal::QUIT);
    check(&setting, 8 + 3);
}

#[test]
fn python_server_of_threads_counts_what_the_kernel_counts() {
    let setting = Setting::new("python");
    let script = "
import http.server, threading, urllib.request, os, sys
os.chdir(sys.argv[1])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
for _ in range(20):
    assert len(urllib.request.urlopen(f'http://127.0.0.1:{server.server_port}/text').read()) == 70000
server.shutdown()
";
    setting.scratch.write("text", &"x".repeat(70_000));
    let root = setting.scratch.path().to_str().expect("a path in UTF-8");
    client(&setting, &["/usr/bin/python3", "-c", script, root]);
    check(&setting, 30);
}

/// At exit a duplicate is open, and its first number belongs to another connection.
#[test]
fn duplicate_is_not_compared_with_the_connection_of_its_first_number() {
    let setting = Setting::new("duplicate");
    let script = "
import os, socket
a = socket.create_server(('127.0.0.1', 0))
first = socket.create_connection(a.getsockname())
first.sendall(b'first')
os.dup2(first.fileno(), 60)
number = first.detach()
os.close(number)
second = socket.create_connection(a.getsockname())
assert second.fileno() == number
second.sendall(b'the second')
os._exit(0)
";
    client(&setting, &["/usr/bin/python3", "-c", script]);
    check(&setting, 1);
}

/// The other end reads nothing, so that the window is full of bytes, behind which the FIN waits.
#[test]
fn unsent_fin_of_a_shutdown_is_no_byte_that_was_sent() {
    let setting = Setting::new("unsent-fin");
    let script = "
import socket
a = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(a.getsockname())
s, _ = a.accept()
c.setblocking(False)
try:
    while True: c.send(b'x' * 100000)
except BlockingIOError:
    pass
c.shutdown(socket.SHUT_WR)
c.close()
while s.recv(1000000): pass
s.close()
";
    client(&setting, &["/usr/bin/python3", "-c", script]);
    check(&setting, 2);
}

/// A server that forks for each connection: what both processes hold is marked as shared, and never compared.
#[test]
fn connection_that_is_inherited_by_fork_is_marked_as_shared() {
    let setting = Setting::new("fork");
    let script = "
import os, socket, sys
a = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(a.getsockname())
s, _ = a.accept()
c.sendall(b'before')
assert s.recv(6) == b'before'
if os.fork() == 0:
    s.sendall(b'child')
    print('x', flush=True)
    sys.stdin.read()
    os._exit(0)
assert c.recv(5) == b'child'
os.wait()
";
    let mut command: Command = setting.accel(&["--", "/usr/bin/python3", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = super::start_and_wait(command);
    let states = setting.status();
    assert_eq!(states.len(), 2);
    for state in &states {
        let files = state["files"].as_array().expect("a list");
        let sockets: Vec<_> = files.iter().filter(|file| file["kind"] == "tcp").collect();
        assert_eq!(sockets.len(), 3, "{state}");
        for socket in sockets {
            let flags = socket["flags"].as_array().expect("a list");
            assert!(flags.iter().any(|flag| flag == "shared"), "{socket}");
        }
    }
    drop(child.stdin.take());
    child.wait().expect("our own child");
}
