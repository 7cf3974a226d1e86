//! `flick accel` with unmodified programs: their calls are seen and change nothing; counted bytes equal the kernel's.
//! The hazards of a preloaded library are in `accel/hazards.c`, one case each.
#![cfg(target_arch = "x86_64")]

mod common;

#[path = "accel/calls.rs"]
mod calls;
#[path = "accel/connections.rs"]
mod connections;
#[path = "accel/coverage.rs"]
mod coverage;
#[path = "accel/filters.rs"]
mod filters;
#[path = "accel/handlers.rs"]
mod handlers;
#[path = "accel/moving.rs"]
mod moving;
#[path = "accel/pairs.rs"]
mod pairs;
#[path = "accel/programs.rs"]
mod programs;
#[path = "accel/registrations.rs"]
mod registrations;
#[path = "accel/signals.rs"]
mod signals;
#[path = "accel/threads.rs"]
mod threads;
#[path = "accel/waits.rs"]
mod waits;

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::peers::free_address;
use common::{Scratch, captured, flick, wait};
use programs::end;
use serde_json::Value;

/// Directories of one test: the states, and the library with its patched text.
struct Setting {
    scratch: Scratch,
}

impl Setting {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(&format!("accel-{name}"));
        for directory in ["run", "cache"] {
            std::fs::create_dir(scratch.path().join(directory)).expect("the directory can be written");
        }
        Self { scratch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// `flick accel` with these arguments.
    fn accel(&self, arguments: &[&str]) -> Command {
        let mut command = flick();
        command.env("XDG_RUNTIME_DIR", self.path("run")).env("XDG_CACHE_HOME", self.path("cache"));
        command.env_remove("LD_PRELOAD").arg("accel").args(arguments);
        command
    }

    /// Starts a program whose counts are compared.
    fn verified(&self, program: &[&str]) -> Command {
        let mut command = self.accel(&["--verify", "--"]);
        command.args(program);
        command
    }

    /// The processes that `--status` shows.
    fn status(&self) -> Vec<Value> {
        let (status, stdout, stderr) = run(self.accel(&["--status", "--json"]));
        assert_eq!((status, stderr.as_str()), (0, ""));
        serde_json::from_str(&stdout).expect("the status is JSON")
    }

    /// One of the processes that `--status` shows.
    fn of(&self, pid: u32) -> Value {
        let found = self.status().into_iter().find(|process| process["pid"] == pid);
        found.unwrap_or_else(|| panic!("process {pid} has no state"))
    }

    /// The directory of the library, once a program was started.
    fn installed(&self) -> PathBuf {
        let cache = self.path("cache/flick");
        let mut entries = std::fs::read_dir(cache).expect("the library is installed");
        entries.next().expect("one version").expect("it is readable").path()
    }
}

fn run(mut command: Command) -> (i32, String, String) {
    captured(command.output().expect("the program starts"))
}

/// Compiles a C program.
fn compile(source: &Path, program: &Path, options: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-pthread", "-fexceptions", "-o"]).arg(program).arg(source).args(options);
    let Output { status, stderr, .. } = cc.output().expect("a C compiler is what rustc links with");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
}

/// Runs a case without the library and with it, and returns the states of its processes.
fn hazard(name: &str) -> Vec<Value> {
    let setting = Setting::new(&format!("hazard-{name}"));
    let program = setting.path("hazards");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accel/hazards.c");
    compile(&source, &program, &[]);
    let plain = run({
        let mut command = Command::new(&program);
        command.arg(name);
        command
    });
    // `exec_scrubbed` and `seen` look for the library; all other cases hold without it.
    let needs_library = ["exec_scrubbed", "seen", "deny_write_execute"].contains(&name);
    assert_eq!(plain.0 == 0, !needs_library, "without the library: {plain:?}");
    let program = program.to_str().expect("a path in UTF-8");
    let (status, stdout, stderr) = run(setting.verified(&[program, name]));
    assert_eq!((status, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.lines().all(|line| line == "ok") && !stdout.is_empty(), "{stdout}");
    let processes = setting.status();
    for process in &processes {
        assert_eq!(
            (&process["method"], &process["closed"]["different"]),
            (&"patched-text".into(), &0.into())
        );
    }
    processes
}

#[test]
fn cancelled_thread_leaves_each_call_and_cleans_up() {
    hazard("cancel");
}

#[test]
fn vfork_and_posix_spawn_beside_threads_change_no_table() {
    let processes = hazard("vforks");
    let files = processes.iter().flat_map(|process| process["files"].as_array().expect("a list"));
    let pipe: Vec<_> = files.filter(|file| file["kind"] == "pipe-read" && file["received"] == 3).collect();
    // The children have closed it; had that changed the table, it would be one that was adopted afterwards.
    assert!(
        pipe.len() == 1 && !pipe[0]["flags"].as_array().expect("a list").contains(&"adopted".into()),
        "{pipe:?}"
    );
}

#[test]
fn thread_forks_while_others_call() {
    hazard("fork_from_thread");
}

#[test]
fn signal_handler_jumps_out_of_hooks() {
    hazard("jumps");
}

#[test]
fn exec_without_environment_keeps_the_library() {
    hazard("exec_scrubbed");
}

#[test]
fn patched_text_is_mapped_where_mprotect_is_refused() {
    hazard("deny_write_execute");
}

#[test]
fn errors_are_those_of_the_kernel() {
    hazard("errors");
}

/// A filter between two pipes of the test.
fn filter(setting: &Setting, program: &[&str]) -> Child {
    let mut command = setting.accel(&["--"]);
    command.args(program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command.spawn().expect("the filter starts")
}

#[test]
fn stdio_filters_count_each_byte_of_their_pipes() {
    let setting = Setting::new("filters");
    let python = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)";
    for program in [
        &["cat"][..],
        &["sed", "-u", "s/a/a/"],
        &["grep", "--line-buffered", "a"],
        &["/usr/bin/python3", "-c", python],
    ] {
        let mut child = filter(&setting, program);
        let (mut stdin, mut stdout) =
            (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let text = "a line of the test\n".repeat(500);
        let writer = std::thread::spawn(move || {
            stdin.write_all(text.as_bytes()).expect("the filter reads");
            stdin
        });
        let mut answer = vec![0; 19 * 500];
        stdout.read_exact(&mut answer).expect("the filter writes");
        let stdin = writer.join().expect("written");
        // The last write is counted after this test has read it.
        wait::until("the filter's counts", || {
            let state = setting.of(child.id());
            let files = state["files"].as_array().expect("a list");
            let end = |kind: &str, count: &str| {
                files.iter().find(|file| file["kind"] == kind).and_then(|file| file[count].as_u64())
            };
            let counted = (end("pipe-read", "received"), end("pipe-write", "sent"));
            (counted == (Some(19 * 500), Some(19 * 500))).then_some(())
        });
        drop(stdin);
        assert!(child.wait().expect("our own child").success());
    }
    assert!(setting.status().is_empty(), "a process that exits removes its state");
}

/// Waits for a line, so that the program is in its main function.
fn start_and_wait(mut command: Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut byte = [0];
    child.stdout.as_mut().expect("piped").read_exact(&mut byte).expect("the program writes");
    child
}

#[test]
fn static_program_runs_and_why_says_that_it_is_static() {
    let setting = Setting::new("static");
    let text = "#include <unistd.h>\nint main(void) { char c; write(1, \"x\", 1); return read(0, &c, 1); }\n";
    let source = setting.scratch.write("static.c", text);
    let program = setting.path("program");
    compile(&source, &program, &["-static"]);
    let program = program.to_str().expect("a path in UTF-8");
    // The shell has a state; its successor of the same number has none.
    let mut child = start_and_wait(setting.accel(&["--", "sh", "-c", &format!("exec {program}")]));
    let pid = child.id().to_string();
    let (status, stdout, stderr) = run(setting.accel(&["--why", &pid]));
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert!(stdout.ends_with("calls are not seen: it is statically linked\n"), "{stdout}");
    drop(child.stdin.take());
    assert!(child.wait().expect("our own child").success());
    let (_, stdout, stderr) = run(setting.accel(&["--", program]));
    let note = format!("note: calls of `{program}` are not seen: it is statically linked\n");
    assert_eq!((stdout.as_str(), stderr), ("x", note));
    let own = run(setting.accel(&["--why", &std::process::id().to_string()])).1;
    assert!(own.ends_with("calls are not seen: it was not started with `flick accel`\n"), "{own}");
}

/// Starts `cat` with the installed library, without the command line, and returns what `--why` says.
fn why_of_cat(setting: &Setting) -> String {
    let mut cat = Command::new("cat");
    cat.env("LD_PRELOAD", setting.installed().join("libflick_preload.so"));
    cat.env("FLICK_ACCEL_STATE", setting.path("run/flick-accel"));
    let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat is there");
    // A byte that returns says that the library has started.
    child.stdin.as_mut().expect("piped").write_all(b"x").expect("cat reads");
    child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("cat writes");
    let why = run(setting.accel(&["--why", &child.id().to_string()])).1;
    drop(child.stdin.take());
    assert!(child.wait().expect("our own child").success());
    why
}

#[test]
fn patched_text_that_differs_from_libc_is_not_used() {
    let setting = Setting::new("differs");
    assert_eq!(run(setting.accel(&["--", "true"])).0, 0);
    let files =
        std::fs::read_dir(setting.installed()).expect("installed").flatten().map(|entry| entry.path());
    let text =
        files.into_iter().find(|path| path.extension().is_some_and(|end| end == "text")).expect("a text");
    let good = std::fs::read(&text).expect("readable");
    assert!(why_of_cat(&setting).contains("patched-text"));

    let mut bytes = good.clone();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&text, &bytes).expect("writable");
    let why = why_of_cat(&setting);
    assert!(why.contains("plain, 0 call sites") && why.contains("other bytes than its file"), "{why}");

    std::fs::write(&text, &good[..good.len() / 2]).expect("writable");
    assert!(why_of_cat(&setting).contains("the patched text is of another version of flick"));

    std::fs::remove_file(&text).expect("ours");
    assert!(why_of_cat(&setting).contains("there is no patched text of the process's libc"));
    assert_eq!(run(setting.accel(&["--", "true"])).0, 0);
    assert!(why_of_cat(&setting).contains("patched-text"), "the next start makes it again");
}

#[test]
fn help_says_that_nothing_is_moved_without_an_option() {
    let (status, stdout, _) = run({
        let mut command = flick();
        command.args(["accel", "--help"]);
        command
    });
    assert_eq!(status, 0);
    assert!(stdout.contains("Without `--move` nothing is moved"), "{stdout}");
}

#[test]
fn another_preloaded_library_works_beside() {
    let setting = Setting::new("faketime");
    let (status, stdout, stderr) = run(setting.verified(&["faketime", "2001-02-03 04:05:06", "date", "+%Y"]));
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (0, "2001\n", ""));
    for process in setting.status() {
        assert_eq!(process["method"], "patched-text", "{process}");
    }
}

#[test]
fn passed_descriptor_is_marked_as_shared_and_io_uring_as_not_followed() {
    let setting = Setting::new("marks");
    let script = "
import ctypes, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
kept = socket.create_connection(listener.getsockname())
passed = socket.create_connection(listener.getsockname())
a, b = socket.socketpair()
socket.send_fds(a, [b'x'], [passed.fileno()])
ctypes.CDLL(None).syscall(425, 1, None)
print(kept.fileno(), passed.fileno(), flush=True)
sys.stdin.read()
";
    let mut command = setting.accel(&["--", "/usr/bin/python3", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python starts");
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut stdout, &mut line).expect("python writes");
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let state = setting.of(child.id());
    let is_shared = |fd: u64| {
        let files = state["files"].as_array().expect("a list");
        let file =
            files.iter().find(|file| file["fd"] == fd && file["kind"] == "tcp").expect("it is entered");
        file["flags"].as_array().expect("a list").contains(&"shared".into())
    };
    assert_eq!((is_shared(numbers[0]), is_shared(numbers[1])), (false, true), "{state}");
    let reasons = state["not_followed"].as_array().expect("a list");
    assert!(reasons.iter().any(|why| why.as_str().is_some_and(|why| why.contains("io_uring"))), "{state}");
    drop(child.stdin.take());
    assert!(child.wait().expect("our own child").success());
}

#[test]
fn status_did_not_count_closed_connections_or_say_why_everything_stays() {
    let setting = Setting::new("closed");
    let script = "
import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
for _ in range(3):
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    client.sendall(b'x' * 1000)
    server.recv(1000, socket.MSG_WAITALL)
    same = client.dup()
    client.close()
    server.close()
    same.close()
os.setresuid(-1, -1, -1)
print(flush=True)
sys.stdin.read()
";
    let mut command = setting.accel(&["--move", "--", "/usr/bin/python3", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python starts");
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut stdout, &mut String::new()).expect("python writes");
    let state = setting.of(child.id());
    let closed = &state["closed"];
    assert_eq!(
        [&closed["files"], &closed["sent"], &closed["received"]],
        [&Value::from(6), &Value::from(3000), &Value::from(3000)],
        "{state}"
    );
    let why = state["why_stays"].as_str().expect("it has called setresuid");
    assert!(why.contains("has changed its user"), "{why}");
    let (_, text, _) = run(setting.accel(&["--why", &child.id().to_string()]));
    for line in ["everything stays in the kernel: the process has changed its user", "6 closed, sent 3000"] {
        assert!(text.contains(line), "{text}");
    }
    drop(child.stdin.take());
    assert!(child.wait().expect("our own child").success());
}

#[test]
fn program_was_not_started_where_its_calls_could_not_be_seen() {
    let setting = Setting::new("unwritable");
    for variable in ["XDG_CACHE_HOME", "XDG_RUNTIME_DIR"] {
        let mut command = setting.accel(&["--", "sh", "-c", "echo out; exit 3"]);
        // Not even root makes directories there.
        command.env(variable, "/proc");
        let (status, stdout, stderr) = run(command);
        assert_eq!((status, stdout.as_str()), (3, "out\n"), "{stderr}");
        assert!(stderr.starts_with("note: calls of `sh` are not seen: "), "{stderr}");
    }
}

#[test]
fn program_that_cannot_be_started_has_the_status_of_a_shell() {
    let setting = Setting::new("missing");
    assert_eq!(run(setting.accel(&["--", "/no/such/program"])).0, 127);
    assert_eq!(run(setting.accel(&["--", "/"])).0, 126);
}

#[test]
fn closed_descriptors_were_open_and_ignored_and_blocked_signals_were_not() {
    let setting = Setting::new("inherited");
    let script = "
import os, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL if sys.argv[1] == 'default' else signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGPIPE])
for number in [0, 2]:
    os.close(number)
os.execv(sys.argv[2], sys.argv[2:])
";
    for action in ["default", "ignore"] {
        let inherits = |program: &[&str]| {
            let mut python = setting.accel(&[]);
            let flick = python.get_program().to_str().expect("a path in UTF-8").to_owned();
            let program: Vec<_> =
                program.iter().map(|it| if *it == "flick" { flick.as_str() } else { *it }).collect();
            let environment: Vec<_> = python
                .get_envs()
                .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
                .collect();
            python = Command::new("/usr/bin/python3");
            python.envs(environment).args(["-c", script, action]).args(program);
            run(python)
        };
        for program in
            [&["/bin/grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"][..], &["/bin/ls", "/proc/self/fd"]]
        {
            let plain = inherits(program);
            assert_eq!(plain.0, 0, "{plain:?}");
            let accelerated = inherits(&[&["flick", "accel", "--"][..], program].concat());
            assert_eq!(accelerated, plain, "SIGPIPE: {action}");
        }
    }
}

#[test]
fn limit_of_file_sizes_killed_the_program() {
    let setting = Setting::new("file-limit");
    let limited = |bytes: u64| {
        let mut command = Command::new("prlimit");
        let accel = setting.accel(&["--", "cat"]);
        command.arg(format!("--fsize={bytes}")).arg(accel.get_program()).args(accel.get_args());
        command.envs(accel.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("prlimit is there")
    };
    let beside = |bytes: u64| {
        let mut child = limited(bytes);
        child.stdin.as_mut().expect("piped").write_all(b"x").expect("cat reads");
        child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("cat writes");
        let processes = setting.status();
        (captured(child.wait_with_output().expect("our own child")), processes)
    };
    // No state can be written, or not the patched text.
    for (bytes, note) in [(0, "note: calls of `cat` are not seen: "), (64 << 10, "note: ")] {
        let ((status, _, stderr), _) = beside(bytes);
        assert_eq!(status, 0, "{stderr}");
        assert!(stderr.starts_with(note) && stderr.contains("`ulimit -f`"), "{stderr}");
    }
    assert_eq!(run(setting.accel(&["--", "true"])), (0, String::new(), String::new()));
    let ((status, _, stderr), processes) = beside(64 << 10);
    assert_eq!((status, processes.len(), stderr.as_str()), (0, 1, ""));
    let files = processes[0]["files"].as_array().expect("a list");
    assert!(files.iter().any(|file| file["received"] == 1), "{processes:?}");
}

/// A program of some lines of C, in the directory of a setting.
fn small_program(setting: &Setting, text: &str) -> String {
    let (source, program) = (setting.scratch.write("small.c", text), setting.path("small"));
    compile(&source, &program, &[]);
    program.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn process_that_ended_after_its_fork_made_a_table() {
    let setting = Setting::new("forks");
    let program = small_program(
        &setting,
        "#include <sys/wait.h>\n#include <unistd.h>\n\
         int main(void) { for (int i = 0; i < 9; i++) { if (fork() == 0) _exit(0); wait(0); } return 0; }\n",
    );
    let (status, _, stderr) = run(setting.verified(&[&program]));
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert_eq!(setting.status().len(), 1);
}

#[test]
fn short_connection_paid_for_the_cookie_of_its_socket() {
    let setting = Setting::new("cookie");
    let program = small_program(
        &setting,
        "#include <sys/socket.h>\n#include <unistd.h>\n\
         int main(void) { int ends[2]; char byte = 0; return socketpair(AF_UNIX, SOCK_STREAM, 0, ends)\n\
         || write(ends[0], &byte, 1) != 1 || read(ends[1], &byte, 1) != 1 || close(ends[0]) || close(ends[1]); }\n",
    );
    let log = setting.path("log");
    let trace = ["strace", "-qq", "-e", "trace=getsockopt,socketpair", "-o"].map(OsStr::new);
    let command = trace.into_iter().chain([log.as_os_str(), OsStr::new(&program)]);
    let (status, _, stderr) = run({
        let mut accel = setting.accel(&["--"]);
        accel.args(command);
        accel
    });
    assert_eq!((status, stderr.as_str()), (0, ""));
    let log = std::fs::read_to_string(log).expect("strace writes it");
    assert!(log.contains("socketpair") && !log.contains("getsockopt"), "{log}");
}

/// The files in the directory of states.
fn states(setting: &Setting) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(setting.path("run/flick-accel")).expect("the directory of states");
    entries.flatten().map(|entry| entry.path()).collect()
}

#[test]
fn killed_process_left_its_state_and_had_no_name() {
    let setting = Setting::new("killed");
    let start = |mut command: Command| {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat starts");
        child.stdin.as_mut().expect("piped").write_all(b"x").expect("cat reads");
        child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("cat writes");
        child
    };
    let mut child = start(setting.accel(&["--", "cat"]));
    assert_eq!(setting.of(child.id())["program"], "cat");
    child.kill().expect("our own child");
    child.wait().expect("our own child");
    assert!(setting.status().is_empty() && states(&setting).is_empty());

    let mut child = start(setting.verified(&["cat"]));
    child.kill().expect("our own child");
    child.wait().expect("our own child");
    let state = setting.of(child.id());
    assert_eq!((&state["program"], &state["ended"]), (&"cat".into(), &true.into()));

    // Another process has the number of one that was killed.
    let child = start(setting.accel(&["--", "cat"]));
    let file = setting.path(&format!("run/flick-accel/{}.state", child.id()));
    let file = std::fs::OpenOptions::new().write(true).open(file).expect("it has a state");
    let created = std::mem::offset_of!(flick_preload::state::ProcessTable, created_ns) as u64;
    std::os::unix::fs::FileExt::write_all_at(&file, &1_u64.to_le_bytes(), created).expect("it is ours");
    assert!(setting.status().is_empty() && states(&setting).is_empty());
    assert!(child.wait_with_output().expect("our own child").status.success());
}

#[test]
fn why_of_an_unknown_process_succeeded_and_ignored_json() {
    let setting = Setting::new("why");
    // No number of a process is as large.
    let (status, stdout, stderr) = run(setting.accel(&["--why", "4294967295", "--json"]));
    assert_eq!((status, stdout.as_str()), (1, ""));
    assert_eq!(stderr, "error: there is no process 4294967295, or it is another user's\n");
    let why = |pid: u32| -> Value {
        let (status, stdout, stderr) = run(setting.accel(&["--why", &pid.to_string(), "--json"]));
        assert_eq!((status, stderr.as_str()), (0, ""));
        serde_json::from_str(&stdout).expect("it is JSON")
    };
    let own = why(std::process::id());
    assert_eq!(own["why_not_seen"], "it was not started with `flick accel`");
    let mut child = filter(&setting, &["cat"]);
    child.stdin.as_mut().expect("piped").write_all(b"x").expect("cat reads");
    child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("cat writes");
    assert_eq!(why(child.id())["program"], "cat");
    assert!(child.wait_with_output().expect("our own child").status.success());
}

#[test]
fn why_said_that_a_process_that_has_ended_was_never_there() {
    let setting = Setting::new("why-ended");
    let mut child = Command::new("true").spawn().expect("`true` is there");
    let exe = format!("/proc/{}/exe", child.id());
    wait::until("its end", || std::fs::read_link(&exe).is_err().then_some(()));
    let (status, _, stderr) = run(setting.accel(&["--why", &child.id().to_string()]));
    let expected =
        format!("error: process {} has no program: it is a thread of the kernel, or has ended\n", child.id());
    assert_eq!((status, stderr), (1, expected));
    child.wait().expect("our own child");
}
