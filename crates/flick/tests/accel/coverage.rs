//! Every hooked system call of real programs, judged by the address that it is made from: strace reports it.
//! A call is seen if it is made by the library, or by a `syscall` of libc that is reached through a stub.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::{Command, Stdio};

use flick_preload::image::Image;
use flick_preload::numbers::HOOKED;

use super::{Setting, end, free_address, run};
use crate::common::wait;

/// Begin of a stub's end: `lea r11, [rip + 6]`, `jmp [rip + entry]`; two jumps follow.
const STUB_END: &[u8] = &[0x4c, 0x8d, 0x1d, 6, 0, 0, 0, 0xff, 0x25];

/// Calls that strace shows but that have no address to judge: one is patched at the begin of its function.
const NOT_JUDGED: &[&str] = &["exit_group", "syscall"];

/// The addresses behind each `syscall` of libc that a stub leads to, from libc's base.
fn seen_addresses(setting: &Setting) -> BTreeSet<u64> {
    let files =
        std::fs::read_dir(setting.installed()).expect("installed").flatten().map(|entry| entry.path());
    let text =
        files.into_iter().find(|path| path.extension().is_some_and(|end| end == "text")).expect("a text");
    let bytes = std::fs::read(text).expect("readable");
    let image = Image::parse(&bytes).expect("what flick has written");
    let stubs = &bytes[image.stub_offset() as usize..][..image.stub_bytes() as usize];
    let target = |site: flick_preload::image::Site| {
        let stub = &stubs[site.stub as usize..];
        let end =
            stub.windows(STUB_END.len()).position(|bytes| bytes == STUB_END).expect("each stub has one");
        let jump = end + STUB_END.len() + 4;
        let distance = i32::from_le_bytes(stub[jump + 1..jump + 5].try_into().expect("four bytes"));
        let from = i64::from(site.stub) + jump as i64 + 5 - i64::from(image.stubs_below());
        u64::try_from(from + i64::from(distance)).expect("it is in libc") + 2
    };
    image.sites().map(target).collect()
}

/// The memory of a process, as far as it matters.
#[derive(Clone, Default)]
struct Memory {
    libc: Option<u64>,
    library: Option<(u64, u64)>,
}

/// Calls by how they were made.
#[derive(Default)]
struct Tally {
    seen: BTreeMap<String, u64>,
    missed: Vec<String>,
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

/// Notes where libc and the library are mapped for execution.
fn note_mapping(memory: &mut Memory, call: &str) -> Option<()> {
    let (arguments, result) = call.strip_prefix("mmap(")?.rsplit_once(" = ")?;
    let fields: Vec<&str> = arguments.trim_end_matches(')').split(", ").collect();
    let (bytes, offset, start) =
        (fields[1].parse::<u64>().ok()?, hexadecimal(fields[5])?, hexadecimal(result)?);
    if !fields[2].contains("PROT_EXEC") {
        return None;
    }
    if fields[4].contains("/libflick_preload.so>") {
        memory.library = Some((start, start + bytes));
    } else if fields[4].contains("/libc.so.6>") {
        memory.libc = Some(start - offset);
    }
    Some(())
}

/// Whether a call reads or closes a file with a path, not a socket or pipe: the loader does so with libraries, and libc
/// reads its own files (`/etc/hosts`) by a function that cannot be patched.
fn is_of_file(call: &str) -> bool {
    let descriptor = call.split_once('<').map_or("", |(_, rest)| rest);
    (call.starts_with("read(") || call.starts_with("close(")) && descriptor.starts_with('/')
}

/// Judges each line of a log.
fn judge(log: &str, seen: &BTreeSet<u64>) -> Tally {
    let (mut tally, mut memories, mut last_parent) = (Tally::default(), HashMap::new(), String::new());
    for line in log.lines() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let Some((address, call)) = rest.trim_start().trim_start_matches('[').split_once("] ") else {
            continue;
        };
        let Some(address) = hexadecimal(address) else { continue };
        if !memories.contains_key(pid) {
            let inherited = memories.get(&last_parent).cloned().unwrap_or_default();
            memories.insert(pid.to_owned(), inherited);
        }
        let memory: &mut Memory = memories.get_mut(pid).expect("inserted above");
        let name = call.split('(').next().unwrap_or_default();
        let is_exec = call.starts_with("execve") || call.starts_with("<... execve");
        if is_exec && call.ends_with(" = 0") {
            *memory = Memory::default();
            continue;
        }
        note_mapping(memory, call);
        if matches!(name, "clone" | "clone3" | "vfork" | "fork") {
            last_parent = pid.to_owned();
        }
        let (Some(library), Some(libc)) = (memory.library, memory.libc) else { continue };
        let is_hooked = HOOKED.iter().any(|hooked| hooked.1.to_lowercase() == name);
        if !is_hooked || NOT_JUDGED.contains(&name) || is_of_file(call) {
            continue;
        }
        let is_seen = (library.0..library.1).contains(&address) || seen.contains(&address.wrapping_sub(libc));
        if is_seen {
            *tally.seen.entry(name.to_owned()).or_default() += 1;
        } else {
            tally.missed.push(format!("{line} (libc at {libc:#x})"));
        }
    }
    tally
}

/// A command that runs under strace.
fn traced(setting: &Setting, program: &[&str]) -> Command {
    let accel = setting.accel(&["--"]);
    let names: Vec<String> = HOOKED.iter().map(|call| call.1.to_lowercase()).collect();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-i", "-y", "-qq", "-s", "0", "-e", "signal=none", "-o"]).arg(setting.path("log"));
    strace.arg("-e").arg(format!("trace=mmap,{}", names.join(",")));
    strace.arg(accel.get_program()).args(accel.get_args()).args(program);
    strace.envs(accel.get_envs().filter_map(|(name, value)| Some((name, value?))));
    strace.stdin(Stdio::null());
    strace
}

/// Checks that no call was missed, and that each of `expected` was seen.
fn check(setting: &Setting, expected: &[&str]) {
    let log = std::fs::read_to_string(setting.path("log")).expect("strace has written it");
    let tally = judge(&log, &seen_addresses(setting));
    assert!(tally.missed.is_empty(), "not seen: {:#?}", tally.missed);
    for call in expected {
        assert!(tally.seen.contains_key(*call), "no `{call}` in {:?}", tally.seen);
    }
}

#[test]
fn each_call_of_python_is_seen() {
    let setting = Setting::new("coverage-python");
    let script = "
import http.server, threading, urllib.request, subprocess, os, socket, array
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
urllib.request.urlopen(f'http://127.0.0.1:{server.server_port}/Cargo.toml').read()
subprocess.run(['true'], stdout=subprocess.PIPE)
os.popen('seq 1000 | sort -n | grep 1 | wc -l').read()
a, b = socket.socketpair()
socket.send_fds(a, [b'x'], [0])
socket.recv_fds(b, 1, 1)
os.writev(a.fileno(), [b'ab', b'c'])
os.readv(b.fileno(), [bytearray(3)])
os.dup2(os.dup(a.fileno()), 50)
if os.fork() == 0:
    os._exit(0)
os.wait()
server.shutdown()
";
    let (status, _, stderr) = run(traced(&setting, &["/usr/bin/python3", "-c", script]));
    assert_eq!(status, 0, "{stderr}");
    let expected = [
        "socket",
        "connect",
        "accept4",
        "sendto",
        "recvfrom",
        "read",
        "write",
        "close",
        "pipe2",
        "dup2",
        "sendmsg",
        "recvmsg",
        "writev",
        "readv",
        "socketpair",
        "listen",
        "execve",
        "fcntl",
    ];
    check(&setting, &expected);
}

#[test]
fn each_call_of_redis_and_nginx_is_seen() {
    for name in ["redis", "nginx"] {
        let setting = Setting::new(&format!("coverage-{name}"));
        let address = free_address();
        let port = address.port().to_string();
        let root = setting.scratch.path().to_str().expect("a path in UTF-8").to_owned();
        let text = format!(
            "daemon off; master_process off; pid {root}/pid; error_log {root}/error; events {{ }}
http {{ access_log {root}/access; client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f;
uwsgi_temp_path {root}/u; scgi_temp_path {root}/s; sendfile on; server {{ listen {address}; root {root}; }} }}"
        );
        let file = setting.scratch.write("nginx.conf", &text);
        let file = file.to_str().expect("a path in UTF-8");
        let command: &[&str] = match name {
            "redis" => &["redis-server", "--port", &port, "--save", ""],
            _ => &["nginx", "-e", "stderr", "-p", &root, "-c", file],
        };
        let server = traced(&setting, command).stdout(Stdio::null()).spawn().expect("strace is installed");
        wait::until("the server to accept", || std::net::TcpStream::connect(address).ok());
        let client: &[&str] = match name {
            "redis" => &["redis-cli", "-p", &port, "set", "a", "b"],
            _ => &["curl", "-s", "-o", "/dev/null", &format!("http://{address}/nginx.conf")],
        };
        assert_eq!(run(setting.verified(client)).0, 0);
        // A signal to strace would not reach the server.
        match name {
            "redis" => drop(run(setting.verified(&["redis-cli", "-p", &port, "shutdown", "nosave"]))),
            _ => {
                drop(run(setting.verified(&["nginx", "-e", "stderr", "-p", &root, "-c", file, "-s", "stop"])))
            }
        }
        end(server, rustix::process::Signal::CONT);
        let expected: &[&str] = match name {
            "redis" => &["socket", "listen", "read", "write", "close"],
            _ => &["socket", "listen", "recvfrom", "writev", "sendfile", "close"],
        };
        check(&setting, expected);
    }
}
